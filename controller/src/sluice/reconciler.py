# SPDX-License-Identifier: Apache-2.0
"""The only writer to the switch: makes what is installed equal to what is desired.

Order. A cycle installs and modifies kind by kind in ascending `Kind` (next hop, member, group,
route, ...), waiting for the acknowledgement of one kind before the next begins, and then deletes in
descending order. An entity whose references are not installed waits; one that is still referred to
is not deleted; a change is a MODIFY. So the switch never holds a dangling reference whatever fails.
Links, addresses and neighbours concern smaller kinds than routes, and a long run of routes is
interrupted for them after the batch at hand. An empty switch (`compare`) gets the routes that are
`near` before an interface is let in, and the rest of the table after it: see `table_order`.

Errors. Every refused update is kept under its name (`failures`), retried with growing delay, and
gone once it succeeds. "Already exists" and "not found" mean that the switch is not as it was
thought to be: they are corrected at once with the other operation.

Start and reconnect. `read_back` learns what the switch holds, `withdraw` takes out what must not
stand beside the new configuration, `compare` queues the difference. What is right is not touched.
What nobody wants (an orphan) is deleted when its kind is released, which the controller does once
the sources have said all they know. New entities of kinds that are held (`hold`) wait until `open`.

Depends on entities, inventory, failures, readback, table_order, task_slices, p4 and p4runtime. One
task (`run`) does all the writing.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple, cast

from sluice.entities import (
    COMMITTED,
    MODIFY_ONLY,
    UNKNOWN,
    Changes,
    Key,
    Kind,
    RouteSlot,
    Target,
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
from sluice.state.takeover import Closing, Entities
from sluice.table_order import TableQueue, in_order
from sluice.table_reading import TableReading
from sluice.task_slices import all_done, forget, in_slices, some_done

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


class _Batch(NamedTuple):
    kind: Kind
    operations: list[Operation]
    entries: list[tuple[Key, Value | None]]
    updates: list[bytes]


class Reconciler:
    """Desired and installed entities, and the task between them."""

    def __init__(
        self,
        codec: Codec,
        deleted: Callable[[Kind, Key], None],
        clock: Callable[[], float],
    ) -> None:
        self._codec = codec
        self._deleted = deleted
        self._clock = clock
        self.desired: dict[Kind, dict[Key, Value]] = {kind: {} for kind in Kind}
        self.installed = Inventory()
        self.failures = Failures(clock)
        self.counters: Counter[str] = Counter()
        self.compared = False
        self._comparisons = 0
        self.reading: Inventory | None = None
        """What was read back so far, while it is."""
        self._upserts: dict[Kind, dict[Key, None]] = {kind: {} for kind in Kind}
        self._deletes: dict[Kind, dict[Key, None]] = {kind: {} for kind in Kind}
        self._orphans = {kind: Orphans() for kind in Kind}
        self._near: dict[Key, None] = {}
        self._missing = TableQueue()
        """Routes that the switch did not hold when it was read, after `_upserts`."""
        self._forgetting: asyncio.Task[None] | None = None
        self._table: TableReading | None = None
        self._unread = False
        """Whether a large table is being read: nothing that routes refer to may go meanwhile."""
        self._comparing: Kind | None = None
        self._deferred: deque[Mapping[Key, Value | None]] = deque()
        """Changes of the kind that is being compared, which came meanwhile."""
        self._in_flight: set[Key] = set()
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
        for kind, entries in changes.by_kind.items():
            if kind is self._comparing:
                self._deferred.append(entries)
            else:
                self._take_in(kind, entries)
        self._work.set()

    def _take_in(self, kind: Kind, entries: Mapping[Key, Value | None]) -> None:
        desired, held = self.desired[kind], self.installed.by_kind[kind]
        upserts, deletes = self._upserts[kind], self._deletes[kind]
        for key, value in entries.items():
            if value is None:
                desired.pop(key, None)
                upserts.pop(key, None)
                deletes[key] = None
                continue
            desired[key] = value
            if held.get(key) == value and key not in self._in_flight:
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
        """Has the orphans deleted that do not stay, a block at each step, of a kind that is not
        released. What is wanted by now is none any more."""
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
        """What the switch does not hold yet of these kinds waits; what it holds is kept true."""
        self._held = frozenset(kinds)

    def open(self) -> None:
        """Nothing waits any more."""
        self._held = frozenset()
        self.failures.retry_waiting()
        self._work.set()

    def when_installed(self, kind: Kind, key: Key, callback: Callable[[], None]) -> None:
        """Calls back once this entity is installed as desired; at once if it is."""
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
            + len(self._missing)
            + len(self._in_flight)
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
        queued = queued or (kind is Kind.ROUTE and self._is_missing(key))
        return queued or key in self._in_flight

    def _is_missing(self, key: Key) -> bool:
        """Whether a route waits to be written with the table."""
        if key in self._near:
            return True
        held = self.installed.by_kind[Kind.ROUTE].get(key)
        return bool(self._missing) and held != self.desired[Kind.ROUTE].get(key)

    def found(self, kind: Kind, key: Key, value: Value | None) -> None:
        """The switch holds this, or nothing, whatever it was thought to hold: to be put right.

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
        """The session is over: what the switch holds is not known until it is read back."""
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
        """Learns what the switch holds, and closes what `closing` says of it.

        Routes are read last: what is to be closed does not wait for a full table. A large one is
        not waited for at all (`table_reading`). Returns whether anything was closed. Raises
        P4RuntimeError.
        """
        installed = self.reading = Inventory()
        requests = self._codec.read_requests()
        routes = [one for one in requests if self._codec.is_route(one)]
        others = [one for one in requests if one not in routes]
        await read(session, self._codec, others, installed)
        closed = closing(installed.by_kind)
        await close(session, self._codec, closed, installed)
        before, self.installed = self.installed, installed
        self._forgetting = asyncio.create_task(forget(before.by_kind[Kind.ROUTE], SLICE))
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
            self._upserts[kind] = {}
            if kind is not Kind.ROUTE:
                await self._compare(kind)
        self._near, self._missing = {}, TableQueue()
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
        """In slices. What is desired of this kind stands still meanwhile: changes wait for the end.
        Those that came before keep their place, ahead of the rest."""
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
        if kind is Kind.ROUTE:
            self._missing = await in_order(desired, held)
        elif kind not in COMMITTED:
            self._upserts[kind] |= {key: None for key in desired if held.get(key) != desired[key]}
        deletes, before = self._deletes[kind], self._orphans[kind]
        while deletes or before:
            gone = [deletes.popitem()[0] for _ in range(min(SLICE, len(deletes)))]
            for key in gone + before.take(SLICE):
                if key not in held and key not in desired:
                    self._confirm_deleted(kind, key)
            await asyncio.sleep(0)
        orphans = self._orphans[kind] = Orphans()
        async for found in in_slices(held, SLICE):
            orphans.add([key for key in found if key not in desired])
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
                + len(self._missing)
                + sum(len(self._deletes[kind]) for kind in UNDER_ROUTES)
                + sum(len(self._orphans[kind]) for kind in self._released & UNDER_ROUTES)
            )
        held = Kind.EGRESS_INTERFACE in self._held
        if not held or self.installed.by_kind[Kind.EGRESS_INTERFACE]:
            return 0
        return len(self._near) + len(self._missing) + len(self._upserts[Kind.ROUTE])

    async def _cycle(self, session: Writer) -> None:
        for kind in Kind:
            if kind is Kind.OWN_SOURCE and self._near and not self._blocked:
                await self._write_all(session, Kind.ROUTE, Operation.INSERT, self._near)
            if kind is Kind.ROUTE and (self._unread or self._blocked):
                continue
            if not await self._write_all(session, kind, Operation.INSERT, self._upserts[kind]):
                return  # something of a smaller kind has come: it goes first
        if self._missing and not (self._unread or self._blocked):
            await self._write_all(session, Kind.ROUTE, Operation.INSERT, self._missing)
            if self._more_urgent(Kind.ROUTE):
                return
        for kind in reversed(Kind):
            if self._unread and kind in UNDER_ROUTES:
                continue
            await self._take_orphans(kind)
            await self._write_all(session, kind, Operation.DELETE, self._deletes[kind])

    async def _write_all(
        self,
        session: Writer,
        kind: Kind,
        operation: Operation,
        queue: dict[Key, None] | TableQueue,
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
                if isinstance(queue, TableQueue):
                    batch = self._next_missing(queue)
                elif deleting:
                    batch = self._next_deletes(kind)
                else:
                    batch = self._next_upserts(kind, queue)
                if batch.updates:
                    self._in_flight.update(key for key, _ in batch.entries)
                    under_way.add(asyncio.create_task(self._send(session, batch)))
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
            if isinstance(queue, TableQueue):
                queue = self._upserts[kind]
            queue.update(self._postponed)
            self._postponed.clear()
        if failed is not None:
            raise failed
        return complete

    def _more_urgent(self, kind: Kind) -> bool:
        return any(self._upserts[smaller] for smaller in Kind if smaller < kind)

    def _next_upserts(self, kind: Kind, queue: dict[Key, None]) -> _Batch:
        desired = self.desired[kind]
        held = self.installed.by_kind[kind]
        batch = _Batch(kind, [], [], [])
        missing: dict[Value, str] = {}  # routes: the same few targets again and again
        update, in_flight = self._codec.update, self._in_flight
        while queue and len(batch.updates) < BATCH:
            key, _ = queue.popitem()  # the newest: a dict gives the oldest only in linear time
            value = desired.get(key)
            present = held.get(key)
            if key in in_flight:
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

    def _next_missing(self, queue: TableQueue) -> _Batch:
        """A batch of a table that the switch does not hold. What is as it mostly is, new and by a
        next hop that is there, is looked at all at once; else as any other."""
        kind = Kind.ROUTE
        keys = queue.take(BATCH)
        values = [*map(self.desired[kind].get, keys)]
        targets = {value for value in values if type(value) is Target}
        if (
            self._in_flight.isdisjoint(keys)
            and self.installed.by_kind[kind].keys().isdisjoint(keys)
            and len(targets) == len(set(values))
            and not any(self._missing_reference(kind, 0, target) for target in targets)
        ):
            entries = list(zip(keys, values, strict=True))
            updates = self._codec.insert_routes(cast("list[tuple[RouteSlot, Target]]", entries))
            return _Batch(kind, [Operation.INSERT] * len(keys), entries, updates)
        return self._next_upserts(kind, dict.fromkeys(keys))

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
            if key in self._in_flight:
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
        missing = kind is Kind.ROUTE and self._missing
        return bool(self._upserts[kind] or missing or self._deletes[kind] or leaving)

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
            self._in_flight.difference_update(key for key, _ in batch.entries)
        if statuses:
            batch = self._sort_out(batch, statuses)
        self._acknowledged(batch)

    def _acknowledged(self, batch: _Batch) -> None:
        kind = batch.kind
        # A batch sets entities or deletes them.
        deletes = bool(batch.entries) and batch.entries[0][1] is None
        set_entries = [] if deletes else cast("list[tuple[Key, Value]]", batch.entries)
        if set_entries:
            self.installed.put(kind, set_entries)
        deleted = [key for key, _ in batch.entries] if deletes else []
        if deleted:
            self.installed.remove(kind, deleted)
            # A route has no number that could be used again.
            if kind is not Kind.ROUTE or self.failures or self._waiters:
                for key in deleted:
                    self._confirm_deleted(kind, key)
        if self.failures:
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
