# SPDX-License-Identifier: Apache-2.0
"""Tests requests that change rules: edits of single rules, rollbacks, and the log of these
changes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from policy_world import COMMIT, INBOUND, OUTBOUND, PolicyWorld
from sluice.api import commit_requests, rule_texts
from sluice.api.server import BadRequestError
from sluice.audit_log import REQUESTED_BY, Requester
from sluice.policy import plain_spd, spdfile

RunScenario = Callable[..., None]
RULE = "{name: ssh, action: bypass, protocol: tcp, destination_ports: [22]}"
OUT = {"spd": "corp", "direction": "outbound"}


async def began(world: PolicyWorld) -> None:
    """Starts the controller and waits until the commit history holds the rules of the start."""
    await world.began()
    while not world.policy.history.entries:
        await asyncio.sleep(0.001)


def outbound(world: PolicyWorld) -> list[str]:
    return [rule.name for rule in world.state("corp", OUTBOUND).rules if not rule.generated]


def test_rules_are_added_moved_and_deleted(run_policy_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await began(world)
        inbound = world.state("corp", INBOUND)
        added = await world.ask("spd add", rule=RULE, at="before", next_to="web", **OUT)
        assert [one["direction"] for one in added["changed"]] == ["outbound"]
        assert outbound(world) == ["secret", "ssh", "web", "dns"]
        await world.ask("spd move", name="ssh", at="first", **OUT)
        assert outbound(world) == ["ssh", "secret", "web", "dns"]
        await world.ask("spd delete", name="secret", **OUT)
        assert outbound(world) == ["ssh", "web", "dns"]
        assert world.state("corp", INBOUND) is inbound

    run_policy_scenario(scenario)


def test_the_log_names_who_changed_what(run_policy_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await began(world)
        REQUESTED_BY.set(Requester(0, 42))
        await world.ask("spd add", rule=RULE, message="für den neuen Host [ticket 7]", **OUT)
        await world.commit(COMMIT)
        last, added, start = await world.ask("spd log")
        assert (start["number"], start["change"], start["author"]) == (1, "start", None)
        assert (added["number"], added["change"]) == (2, "add ssh")
        assert added["message"] == "für den neuen Host [ticket 7]"
        assert added["author"] == {"uid": 0, "pid": 42, "user": "root"}
        counts = {"added": 1, "removed": 0, "changed": 0, "reordered": False}
        assert added["changed"] == {"corp": {"outbound": counts}}
        counts = {"added": 0, "removed": 3, "changed": 1, "reordered": False}
        assert last["changed"] == {"corp": {"outbound": counts}}
        assert [one["number"] for one in await world.ask("spd log", spd="edge")] == [1]

    run_policy_scenario(scenario)


def test_a_commit_that_changes_nothing_is_not_logged(run_policy_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await began(world)
        await world.commit(COMMIT)
        await world.commit(COMMIT)
        assert len(await world.ask("spd log")) == 2

    run_policy_scenario(scenario)


def test_a_rollback_restores_the_rules_after_a_commit(run_policy_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await began(world)
        first = world.state("corp", OUTBOUND).rules
        await world.commit(COMMIT)
        await world.ask("spd delete", name="web", **OUT)
        (changes,) = [
            one["lists"]["outbound"]
            for one in await world.ask("spd diff", commit=1)
            if one["spd"] == "corp"
        ]
        assert {one["name"] for one in changes} == {"secret", "web", "dns"}
        done = await world.ask("spd rollback", commit=1, message="broke the web")
        assert [(one["spd"], one["direction"]) for one in done["changed"]] == [("corp", "outbound")]
        assert world.state("corp", OUTBOUND).rules == first
        (entry, *_) = await world.ask("spd log")
        assert (entry["change"], entry["message"]) == ("rollback to 1", "broke the web")
        await world.ask("spd rollback", commit=2, spds=["corp"])
        assert outbound(world) == ["web"]

    run_policy_scenario(scenario)


def test_a_commit_that_is_not_logged_is_part_of_the_next_entry(
    run_policy_scenario: RunScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await began(world)

        def full(*_: Any, **__: Any) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("sluice.policy.history.replace_json", full)
            await world.commit(COMMIT)
        await world.commit("spd: edge\ninbound: []\noutbound: [{name: e, action: discard}]\n")
        (entry, start) = await world.ask("spd log")
        assert (entry["number"], start["number"]) == (2, 1)
        rules = await world.policy.rules_after(2, [])
        assert [rule.name for rule in rules["corp"][OUTBOUND]] == ["web"]
        assert [rule.name for rule in rules["edge"][OUTBOUND]] == ["e"]

    run_policy_scenario(scenario)


def test_edits_at_the_same_time_are_all_made(run_policy_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await began(world)
        rules = [f"{{name: r{number}, action: bypass, protocol: 99}}" for number in range(10)]
        await asyncio.gather(*(world.ask("spd add", rule=rule, **OUT) for rule in rules))
        assert sorted(outbound(world)[3:]) == [f"r{number}" for number in range(10)]

    run_policy_scenario(scenario)


def test_a_rule_is_parsed_beside_the_event_loop(
    run_policy_scenario: RunScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    real = spdfile.parse_rule

    def traced(*arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return real(*arguments)

    async def scenario(world: PolicyWorld) -> None:
        await began(world)
        await world.ask("spd add", rule=RULE.ljust(64 << 10), **OUT)
        assert outbound(world)[-1] == "ssh"
        assert len(threads) == 1
        assert threading.get_ident() not in threads
        with pytest.raises(BadRequestError, match="rule: has 65,537 bytes, over the limit of 65,5"):
            await world.ask("spd add", rule=RULE.replace("ssh", "next").ljust(65_537), **OUT)
        assert len(threads) == 1

    monkeypatch.setattr(commit_requests, "parse_rule", traced)
    run_policy_scenario(scenario)


@pytest.mark.parametrize("command", ["spd rollback", "spd diff"])
def test_a_repeated_name_is_read_once(
    run_policy_scenario: RunScenario, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Checks that a request that names one SPD many times reads the SPD's rules only once."""
    committed: list[list[str]] = []

    async def scenario(world: PolicyWorld) -> None:
        await began(world)
        real = world.policy.history.rules_after

        def traced(number: int, spds: list[str]) -> Any:
            committed.append(spds)
            return real(number, spds)

        monkeypatch.setattr(world.policy.history, "rules_after", traced)
        await world.ask(command, commit=1, spds=["corp", "edge"] * 1000)
        assert committed == [["corp", "edge"]]

    run_policy_scenario(scenario)


def test_a_repeated_name_of_configured_rules_is_read_once(
    run_policy_scenario: RunScenario, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "corp.yaml"
    read: list[Path] = []

    def load(file: Path, bundles: Any) -> Any:
        read.append(file)
        return real(file, bundles)

    async def scenario(world: PolicyWorld) -> None:
        await began(world)
        spds = world.policy.spds
        monkeypatch.setitem(spds, "corp", replace(spds["corp"], file=path))
        (found,) = await world.ask("spd check", configured=["corp"] * 1000)
        assert found["spd"] == "corp"
        assert read == [path]

    path.write_text(COMMIT)
    real = plain_spd.load
    monkeypatch.setattr(rule_texts, "load", load)
    run_policy_scenario(scenario)


@pytest.mark.parametrize(
    ("command", "request_", "said"),
    [
        ("spd add", {"rule": RULE, "direction": "inbound"}, "there is no SPD 'None'"),
        ("spd add", {"rule": RULE, "spd": "corp"}, "direction: must be inbound or outbound"),
        ("spd add", {"rule": "{name: x}", **OUT}, "action"),
        ("spd add", {"rule": "{name: x, action: bypass, bundle: no}", **OUT}, "bundle"),
        ("spd add", {"rule": "[", **OUT}, "the rule:2: not YAML"),
        ("spd add", {"rule": RULE.replace("ssh", "web"), **OUT}, "corp outbound: .* 'web' already"),
        ("spd add", {"rule": RULE, "at": "up", **OUT}, "at: must be one of first, last"),
        ("spd add", {"rule": RULE, "at": "before", **OUT}, "next_to: the name of a rule"),
        ("spd add", {"rule": RULE, "message": 7, **OUT}, "message: must be text"),
        ("spd add", {"rule": RULE, "message": "x" * 1001, **OUT}, "at most 1000 characters"),
        ("spd add", {"rule": RULE, "message": "a\nb", **OUT}, r"message: has '\\n', which is not"),
        ("spd add", {"rule": RULE, "message": "a\udcff", **OUT}, r"message: has '\\udcff'"),
        ("spd rollback", {"commit": 1, "message": "\x1b[2J"}, r"message: has '\\x1b'"),
        ("spd delete", {"name": "x", **OUT}, "corp outbound: the list has no rule 'x'"),
        ("spd move", {"name": "web", "at": "after", "next_to": "x", **OUT}, "has no rule 'x'"),
        ("spd rollback", {}, "commit: must be a number of `spd log`"),
        ("spd rollback", {"commit": "1"}, "commit: must be a number"),
        ("spd rollback", {"commit": True}, "commit: must be a number"),
        ("spd rollback", {"commit": "1", "configured": ["corp"]}, "commit: must be a number"),
        ("spd diff", {"commit": 1, "configured": ["corp"]}, "configured and commit: give only one"),
        ("spd rollback", {"commit": 9}, "no commit 9 in the history; it has: 1 to 1"),
        ("spd rollback", {"commit": 1, "spds": ["x"]}, "there is no SPD 'x'"),
        ("spd rollback", {"commit": 1, "spds": "corp"}, "spds: must be a list"),
        ("spd log", {"spd": "x"}, "there is no SPD 'x'"),
    ],
)
def test_impossible_requests_are_refused_and_change_nothing(
    run_policy_scenario: RunScenario, command: str, request_: dict[str, Any], said: str
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await began(world)
        before = world.state("corp", OUTBOUND)
        with pytest.raises(BadRequestError, match=said):
            await world.ask(command, **request_)
        assert world.state("corp", OUTBOUND) is before
        assert len(await world.ask("spd log")) == 1

    run_policy_scenario(scenario)
