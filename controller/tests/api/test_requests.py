# SPDX-License-Identifier: Apache-2.0
"""Tests how requests find their handlers, and the requests that check, compare, commit and export
rules.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from policy_world import COMMIT, INBOUND, OUTBOUND, PolicyWorld, tcp
from sluice.api import rule_texts
from sluice.api.policy_views import in_rule_tables
from sluice.api.server import BadRequestError
from sluice.frr import read_frr
from sluice.policy.model import Action

RunScenario = Callable[..., None]


def file(text: str, name: str = "corp.yaml") -> dict[str, str]:
    return {"name": name, "text": text}


def test_an_unknown_command_is_refused_with_those_that_there_are(
    run_policy_scenario: RunScenario,
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        with pytest.raises(BadRequestError, match="unknown command 'x'; there is: show, clear"):
            await world.ask("x")

    run_policy_scenario(scenario)


@pytest.mark.parametrize("command", ["spd check", "spd diff", "spd commit"])
@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({}, "`files`: a list of {name, text}"),
        ({"files": []}, "`files`: a list of {name, text}"),
        ({"files": [{"name": "a"}]}, "each item of `files`"),
        ({"files": [7]}, "each item of `files`"),
        ({"files": [file("spd: corp\n")], "frr": [{"name": "frr.conf"}]}, "each item of `files`"),
        ({"configured": []}, "`configured` must be a list of SPD names"),
        ({"configured": "corp"}, "`configured` must be a list of SPD names"),
        ({"configured": ["corp"], "files": [file(COMMIT)]}, "give only one of them"),
        ({"configured": ["x"]}, "there is no SPD 'x'"),
    ],
)
def test_a_request_without_rules_is_refused(
    run_policy_scenario: RunScenario, command: str, request_: dict[str, Any], said: str
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        with pytest.raises(BadRequestError, match=said):
            await world.ask(command, **request_)

    run_policy_scenario(scenario)


@pytest.mark.parametrize("command", ["spd check", "spd diff", "spd commit"])
def test_problems_of_all_files_are_named_and_nothing_changes(
    run_policy_scenario: RunScenario, command: str
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        before = world.state("corp", OUTBOUND)
        broken = file(COMMIT.replace("action: discard", "action: drop"), "one.yaml")
        other = file("spd: edge\ninbound: 7\noutbound: []\n", "other.yaml")
        with pytest.raises(BadRequestError, match=r"(?s)one\.yaml.*other\.yaml"):
            await world.ask(command, files=[broken, other])
        assert world.state("corp", OUTBOUND) is before

    run_policy_scenario(scenario)


@pytest.mark.parametrize(("command", "parsed"), [("spd check", 1), ("spd diff", 0)])
def test_frrs_configuration_is_parsed_beside_the_event_loop(
    run_policy_scenario: RunScenario,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    parsed: int,
) -> None:
    """Checks that only `spd check` parses FRR's configuration, in another thread.

    The router's addresses are read in the event loop's thread, because the event loop changes them.
    """
    threads: dict[str, list[int]] = {"read_frr": [], "named_by": []}

    def traced(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            threads[name].append(threading.get_ident())
            return function(*arguments)

        return call

    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        rules = world.policy.rules
        monkeypatch.setattr(rule_texts, "read_frr", traced("read_frr", read_frr))
        monkeypatch.setattr(rules, "named_by", traced("named_by", rules.named_by))
        frr = [file("router bgp 1\n neighbor 192.0.2.1 remote-as 2\n", "frr.conf")]
        await world.ask(command, files=[file(COMMIT)], frr=frr)
        loop = threading.get_ident()
        assert len(threads["read_frr"]) == parsed
        assert loop not in threads["read_frr"]
        assert set(threads["named_by"]) == {loop}

    run_policy_scenario(scenario)


def test_a_commit_tells_the_lists_that_it_changed(run_policy_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        done = await world.commit(COMMIT)
        state = world.state("corp", OUTBOUND)
        assert done["spds"] == ["corp"]
        assert done["changed"] == [
            {
                "spd": "corp",
                "direction": "outbound",
                "epoch": state.version.epoch,
                "generation": state.version.generation,
                "rules": len(state.rules),
                "rule_tables": in_rule_tables(world.policy, state),
            }
        ]
        assert done["seconds"] >= 0
        assert state.rules[-1].action is Action.DISCARD
        assert (await world.commit(COMMIT))["changed"] == []

    run_policy_scenario(scenario)


def test_a_difference_by_list_with_both_versions_of_a_rule(
    run_policy_scenario: RunScenario,
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        world.miss(tcp(80))
        await world.until(world.switch.live)
        (found,) = await world.ask("spd diff", files=[file(COMMIT)])
        assert found["spd"] == "corp"
        assert found["lists"]["inbound"] == []
        by_name = {one["name"]: one for one in found["lists"]["outbound"]}
        assert {name: one["change"] for name, one in by_name.items()} == {
            "secret": "removed",
            "dns": "removed",
            "web": "changed",
        }
        web = by_name["web"]
        assert (web["position_before"], web["position_after"]) == (2, 1)
        assert "bypass" in web["before"]
        assert "discard" in web["after"]
        assert by_name["dns"]["after"] is None
        assert set(found["flows"]) == {"outbound"}
        assert found["flows"]["outbound"]["changed"] == 1
        assert world.state("corp", OUTBOUND).rules[-1].name == "dns"  # nothing was committed

    run_policy_scenario(scenario)


@pytest.mark.parametrize("flows", [-1, "all", 1.5])
def test_a_number_of_flows_is_a_whole_one(run_policy_scenario: RunScenario, flows: object) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        with pytest.raises(BadRequestError, match="flows must be a whole number"):
            await world.ask("spd diff", files=[file(COMMIT)], flows=flows)

    run_policy_scenario(scenario)


def test_a_check_changes_nothing(run_policy_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        before = world.state("corp", OUTBOUND), world.state("corp", INBOUND)
        (found,) = await world.ask("spd check", files=[file(COMMIT)])
        assert found["spd"] == "corp"
        assert (world.state("corp", OUTBOUND), world.state("corp", INBOUND)) == before

    run_policy_scenario(scenario)


def test_configured_rules_are_those_of_the_configuration(run_policy_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(COMMIT)
        done = await world.ask("spd commit", configured=["corp"])
        assert [one["direction"] for one in done["changed"]] == ["outbound"]
        names = [rule.name for rule in world.state("corp", OUTBOUND).rules if not rule.generated]
        assert names == ["secret", "web", "dns"]

    run_policy_scenario(scenario)


def test_an_export_can_be_committed(run_policy_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(COMMIT)
        document = await world.ask("spd export", spd="corp")
        assert document["spd"] == "corp"
        assert [rule["name"] for rule in document["outbound"]] == ["web"]
        assert [rule["action"] for rule in document["outbound"]] == ["discard"]
        with pytest.raises(BadRequestError, match="there is no SPD 'x'"):
            await world.ask("spd export", spd="x")

    run_policy_scenario(scenario)
