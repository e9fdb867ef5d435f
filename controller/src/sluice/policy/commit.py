# SPDX-License-Identifier: Apache-2.0
"""Carries out a planned commit: saves it on disk, writes it to the switch, puts it into force.

When `apply` returns, the old rules apply to no later lookup. If a step fails, the switch either
applies the old rules or drops packets, but never applies a mix. The reason is that the switch
accepts only cached flows of a list's current epoch and verdicts of a list's current generation.
Depends on record, reconciler, flow_tables, flow_invalidation and state.spd.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial

from sluice.entities import EntityKey, EntityKind, EntityValue
from sluice.entities import ListState as ListEntity
from sluice.p4.flows import FlowCodec
from sluice.p4runtime.session import Session
from sluice.policy.change_steps import ChangeStep, ChangeSteps
from sluice.policy.encoded_rules import is_long
from sluice.policy.entities import LIST_KINDS
from sluice.policy.flow_invalidation import FlowInvalidation
from sluice.policy.flow_tables import FlowTables
from sluice.policy.record import PolicyRecord
from sluice.policy.rule_sets import RuleSets
from sluice.reconciler import Reconciler
from sluice.state.invalidation import wrapped_lists
from sluice.state.spd import Commit, PolicyList, SpdTable
from sluice.task_slices import call, in_slices

CLOSED_LIST = ListEntity(0, 0)
"""Entity of a closed list: epoch 0. The switch drops all packets that need a verdict of such a
list."""

RESET_AT_ONCE = 1024
"""Rules whose counters are reset in one write."""

EntityEntry = tuple[EntityKind, EntityKey, EntityValue]


def entity_of(state: PolicyList) -> ListEntity:
    """Returns the entity by which the switch knows a list."""
    return ListEntity(*state.version, state.rule_set)


def entities_of(lists: Iterable[PolicyList]) -> list[tuple[EntityKind, int, ListEntity]]:
    """Returns the switch entity for each list: kind, list id and state."""
    return [(LIST_KINDS[one.direction], one.list_id, entity_of(one)) for one in lists]


class CommitWriter:
    """Saves and writes the commits that `table` plans.

    `atomic`: the target applies a write of several lists atomically. Then no packet meets old and
    new lists.
    """

    def __init__(
        self,
        table: SpdTable,
        record: PolicyRecord,
        reconciler: Reconciler,
        flows: FlowTables,
        invalidation: FlowInvalidation,
        *,
        rule_sets: RuleSets,
        codec: FlowCodec,
        atomic: bool,
        steps: ChangeSteps,
    ) -> None:
        self._table = table
        self._record = record
        self._reconciler = reconciler
        self._flows = flows
        self._invalidation = invalidation
        self._rule_sets = rule_sets
        self._codec = codec
        self._atomic = atomic
        self._steps = steps
        self._unacknowledged: dict[int, PolicyList] = {}
        """New lists of a write that the switch has not acknowledged yet."""
        self.searched: Counter[tuple[int, int]] = Counter()
        """Number of packets for which the controller searched the rules, by list id and id of the
        rule that matched."""
        self.counters: Counter[str] = Counter()

    def list_by_id(self, list_id: int) -> PolicyList | None:
        """Returns the list that a packet was punted for.

        Also finds new lists that the switch has not acknowledged yet, because it may punt packets
        for such a list before its acknowledgement arrives.
        """
        return self._table.lists.get(list_id) or self._unacknowledged.get(list_id)

    async def prepare(self, session: Session, commit: Commit) -> None:
        """Does the slow steps of a commit in advance. They change nothing that is in force.

        Writes the blocks of long lists to disk, and resets the counters of new rules. Raises
        SpdStoreError or P4RuntimeError.
        """
        if any(is_long(one.rules) for one in commit.lists):
            with self._steps.during(ChangeStep.SAVING):
                await asyncio.to_thread(self._record.prepare, commit)
        fresh = sum(map(len, commit.rule_ids.fresh.values()))
        with self._steps.during(ChangeStep.COUNTERS, fresh):
            await self._reset_counters(session, commit)

    async def apply(
        self,
        session: Session,
        commit: Commit,
        bindings: Iterable[EntityEntry] = (),
        *,
        together: bool = False,
    ) -> None:
        """Saves a commit, writes it and puts it into force.

        `bindings` are written together with the lists. With `together`, no packet meets old and new
        lists at the same time. For this, a target without atomic writes drops the lists' packets
        during the change. Precondition: `prepare` has returned. Raises SpdStoreError or
        P4RuntimeError.
        """
        entries = [*entities_of(commit.lists), *bindings]
        if not entries:
            return
        lists = self._table.lists
        wrapped = wrapped_lists(commit, {one.list_id: one.version.epoch for one in lists.values()})
        async with self._flows.held(wrapped):
            await self._invalidation.empty(wrapped)
            await call(
                partial(self._record.save, commit),
                in_thread=any(is_long(one.rules) for one in commit.lists),
            )
            new = [one for one in commit.lists if one.list_id not in lists]
            self._unacknowledged = {one.list_id: one for one in new}
            try:
                await self._write(session, entries, together=together)
                await self._put_into_force(commit)
            finally:
                self._unacknowledged = {}

    async def _reset_counters(self, session: Session, commit: Commit) -> None:
        """Resets the counters of rule ids that the commit gives to other rules.

        Order: before the lists are written, because packets may meet the new rules before the
        switch's acknowledgement arrives. No rule in force has these ids.
        """
        done = 0
        refused = False
        for state in commit.lists:
            fresh = commit.rule_ids.fresh.get(state.name, ())
            async for rule_ids in in_slices(fresh, RESET_AT_ONCE):
                for rule_id in rule_ids:
                    self.searched.pop((state.list_id, rule_id), None)
                updates = self._codec.reset_rules(state.direction, rule_ids)
                refused |= any(status.code for status in await session.write(updates))
                done += len(rule_ids)
                self._steps.report(done)
        self.counters["rule counters not reset: the target refused"] += refused

    async def _write(
        self, session: Session, entries: Sequence[EntityEntry], *, together: bool
    ) -> None:
        if self._atomic:
            await self._reconciler.commit(session, entries, atomic=True)
            return
        held = self._reconciler.installed.by_kind
        in_force = [(kind, key) for kind, key, _ in entries if key in held[kind]]
        closed = [(kind, key, CLOSED_LIST) for kind, key in in_force if len(in_force) > 1]
        for entry in [*(closed if together else ()), *entries]:
            await self._reconciler.commit(session, [entry], atomic=False)

    async def _put_into_force(self, commit: Commit) -> None:
        self._table.apply(commit)
        for state in commit.lists:
            self._flows.retire(state.list_id, state.version.epoch)
        for state in commit.lists:
            await self._rule_sets.acknowledged(state)
