# SPDX-License-Identifier: Apache-2.0
"""Tests the rule sets in the switch during commits, refusals, reconnects and restarts."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import pytest

from fake_switch import OK, RESOURCE_EXHAUSTED, FakeSwitch
from policy_world import CODEC, CONFIG, INBOUND, OUTBOUND, PolicyWorld, RunScenario, filled, tcp
from rule_set_world import (
    RULE_SETS,
    SetWatch,
    named,
    reconnected,
    rules_text,
    sets_in,
    settled,
    with_mode,
)
from sluice.api.server import BadRequestError
from sluice.entities import EntityKey, EntityKind, ListState
from sluice.p4runtime.messages import UpdateType
from sluice.policy.config import LookupMode
from sluice.policy.entities import LIST_KINDS
from sluice.policy.record import PolicyRecord
from sluice.policy.spdstore import SpdStoreError
from sluice.policy.table_use import TableUse
from sluice.state.rule_tables import EntryCounts


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> SetWatch:
    return SetWatch(monkeypatch, FakeSwitch(CODEC))


@pytest.mark.parametrize("target", ["sluice-switch", "bmv2"])
def test_a_commit_makes_a_set_before_it_names_it(
    run_scenario: RunScenario, watched: SetWatch, tmp_path: Path, target: str
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.until(lambda: all(named(world)))
        first = named(world)
        assert named(world, "edge") == [0, 0]  # `mode: cache`
        await world.commit(rules_text(["p80", "p443"], "discard"))
        second = named(world)
        assert not set(first) & set(second)
        await settled(world)
        await world.commit(rules_text(["p80", "p443"], "discard"))  # nothing changes
        assert named(world) == second

    text = with_mode("cache+rules").replace("{target}", target)
    run_scenario(scenario, watched.switch, text=filled(text, tmp_path))
    assert watched.named > 0


def test_flows_are_cached_behind_no_table_in_mode_rules(
    run_scenario: RunScenario, watched: SetWatch, tmp_path: Path
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.until(lambda: all(named(world)))
        world.miss(tcp(80))
        await world.sent()
        assert world.switch.flows == {}
        with pytest.raises(Exception, match="has no flow cache"):
            await world.ask("flow-cache on", spd="corp")

    run_scenario(scenario, watched.switch, text=filled(with_mode("rules"), tmp_path))


@pytest.mark.parametrize(("mode", "expected"), [("auto", False), ("cache+rules", True)])
def test_a_list_that_does_not_fit(
    run_scenario: RunScenario,
    watched: SetWatch,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    expected: bool,
) -> None:
    """`auto` uses the tables for whole lists only, `cache+rules` for the first rules too."""
    monkeypatch.setattr(TableUse, "capacity", lambda *_: EntryCounts(4, 4))

    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(rules_text([f"p{port}" for port in range(1, 20)]))
        state = world.state("corp", OUTBOUND)
        assert bool(state.rule_set) is expected
        found = world.policy.rule_sets.of_list(state)
        if expected:
            assert not found.is_complete
            assert 0 < found.rules < len(state.rules)
        else:
            assert found is None
        await world.commit(rules_text([]).replace("outbound:\n", "outbound: []\n"))
        await settled(world)

    run_scenario(scenario, watched.switch, text=filled(with_mode(mode), tmp_path))


def test_a_refused_entry_leaves_the_list_without_a_set(
    run_scenario: RunScenario, watched: SetWatch, tmp_path: Path
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.until(lambda: all(named(world)))
        switch = world.switch
        switch.capacity[EntityKind.OUTBOUND_RULE] = len(switch.of(EntityKind.OUTBOUND_RULE)) + 3
        await world.commit(rules_text([f"p{port}" for port in range(1, 20)]))
        assert named(world)[1] == 0
        await settled(world)
        switch.capacity.clear()
        await world.commit(rules_text(["p7"]))
        assert named(world)[1]
        await settled(world)

    run_scenario(scenario, watched.switch, text=filled(with_mode("cache+rules"), tmp_path))


def test_sets_survive_a_reconnect_and_a_restart(
    run_scenario: RunScenario, watched: SetWatch, tmp_path: Path
) -> None:
    numbers: list[list[int]] = []

    async def first(world: PolicyWorld) -> None:
        await world.began()
        await world.until(lambda: all(named(world)))
        numbers.append(named(world))
        await reconnected(world)
        numbers.append(named(world))

    async def again(world: PolicyWorld) -> None:
        before = len(watched.switch.log)
        await world.began()
        numbers.append(named(world))
        written = [entry for entry in watched.switch.log[before:] if entry[1] in RULE_SETS]
        assert written == []

    text = filled(with_mode("cache+rules"), tmp_path)
    run_scenario(first, watched.switch, text=text)
    run_scenario(again, watched.switch, text=text)
    assert numbers[0] == numbers[1] == numbers[2]


def test_a_restart_without_rule_tables_deletes_the_sets(
    run_scenario: RunScenario, watched: SetWatch, tmp_path: Path
) -> None:
    async def first(world: PolicyWorld) -> None:
        await world.began()
        await world.until(lambda: all(named(world)))

    async def second(world: PolicyWorld) -> None:
        await world.began()
        assert named(world) == [0, 0]
        await world.until(lambda: sets_in(world.switch) == set())

    run_scenario(first, watched.switch, text=filled(with_mode("cache+rules"), tmp_path))
    run_scenario(second, watched.switch, text=filled(CONFIG, tmp_path))


def test_a_set_that_differs_in_the_switch_is_replaced_at_the_start(
    run_scenario: RunScenario, watched: SetWatch, tmp_path: Path
) -> None:
    async def first(world: PolicyWorld) -> None:
        await world.began()
        await world.until(lambda: all(named(world)))

    async def second(world: PolicyWorld) -> None:
        await world.began()
        await world.until(lambda: all(named(world)))
        await settled(world)

    text = filled(with_mode("cache+rules"), tmp_path)
    run_scenario(first, watched.switch, text=text)
    lost: EntityKey = next(iter(watched.switch.of(EntityKind.OUTBOUND_RULE)))
    del watched.switch.entities[EntityKind.OUTBOUND_RULE, lost]
    del watched.switch.raw[EntityKind.OUTBOUND_RULE, lost]
    watch, watched.switch.watch = watched.switch.watch, lambda: None

    def repaired() -> None:
        state = watched.switch.of(EntityKind.OUTBOUND_LIST)
        if all(isinstance(one, ListState) and not one.rule_set for one in state.values()):
            watched.switch.watch = watch  # now no list names the incomplete set

    watched.switch.watch = repaired
    run_scenario(second, watched.switch, text=text)
    assert watched.switch.watch == watch


@pytest.mark.parametrize("seed", range(6))
def test_random_commits_restarts_and_refusals(
    run_scenario: RunScenario, watched: SetWatch, tmp_path: Path, seed: int
) -> None:
    """Whichever write fails, no list in the switch may name an incomplete set or a set of other
    rules."""
    dice = random.Random(seed)
    target = dice.choice(["sluice-switch", "bmv2"])

    def refuse(operation: UpdateType, kind: EntityKind, key: EntityKey) -> int:
        risky = kind in RULE_SETS or kind in LIST_KINDS.values()
        return RESOURCE_EXHAUSTED if risky and dice.random() < 0.01 else OK

    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        for _ in range(8):
            watched.switch.refuse = refuse if dice.random() < 0.5 else lambda *_: OK
            names = [f"p{port}" for port in sorted(dice.sample(range(1, 30), dice.randrange(1, 9)))]
            with contextlib.suppress(BadRequestError):
                await world.commit(rules_text(names, dice.choice(["bypass", "discard"])))
            if dice.random() < 0.3:
                with contextlib.suppress(BadRequestError):
                    await world.ask("flow-cache clear", spd="corp")
            if dice.random() < 0.2:
                await reconnected(world)
        watched.switch.refuse = lambda *_: OK
        await world.until(world.policy.standing.is_set)
        await world.commit(rules_text(["p7", "p8"]))
        await settled(world)

    for _ in range(3):
        mode = dice.choice(["auto", "cache+rules", "rules", "cache"])
        text = with_mode(mode).replace("{target}", target)
        run_scenario(scenario, watched.switch, text=filled(text, tmp_path))


@pytest.mark.parametrize("failing", ["switch", "disk"])
def test_a_session_goes_on_without_a_set_that_cannot_be_named(
    run_scenario: RunScenario,
    watched: SetWatch,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failing: str,
) -> None:
    """When a session begins, the first write that names a set fails."""
    failed: list[str] = []
    save = PolicyRecord.save

    def fails(what: str) -> bool:
        if what != failing or failed or not sets_in(watched.switch):
            return False
        failed.append(what)
        return True

    def refuse(_: UpdateType, kind: EntityKind, key: EntityKey) -> int:
        return RESOURCE_EXHAUSTED if kind in LIST_KINDS.values() and fails("switch") else OK

    def save_or_fail(record: PolicyRecord, *given: Any) -> None:
        if fails("disk"):
            raise SpdStoreError("no space left")
        save(record, *given)

    monkeypatch.setattr(PolicyRecord, "save", save_or_fail)
    watched.switch.refuse = refuse

    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.until(lambda: named(world)[1])  # the other list has its set
        assert failed == [failing]
        assert named(world)[0] == 0
        choice = world.policy.rule_sets.choice(world.state("corp", INBOUND))
        assert choice == (LookupMode.CACHE, "since the switch does not hold the entries")
        await world.commit(rules_text(["p80"], inbound="discard"))
        assert all(named(world))
        await settled(world)
        assert len(world.clients) == 1

    run_scenario(scenario, watched.switch, text=filled(with_mode("auto"), tmp_path))
