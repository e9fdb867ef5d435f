# SPDX-License-Identifier: Apache-2.0
"""Keeps rules of the lists in the switch's rule tables, so that new flows need no punt.

The entries of one list form a **rule set** with a number. `list_state` names the set that the
pipeline looks up, so one write replaces rules and version of a list together. A set is made before
it is named, and deleted after another set is named:

1. `prepare` writes the entries of a new set, which nothing names yet.
2. The commit writes the list's state with the number of the new set.
3. `acknowledged` deletes the list's other sets, once the switch has acknowledged that write.

Invariant: the switch holds every entry of a set that a list's state names or may name. An
incomplete set would give wrong verdicts: a packet would match a later rule than its first. So if
a write of a list's state fails, no set of the list is deleted until a later write succeeds. If
the switch refuses an entry, the list has no set, and its packets are punted as without rule tables.

A session begins with `adopt`. It takes over the sets of the lists that did not change, if the
switch holds exactly their entries.

Depends on state.rule_tables, reconciler and policy.config.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from sluice.entities import EntityChanges, EntityKey, EntityKind, EntityValue, RuleEntry
from sluice.p4runtime.session import Session
from sluice.policy.config import LookupMode, SpdConfig
from sluice.policy.entities import LIST_KINDS, RULE_KINDS
from sluice.policy.model import Direction
from sluice.reconciler import Reconciler
from sluice.state.rule_tables import CompiledList, Room, compile_list, entries_of
from sluice.state.spd import Commit, PolicyList

log = logging.getLogger(__name__)

MAXIMUM_RULE_SET = 0xFFFF
"""Largest number of a rule set: it has 16 bits in the pipeline. 0 means none."""
SETS_OF_A_LIST = 2
"""Number of sets that a list has during a commit: the old and the new one."""


class RuleSet(NamedTuple):
    """Holds the entries of a set in the switch, and what they cover."""

    compiled: CompiledList
    keys: tuple[EntityKey, ...]


class RuleSets:
    """Maintains the rule sets of all lists.

    `spds` are the configured SPDs by name. `sizes` are the sizes of the rule tables, in entries.
    `asks_final` returns whether the packets of a list's final discard must reach the controller.
    """

    def __init__(
        self,
        reconciler: Reconciler,
        spds: Mapping[str, SpdConfig],
        sizes: Mapping[Direction, Room],
        asks_final: Callable[[PolicyList], bool],
    ) -> None:
        self._reconciler = reconciler
        self._spds = spds
        self._sizes = sizes
        self._asks_final = asks_final
        self._sets: dict[int, dict[int, RuleSet]] = {}  # by list id and number of the set
        self._last = dict.fromkeys(Direction, 0)
        self.counters: Counter[str] = Counter()

    # -- what a list may have

    def is_used(self, spd: str) -> bool:
        """Returns whether an SPD's rules belong in the rule tables."""
        return self._spds[spd].mode is not LookupMode.CACHE

    def room(self, direction: Direction) -> Room:
        """Returns the number of entries that each list of a direction may use.

        All lists share the tables equally, and each list needs room for two sets.
        """
        size = self._sizes[direction]
        shares = SETS_OF_A_LIST * max(1, sum(map(self.is_used, self._spds)))
        return Room(size.ipv4 // shares, size.ipv6 // shares)

    def compile(self, state: PolicyList) -> CompiledList:
        """Compiles the rules of a list, as far as the list's share of the tables allows."""
        return compile_list(state, self.room(state.direction), asks_final=self._asks_final(state))

    def _is_worthwhile(self, state: PolicyList, compiled: CompiledList) -> bool:
        if self._spds[state.spd].mode is LookupMode.AUTO:
            return compiled.is_complete
        return bool(compiled.entries)

    def of_list(self, state: PolicyList) -> CompiledList | None:
        """Returns what the switch holds of a list, or None if it holds no rule of the list."""
        found = self._sets.get(state.list_id, {}).get(state.rule_set)
        return None if found is None else found.compiled

    # -- a session's beginning and end

    def forget(self) -> None:
        """Forgets all sets. From now on, the controller does not know what the switch holds."""
        self._sets = {}
        self._reconciler.forget_desired(RULE_KINDS.values())

    def adopt(self, lists: Iterable[PolicyList], installed: Mapping[int, int]) -> list[PolicyList]:
        """Takes over the sets that the switch holds for unchanged lists. Call it after `forget`.

        `installed` has the number of the set that each list's state in the switch names. Returns
        the lists with their sets; a list without a usable set has none.
        """
        adopted = []
        entries = {
            direction: _by_set(self._reconciler.installed.by_kind[kind])
            for direction, kind in RULE_KINDS.items()
        }
        for direction, found in entries.items():
            self._last[direction] = max(found, default=0)
        for state in lists:
            number = installed.get(state.list_id, 0)
            if not number or not self.is_used(state.spd):
                adopted.append(replace(state, rule_set=0))
                continue
            compiled = self.compile(state)
            wanted = _entities(compiled, number)
            is_whole = entries[state.direction].get(number) == wanted
            is_whole = is_whole and self._is_worthwhile(state, compiled)
            if is_whole:
                kind = RULE_KINDS[state.direction]
                self._reconciler.keep((kind, key, value) for key, value in wanted.items())
                self._sets[state.list_id] = {number: RuleSet(compiled, tuple(wanted))}
                self.counters["rule sets taken over"] += 1
            adopted.append(replace(state, rule_set=number if is_whole else 0))
        return adopted

    # -- commits

    async def prepare(self, session: Session, commit: Commit) -> Commit:
        """Writes new sets for the lists of a commit. Returns the commit with their numbers.

        Raises P4RuntimeError if the session ends.
        """
        return replace(
            commit, lists=tuple([await self._prepared(session, one) for one in commit.lists])
        )

    async def _prepared(self, session: Session, state: PolicyList) -> PolicyList:
        if not self.is_used(state.spd):
            return replace(state, rule_set=0)
        compiled = self.compile(state)
        if not self._is_worthwhile(state, compiled):
            return replace(state, rule_set=0)
        kind = RULE_KINDS[state.direction]
        number = self._unused(state.direction)
        entries = _entities(compiled, number)
        problem = await self._reconciler.install(session, kind, entries)
        made = RuleSet(compiled, tuple(entries))
        if problem is not None:
            self._delete(state.direction, made)
            self.counters["rule sets refused by the switch"] += 1
            log.warning(
                "policy %s: the switch refused %s rules, so new flows are searched for by the"
                " controller: %s",
                *(state.spd, state.direction.value, problem),
            )
            return replace(state, rule_set=0)
        self._sets.setdefault(state.list_id, {})[number] = made
        self.counters["rule sets written"] += 1
        return replace(state, rule_set=number)

    def acknowledged(self, state: PolicyList) -> None:
        """Deletes all sets of a list except the one that the list's state in the switch names."""
        sets = self._sets.get(state.list_id, {})
        for number in [number for number in sets if number != state.rule_set]:
            self._delete(state.direction, sets.pop(number))

    def _delete(self, direction: Direction, made: RuleSet) -> None:
        changes = EntityChanges()
        changes.of(RULE_KINDS[direction]).update(dict.fromkeys(made.keys))
        self._reconciler.submit(changes)

    def _unused(self, direction: Direction) -> int:
        """Returns the next number of a set. No entry in the switch may have it."""
        installed = self._reconciler.installed.by_kind[RULE_KINDS[direction]]
        taken = {key.rule_set for key in installed if isinstance(key, RuleEntry)}
        last = self._last[direction]
        following = chain(range(last + 1, MAXIMUM_RULE_SET + 1), range(1, last + 1))
        number = self._last[direction] = next(one for one in following if one not in taken)
        return number


def _entities(compiled: CompiledList, number: int) -> dict[EntityKey, EntityValue]:
    """Returns the entities of a set."""
    return {key: value for key, value in entries_of(compiled, number).items()}  # noqa: C416


def _by_set(
    installed: Mapping[EntityKey, EntityValue],
) -> dict[int, dict[EntityKey, EntityValue]]:
    """Returns the entries in the switch by the number of their set."""
    sets: dict[int, dict[EntityKey, EntityValue]] = {}
    for key, value in installed.items():
        if isinstance(key, RuleEntry):
            sets.setdefault(key.rule_set, {})[key] = value
    return sets


def installed_sets(
    installed: Mapping[EntityKind, Mapping[EntityKey, EntityValue]],
) -> dict[int, int]:
    """Returns the number of the set that each list's state in the switch names, by list id."""
    return {
        key: getattr(value, "rule_set", 0)
        for kind in LIST_KINDS.values()
        for key, value in installed[kind].items()
        if isinstance(key, int)
    }
