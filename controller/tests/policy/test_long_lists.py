# SPDX-License-Identifier: Apache-2.0
"""Tests changes of long lists. Their long steps must not block the event loop."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fake_switch import FakeSwitch
from policy_world import CODEC, COMMIT, CONFIG, OUTBOUND, PolicyWorld, RunScenario, filled
from scenes import address
from sluice.config import load_config
from sluice.model import parse_address
from sluice.p4runtime.session import P4RuntimeError
from sluice.policy import commit, encoded_rules
from sluice.policy.change_steps import ChangeStep
from sluice.policy.check import Checker
from sluice.policy.spdstore import SpdStore, SpdStoreError
from sluice.state.spd import SpdTable

LONG = 40
OUT: dict[str, Any] = {"spd": "corp", "direction": "outbound"}
ADDED = "{name: added, action: discard, protocol: 99}"


@pytest.fixture(autouse=True)
def short_lists_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of more than `LONG` rules count as long."""
    monkeypatch.setattr(encoded_rules, "LONGEST_SHORT", LONG)
    monkeypatch.setattr(commit, "RESET_AT_ONCE", 16)


def long_list(number: int = 2 * LONG) -> str:
    rules = [
        f"  - {{name: r{i}, action: discard, protocol: udp, destination_ports: [{i + 1}]}}"
        for i in range(number)
    ]
    last = "  - {name: rest, action: bypass}"
    return "\n".join(["spd: corp", "inbound: []", "outbound:", *rules, last, ""])


def names(world: PolicyWorld) -> list[str]:
    return [rule.name for rule in world.state("corp", OUTBOUND).rules if not rule.generated]


class Gate:
    """Stops a method of SpdTable in its thread until the test opens the gate."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
        self.is_reached, self._opened = threading.Event(), threading.Event()
        self._opened.set()
        original: Callable[..., Any] = getattr(SpdTable, method)

        def held(*given: Any, **named: Any) -> Any:
            self.is_reached.set()
            assert self._opened.wait(20)
            return original(*given, **named)

        monkeypatch.setattr(SpdTable, method, held)

    def close(self) -> None:
        self._opened.clear()
        self.is_reached.clear()

    def open(self) -> None:
        self._opened.set()


def test_an_address_that_comes_while_a_start_is_planned_gets_its_rules(
    run_scenario: RunScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoded_rules, "LONGEST_SHORT", 0)
    gate = Gate(monkeypatch, "plan_start")
    added = parse_address("192.0.2.77")

    def named(world: PolicyWorld) -> set[bytes]:
        rules = world.state("corp", OUTBOUND).rules
        return {one.low for rule in rules if rule.generated for one in rule.source or ()}

    async def scenario(world: PolicyWorld) -> None:
        gate.close()
        world.links()
        await world.until(gate.is_reached.is_set)
        world.kernel.put(address(1, "192.0.2.77/24"))
        await world.until(lambda: added in world.policy.rules.own_addresses("corp"))
        gate.open()
        await asyncio.wait_for(world.ready.wait(), 5)
        await world.until(lambda: added in named(world))

    run_scenario(scenario)


def test_a_change_that_outlives_its_controller_saves_nothing_over_the_next_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate = Gate(monkeypatch, "plan_commit")
    path = tmp_path / "r1.yaml"
    path.write_text(filled(CONFIG, tmp_path))
    switch = FakeSwitch(CODEC)

    async def started() -> tuple[PolicyWorld, asyncio.Task[None]]:
        world = PolicyWorld(load_config(path), switch)
        run = asyncio.create_task(world.controller.run())
        await world.began()
        return world, run

    async def ended(world: PolicyWorld, run: asyncio.Task[None]) -> None:
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        world.close()

    async def scene() -> None:
        old, run = await started()
        await old.commit(long_list())
        gate.close()
        late = asyncio.create_task(old.commit(long_list(3 * LONG)))
        await old.until(gate.is_reached.is_set)
        waiting = asyncio.create_task(old.commit(COMMIT))
        old.client.hang_up()
        run.cancel()
        done, _ = await asyncio.wait({run}, timeout=0.1)
        assert not done, "it waits for the change"
        gate.open()
        await ended(old, run)
        for failed in await asyncio.gather(late, waiting, return_exceptions=True):
            assert isinstance(failed, Exception)
        new, run = await started()
        await new.commit(long_list(LONG + 1))
        (on_disk,) = (
            [rule.name for rule in one.rules or ()]
            for one in SpdStore(tmp_path).load().lists
            if (one.spd, one.direction) == ("corp", OUTBOUND)
        )
        assert on_disk == names(new)
        await ended(new, run)

    asyncio.run(scene())


def test_a_rule_is_added_to_a_long_list_without_an_analysis_of_the_list(
    run_scenario: RunScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        whole = await world.commit(long_list())
        assert whole["unchecked"] == []
        analysed: list[object] = []

        def warnings(_: Checker, text: object) -> list[str]:
            analysed.append(text)
            return []

        monkeypatch.setattr(Checker, "warnings", warnings)
        answer = await world.ask("spd add", rule=ADDED, at="after", next_to="r7", **OUT)
        assert names(world)[7:10] == ["r7", "added", "r8"]
        assert (answer["warnings"], answer["unchecked"]) == ([], ["corp"])
        assert analysed == []
        assert 0 < answer["seconds"] < 20
        await world.commit(COMMIT)
        assert len(analysed) == 1
        short = await world.ask("spd add", rule=ADDED, **OUT)
        assert short["unchecked"] == []
        assert len(analysed) == 2

    run_scenario(scenario)


def test_every_counter_of_a_long_list_is_reset_before_its_rules_apply(
    run_scenario: RunScenario,
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        world.switch.counters_reset.clear()
        before = world.state("corp", OUTBOUND)
        reset: list[set[int]] = []

        def look(_: object, kind: object, __: object) -> int:
            reset.append(set(world.switch.counters_reset))
            return 0

        world.switch.refuse = look
        await world.commit(long_list())
        state = world.state("corp", OUTBOUND)
        fresh = set(state.rule_ids) - set(before.rule_ids)
        assert len(fresh) == 2 * LONG + 1
        assert reset[0] == fresh
        assert set(world.switch.counters_reset) == fresh

    run_scenario(scenario)


def test_the_steps_of_a_change_are_reported(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        seen: list[ChangeStep] = []
        steps = world.policy.steps
        during = steps.during

        def traced(step: ChangeStep, of: int = 0) -> Any:
            seen.append(step)
            return during(step, of)

        steps.during = traced
        reported: list[Any] = []
        report = steps.report

        def traced_report(done: int) -> None:
            report(done)
            reported.append(steps.now)

        steps.report = traced_report
        await world.commit(long_list())
        assert seen == list(ChangeStep)
        counted = [(one.done, one.of) for one in reported if one.step is ChangeStep.COUNTERS]
        assert counted[0] == (16, 2 * LONG + 1)
        assert counted[-1] == (2 * LONG + 1, 2 * LONG + 1)
        assert await world.ask("spd progress") is None
        steps.now = reported[0]
        assert await world.ask("spd progress") == reported[0]._asdict()

    run_scenario(scenario)


@pytest.mark.parametrize("where", ["disk", "switch"])
def test_a_change_that_fails_while_it_is_prepared_changes_nothing(
    run_scenario: RunScenario, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(long_list())
        before = world.state("corp", OUTBOUND)

        def full(*_: object) -> None:
            raise SpdStoreError("blocks: No space left on device")

        async def refused(*_: object) -> None:
            raise P4RuntimeError(10, "busy")

        writer = world.policy._writer
        with monkeypatch.context() as patch:
            if where == "disk":
                patch.setattr(world.policy.record, "prepare", full)
            else:
                patch.setattr(writer, "_reset_counters", refused)
            with pytest.raises(Exception, match=r"No space left|busy"):
                await world.ask("spd add", rule=ADDED, **OUT)
        assert world.state("corp", OUTBOUND) is before
        assert gc.isenabled()
        assert await world.ask("spd progress") is None
        await world.ask("spd add", rule=ADDED, **OUT)
        assert names(world)[-1] == "added"

    run_scenario(scenario)


def test_a_restart_and_an_edit_keep_the_numbers_of_a_long_list(run_scenario: RunScenario) -> None:
    kept: dict[str, Any] = {}

    async def first(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(long_list())
        await world.ask("spd add", rule=ADDED, at="first", **OUT)
        state = world.state("corp", OUTBOUND)
        kept["numbers"] = dict(state.numbers)
        kept["switch"] = world.switch

    run_scenario(first)

    async def second(world: PolicyWorld) -> None:
        await world.began()
        state = world.state("corp", OUTBOUND)
        assert dict(state.numbers) == kept["numbers"]
        await world.ask("spd delete", name="r3", **OUT)
        after = world.state("corp", OUTBOUND)
        assert len(after.rules) == len(state.rules) - 1
        assert after.numbers.items() < kept["numbers"].items()

    run_scenario(second, kept["switch"])
