# SPDX-License-Identifier: Apache-2.0
"""Makes what the switch holds equal to what is desired, except flows, which `policy.flow_tables`
writes. `policy.commit` resets counters, and the auditor deletes what no module knows.

Order. A cycle installs and modifies kind by kind in ascending `Kind` (next hop, member, group,
route, ...), waiting for the acknowledgement of one kind before the next begins, and then deletes in
descending order. An entity whose references are not installed waits; an entity that is still
referred to is not deleted; a change is a MODIFY. So the switch never holds a dangling reference,
whatever fails.
Links, addresses and neighbours concern smaller kinds than routes, and a long run of routes is
interrupted for them after the batch at hand. An empty switch (`compare`) gets the routes that are
`near` before an interface is let in, and the rest of the table after it: see `table_order`.

Errors. Every refused update is kept under its name (`failures`), retried with growing delay, and
gone once it succeeds. "Already exists" and "not found" mean that the switch differs from the
inventory: the other operation corrects this at once.

Start and reconnect. `read_back` learns what the switch holds, `withdraw` takes out what must not
stand beside the new configuration, `compare` queues the difference. Correct entities are not
touched. An entity that no source wants (an orphan) is deleted when its kind is released, which the
controller does once the sources are complete. New entities of kinds that are held (`hold`) wait
until `open`.

Routes. Desired, installed and queued routes are in a native table (`sluice._native.RouteTable`),
which also builds their writes; this module only tells it, once per target, whether the target may
be referred to. Failed routes and routes that are `near` take the general path, which sees the same
table as dictionaries.

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
    Changes,
    Key,
    Kind,
    Value,
    references,
)
from sluice.failures import NEVER, WAITING, Failures
from sluice.inventory import Inventory
from sluice.orphans import Orphans
from sluice.p4.codec import Codec
from sluice.p4runtime.messages import Operation
from sluice.p4runtime.session import (
    ALREADY_EXISTS,
    NOT_FOUND,
    P4RuntimeError,
    Status,
)
from sluice.readback import BATCH, OK_STATUS, SLICE, Writer, close, read
from sluice.state.route_order import new_table
from sluice.state.takeover import Closing, Entities
from sluice.table_order import (
    in_order,
    unwanted,
    unwanted_routes,
    unwritten,
    unwritten_routes,
)
from sluice.table_reading import TableReading
from sluice.task_slices import all_done, drained, some_done

WINDOW = 4
"""Writes under way at a time."""
BATCHES_PER_TURN = 32
"""Batches of routes before deletions get their turn."""


UNDER_ROUTES = frozenset(
    {Kind.NEXTHOP, Kind.GROUP_MEMBER, Kind.GROUP, Kind.GROUP_ENTRY, Kind.ROUTE}
)
"""Kinds that routes refer to, and their own."""


async def _nothing() -> None:
    pass


_Entry = tuple[Key, Value | None]


class _Batch(NamedTuple):
    kind: Kind
    operations: list[Operation]
    entries: list[_Entry]
    updates: list[bytes]


Queue = MutableMapping[Key, None]
"""Keys that wait, the newest to be taken first: a dictionary, or the native table's."""


class Reconciler:
    """Desired and installed entities, and the task between them. `routes` has those of routes."""

    def __init__(
        self,
        codec: Codec,
        deleted: Callable[[Kind, Key], None],
        clock: Callable[[], float],
        routes: RouteTable | None = None,
    ) -> None:
        self._routes = routes or new_table()
        self._codec = codec
        self._deleted = deleted
        self._clock = clock
        self.desired: dict[Kind, MutableMapping[Key, Value]] = {kind: {} for kind in Kind}
        self.desired[Kind.ROUTE] = self._routes.desired
        self.installed = Inventory(self._routes)
        self.failures = Failures(clock)
        self.counters: Counter[str] = Counter()
        self.compared = False
        self._comparisons = 0
        self.reading: Inventory | None = None
        """Entities read back so far; None when no read-back is under way."""
        self._upserts: dict[Kind, Queue] = {kind: {} for kind in Kind}
        self._deletes: dict[Kind, Queue] = {kind: {} for kind in Kind}
        self._upserts[Kind.ROUTE] = self._routes.upserts
        self._deletes[Kind.ROUTE] = self._routes.deletes
        self._orphans = {kind: Orphans() for kind in Kind}
        self._near: dict[Key, None] = {}
        self._table: TableReading | None = None
        self._unread = False
        """Whether a large table is being read: nothing that routes refer to may go meanwhile."""
        self._comparing: Kind | None = None
        self._deferred: deque[Mapping[Key, Value | None] | RouteBlock] = deque()
        """Changes of the kind that is being compared, which came meanwhile."""
        self._in_flight: set[Key] = set()
        """Keys in flight, of all kinds but routes."""
        self._postponed: dict[Key, None] = {}
        self._released: set[Kind] = set()
        self._held: frozenset[Kind] = frozenset()
        self._work = asyncio.Event()
        self._waiters: dict[tuple[Kind, Key], list[Callable[[], None]]] = {}
        self.on_progress: Callable[[], None] = lambda: None
        self.near: Callable[[], Iterable[Key]] = tuple
        self.on_table_read: Callable[[], Awaitable[None]] = _nothing
        """Is awaited when all routes of the switch are known, before they are compared."""

    # -- what is wanted

    def submit(self, changes: Changes) -> None:
        """Desired entities have changed; of kinds that may be written at any time."""
        for block in changes.blocks:
            self._take_in_or_defer(Kind.ROUTE, block)
        for kind, entries in changes.by_kind.items():
            self._take_in_or_defer(kind, entries)
        self._work.set()

    def _take_in_or_defer(
        self, kind: Kind, entries: Mapping[Key, Value | None] | RouteBlock
    ) -> None:
        if kind is self._comparing:
            self._deferred.append(entries)
        else:
            self._take_in(kind, entries)

    def _take_in(self, kind: Kind, entries: Mapping[Key, Value | None] | RouteBlock) -> None:
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

    def release(self, kinds: Iterable[Kind]) -> None:
        """The sources have said all they know of these kinds: orphans are to go, now and later."""
        self._released.update(kinds)
        self._work.set()

    @property
    def comparisons(self) -> int | None:
        """How often what the switch holds was compared with what is desired; None while it is not
        known."""
        return self._comparisons if self.compared else None

    def is_orphan(self, kind: Kind, key: Key) -> bool:
        """Whether the switch holds an entity that nobody wants, and is to keep it for now."""
        if kind in self._released or key in self._deletes[kind]:
            return False
        return key in self.installed.by_kind[kind] and key not in self.desired[kind]

    def sift_orphans(self, kind: Kind, stays: Callable[[Key], bool]) -> Iterator[None]:
        """Deletes the orphans of an unreleased kind for which `stays` is false, a block per step.

        An entity that is desired by now is no longer an orphan.
        """
        desired, deletes = self.desired[kind], self._deletes[kind]

        def looked_at(key: Key) -> bool:
            if key in desired:
                return False
            if not stays(key):
                deletes[key] = None
                return False
            return True

        for _ in self._orphans[kind].sift(looked_at):
            self._work.set()
            yield

    def hold(self, kinds: Iterable[Kind]) -> None:
        """Defers new entities of these kinds until `open`; still corrects installed ones."""
        self._held = frozenset(kinds)

    def open(self) -> None:
        """Ends `hold`, and retries the entities that wait."""
        self._held = frozenset()
        self.failures.retry_waiting()
        self._work.set()

    def when_installed(self, kind: Kind, key: Key, callback: Callable[[], None]) -> None:
        """Calls back once this entity, which is no route, is installed as desired; at once if it
        is."""
        wanted = self.desired[kind].get(key)
        if wanted is not None and self.installed.by_kind[kind].get(key) == wanted:
            callback()
        else:
            self._waiters.setdefault((kind, key), []).append(callback)

    @property
    def pending(self) -> int:
        """Updates still to be made, not counting failures that wait for their next attempt."""
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
        """Entities in the switch that nobody wants and that are not yet to go."""
        return sum(
            len(found) for kind, found in self._orphans.items() if kind not in self._released
        )

    @property
    def synced(self) -> bool:
        """Whether the switch holds exactly what is desired (and orphans not yet released)."""
        return self.compared and not self.pending and not self.failures

    @property
    def forwards(self) -> bool:
        """Whether the switch holds what is desired, but for routes of a large table that is still
        being read: by these it goes on forwarding as before."""
        return self.synced or (self._unread and self.pending == self._blocked and not self.failures)

    # -- comparing with what the switch holds

    def is_under_way(self, kind: Kind, key: Key) -> bool:
        """Whether an update of this entity is queued or sent, or is just being looked for."""
        if kind is self._comparing:
            return True
        queued = key in self._upserts[kind] or key in self._deletes[kind]
        leaves = kind in self._released and bool(self._orphans[kind])
        queued = queued or (leaves and key not in self.desired[kind])
        near = kind is Kind.ROUTE and key in self._near
        return queued or near or self._is_in_flight(kind, key)

    def _is_in_flight(self, kind: Kind, key: Key) -> bool:
        return self._routes.is_in_flight(key) if kind is Kind.ROUTE else key in self._in_flight

    def _set_in_flight(self, batch: _Batch, under_way: bool) -> None:
        keys = [key for key, _ in batch.entries]
        if batch.kind is Kind.ROUTE:
            self._routes.set_in_flight(keys, under_way)
        elif under_way:
            self._in_flight.update(keys)
        else:
            self._in_flight.difference_update(keys)

    def found(self, kind: Kind, key: Key, value: Value | None) -> None:
        """Records that the switch holds `value` (None: nothing), and queues the correction.

        Lists are put right by a commit, since new numbers have to be on disk first.
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
            self._take_in_all_deferred()

    async def read_back(
        self, session: Writer, closing: Callable[[Entities], Closing] = lambda _: Closing()
    ) -> bool:
        """Reads the state of the switch, and closes the entities that `closing` names.

        Routes are read last, so that closing does not wait for a full table. A large table is not
        waited for at all (`table_reading`). Returns whether anything was closed. Raises
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
        table = self._table = TableReading(installed.by_kind[Kind.ROUTE], self._work.set)
        await table.begin(read(session, self._codec, routes, installed, table.progressed))
        return bool(closed)

    async def compare(self) -> None:
        """Queues the difference between what is desired and what was read back; of routes those
        that are near, unless a large table is still being read. The others are compared by the
        task, after what goes before them."""
        self.compared = False
        for kind in Kind:
            self._upserts[kind].clear()
            if kind is not Kind.ROUTE:
                await self._compare(kind)
        self._near = {}
        self._unread = self._table is not None and not self._table.complete()
        if self._unread:
            self._comparing = Kind.ROUTE
            self._work.set()
            return
        desired, held = self.desired[Kind.ROUTE], self.installed.by_kind[Kind.ROUTE]
        self._near = {
            key: None for key in self.near() if key in desired and held.get(key) != desired[key]
        }
        self._work.set()

    async def _compare_routes(self) -> None:
        self.reading = None
        await self.on_table_read()
        self._unread = False
        await self._compare(Kind.ROUTE)
        self.compared = True
        self._comparisons += 1
        self.on_progress()

    async def _compare(self, kind: Kind) -> None:
        """Compares a kind in slices. Changes of its desired state wait for the end.

        Changes queued before keep their place, ahead of the rest.
        """
        self._comparing = kind
        try:
            await self._find_difference(kind)
            while self._take_in_deferred():
                await asyncio.sleep(0)
        finally:
            self._take_in_all_deferred()  # the session has ended

    def _take_in_all_deferred(self) -> None:
        while self._take_in_deferred():
            pass
        self._comparing = None

    def _take_in_deferred(self) -> bool:
        """Some of the changes that waited, more than come in a turn; whether there are more."""
        taken = 0
        while self._deferred and taken < SLICE and self._comparing is not None:
            entries = self._deferred.popleft()
            taken += len(entries)
            self._take_in(self._comparing, entries)
        return bool(self._deferred)

    async def _find_difference(self, kind: Kind) -> None:
        desired, held = self.desired[kind], self.installed.by_kind[kind]
        if kind not in COMMITTED:
            lacking = (
                unwritten_routes(self._routes) if kind is Kind.ROUTE else unwritten(desired, held)
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
        found = unwanted_routes(self._routes) if kind is Kind.ROUTE else unwanted(desired, held)
        for part in found:
            orphans.add(part)
            await asyncio.sleep(0)

    def keep(self, entries: Iterable[tuple[Kind, Key, Value]]) -> None:
        """These entities of committed kinds were found installed and are wanted as they are."""
        for kind, key, value in entries:
            self.desired[kind][key] = value
            self._orphans[kind].discard(key)

    async def commit(
        self, session: Writer, kind_entries: Iterable[tuple[Kind, Key, Value]], *, atomic: bool
    ) -> None:
        """Writes these entities of committed kinds at once, whatever else is queued.

        They are desired as soon as they are acknowledged. Raises P4RuntimeError when the switch
        refused one, or when the session ended: which of them it holds is then known only after the
        next read-back. With `atomic` the switch takes all of them or none, between two packets.
        """
        entries = list(kind_entries)
        updates = []
        for kind, key, value in entries:
            present = key in self.installed.by_kind[kind]
            operation = Operation.MODIFY if present else Operation.INSERT
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

    async def _take_orphans(self, kind: Kind) -> None:
        """As many as one turn of deletions writes: a million in one go would stop the loop. Nothing
        may come of them, so that no write gives the loop its turn."""
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
        with suppress(TimeoutError):
            await asyncio.wait_for(self._work.wait(), delay)
        self._requeue_due()

    def _requeue_due(self) -> None:
        for kind, key in self.failures.due():
            wanted = key in self.desired[kind]
            (self._upserts if wanted else self._deletes)[kind][key] = None

    @property
    def _table_waits(self) -> bool:
        """Whether routes were read and are to be compared. Raises P4RuntimeError if they could not
        be read."""
        return not self.compared and (self._table is None or self._table.complete())

    @property
    def _blocked(self) -> int:
        """How many updates no cycle would try: of routes and what they refer to, while they are
        being read; and routes, while no next hop can be installed because all interfaces are held.
        A full table would be looked at and put aside in vain."""
        if self._unread:
            return (
                sum(map(len, self._deferred))
                + len(self._upserts[Kind.ROUTE])
                + sum(len(self._deletes[kind]) for kind in UNDER_ROUTES)
                + sum(len(self._orphans[kind]) for kind in self._released & UNDER_ROUTES)
            )
        held = Kind.EGRESS_INTERFACE in self._held
        if not held or self.installed.by_kind[Kind.EGRESS_INTERFACE]:
            return 0
        return len(self._near) + len(self._upserts[Kind.ROUTE])

    async def _cycle(self, session: Writer) -> None:
        for kind in Kind:
            if kind is Kind.OWN_SOURCE and self._near and not self._blocked:
                await self._write_all(session, Kind.ROUTE, Operation.INSERT, self._near)
            if kind is Kind.ROUTE and (self._unread or self._blocked):
                continue
            if not await self._write_all(session, kind, Operation.INSERT, self._upserts[kind]):
                return  # something of a smaller kind has come: it goes first
        for kind in reversed(Kind):
            if self._unread and kind in UNDER_ROUTES:
                continue
            await self._take_orphans(kind)
            await self._write_all(session, kind, Operation.DELETE, self._deletes[kind])

    async def _write_all(
        self, session: Writer, kind: Kind, operation: Operation, queue: Queue
    ) -> bool:
        """Writes all of a kind's queue; False when it stopped for something more urgent."""
        deleting = operation is Operation.DELETE
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
        self, session: Writer, kind: Kind, queue: Queue, deleting: bool
    ) -> asyncio.Task[None] | None:
        """Begins to write the next batch, if there is something to write in it."""
        if kind is Kind.ROUTE and queue is not self._near and self._may_write_many():
            routes = self._next_routes(deleting)
            return asyncio.create_task(self._send_routes(session, routes)) if routes else None
        batch = self._next_deletes(kind) if deleting else self._next_upserts(kind, queue)
        if not batch.updates:
            return None
        self._set_in_flight(batch, True)
        return asyncio.create_task(self._send(session, batch))

    def _may_write_many(self) -> bool:
        """Whether no route has to be looked at on its own."""
        return Kind.ROUTE not in self._held and not self.failures.of_kind(Kind.ROUTE)

    def _next_routes(self, deleting: bool) -> RouteBatch:
        if deleting:
            batch = self._routes.next_deletes(BATCH, self._codec)
            for key in batch.absent():
                self._confirm_deleted(Kind.ROUTE, key)
            return batch
        batch = self._routes.next_upserts(BATCH, self._missing_target, self._codec)
        for key, target in batch.unready():
            self.failures.record(Kind.ROUTE, key, WAITING, self._missing_target(target))
        return batch

    def _missing_target(self, target: Value) -> str:
        return self._missing_reference(Kind.ROUTE, 0, target)

    def _more_urgent(self, kind: Kind) -> bool:
        return any(self._upserts[smaller] for smaller in Kind if smaller < kind)

    def _next_upserts(self, kind: Kind, queue: Queue) -> _Batch:
        desired = self.desired[kind]
        held = self.installed.by_kind[kind]
        batch = _Batch(kind, [], [], [])
        missing: dict[Value, str] = {}  # routes: the same few targets again and again
        update = self._codec.update
        while queue and len(batch.updates) < BATCH:
            key, _ = queue.popitem()  # the newest: a dict gives the oldest only in linear time
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
                if kind is Kind.ROUTE:
                    missing[value] = absent
            if absent:
                self.failures.record(kind, key, WAITING, absent)
                continue
            modify = present is not None or kind in MODIFY_ONLY
            operation = Operation.MODIFY if modify else Operation.INSERT
            batch.operations.append(operation)
            batch.entries.append((key, value))
            batch.updates.append(update(operation, kind, key, value))
        return batch

    def _missing_reference(self, kind: Kind, key: Key, value: Value) -> str:
        if kind in self._held and key not in self.installed.by_kind[kind]:
            return "policy does not stand yet"
        for reference in references(kind, key, value):
            if reference not in self.installed:
                return f"{reference[0].name.lower()} {reference[1]} is not installed"
        return ""

    def _next_deletes(self, kind: Kind) -> _Batch:
        queue, desired = self._deletes[kind], self.desired[kind]
        held = self.installed.by_kind[kind]
        batch = _Batch(kind, [], [], [])
        while queue and len(batch.updates) < BATCH:
            key, _ = queue.popitem()
            if self._is_in_flight(kind, key):
                self._postponed[key] = None
            elif key in desired:
                continue
            elif key not in held:
                self._confirm_deleted(kind, key)
            elif isinstance(key, int) and self.installed.uses((kind, key)):
                self._keep_for_now(kind, key)
            else:
                batch.operations.append(Operation.DELETE)
                batch.entries.append((key, None))
                batch.updates.append(self._codec.update(Operation.DELETE, kind, key, None))
        return batch

    def _keep_for_now(self, kind: Kind, key: int) -> None:
        """Something still refers to what is to be deleted."""
        if any(map(self._has_work, (user for user in Kind if user > kind))):
            self._postponed[key] = None  # its users have not all had their turn
        else:
            users = self.installed.uses((kind, key))
            self.failures.record(
                kind, key, WAITING, f"still referred to by {users} installed entities"
            )

    def _has_work(self, kind: Kind) -> bool:
        leaving = kind in self._released and self._orphans[kind]
        return bool(self._upserts[kind] or self._deletes[kind] or leaving)

    # -- answers

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
            batch = self._sort_out(batch, statuses)
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
        if not statuses and not self.failures.of_kind(Kind.ROUTE):
            batch.landed(True)
            self.on_progress()
            return
        operations = list(map(Operation, batch.operations()))
        each = _Batch(Kind.ROUTE, operations, cast("list[_Entry]", batch.entries()), [])
        batch.landed(False)
        self._acknowledged(self._sort_out(each, statuses) if statuses else each)

    def _acknowledged(self, batch: _Batch) -> None:
        kind = batch.kind
        set_entries = [(key, value) for key, value in batch.entries if value is not None]
        if set_entries:
            self.installed.put(kind, set_entries)
        deleted = [key for key, value in batch.entries if value is None]
        if deleted:
            self.installed.remove(kind, deleted)
            # A route has no number that could be used again.
            if kind is not Kind.ROUTE or self.failures or self._waiters:
                for key in deleted:
                    self._confirm_deleted(kind, key)
        self.failures.succeeded(kind, [key for key, _ in batch.entries])
        if self._waiters:
            self._notify(kind, set_entries)
        self.on_progress()

    def _sort_out(self, batch: _Batch, statuses: list[Status]) -> _Batch:
        """Deals with the refused updates of a batch; returns the batch of the others."""
        done = _Batch(batch.kind, [], [], [])
        for operation, entry, status in zip(batch.operations, batch.entries, statuses, strict=True):
            key = entry[0]
            gone = operation is Operation.DELETE and status.code == NOT_FOUND
            if status.code == 0 or gone:
                done.operations.append(operation)
                done.entries.append(entry)
                continue
            self.counters["updates refused"] += 1
            if operation is Operation.INSERT and status.code == ALREADY_EXISTS:
                self.installed.put(batch.kind, [(key, UNKNOWN)])
            elif operation is Operation.MODIFY and status.code == NOT_FOUND:
                self.installed.remove(batch.kind, [key])
            self.failures.record(batch.kind, key, status.code, status[1])
        return done

    def _confirm_deleted(self, kind: Kind, key: Key) -> None:
        self.failures.forget(kind, key)
        self._waiters.pop((kind, key), None)
        self._deleted(kind, key)

    def _notify(self, kind: Kind, entries: list[tuple[Key, Value]]) -> None:
        for key, value in entries:
            if self.desired[kind].get(key) == value:
                for callback in self._waiters.pop((kind, key), ()):
                    callback()
