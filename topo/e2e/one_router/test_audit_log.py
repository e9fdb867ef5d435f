# SPDX-License-Identifier: Apache-2.0
"""Tests the audit log of a running router: which discards and policy changes it contains, and its
rotation.
"""

import json
import os
from pathlib import Path
from typing import Any

from sluice_testkit.wait import wait_until

from .network import EVERYTHING, VERSIONS, OneRouter, udp
from .walking import Flow


def path_of(network: OneRouter) -> Path:
    return Path(network.controller.config["state_dir"]) / "audit.log"


def events(network: OneRouter) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path_of(network).read_text("utf-8").splitlines()]


def test_a_commit_is_logged_with_who_asked_for_it(network: OneRouter) -> None:
    (start,) = (one for one in events(network) if one["change"] == "start")
    assert (start["router"], start["asked_by"]) == (network.controller.config["router"], "router")
    assert path_of(network).stat().st_mode & 0o777 == 0o600
    network.commit("east", outbound=[udp("stop", "discard", 7000), EVERYTHING])
    commit = events(network)[-1]
    assert (commit["event"], commit["change"]) == ("policy changed", "commit")
    assert commit["spds"] == ["east"]
    assert commit["asked_by"] == {"uid": os.geteuid(), "pid": os.getpid()}
    (changed,) = commit["lists"]
    assert (changed["list"], changed["added"], changed["removed"]) == ("outbound", 1, 0)
    assert changed["digest"] == network.list_of("east")["digest"] != changed["digest_before"]


@VERSIONS
def test_a_discard_is_logged_where_its_rule_asks_for_it(network: OneRouter, version: int) -> None:
    """If a rule has `audit`, the audit log contains each packet that the controller discards by
    this rule after a search.

    Packets that the switch discards by a cached verdict are only counted. A rule without `audit`
    logs nothing.
    """
    with Flow(network, version) as quiet, Flow(network, version) as loud:
        rules = [
            udp("quiet", "discard", quiet.port),
            udp("loud", "discard", loud.port) | {"audit": True},
            EVERYTHING,
        ]
        network.commit("east", outbound=rules)
        quiet.send()
        wait_until(
            lambda: sum(network.rule("east", "quiet")) == 1, 10, "the rule `quiet` to match once"
        )
        loud.send(6)
        wait_until(
            lambda: sum(network.rule("east", "loud")) == 6, 10, "the rule `loud` to match six times"
        )
        searched = network.rule("east", "loud").searched
    discards = [one for one in events(network) if _is(one, loud)]
    assert len(discards) == searched >= 1
    discard = discards[0]
    assert discard["event"] == "discarded"
    assert (discard["spd"], discard["list"], discard["rule"]) == ("east", "outbound", "loud")
    assert discard["source"] == network.address("a", version)
    assert discard["destination"] == network.address("b", version)
    assert not any(_is(one, quiet) for one in events(network))


def _is(event: dict[str, Any], flow: Flow) -> bool:
    return bool(event.get("destination_port") == flow.port)


def test_a_rotated_log_is_begun_anew_without_a_signal(network: OneRouter) -> None:
    path_of(network).rename(path_of(network).with_suffix(".1"))
    network.sluice("flow-cache", "clear", "east")
    (cleared,) = events(network)
    assert cleared["change"] == "flow cache cleared"
    assert cleared["asked_by"]["uid"] == os.geteuid()
    counters = network.controller.ask(command="show", what="counters")["controller"]["audit"]
    assert counters["written: policy changed"] >= 2
