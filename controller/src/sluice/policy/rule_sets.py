# SPDX-License-Identifier: Apache-2.0
"""Keeps rules of the lists in the switch's rule tables, so that packets of new flows need no punt.

The entries of one list form a **rule set** with a number. `list_state` names the set that the
pipeline looks up, so one write replaces rules and version of a list together. A new set is written
before a list names it. The old set is deleted after the list names another:

1. `prepare` writes the entries of a new set, which nothing names yet.
2. The commit writes the list's state with the number of the new set.
3. `acknowledged` deletes the list's other sets, once the switch has acknowledged that write.

Invariant: the switch holds every entry of a set that a list's state names or may name. With an
incomplete set, a packet could miss its first match and get the verdict of a later rule. So if a
write of a list's state fails, no set of the list is deleted until a later write succeeds. If the
switch refuses an entry, the list gets no set, and its packets are punted as without rule tables.

A session begins with `adopt`. It takes over the sets of the lists that did not change, if the
switch holds exactly their entries. Until then the entries of all sets are orphans. They must not be
deleted yet: `forget` stops the reconciler from deleting entries of these kinds, and `Policy`
permits it again after the lists are written.

Compilation runs in a thread, and long sets are processed in slices, so no list stalls the event
loop.

`TableUse` decides which lists have a rule set.

Depends on state.rule_tables, reconciler and policy.table_use.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from sluice.entities import EntityKey, EntityKind, EntityValue, RuleEntry
from sluice.p4runtime.session import Session
from sluice.policy.entities import LIST_KINDS, RULE_KINDS
from sluice.policy.model import Direction
from sluice.policy.table_use import Choice, TableUse
from sluice.reconciler import Reconciler
from sluice.state.rule_tables import CompiledList, EntryCounts, compile_list, entries_of
from sluice.state.spd import Commit, PolicyList

log = logging.getLogger(__name__)

MAXIMUM_RULE_SET = 0xFFFF
"""Largest number of a rule set: it has 16 bits in the pipeline. 0 means none."""
CLEANUP_PATIENCE, CLEANUP_POLL = 10.0, 0.01
"""Longest wait for deletions that a new set needs room of, and the time between two looks, in
seconds."""


class RuleSet(NamedTuple):
    """Holds the keys of a set's entries in the switch, and the compiled rules."""

    compiled: CompiledList
    keys: Mapping[EntityKey, None]


class RuleSets:
    """Maintains the rule sets of all lists.

    `use` decides which lists have a set. `sizes` are the sizes of the rule tables, in entries.
    `asks_final` returns whether the packets of a list's final discard must reach the controller.
    """

    def __init__(
        self,
        reconciler: Reconciler,
        use: TableUse,
        sizes: Mapping[Direction, EntryCounts],
        asks_final: Callable[[PolicyList], bool],
    ) -> None:
        self._reconciler = reconciler
        self.use = use
        self._sizes = sizes
        self._asks_final = asks_final
        self._sets: dict[int, dict[int, RuleSet]] = {}  # by list id and set number
        self._left_out: dict[int, dict[str, CompiledList]] = {}
        """Results of compilations after which a list got no set, without the entries. By list id
        and digest of the list."""
        self._last = dict.fromkeys(Direction, 0)
        self.counters: Counter[str] = Counter()

    # -- the rule set of a list

    def compile(self, state: PolicyList) -> CompiledList:
        """Compiles the rules of a list, as far as the list's share of the tables allows."""
        capacity = self.use.capacity(state.spd, state.direction)
        return compile_list(state, capacity, asks_final=self._asks_final(state))

    def choice(self, state: PolicyList) -> Choice:
        """Returns the mode in which a list in force is enforced, and why."""
        held = self.of_list(state)
        compiled = held or self._left_out.get(state.list_id, {}).get(state.digest)
        return self.use.choice(state, compiled, held=held is not None)

    def of_list(self, state: PolicyList) -> CompiledList | None:
        """Returns the compiled rules of a list that the switch holds, or None if it holds none."""
        found = self._sets.get(state.list_id, {}).get(state.rule_set)
        return None if found is None else found.compiled

    # -- a session's beginning and end

    def forget(self) -> None:
        """Forgets all sets. From now on, the controller does not know what the switch holds."""
        self._sets = {}
        self._reconciler.forget_desired(RULE_KINDS.values())

    async def adopt(
        self, lists: Iterable[PolicyList], installed: Mapping[int, int]
    ) -> list[PolicyList]:
        """Takes over the sets that the switch holds for unchanged lists. Call it after `forget`.

        `installed` has the number of the set that each list's state in the switch names. Returns
        the lists with their sets; a list without a usable set has none.
        """
        adopted = []
        sizes = {}
        for direction, kind in RULE_KINDS.items():
            held = list(self._reconciler.installed.by_kind[kind])
            sizes[direction] = await asyncio.to_thread(_sizes, held)
            self._last[direction] = max(sizes[direction], default=0)
        for state in lists:
            number = installed.get(state.list_id, 0)
            entries = sizes[state.direction][number]
            taken_over = bool(entries) and await self._take_over(state, number, entries)
            adopted.append(replace(state, rule_set=number if taken_over else 0))
        return adopted

    async def _take_over(self, state: PolicyList, number: int, entries: int) -> bool:
        """Takes over set `number`, of which the switch holds `entries` entries. Returns False if
        the set differs from the list's rules."""
        if not self.use.is_used(state.spd):
            return False
        kind = RULE_KINDS[state.direction]
        held = self._reconciler.installed.by_kind[kind]
        compiled = await asyncio.to_thread(self.compile, state)
        wanted = await asyncio.to_thread(_entities, compiled, number)
        if len(wanted) != entries or not self.use.is_worthwhile(state.spd, compiled):
            return False
        if not await asyncio.to_thread(_holds, held, wanted):
            return False
        await self._reconciler.adopt(kind, wanted)
        self._sets[state.list_id] = {number: RuleSet(compiled, dict.fromkeys(wanted))}
        self.counters["rule sets taken over"] += 1
        return True

    # -- commits

    async def prepare(self, session: Session, commit: Commit) -> Commit:
        """Writes new sets for the lists of a commit. Returns the commit with their numbers.

        Raises P4RuntimeError if the session ends.
        """
        return replace(
            commit, lists=tuple([await self._prepared(session, one) for one in commit.lists])
        )

    async def _prepared(self, session: Session, state: PolicyList) -> PolicyList:
        if not self.use.is_used(state.spd):
            return replace(state, rule_set=0)
        compiled = await asyncio.to_thread(self.compile, state)
        if not self.use.is_worthwhile(state.spd, compiled):
            return self._without_set(state, compiled)
        kind = RULE_KINDS[state.direction]
        number = self._unused(state.direction)
        entries = await asyncio.to_thread(_entities, compiled, number)
        made = RuleSet(compiled, dict.fromkeys(entries))
        await self._wait_for_room(session, state.direction, len(entries))
        problem = await self._reconciler.install(session, kind, entries)
        if problem is not None:
            await self._delete(state.direction, made)
            self.counters["rule sets refused by the switch"] += 1
            log.warning(
                "policy %s: the switch refused %s rules, so new flows are searched for by the"
                " controller: %s",
                *(state.spd, state.direction.value, problem),
            )
            return self._without_set(state, compiled)
        self._sets.setdefault(state.list_id, {})[number] = made
        self.counters["rule sets written"] += 1
        return replace(state, rule_set=number)

    def _without_set(self, state: PolicyList, compiled: CompiledList) -> PolicyList:
        """Returns the list without a set. Stores the result of the compilation for `choice`."""
        found = self._left_out.setdefault(state.list_id, {})
        found[state.digest] = compiled._replace(entries=())
        return replace(state, rule_set=0)

    async def _wait_for_room(self, session: Session, direction: Direction, entries: int) -> None:
        """Waits until old sets are deleted, if the table has no room for them and new entries.

        Gives up after `CLEANUP_PATIENCE`, and when the session ends.
        """
        kind, size = RULE_KINDS[direction], min(self._sizes[direction])
        clock = asyncio.get_running_loop().time
        deadline = clock() + CLEANUP_PATIENCE
        while (
            len(self._reconciler.installed.by_kind[kind]) + entries > size
            and self._reconciler.is_deleting(kind)
            and not session.closed.done()
            and clock() < deadline
        ):
            await asyncio.sleep(CLEANUP_POLL)

    async def acknowledged(self, state: PolicyList) -> None:
        """Deletes all sets of a list except the one that the list's state in the switch names."""
        left_out = self._left_out.pop(state.list_id, {})
        if state.digest in left_out:
            self._left_out[state.list_id] = {state.digest: left_out[state.digest]}
        sets = self._sets.get(state.list_id, {})
        for number in [number for number in sets if number != state.rule_set]:
            await self._delete(state.direction, sets.pop(number))

    async def withdraw(self, commit: Commit, lists: Mapping[int, PolicyList]) -> None:
        """Deletes the new sets of a commit that failed before anything was written to the switch.
        `lists` are the lists in force."""
        for state in commit.lists:
            before = lists.get(state.list_id)
            if before is None or before.rule_set != state.rule_set:
                made = self._sets.get(state.list_id, {}).pop(state.rule_set, None)
                if made is not None:
                    await self._delete(state.direction, made)

    async def _delete(self, direction: Direction, made: RuleSet) -> None:
        """Deletes the entries of a set, those of the last rules first.

        On some targets, a packet may still look up this set after its list names another set. If
        the last entries are gone, such a packet goes to the CPU. If the first entries were gone, it
        could match a wrong rule.
        """
        await self._reconciler.remove(RULE_KINDS[direction], made.keys)

    def _unused(self, direction: Direction) -> int:
        """Returns the next set number that no entry in the switch has."""
        installed = self._reconciler.installed.by_kind[RULE_KINDS[direction]]
        taken = {key.rule_set for key in installed if isinstance(key, RuleEntry)}
        last = self._last[direction]
        following = chain(range(last + 1, MAXIMUM_RULE_SET + 1), range(1, last + 1))
        number = self._last[direction] = next(one for one in following if one not in taken)
        return number


def _entities(compiled: CompiledList, number: int) -> dict[EntityKey, EntityValue]:
    """Returns the entities of a set."""
    return {key: value for key, value in entries_of(compiled, number).items()}  # noqa: C416


def _sizes(entries: Iterable[EntityKey]) -> Counter[int]:
    """Returns the number of entries of each set, by the set's number."""
    return Counter(key.rule_set for key in entries if isinstance(key, RuleEntry))


def _holds(held: Mapping[EntityKey, EntityValue], wanted: Mapping[EntityKey, EntityValue]) -> bool:
    """Returns whether `held` has all of the entries `wanted`."""
    return all(held.get(key) == value for key, value in wanted.items())


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
