# SPDX-License-Identifier: Apache-2.0
"""Watches the rule sets in a fake switch, for the tests of rule sets.

`SetWatch` checks each state that a packet could meet. If a list's state names a set, all entries of
the set must exist, and they must be those of the rules of that generation.
"""

from __future__ import annotations

from typing import Any

import pytest

from fake_switch import FakeSwitch
from policy_world import CONFIG, INBOUND, OUTBOUND, PolicyWorld
from sluice.entities import EntityKind, ListState, RuleEntry
from sluice.policy import rule_sets
from sluice.policy.entities import LIST_KINDS, RULE_KINDS
from sluice.policy.model import Rule
from sluice.state.rule_tables import CompiledList, compile_list, entries_of
from sluice.state.spd import Commit, PolicyList, SpdRecord, SpdTable

RULE_SETS = frozenset(RULE_KINDS.values())


def with_mode(mode: str, spd: str = "corp") -> str:
    """Returns CONFIG in which this SPD has a certain mode. The other SPD has `mode: cache`."""
    return CONFIG.replace(f"- name: {spd}\n    mode: cache\n", f"- name: {spd}\n    mode: {mode}\n")


class SetWatch:
    """Records the rules of each version and the entries of each set, and checks the switch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, switch: FakeSwitch) -> None:
        self.switch = switch
        self.rules: dict[tuple[int, int], tuple[Rule, ...]] = {}
        self.sets: dict[tuple[bool, int], tuple[tuple[Rule, ...], dict[RuleEntry, Any]]] = {}
        self.named = 0
        self._compiled: tuple[bool, tuple[Rule, ...]] = (False, ())
        record_with = SpdTable.record_with

        def recorded(table: SpdTable, commit: Commit) -> SpdRecord:
            for state in commit.lists:
                self.rules[state.list_id, state.version.generation] = state.rules
            return record_with(table, commit)

        def compiled(state: PolicyList, *given: Any, **more: Any) -> CompiledList:
            self._compiled = state.direction is INBOUND, state.rules
            return compile_list(state, *given, **more)

        def made(result: CompiledList, number: int) -> dict[RuleEntry, Any]:
            entries = entries_of(result, number)
            is_inbound, rules = self._compiled
            self.sets[is_inbound, number] = rules, entries
            return entries

        monkeypatch.setattr(SpdTable, "record_with", recorded)
        monkeypatch.setattr(rule_sets, "compile_list", compiled)
        monkeypatch.setattr(rule_sets, "entries_of", made)
        switch.watch = self.look

    def look(self) -> None:
        for direction, kind in LIST_KINDS.items():
            held = self.switch.of(RULE_KINDS[direction])
            for key, value in self.switch.of(kind).items():
                if isinstance(value, ListState) and value.rule_set and isinstance(key, int):
                    self.named += 1
                    rules, entries = self.sets[direction is INBOUND, value.rule_set]
                    assert rules == self.rules[key, value.generation]
                    found = {
                        entry: verdict
                        for entry, verdict in held.items()
                        if isinstance(entry, RuleEntry) and entry.rule_set == value.rule_set
                    }
                    assert found == entries


def named(world: PolicyWorld, spd: str = "corp") -> list[int]:
    """Returns the numbers of the sets that an SPD's lists name in the switch."""
    numbers = []
    for direction in (INBOUND, OUTBOUND):
        state = world.state(spd, direction)
        value = world.switch.of(LIST_KINDS[direction])[state.list_id]
        assert isinstance(value, ListState)
        numbers.append(value.rule_set)
    return numbers


def sets_in(switch: FakeSwitch) -> set[tuple[EntityKind, int]]:
    """Returns the direction and number of each set that has entries in the switch."""
    return {
        (kind, key.rule_set)
        for kind, key in switch.entities
        if kind in RULE_SETS and isinstance(key, RuleEntry)
    }


async def settled(world: PolicyWorld) -> None:
    """Waits until only the named sets are in the switch, and the controller's record agrees."""
    wanted = {
        (RULE_KINDS[direction], number)
        for spd in ("corp", "edge")
        for direction, number in zip((INBOUND, OUTBOUND), named(world, spd), strict=True)
        if number
    }
    await world.until(lambda: sets_in(world.switch) == wanted)

    def recorded() -> list[int]:
        return [world.state("corp", direction).rule_set for direction in (INBOUND, OUTBOUND)]

    await world.until(lambda: recorded() == named(world))


async def reconnected(world: PolicyWorld) -> None:
    """Ends the session, and waits until the next one has the policy in force."""
    clients = len(world.clients)
    world.client.hang_up()
    await world.until(lambda: len(world.clients) > clients)
    await world.until(world.policy.standing.is_set)


def rules_text(names: list[str], inbound: str = "bypass") -> str:
    outbound = "".join(
        f"  - {{name: {name}, action: bypass, protocol: tcp, destination_ports: {name[1:]}}}\n"
        for name in names
    )
    return f"spd: corp\ninbound: [{{name: all-in, action: {inbound}}}]\noutbound:\n{outbound}"
