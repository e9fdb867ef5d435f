# SPDX-License-Identifier: Apache-2.0
"""Reconciles the switch with the desired state: all entities except flows.

Three tasks are done by other modules: `policy.flow_tables` writes flows, `policy.commit` resets
counters, and the auditor deletes entities that no module knows.

Order. A cycle installs and modifies kind by kind in ascending `EntityKind` (next hop, member,
group, route, ...), and waits for the acknowledgement of one kind before the next. Then it deletes
in descending order. An entity waits until all entities that it refers to are installed. An entity
is not deleted while another entity refers to it. A changed entity is written with MODIFY.
Invariant: the switch never holds a dangling reference, even if updates fail.

Changes of links, addresses and neighbours concern kinds that come before routes. So such a change
interrupts a long series of route writes after the current batch. In an empty switch, the `near`
routes (connected prefixes, neighbours) are written before an interface is opened, and the other
routes afterwards (`compare`, `table_order`).

Errors. Every refused update is recorded (`failures`) and retried with growing delay. Its record is
deleted once it succeeds. "Already exists" and "not found" mean that the switch differs from the
inventory: the inventory is corrected, and the retry uses the other operation.

Start and reconnect. `read_back` reads the switch and closes the entities that must not coexist with
the new configuration. `compare` queues the difference. Correct entities are not touched. An
**orphan** is an entity of the switch that no module has declared as desired. Orphans of a kind are
deleted when the kind is released (`release`). The controller releases a kind once the sources of
this kind have reported everything. New entities of held kinds (`hold`) wait until `open`.

Routes. A native table (`sluice._native.RouteTable`) holds the desired, installed and queued routes
and builds their writes. This module only tells the table, once per next hop or group, whether
routes may refer to this target. Failed routes and `near` routes are handled like other entities;
for this, the same table can be accessed as dictionaries.

Depends on entities, inventory, failures, readback, table_order, task_slices, p4 and p4runtime. One
task (`run`) does all the writing.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from typing import NamedTuple, cast

from sluice._native import RouteBatch, RouteBlock, RouteTable
from sluice.entities import (
    COMMITTED,
    MODIFY_ONLY,
    UNKNOWN,
    EntityChanges,
    EntityKey,
    EntityKind,
    EntityValue,
    ListState,
    RuleEntry,
    references,
)
from sluice.failures import NEVER, WAITING, Failures
from sluice.inventory import Inventory
from sluice.orphans import Orphans
from sluice.p4.codec import Codec
from sluice.p4runtime.messages import UpdateType
from sluice.p4runtime.session import (
    ALREADY_EXISTS,
    NOT_FOUND,
    P4RuntimeError,
    Status,
)
from sluice.readback import BATCH, OK_STATUS, SLICE, Writer, close, read
from sluice.state.route_order import new_table
from sluice.state.takeover import ClosingPlan, EntitiesByKind
from sluice.table_order import (
    in_order,
    unwanted,
    unwanted_routes,
    unwritten,
    unwritten_routes,
)
from sluice.table_reading import TableReading
from sluice.task_slices import all_done, drained, in_slices, some_done

WINDOW = 4
"""Maximum number of writes in flight."""
BATCHES_PER_TURN = 32
"""Number of batches of a kind that are written before the next kind or deletions."""


UNDER_ROUTES = frozenset(
    {
        EntityKind.NEXTHOP,
        EntityKind.GROUP_MEMBER,
        EntityKind.GROUP,
        EntityKind.GROUP_ENTRY,
        EntityKind.ROUTE,
    }
)
"""`EntityKind.ROUTE`, and the kinds that routes refer to."""


_LISTS_OF_RULES = {
    EntityKind.INBOUND_RULE: EntityKind.INBOUND_LIST,
    EntityKind.OUTBOUND_RULE: EntityKind.OUTBOUND_LIST,
}
"""Maps a kind of rules to the kind of the lists that name sets of these rules."""


async def _nothing() -> None:
    pass


_EntityEntry = tuple[EntityKey, EntityValue | None]


class _Batch(NamedTuple):
    kind: EntityKind
    operations: list[UpdateType]
    entries: list[_EntityEntry]
    updates: list[bytes]


Queue = MutableMapping[EntityKey, None]
"""Queued keys, newest first: a dictionary, or a view of the native table."""


class Reconciler:
    """Holds desired and installed entities, and writes the difference to the switch.

    `routes` is the native table that holds all routes.
    """

    def __init__(
        self,
        codec: Codec,
        deleted: Callable[[EntityKind, EntityKey], None],
        clock: Callable[[], float],
        routes: RouteTable | None = None,
    ) -> None:
        self._routes = routes or new_table()
        self._codec = codec
        self._deleted = deleted
        self._clock = clock
        self.desired: dict[EntityKind, MutableMapping[EntityKey, EntityValue]] = {
            kind: {} for kind in EntityKind
        }
        self.desired[EntityKind.ROUTE] = self._routes.desired
        self.installed = Inventory(self._routes)
        self.failures = Failures(clock)
        self.counters: Counter[str] = Counter()
        self.compared = False
        self._comparisons = 0
        self.reading: Inventory | None = None
        """Entities read back so far. None unless a read-back is in progress."""
        self._upserts: dict[EntityKind, Queue] = {kind: {} for kind in EntityKind}
        self._deletes: dict[EntityKind, Queue] = {kind: {} for kind in EntityKind}
        self._upserts[EntityKind.ROUTE] = self._routes.upserts
        self._deletes[EntityKind.ROUTE] = self._routes.deletes
        self._orphans = {kind: Orphans() for kind in EntityKind}
        self._near: dict[EntityKey, None] = {}
        self._table: TableReading | None = None
        self._unread = False
        """Whether a large table is being read. Invariant: meanwhile no entity that routes refer to
        is deleted."""
        self._comparing: EntityKind | None = None
        self._deferred: deque[Mapping[EntityKey, EntityValue | None] | RouteBlock] = deque()
        """Changes that arrived during a comparison and concern the kind that is compared."""
        self._in_flight: set[EntityKey] = set()
        """Keys in flight, of all kinds except routes."""
        self._installing: set[tuple[EntityKind, EntityKey]] = set()
        """Entities that `install` is writing."""
        self._postponed: dict[EntityKey, None] = {}
        self._released: set[EntityKind] = set()
        self._held: frozenset[EntityKind] = frozenset()
        self._work = asyncio.Event()
        self._waiters: dict[tuple[EntityKind, EntityKey], list[Callable[[], None]]] = {}
        self.on_progress: Callable[[], None] = lambda: None
        self.near: Callable[[], Iterable[EntityKey]] = tuple
        self.on_table_read: Callable[[], Awaitable[None]] = _nothing
        """Function that is awaited between the read-back of all routes and their comparison."""

    # -- desired state

    def submit(self, changes: EntityChanges) -> None:
        """Changes desired entities. Not for committed kinds, which `commit` writes."""
        for block in changes.blocks:
            self._apply_or_defer(EntityKind.ROUTE, block)
        for kind, entries in changes.by_kind.items():
            self._apply_or_defer(kind, entries)
        self._work.set()

    def _apply_or_defer(
        self, kind: EntityKind, entries: Mapping[EntityKey, EntityValue | None] | RouteBlock
    ) -> None:
        if kind is self._comparing:
            self._deferred.append(entries)
        else:
            self._apply_changes(kind, entries)

    def _apply_changes(
        self, kind: EntityKind, entries: Mapping[EntityKey, EntityValue | None] | RouteBlock
    ) -> None:
        if isinstance(entries, RouteBlock):
            self._routes.take_in(entries)
            return
        desired, held = self.desired[kind], self.installed.by_kind[kind]
        upserts, deletes = self._upserts[kind], self._deletes[kind]
        for key, value in entries.items():
            if value is None:
                desired.pop(key, None)
                upserts.pop(key, None)
                deletes[key] = None
                continue
            desired[key] = value
            if held.get(key) == value and not self._is_in_flight(kind, key):
                upserts.pop(key, None)
            else:
                upserts[key] = None

    def release(self, kinds: Iterable[EntityKind]) -> None:
        """Deletes orphans of these kinds from now on. Called when the sources of these kinds have
        reported everything."""
        self._released.update(kinds)
        self._work.set()

    @property
    def comparisons(self) -> int | None:
        """Number of comparisons of the switch with the desired state.

        None if this session has made no comparison yet.
        """
        return self._comparisons if self.compared else None

    def is_orphan(self, kind: EntityKind, key: EntityKey) -> bool:
        """Returns whether an entity is an orphan that must not be deleted yet."""
        if kind in self._released or key in self._deletes[kind]:
            return False
        return key in self.installed.by_kind[kind] and key not in self.desired[kind]

    def delete_orphans_unless(
        self, kind: EntityKind, is_kept: Callable[[EntityKey], bool]
    ) -> Iterator[None]:
        """Deletes those orphans of an unreleased kind for which `is_kept` is false.

        The iterator handles one block of orphans per step.

        An orphan that became desired meanwhile is kept.
        """
        desired, deletes = self.desired[kind], self._deletes[kind]

        def is_done(key: EntityKey) -> bool:
            if key in desired:
                return False
            if not is_kept(key):
                deletes[key] = None
                return False
            return True

        for _ in self._orphans[kind].delete_unless(is_done):
            self._work.set()
            yield

    def hold(self, kinds: Iterable[EntityKind]) -> None:
        """Defers new entities of these kinds until `open`. Installed entities are still
        modified."""
        self._held = frozenset(kinds)

    def open(self) -> None:
        """Ends `hold`, and writes the deferred entities."""
        self._held = frozenset()
        self.failures.retry_waiting()
        self._work.set()

    def when_installed(
        self, kind: EntityKind, key: EntityKey, callback: Callable[[], None]
    ) -> None:
        """Calls `callback` when an entity is installed with its desired value, or at once if it
        already is.

        Not for routes.
        """
        wanted = self.desired[kind].get(key)
        if wanted is not None and self.installed.by_kind[kind].get(key) == wanted:
            callback()
        else:
            self._waiters.setdefault((kind, key), []).append(callback)

    @property
    def pending(self) -> int:
        """Number of outstanding updates, not counting failed updates that wait for a retry."""
        return (
            sum(map(len, self._upserts.values()))
            + sum(map(len, self._deletes.values()))
            + sum(len(self._orphans[kind]) for kind in self._released)
            + len(self._near)
            + len(self._in_flight)
            + self._routes.in_flight()
            + sum(map(len, self._deferred))
        )

    @property
    def orphans(self) -> int:
        """Number of orphans of kinds that are not released."""
        return sum(
            len(found) for kind, found in self._orphans.items() if kind not in self._released
        )

    @property
    def synced(self) -> bool:
        """Whether the switch equals the desired state. Orphans of kinds that are not released do
        not count."""
        return self.compared and not self.pending and not self.failures

    @property
    def forwards(self) -> bool:
        """Whether the switch forwards as desired.

        Also true while a large route table is being read. Until then the switch forwards by the
        routes that it already holds.
        """
        return self.synced or (self._unread and self.pending == self._blocked and not self.failures)

    # -- audits of the switch

    def is_under_way(self, kind: EntityKind, key: EntityKey) -> bool:
        """Returns whether an update of an entity is queued or in flight, or its kind is just being
        compared."""
        if kind is self._comparing:
            return True
        queued = key in self._upserts[kind] or key in self._deletes[kind]
        leaves = kind in self._released and bool(self._orphans[kind])
        queued = queued or (leaves and key not in self.desired[kind])
        near = kind is EntityKind.ROUTE and key in self._near
        installing = (kind, key) in self._installing
        return queued or near or installing or self._is_in_flight(kind, key)

    def _is_in_flight(self, kind: EntityKind, key: EntityKey) -> bool:
        return (
            self._routes.is_in_flight(key) if kind is EntityKind.ROUTE else key in self._in_flight
        )

    def _set_in_flight(self, batch: _Batch, under_way: bool) -> None:
        keys = [key for key, _ in batch.entries]
        if batch.kind is EntityKind.ROUTE:
            self._routes.set_in_flight(keys, under_way)
        elif under_way:
            self._in_flight.update(keys)
        else:
            self._in_flight.difference_update(keys)

    def found(self, kind: EntityKind, key: EntityKey, value: EntityValue | None) -> None:
        """Records that the switch holds `value` (None: nothing), and queues the correction.

        An entity of a committed kind is corrected by the next commit, because its new numbers must
        be on disk first.
        """
        if value is None:
            self.installed.remove(kind, [key])
        else:
            self.installed.put(kind, [(key, value)])
        if key not in self.desired[kind]:
            self._deletes[kind][key] = None
        elif kind not in COMMITTED:
            self._upserts[kind][key] = None
        self._work.set()

    # -- start and reconnect

    def disconnect(self) -> None:
        """Ends the session: the state of the switch is unknown until the next read-back."""
        self.compared, self.reading = False, None
        if self._table is not None:
            self._table.cancel()
            self._table = None
        if self._unread:
            self._unread = False
            self._apply_all_deferred()

    async def read_back(
        self,
        session: Writer,
        closing: Callable[[EntitiesByKind], ClosingPlan] = lambda _: ClosingPlan(),
    ) -> bool:
        """Reads the state of the switch, and closes the entities that `closing` names.

        Routes are read last, so that closing does not wait for a full table. A large table is read
        in the background (`table_reading`). Returns whether anything was closed. Raises
        P4RuntimeError.
        """
        self._routes.clear_in_flight()
        installed = self.reading = Inventory(self._routes)
        requests = self._codec.read_requests()
        routes = [one for one in requests if self._codec.is_route(one)]
        others = [one for one in requests if one not in routes]
        await read(session, self._codec, others, installed)
        closed = closing(installed.by_kind)
        await close(session, self._codec, closed, installed)
        self.installed = installed
        self.failures.clear()
        self._in_flight.clear()
        table = self._table = TableReading(installed.by_kind[EntityKind.ROUTE], self._work.set)
        await table.begin(read(session, self._codec, routes, installed, table.progressed))
        return bool(closed)

    async def compare(self) -> None:
        """Queues the difference between the desired and the read-back state.

        Of the routes, queues only those in `near` (connected prefixes, neighbours), or none while a
        large table is still being read. `run` compares all routes later, after the kinds that
        precede them.
        """
        self.compared = False
        for kind in EntityKind:
            self._upserts[kind].clear()
            if kind is not EntityKind.ROUTE:
                await self._compare(kind)
        self._near = {}
        self._unread = self._table is not None and not self._table.complete()
        if self._unread:
            self._comparing = EntityKind.ROUTE
            self._work.set()
            return
        desired, held = self.desired[EntityKind.ROUTE], self.installed.by_kind[EntityKind.ROUTE]
        self._near = {
            key: None for key in self.near() if key in desired and held.get(key) != desired[key]
        }
        self._work.set()

    async def _compare_routes(self) -> None:
        self.reading = None
        await self.on_table_read()
        self._unread = False
        await self._compare(EntityKind.ROUTE)
        self.compared = True
        self._comparisons += 1
        self.on_progress()

    async def _compare(self, kind: EntityKind) -> None:
        """Compares a kind in slices. Meanwhile, changes of its desired state are deferred.

        Keys that were queued before the comparison stay ahead of the keys that it adds.
        """
        self._comparing = kind
        try:
            await self._find_difference(kind)
            while self._apply_deferred():
                await asyncio.sleep(0)
        finally:
            self._apply_all_deferred()  # at the end of the session, changes are still deferred

    def _apply_all_deferred(self) -> None:
        while self._apply_deferred():
            pass
        self._comparing = None

    def _apply_deferred(self) -> bool:
        """Applies a slice of the deferred changes. The slice is larger than the changes that can
        arrive before the next call.

        Returns whether more are left.
        """
        taken = 0
        while self._deferred and taken < SLICE and self._comparing is not None:
            entries = self._deferred.popleft()
            taken += len(entries)
            self._apply_changes(self._comparing, entries)
        return bool(self._deferred)

    async def _find_difference(self, kind: EntityKind) -> None:
        desired, held = self.desired[kind], self.installed.by_kind[kind]
        if kind not in COMMITTED:
            lacking = (
                unwritten_routes(self._routes)
                if kind is EntityKind.ROUTE
                else unwritten(desired, held)
            )
            table = await in_order(lacking)
            upserts = self._upserts[kind]
            changed = list(upserts)
            upserts.clear()
            for block in (*table, changed):
                async for part in drained(block, SLICE):
                    upserts.update(dict.fromkeys(part))
        deletes, before = self._deletes[kind], self._orphans[kind]
        while deletes or before:
            gone = [deletes.popitem()[0] for _ in range(min(SLICE, len(deletes)))]
            for key in gone + before.take(SLICE):
                if key not in held and key not in desired:
                    self._confirm_deleted(kind, key)
            await asyncio.sleep(0)
        orphans = self._orphans[kind] = Orphans()
        found = (
            unwanted_routes(self._routes) if kind is EntityKind.ROUTE else unwanted(desired, held)
        )
        for part in found:
            orphans.add(part)
            await asyncio.sleep(0)

    def keep(self, entries: Iterable[tuple[EntityKind, EntityKey, EntityValue]]) -> None:
        """Makes installed entities of committed kinds desired. The values are given."""
        for kind, key, value in entries:
            self.desired[kind][key] = value
            self._orphans[kind].discard(key)

    async def commit(
        self,
        session: Writer,
        kind_entries: Iterable[tuple[EntityKind, EntityKey, EntityValue]],
        *,
        atomic: bool,
    ) -> None:
        """Writes entities of committed kinds at once, before all queued updates.

        The entities become desired when the switch has acknowledged them. With `atomic`, the switch
        applies all of them or none, and processes no packet in between. Raises P4RuntimeError if
        the switch refuses an entity, or if the session ends. After such an error, only a read-back
        shows which entities the switch holds.
        """
        entries = list(kind_entries)
        updates = []
        for kind, key, value in entries:
            present = key in self.installed.by_kind[kind]
            operation = UpdateType.MODIFY if present else UpdateType.INSERT
            updates.append(self._codec.update(operation, kind, key, value))
        self.counters["commits"] += 1
        statuses = await session.write(updates, atomic=atomic) or [OK_STATUS] * len(entries)
        refused = [entry for entry in zip(entries, statuses, strict=True) if entry[1].code]
        for (kind, key, value), status in zip(entries, statuses, strict=True):
            if not status.code and not (atomic and refused):
                self.desired[kind][key] = value
                self._orphans[kind].discard(key)
                self.installed.put(kind, [(key, value)])
        self.failures.retry_waiting()
        self._work.set()
        for (kind, key, _), status in refused:
            raise P4RuntimeError(status.code, f"{kind.name.lower()} {key}: {status[1]}")

    async def install(
        self, session: Writer, kind: EntityKind, entries: Mapping[EntityKey, EntityValue]
    ) -> str | None:
        """Writes new entities of one kind, before all queued updates, and makes them desired.

        The entities must not be named by other entities yet, so their order does not matter.
        Returns None if the switch holds all of them, else the reason why it refused one. In the
        second case the others are desired too, and the caller must remove them. Raises
        P4RuntimeError if the session ends.
        """
        problem = None
        async for batch in in_slices(list(entries.items()), BATCH):
            updates = [
                self._codec.update(UpdateType.INSERT, kind, key, value) for key, value in batch
            ]
            self.counters["writes"] += 1
            self.counters["updates"] += len(updates)
            # Order: marked before the write. The auditor may read an entity before the switch
            # acknowledges the write, and must not mistake it for an entity of another client.
            written = [(kind, key) for key, _ in batch]
            self._installing.update(written)
            try:
                statuses = await session.write(updates) or [OK_STATUS] * len(batch)
            finally:
                self._installing.difference_update(written)
            done = [one for one, status in zip(batch, statuses, strict=True) if not status.code]
            self.installed.put(kind, done)
            self.desired[kind].update(done)
            refused = (status for status in statuses if status.code)
            problem = next((status[1] or f"code {status.code}" for status in refused), None)
            if problem is not None:
                break
        return problem

    async def adopt(self, kind: EntityKind, entries: Mapping[EntityKey, EntityValue]) -> None:
        """Makes installed entities of a kind that is not released desired, in slices."""
        desired = self.desired[kind]
        async for part in in_slices(entries.items(), SLICE):
            desired.update(part)
        for _ in self._orphans[kind].delete_unless(lambda key: key not in desired):
            await asyncio.sleep(0)

    async def remove(self, kind: EntityKind, keys: Mapping[EntityKey, None]) -> None:
        """Queues the deletion of many entities, the last key first. Yields to the event loop after
        each slice."""
        async for part in in_slices(keys, SLICE):
            if kind is self._comparing:
                self._deferred.append(dict.fromkeys(part))
                continue
            for key in part:
                self.desired[kind].pop(key, None)
                self._upserts[kind].pop(key, None)
        self._deletes[kind].update(keys)
        self._work.set()

    def is_deleting(self, kind: EntityKind) -> bool:
        """Returns whether deletions of a kind are outstanding, apart from refused ones."""
        undesired = len(self.installed.by_kind[kind]) - len(self.desired[kind])
        return undesired > self.failures.of_kind(kind)

    def forget_desired(self, kinds: Iterable[EntityKind]) -> None:
        """Declares that no entity of these kinds is desired. Installed ones stay in the switch.

        In the next session these entities are orphans. They are deleted only after their kind has
        been released again. Must be called between two sessions.
        """
        for kind in kinds:
            self.desired[kind].clear()
            self._released.discard(kind)

    async def _take_orphans(self, kind: EntityKind) -> None:
        """Queues orphans for deletion, as many as `_write_all` writes in one call.

        Queuing all of them (perhaps a million) would block the event loop. Yields to the event loop
        after each slice, because a write, which would also yield, may not follow.
        """
        orphans, room = self._orphans[kind], BATCH * BATCHES_PER_TURN
        while kind in self._released and orphans and room:
            taken = orphans.take(min(room, SLICE))
            room -= len(taken)
            for key in taken:
                if key not in self.desired[kind]:
                    self._deletes[kind][key] = None
            await asyncio.sleep(0)

    # -- the task

    async def run(self, session: Writer) -> None:
        """Writes until cancelled. Raises P4RuntimeError when the session ends."""
        while True:
            await self._wait_for_work()
            await self._cycle(session)
            if self._table_waits:
                await self._compare_routes()

    async def _wait_for_work(self) -> None:
        self._requeue_due()
        self.on_progress()
        if self.pending > self._blocked or self._table_waits:
            return
        self._work.clear()
        retry = self.failures.next_retry
        delay = None if retry == NEVER else max(0.0, retry - self._clock())
        # Not `asyncio.wait_for`: in Python 3.11 it loses a cancellation that comes together with
        # work. Then this task would outlive its session, and the session would never end.
        with suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._work.wait()
        self._requeue_due()

    def _requeue_due(self) -> None:
        for kind, key in self.failures.due():
            wanted = key in self.desired[kind]
            (self._upserts if wanted else self._deletes)[kind][key] = None

    @property
    def _table_waits(self) -> bool:
        """Whether routes have been read but not yet compared. Raises P4RuntimeError if reading
        failed."""
        return not self.compared and (self._table is None or self._table.complete())

    @property
    def _blocked(self) -> int:
        """Number of queued updates that cycles skip for now.

        - While a large table is being read: routes, and deletions of entities of kinds that routes
          refer to.
        - While all interfaces are held: routes. No next hop can be installed then, so every route
          of a full table would be examined only to be postponed.
        """
        if self._unread:
            return (
                sum(map(len, self._deferred))
                + len(self._upserts[EntityKind.ROUTE])
                + sum(len(self._deletes[kind]) for kind in UNDER_ROUTES)
                + sum(len(self._orphans[kind]) for kind in self._released & UNDER_ROUTES)
            )
        held = EntityKind.EGRESS_INTERFACE in self._held
        if not held or self.installed.by_kind[EntityKind.EGRESS_INTERFACE]:
            return 0
        return len(self._near) + len(self._upserts[EntityKind.ROUTE])

    async def _cycle(self, session: Writer) -> None:
        for kind in EntityKind:
            if kind is EntityKind.OWN_SOURCE and self._near and not self._blocked:
                await self._write_all(session, EntityKind.ROUTE, UpdateType.INSERT, self._near)
            if kind is EntityKind.ROUTE and (self._unread or self._blocked):
                continue
            if not await self._write_all(session, kind, UpdateType.INSERT, self._upserts[kind]):
                return  # an update of an earlier kind goes first
        for kind in reversed(EntityKind):
            if self._unread and kind in UNDER_ROUTES:
                continue
            await self._take_orphans(kind)
            await self._write_all(session, kind, UpdateType.DELETE, self._deletes[kind])

    async def _write_all(
        self, session: Writer, kind: EntityKind, operation: UpdateType, queue: Queue
    ) -> bool:
        """Writes a kind's queue, at most `BATCHES_PER_TURN` batches.

        Returns False if it stopped because an earlier kind has updates.
        """
        deleting = operation is UpdateType.DELETE
        if not queue:
            return True
        may_wait = not deleting and queue is not self._near
        under_way: set[asyncio.Task[None]] = set()
        complete = True
        try:
            for _ in range(BATCHES_PER_TURN):
                sent = self._send_next(session, kind, queue, deleting)
                if sent is not None:
                    under_way.add(sent)
                    await asyncio.sleep(0)
                if len(under_way) >= WINDOW:
                    under_way = await some_done(under_way)
                if may_wait and self._more_urgent(kind):
                    complete = False
                    break
                if not queue:
                    break
        finally:
            failed = await all_done(under_way)
            queue.update(self._postponed)
            self._postponed.clear()
            self._routes.requeue_postponed()
        if failed is not None:
            raise failed
        return complete

    def _send_next(
        self, session: Writer, kind: EntityKind, queue: Queue, deleting: bool
    ) -> asyncio.Task[None] | None:
        """Starts to write the next batch, unless it is empty."""
        if kind is EntityKind.ROUTE and queue is not self._near and self._may_write_many():
            routes = self._next_routes(deleting)
            return asyncio.create_task(self._send_routes(session, routes)) if routes else None
        batch = self._next_deletes(kind) if deleting else self._next_upserts(kind, queue)
        if not batch.updates:
            return None
        self._set_in_flight(batch, True)
        return asyncio.create_task(self._send(session, batch))

    def _may_write_many(self) -> bool:
        """Returns whether the native table may build the batches: routes are not held, and none has
        failed."""
        return EntityKind.ROUTE not in self._held and not self.failures.of_kind(EntityKind.ROUTE)

    def _next_routes(self, deleting: bool) -> RouteBatch:
        if deleting:
            batch = self._routes.next_deletes(BATCH, self._codec)
            for key in batch.absent():
                self._confirm_deleted(EntityKind.ROUTE, key)
            return batch
        batch = self._routes.next_upserts(BATCH, self._missing_target, self._codec)
        for key, target in batch.unready():
            self.failures.record(EntityKind.ROUTE, key, WAITING, self._missing_target(target))
        return batch

    def _missing_target(self, target: EntityValue) -> str:
        return self._missing_reference(EntityKind.ROUTE, 0, target)

    def _more_urgent(self, kind: EntityKind) -> bool:
        return any(self._upserts[smaller] for smaller in EntityKind if smaller < kind)

    def _next_upserts(self, kind: EntityKind, queue: Queue) -> _Batch:
        desired = self.desired[kind]
        held = self.installed.by_kind[kind]
        batch = _Batch(kind, [], [], [])
        # Caches the result for each target: a full table of routes has few distinct targets.
        missing: dict[EntityValue, str] = {}
        update = self._codec.update
        while queue and len(batch.updates) < BATCH:
            key, _ = queue.popitem()  # newest first: removing the oldest takes linear time
            value = desired.get(key)
            present = held.get(key)
            if self._is_in_flight(kind, key):
                self._postponed[key] = None
                continue
            if value is None or present == value:
                self.failures.forget(kind, key)
                continue
            absent = missing.get(value)
            if absent is None:
                absent = self._missing_reference(kind, key, value)
                if kind is EntityKind.ROUTE:
                    missing[value] = absent
            if absent:
                self.failures.record(kind, key, WAITING, absent)
                continue
            modify = present is not None or kind in MODIFY_ONLY
            operation = UpdateType.MODIFY if modify else UpdateType.INSERT
            batch.operations.append(operation)
            batch.entries.append((key, value))
            batch.updates.append(update(operation, kind, key, value))
        return batch

    def _missing_reference(self, kind: EntityKind, key: EntityKey, value: EntityValue) -> str:
        if kind in self._held and key not in self.installed.by_kind[kind]:
            return "the policy is not in force yet"
        for reference in references(kind, key, value):
            if reference not in self.installed:
                return f"{reference[0].name.lower()} {reference[1]} is not installed"
        return ""

    def _next_deletes(self, kind: EntityKind) -> _Batch:
        queue, desired = self._deletes[kind], self.desired[kind]
        held = self.installed.by_kind[kind]
        batch = _Batch(kind, [], [], [])
        named = self._sets_of_leaving_lists(kind)
        while queue and len(batch.updates) < BATCH:
            key, _ = queue.popitem()
            if self._is_in_flight(kind, key):
                self._postponed[key] = None
            elif key in desired:
                continue
            elif key not in held:
                self._confirm_deleted(kind, key)
            elif isinstance(key, RuleEntry) and key.rule_set in named:
                self.failures.record(kind, key, WAITING, f"list {named[key.rule_set]} needs it")
            elif isinstance(key, int) and self.installed.uses((kind, key)):
                self._keep_for_now(kind, key)
            else:
                batch.operations.append(UpdateType.DELETE)
                batch.entries.append((key, None))
                batch.updates.append(self._codec.update(UpdateType.DELETE, kind, key, None))
        return batch

    def _sets_of_leaving_lists(self, kind: EntityKind) -> dict[int, EntityKey]:
        """Returns the rule sets that lists in the switch name although the desired lists do not,
        with the lists' ids. Empty if `kind` is not a kind of rules.

        Such a set must not be deleted yet: a packet of its list would meet only a part of the set.
        """
        of_lists = _LISTS_OF_RULES.get(kind)
        if of_lists is None:
            return {}
        desired = self.desired[of_lists]
        return {
            state.rule_set: key
            for key, state in self.installed.by_kind[of_lists].items()
            if isinstance(state, ListState) and desired.get(key) != state
        }

    def _keep_for_now(self, kind: EntityKind, key: int) -> None:
        """Defers the deletion of an entity that is still referred to."""
        if any(map(self._has_work, (user for user in EntityKind if user > kind))):
            self._postponed[key] = None  # updates of entities that refer to it are still queued
        else:
            users = self.installed.uses((kind, key))
            self.failures.record(
                kind, key, WAITING, f"still referred to by {users} installed entities"
            )

    def _has_work(self, kind: EntityKind) -> bool:
        leaving = kind in self._released and self._orphans[kind]
        return bool(self._upserts[kind] or self._deletes[kind] or leaving)

    # -- replies of the switch

    async def _send(self, session: Writer, batch: _Batch) -> None:
        self.counters["writes"] += 1
        self.counters["updates"] += len(batch.updates)
        try:
            statuses = await session.write(batch.updates)
        except P4RuntimeError:
            for key, value in batch.entries:
                queue = self._deletes if value is None else self._upserts
                queue[batch.kind][key] = None
            raise
        finally:
            self._set_in_flight(batch, False)
        if statuses:
            batch = self._record_refused(batch, statuses)
        self._acknowledged(batch)

    async def _send_routes(self, session: Writer, batch: RouteBatch) -> None:
        self.counters["writes"] += 1
        self.counters["updates"] += len(batch)
        try:
            statuses = await session.write(batch.updates())
        except P4RuntimeError:
            batch.requeue()
            raise
        except BaseException:
            batch.landed(False)
            raise
        if not statuses and not self.failures.of_kind(EntityKind.ROUTE):
            batch.landed(True)
            self.on_progress()
            return
        operations = list(map(UpdateType, batch.operations()))
        each = _Batch(EntityKind.ROUTE, operations, cast("list[_EntityEntry]", batch.entries()), [])
        batch.landed(False)
        self._acknowledged(self._record_refused(each, statuses) if statuses else each)

    def _acknowledged(self, batch: _Batch) -> None:
        kind = batch.kind
        set_entries = [(key, value) for key, value in batch.entries if value is not None]
        if set_entries:
            self.installed.put(kind, set_entries)
        deleted = [key for key, value in batch.entries if value is None]
        if deleted:
            self.installed.remove(kind, deleted)
            # The deletion of a route need not be confirmed, because a route has no id that could be
            # reused.
            if kind is not EntityKind.ROUTE or self.failures or self._waiters:
                for key in deleted:
                    self._confirm_deleted(kind, key)
        self.failures.succeeded(kind, [key for key, _ in batch.entries])
        if self._waiters:
            self._notify(kind, set_entries)
        self.on_progress()

    def _record_refused(self, batch: _Batch, statuses: list[Status]) -> _Batch:
        """Records the refused updates of a batch. Returns a batch of the applied ones."""
        done = _Batch(batch.kind, [], [], [])
        for operation, entry, status in zip(batch.operations, batch.entries, statuses, strict=True):
            key = entry[0]
            gone = operation is UpdateType.DELETE and status.code == NOT_FOUND
            if status.code == 0 or gone:
                done.operations.append(operation)
                done.entries.append(entry)
                continue
            self.counters["updates refused"] += 1
            if operation is UpdateType.INSERT and status.code == ALREADY_EXISTS:
                self.installed.put(batch.kind, [(key, UNKNOWN)])
            elif operation is UpdateType.MODIFY and status.code == NOT_FOUND:
                self.installed.remove(batch.kind, [key])
            self.failures.record(batch.kind, key, status.code, status[1])
        return done

    def _confirm_deleted(self, kind: EntityKind, key: EntityKey) -> None:
        self.failures.forget(kind, key)
        self._waiters.pop((kind, key), None)
        self._deleted(kind, key)

    def _notify(self, kind: EntityKind, entries: list[tuple[EntityKey, EntityValue]]) -> None:
        for key, value in entries:
            if self.desired[kind].get(key) == value:
                for callback in self._waiters.pop((kind, key), ()):
                    callback()
