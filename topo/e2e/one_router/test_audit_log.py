# SPDX-License-Identifier: Apache-2.0
"""The audit log of a running router: who changed policy, and a file that may be rotated."""

import json
import os
from pathlib import Path
from typing import Any

from .network import EVERYTHING, OneRouter, udp


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


def test_a_rotated_log_is_begun_anew_without_a_signal(network: OneRouter) -> None:
    path_of(network).rename(path_of(network).with_suffix(".1"))
    network.sluice("flow-cache", "clear", "east")
    (cleared,) = events(network)
    assert cleared["change"] == "flow cache cleared"
    assert cleared["asked_by"]["uid"] == os.geteuid()
    counters = network.controller.ask(command="show", what="counters")["controller"]["audit"]
    assert counters["written: policy changed"] >= 2
