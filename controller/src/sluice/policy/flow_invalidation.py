# SPDX-License-Identifier: Apache-2.0
"""Invalidates cached flows for a commit: the flows whose verdict changes, or a list's whole cache.

If a list keeps its epoch, its flows stay valid. Invariant: when the commit takes effect, the switch
holds no valid flow whose verdict the commit changes. So these flows are deleted before the commit
(`FlowInvalidation.withdraw`). During the commit, no other flows of the list are written
(`FlowTables.held`). For packets of a deleted flow, the controller searches the old rules until the
commit is in force, and then the new rules. A verdict of the old rules that is in flight when the
commit takes effect carries the old generation, so the switch rejects the verdict.

If too many flows would have to be tested or deleted, the list gets a new epoch instead, which makes
all its flows invalid in one write. The list also gets a new epoch if the switch fails to delete a
flow.

Depends on flow_tables, state.invalidation and task_slices.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

from sluice.p4.flows import FlowSlot
from sluice.p4runtime.session import ABORTED, P4RuntimeError
from sluice.policy.flow_tables import FlowTables
from sluice.policy.model import FlowKey
from sluice.state.flow_cache import FlowVerdict
from sluice.state.invalidation import RuleTest, changed_rules, new_verdict, span_of_changes
from sluice.state.spd import PolicyList
from sluice.task_slices import in_slices

TESTS_AT_MOST = 4_000_000
"""Limit of tests (flows times changed rules) for one list: about two seconds of CPU time."""
TESTS_PER_TURN = 4096
"""Tests between two yields to the event loop."""
COMPARED_AT_MOST = 65_536
"""Limit of rules that are compared one by one to find those that a commit changes. A commit with
more rules between the first and the last change counts as one that changes many rules."""
SEARCH = 32
"""Cost of a search of the rules for one flow, in tests. If more rules than this change, the rules
are searched for each flow, because that takes less time than the tests."""
WITHDRAWN_AT_MOST = 16_384
"""Limit of flows that are deleted for one list."""
WITHDRAWN_SHARE = 0.25
"""Limit of flows that are deleted for one list, as a share of the list's flows. Beyond this share,
a new epoch costs no more than the deletions, although the rules are then searched for all flows."""


class FlowChange(NamedTuple):
    """A cached flow whose verdict changes with a commit.

    `after` is None if the new verdict depends on more than the key, as for fragments. The rules are
    then searched again for the flow's next packet.
    """

    key: FlowKey
    before: FlowVerdict
    after: FlowVerdict | None


class FlowInvalidation:
    """Finds and deletes the flows whose verdict a commit changes."""

    def __init__(self, flows: FlowTables) -> None:
        self._flows = flows
        self.counters: Counter[str] = Counter()

    def may_keep_epoch(self, list_id: int) -> bool:
        """Returns whether a commit may keep a list's epoch, so that its flows stay valid.

        This is the case if the list has valid flows, and if the controller knows all flows of the
        list.
        """
        known = self._flows.caches.get(list_id)
        return known is not None and known.cache.is_exact and known.cache.count_live() > 0

    async def changes(self, before: PolicyList, after: PolicyList) -> list[FlowChange] | None:
        """Returns the flows whose verdicts differ between the lists `before` and `after`.

        Returns None if the comparison needs too many tests. Precondition: the rules of `after` have
        the ids that the commit assigns.
        """
        known = self._flows.caches.get(before.list_id)
        if known is None:
            return []
        tests = await asyncio.to_thread(_tests_of_changes, before, after)  # slow for long lists
        if tests is not None and not tests:
            return []
        cost = SEARCH if tests is None else len(tests)
        if known.cache.count_live() * cost > TESTS_AT_MOST:
            return None
        found: dict[FlowKey, FlowChange] = {}
        flows = known.cache.live_flows()
        async for some in in_slices(flows, TESTS_PER_TURN // cost):
            cached = dict(some)
            for key in _candidates(tests, cached):
                verdict = new_verdict(after, key, cached[key])
                if verdict != cached[key]:
                    found[key] = FlowChange(key, cached[key], verdict)
        return list(found.values())

    async def withdraw(self, before: PolicyList, after: PolicyList) -> bool:
        """Deletes the flows of the list `before` whose verdict differs in the list `after`.

        Precondition: the list is held (`FlowTables.held`). Returns False if the list must get a new
        epoch instead.
        """
        kept = self.may_keep_epoch(before.list_id) and await self._delete_changed(before, after)
        what = "lists whose flows a commit kept" if kept else "lists whose flows a commit retired"
        self.counters[what] += 1
        return kept

    async def _delete_changed(self, before: PolicyList, after: PolicyList) -> bool:
        changes = await self.changes(before, after)
        if changes is None or not self._are_few(changes, self._live(before.list_id)):
            return False
        if not await self._flows.withdraw(before.list_id, [one.key for one in changes]):
            return False
        self.counters["flows that a commit deleted"] += len(changes)
        return True

    async def empty(self, list_ids: Iterable[int]) -> None:
        """Deletes all flows of these lists, which must be held (`FlowTables.held`).

        Raises P4RuntimeError if the switch may still hold one of these flows.
        """
        for list_id in list_ids:
            known = self._flows.caches.get(list_id)
            if known is not None and not await self._flows.withdraw(list_id, known.cache.keys()):
                raise P4RuntimeError(ABORTED, f"flows of list {list_id} are not deleted")

    def _live(self, list_id: int) -> int:
        known = self._flows.caches.get(list_id)
        return 0 if known is None else known.cache.count_live()

    @staticmethod
    def _are_few(changes: list[FlowChange], flows: int) -> bool:
        return len(changes) <= min(WITHDRAWN_AT_MOST, WITHDRAWN_SHARE * flows)


def _tests_of_changes(before: PolicyList, after: PolicyList) -> list[RuleTest] | None:
    """Returns the tests of the rules that differ. Returns None if too many rules may differ."""
    if span_of_changes(before, after) > COMPARED_AT_MOST:
        return None
    changed = changed_rules(before, after)
    return None if len(changed) > SEARCH else [RuleTest.of(rule) for rule in changed]


def _candidates(tests: list[RuleTest] | None, flows: Collection[FlowKey]) -> Iterable[FlowKey]:
    """Returns the flows that a rule of `tests` could match, or all flows if `tests` is None."""
    if tests is None:
        return flows
    return (key for test in tests for key in test.could_match(flows))


def highest_epochs(flows: Iterable[tuple[FlowSlot, FlowVerdict]]) -> dict[int, int]:
    """Returns the highest epoch of each list's flows."""
    highest: dict[int, int] = {}
    for slot, verdict in flows:
        highest[slot.list_id] = max(highest.get(slot.list_id, 0), verdict.epoch)
    return highest
