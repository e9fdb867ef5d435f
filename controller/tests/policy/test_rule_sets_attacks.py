# SPDX-License-Identifier: Apache-2.0
"""Attacks the rule sets: reconnects, refusals and other clients at the worst moment."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fake_switch import OK, RESOURCE_EXHAUSTED, FakeSwitch
from policy_world import CODEC, CONFIG, INBOUND, OUTBOUND, PolicyWorld, RunScenario, filled
from rule_set_world import SetWatch, named, reconnected, rules_text, settled, with_mode
from sluice.api.server import BadRequestError
from sluice.entities import EntityKey, EntityKind, RuleEntry
from sluice.p4runtime.messages import UpdateType
from sluice.policy.flow_tables import FlowTables
from sluice.policy.record import PolicyRecord
from sluice.policy.spdstore import SpdStoreError
from sluice.policy.table_use import TableUse
from sluice.state.rule_tables import EntryCounts


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> SetWatch:
    return SetWatch(monkeypatch, FakeSwitch(CODEC))


def test_a_reconnect_deletes_no_set_in_use(
    run_scenario: RunScenario, watched: SetWatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading many flows takes long. During this time no rule set may be treated as an orphan."""
    read = FlowTables.read

    async def slow(tables: FlowTables, session: Any) -> Any:
        await asyncio.sleep(0.05)
        return await read(tables, session)

    monkeypatch.setattr(FlowTables, "read", slow)

    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.until(lambda: all(named(world)))
        await world.commit(rules_text(["p80", "p443"]))
        before = named(world)
        await reconnected(world)
        assert named(world) == before
        await settled(world)

    run_scenario(scenario, watched.switch, text=filled(with_mode("cache+rules"), tmp_path))


def test_the_set_of_a_removed_list_stays_until_the_list_is_gone(
    run_scenario: RunScenario, watched: SetWatch, tmp_path: Path
) -> None:
    """The switch refuses to delete the list of a removed SPD. So it still names the list's set,
    which must stay."""
    both = with_mode("cache+rules").replace("mode: cache\n", "mode: rules\n")
    without = CONFIG[: CONFIG.index("  - name: edge")].replace("spd: edge", "spd: none")
    is_refusing = True

    def refuse(operation: UpdateType, kind: EntityKind, key: EntityKey) -> int:
        is_list = kind in (EntityKind.INBOUND_LIST, EntityKind.OUTBOUND_LIST)
        is_refused = is_refusing and is_list and operation is UpdateType.DELETE
        return RESOURCE_EXHAUSTED if is_refused else OK

    async def first(world: PolicyWorld) -> None:
        await world.began()
        await world.until(lambda: all(named(world) + named(world, "edge")))

    async def second(world: PolicyWorld) -> None:
        nonlocal is_refusing
        world.links()
        failures = world.controller.reconciler.failures
        await world.until(lambda: failures.of_kind(EntityKind.OUTBOUND_LIST))
        await world.until(lambda: failures.of_kind(EntityKind.OUTBOUND_RULE))
        is_refusing = False
        await world.until(lambda: not failures.of_kind(EntityKind.OUTBOUND_LIST))
        await world.until(lambda: watched.switch.of(EntityKind.OUTBOUND_RULE) == {})

    run_scenario(first, watched.switch, text=filled(both, tmp_path))
    watched.switch.refuse = refuse
    run_scenario(second, watched.switch, text=filled(without, tmp_path))


def test_commits_that_follow_each_other_find_room(
    run_scenario: RunScenario, watched: SetWatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each set uses its whole share. A commit waits until the set before the last one is
    deleted."""
    kind = EntityKind.OUTBOUND_RULE
    monkeypatch.setattr(TableUse, "capacity", lambda *_: EntryCounts(20, 20))
    sizes = dict.fromkeys((INBOUND, OUTBOUND), EntryCounts(40, 40))

    async def scenario(world: PolicyWorld) -> None:
        monkeypatch.setattr(world.policy.rule_sets, "_sizes", sizes)
        await world.began()
        for first in range(1, 12):
            await world.commit(rules_text([f"p{port}" for port in range(first, first + 12)]))
            watched.switch.capacity[kind] = 80
            assert named(world)[1]
        await settled(world)

    run_scenario(scenario, watched.switch, text=filled(with_mode("cache+rules"), tmp_path))


def test_a_commit_that_the_disk_refuses_leaves_no_set(
    run_scenario: RunScenario, watched: SetWatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.until(lambda: all(named(world)))
        before = named(world)

        def full(*_: object) -> None:
            raise SpdStoreError("no space left")

        with monkeypatch.context() as patched:
            patched.setattr(PolicyRecord, "save", full)
            with pytest.raises(BadRequestError):
                await world.commit(rules_text(["p80", "p443"]))
        assert named(world) == before
        await settled(world)

    run_scenario(scenario, watched.switch, text=filled(with_mode("cache+rules"), tmp_path))


def test_the_entries_of_a_set_are_deleted_from_its_end(
    run_scenario: RunScenario, watched: SetWatch, tmp_path: Path
) -> None:
    """A packet may have read a list's old state. It must match the right rule, or no rule."""

    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(rules_text(["p80", "p443"]))
        begins = len(watched.switch.log)
        await world.commit(rules_text(["p81", "p444"]))
        await settled(world)
        priorities = [
            key.priority
            for operation, kind, key in watched.switch.log[begins:]
            if operation is UpdateType.DELETE and kind is EntityKind.OUTBOUND_RULE
            if isinstance(key, RuleEntry)
        ]
        assert len(priorities) > 3
        assert priorities == sorted(priorities)

    run_scenario(scenario, watched.switch, text=filled(with_mode("cache+rules"), tmp_path))
