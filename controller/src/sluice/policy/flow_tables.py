# SPDX-License-Identifier: Apache-2.0
"""Holds the flow caches of all lists, and is the only writer of flows to the switch.

After the rules were searched for a packet, `offer` adds the packet's flow to the cache. Writes of
flows are queued and sent in order, one batch at a time. So a cache in the switch never exceeds its
size. `flush` sends a batch at once if none is in flight. A session begins with `rebuild`, which
adopts the flows found in the switch. It ends with `close`, after which no flow is installed until
the next session.

Ageing: only the switch's packet counters show whether a flow is in use. Each round reads the
counters of the flows that were not seen in use for the idle timeout. It deletes a flow if its
packet count has not increased. While a cache is nearly full, each round also reads the counters of
the next eviction candidates. A candidate whose count has increased moves to the end of the eviction
order (second chance). The more flows were evicted since the last round, the more candidates are
read. Otherwise most flows would be evicted in the order of their installation, whether in use or
not. After `EVICTIONS` evictions the next round starts early. If a flow in use is evicted, its next
packet costs a search, but never gets a wrong verdict. `make bench-flow-eviction` compares the hit
rate with that of LRU.

A commit that keeps a list's epoch first holds the list (`held`), which blocks writes of the list's
flows. Invariant: only `withdraw` changes the flows of a held list. Otherwise a flow with a verdict
of the old rules could be written after the commit.

Depends on state.native_flows, flow_counts, p4.flows and p4runtime.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from itertools import islice
from typing import NamedTuple, Protocol

from sluice._native import FirstPacket, FlowBatch
from sluice.p4.counters import Count
from sluice.p4.flows import FlowCodec, FlowSlot
from sluice.p4messages import p4r
from sluice.p4runtime.session import (
    ALREADY_EXISTS,
    NOT_FOUND,
    OK,
    P4RuntimeError,
    Status,
    WriteOutcome,
)
from sluice.policy.flow_counts import read_counts
from sluice.policy.model import Direction, FlowKey
from sluice.state.flow_cache import (
    FlowOperation,
    FlowVerdict,
    FlowWriteResult,
    OfferResult,
)
from sluice.state.native_flows import NativeFlowCache, flow_queue
from sluice.task_slices import in_slices

BATCH = 256
"""Flows in one write."""
NOT_COUNTED = Count(0, 0)
COUNTED = 256
"""Flows whose counters are read at a time."""
AGEING_ROUNDS = 4
"""Ageing rounds per idle timeout of a list."""
LEAST_CANDIDATES = 1024
"""Minimum number of eviction candidates whose counters a round reads when a cache is nearly full. A
flow whose counter has increased is not evicted."""
MOST_CANDIDATES = 32_768
"""Maximum number of candidates of one list and round: about a second of CPU time."""
CANDIDATES_PER_EVICTION = 1.5
"""Candidates of a round for each eviction since the last round began. More than 1, because
candidates in use are not evicted."""
EVICTIONS = LEAST_CANDIDATES // 4
"""Evictions after which the next ageing round starts early."""
LOOKS_APART = 1.0
"""Minimum time between two ageing rounds, in seconds. It is limited because a round costs as much
as installing many new flows."""

_RESULTS = {
    OK: FlowWriteResult.DONE,
    ALREADY_EXISTS: FlowWriteResult.EXISTS,
    NOT_FOUND: FlowWriteResult.ABSENT,
}
_COUNTED_AS = {
    (operation, result): f"flow {operation.value}: {result.value}"
    for operation in FlowOperation
    for result in FlowWriteResult
}


class FlowWriter(Protocol):
    """Declares the methods of `Session` that write and age flows."""

    def post_write(self, updates: list[bytes], done: Callable[[WriteOutcome], None]) -> None:
        """Sends a batch of updates without waiting. Calls `done` with the outcome when the switch
        answers."""

    def read(self, entities: list[p4r.Entity]) -> AsyncIterator[Sequence[p4r.Entity]]:
        """Yields the requested entities in parts, as the switch sends them."""


class FlowDeleter(Protocol):
    """Declares the method of `Session` that deletes flows before the policy starts."""

    async def write(self, updates: list[bytes]) -> list[Status]:
        """Sends a batch. Returns [] if all updates were applied, else a status for each update."""


class ListCache(NamedTuple):
    """Holds the flow cache of one list. `idle_timeout` is in seconds."""

    direction: Direction
    cache: NativeFlowCache
    idle_timeout: float


class FlowTables:
    """Holds the flow caches by list id, and writes their flows to the switch."""

    def __init__(self, codec: FlowCodec, clock: Callable[[], float]) -> None:
        self._codec = codec
        self._clock = clock
        self.caches: dict[int, ListCache] = {}
        self.unverified: set[FlowSlot] = set()
        """Current flows that were found in the switch and not yet checked against the rules."""
        self.counters: Counter[str] = Counter()
        self._directions: dict[int, Direction] = {}
        self._queue = flow_queue({})
        self._strays: deque[FlowSlot] = deque()
        self._session: FlowWriter | None = None
        self._under_way = False
        self._failed: asyncio.Future[None]
        self._evictions: Counter[int] = Counter()  # since the last round began, by list id
        self._pressed = asyncio.Event()
        self._held: Counter[int] = Counter()  # number of `held` blocks, by list id
        self._answered = asyncio.Event()

    # -- a session's beginning and end

    async def read(self, session: FlowWriter) -> list[tuple[FlowSlot, FlowVerdict]]:
        """Returns all flows in the switch. Raises P4RuntimeError."""
        found = []
        async for part in session.read(self._codec.read_requests()):
            decoded = (self._codec.decode(entity) for entity in part)
            found += [flow for flow in decoded if flow is not None]
            await asyncio.sleep(0)
        return found

    def rebuild(
        self, caches: Mapping[int, ListCache], found: Sequence[tuple[FlowSlot, FlowVerdict]]
    ) -> None:
        """Rebuilds the caches from the current lists and all flows found in the switch.

        Flows of unknown lists (strays) are queued for deletion.
        """
        now = self._clock()
        self._forget()
        self.caches = dict(caches)
        self._directions = {list_id: one.direction for list_id, one in caches.items()}
        self._queue = flow_queue({list_id: one.cache for list_id, one in caches.items()})
        for slot, verdict in found:
            known = self._cache_of(slot)
            if known is not None:
                known.cache.found(slot.key, verdict, now)
                if verdict.epoch == known.cache.epoch:
                    self.unverified.add(slot)
            else:
                self._strays.append(slot)

    def close(self) -> None:
        """Ends the use of the session. Forgets all flows, because the controller no longer knows
        which flows the switch holds."""
        self._session = None
        self._forget()

    def _forget(self) -> None:
        self.caches = {}
        self.unverified = set()
        self._queue = flow_queue({})
        self._strays.clear()
        self._answered.set()

    # -- audits of the switch

    def agrees(self, slot: FlowSlot, found: FlowVerdict | None) -> bool:
        """Returns whether the record agrees with `found`, the switch's entry for a flow.

        `found` is None if the switch has no entry.
        """
        known = self._cache_of(slot)
        if known is None:
            return found is None or slot in self._strays
        return known.cache.agrees(slot.key, found)

    def correct(self, slot: FlowSlot, found: FlowVerdict | None) -> None:
        """Corrects a flow whose switch entry, `found`, differs from the record."""
        if self._held[slot.list_id]:
            return  # the next audit round will correct it
        known = self._cache_of(slot)
        if known is not None:
            self._queue.push(slot.list_id, known.cache.correct(slot.key, found, self._clock()))
        elif found is not None:
            self._strays.append(slot)
        self.flush()

    def recorded(self, slot: FlowSlot) -> FlowVerdict | None:
        """Returns the recorded verdict of a flow, or None if the record lacks the flow."""
        known = self._cache_of(slot)
        return None if known is None else known.cache.verdict_of(slot.key)

    def verify(self, slot: FlowSlot, verdict: FlowVerdict | None) -> bool:
        """Compares a flow that was found in the switch with `verdict`, which the rules give.

        Deletes the flow if its verdict is wrong, and returns False. If `verdict` is None, the
        verdict depends on more than the flow's key, and the flow is deleted too.
        """
        if self._held[slot.list_id]:
            return True  # the next round checks the flow again
        self.unverified.discard(slot)
        known = self._cache_of(slot)
        if known is None or (verdict is not None and known.cache.agrees(slot.key, verdict)):
            return True
        writes = known.cache.discard(slot.key)
        self._queue.push(slot.list_id, writes)
        self.flush()
        return verdict is None or not writes

    def _cache_of(self, slot: FlowSlot) -> ListCache | None:
        known = self.caches.get(slot.list_id)
        return known if known is not None and known.direction is slot.direction else None

    # -- packets and commits

    def offer(self, list_id: int, key: FlowKey, verdict: FlowVerdict, now: float) -> None:
        """Adds a flow to a list's cache, if possible. `verdict` is the result of searching the
        rules.

        Counts the reason if the flow is not installed.
        """
        known = self.caches.get(list_id)
        if known is None:
            self._count_offers(list_id, OfferResult.UNREAD, 1)
        elif self._held[list_id]:
            self._count_offers(list_id, OfferResult.HELD, 1)
        else:
            outcome, writes = known.cache.offer(key, verdict, now)
            self._count_offers(list_id, outcome, 1, len(writes) - 1)
            self._queue.push(list_id, writes)

    def offer_all(self, offers: Sequence[tuple[FirstPacket, FlowVerdict]], now: float) -> None:
        """Adds the flows of plain first packets to the caches of their lists, like `offer`."""
        held = {list_id for list_id, holders in self._held.items() if holders}
        for list_id, outcome, number, evicted in self._queue.offer(offers, held, now):
            self._count_offers(list_id, outcome, number, evicted)

    def _count_offers(
        self, list_id: int, outcome: OfferResult, number: int, evicted: int = 0
    ) -> None:
        """Counts offered flows by outcome, and the flows evicted to make room."""
        if outcome is not OfferResult.INSTALLED:
            self.counters[f"flow not installed: {outcome.value}"] += number
        elif evicted:
            self._evicted(list_id, evicted)

    def _evicted(self, list_id: int, number: int) -> None:
        """Counts evictions. After `EVICTIONS` of a list, starts the next ageing round early."""
        self.counters["flows evicted"] += number
        self._evictions[list_id] += number
        if self._evictions[list_id] >= EVICTIONS:
            self._pressed.set()

    def retire(self, list_id: int, epoch: int) -> None:
        """Sets a list's epoch. If the epoch is new, all recorded flows of the list become stale."""
        known = self.caches.get(list_id)
        if known is not None and known.cache.epoch != epoch:
            known.cache.retire(epoch)

    @contextlib.asynccontextmanager
    async def held(self, list_ids: Iterable[int]) -> AsyncIterator[None]:
        """Blocks changes to the flows of these lists during an `async with` block.

        Inside the block only `withdraw` may change the flows. The block starts once the switch has
        answered all earlier writes of these lists, or once the session is over.
        """
        lists = frozenset(list_ids)
        self._held.update(lists)
        try:
            await self._settle(lists)
            yield
        finally:
            self._held.subtract(lists)

    async def withdraw(self, list_id: int, keys: Sequence[FlowKey]) -> bool:
        """Deletes flows of a held list.

        Returns False if the switch may still hold one of them, because the switch refused a delete
        or the session is over.
        """
        known = self.caches.get(list_id)
        if known is None:
            return False
        async for some in in_slices(keys, BATCH):
            if self.caches.get(list_id) is not known:
                return False
            for key in some:
                self._queue.push(list_id, known.cache.discard(key))
            self.flush()
        await self._settle({list_id})
        if self.caches.get(list_id) is not known:
            return False
        return all(known.cache.verdict_of(key) is None for key in keys)

    async def delete_found(self, session: FlowDeleter, slots: Sequence[FlowSlot]) -> None:
        """Deletes flows that `read` has found. Called before `rebuild`.

        Raises P4RuntimeError if the session ends or the switch refuses a deletion.
        """
        async for some in in_slices(slots, BATCH):
            for status in await session.write([self._codec.delete(slot) for slot in some]):
                if status.code not in (OK, NOT_FOUND):
                    raise P4RuntimeError(status.code, f"a flow is not deleted: {status[1]}")

    async def _settle(self, lists: Collection[int]) -> None:
        """Waits until no write of these lists is queued or in flight."""
        self.flush()
        while any(map(self._queue.unanswered, lists)):
            self._answered.clear()
            await self._answered.wait()

    def flush(self) -> None:
        """Sends a batch of queued writes, unless a batch is in flight.

        When the switch has answered a batch, the next batch is sent at once.
        """
        if not self._under_way and self._session is not None and (self._queue or self._strays):
            # A P4RuntimeError means that the session has ended. The owner of the session handles
            # it.
            with contextlib.suppress(P4RuntimeError):
                self._begin(self._session)

    # -- the writer

    async def run(self, session: FlowWriter) -> None:
        """Writes and ages flows until cancelled. Raises P4RuntimeError when the session ends."""
        self._session = session
        self._under_way = False
        failed = self._failed = asyncio.get_running_loop().create_future()
        ageing = asyncio.create_task(self._age(session))
        try:
            self.flush()
            done, _ = await asyncio.wait({ageing, failed}, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
        finally:
            failed.cancel()
            ageing.cancel()
            self.close()
            await asyncio.gather(ageing, return_exceptions=True)

    def _begin(self, session: FlowWriter) -> None:
        batch = self._queue.first(BATCH)
        strays = list(islice(self._strays, BATCH if not batch else 0))
        updates = self._codec.updates(batch, self._directions)
        updates += [self._codec.delete(slot) for slot in strays]
        session.post_write(updates, partial(self._written, session, batch))
        self._under_way = True
        self._queue.sent(batch)
        for _ in strays:
            self._strays.popleft()
        self.counters["stray flows deleted"] += len(strays)
        self.counters["flow writes"] += 1

    def _written(self, session: FlowWriter, batch: FlowBatch, outcome: WriteOutcome) -> None:
        if session is not self._session:
            return  # the outcome belongs to an earlier session
        self._under_way = False
        try:
            if isinstance(outcome, P4RuntimeError):
                # It is unknown which updates the switch has applied. So `run` ends, and the next
                # session reads all flows.
                raise outcome
            self._take(batch, outcome)
            self.flush()
        except Exception as error:
            # If this callback raised, the event loop would only log the exception. So `run` raises
            # it.
            if not self._failed.done():
                self._failed.set_exception(error)

    def _take(self, batch: FlowBatch, statuses: list[Status]) -> None:
        results = [_RESULTS.get(status.code, FlowWriteResult.FAILED) for status in statuses]
        for operation, result, number in self._queue.written(batch, results, self._clock()):
            self.counters[_COUNTED_AS[operation, result]] += number
        self._answered.set()

    # -- ageing

    async def _age(self, session: FlowWriter) -> None:
        while True:
            shortest = min((one.idle_timeout for one in self.caches.values()), default=60.0)
            turn = shortest / AGEING_ROUNDS
            at_least = min(LOOKS_APART, turn)
            await asyncio.sleep(at_least)
            # Not `asyncio.wait_for`: in Python 3.11, it can lose a cancellation.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(turn - at_least):
                    await self._pressed.wait()
            evictions, self._evictions = self._evictions, Counter()
            self._pressed.clear()
            for list_id, known in list(self.caches.items()):
                for keys in self._flows_to_count(known, evictions[list_id]):
                    slots = [FlowSlot(known.direction, list_id, key) for key in keys]
                    counts = await read_counts(
                        session, self._codec, slots, lambda: self._session is None
                    )
                    self._apply_counts(known, slots, counts)
                    self.flush()

    def _flows_to_count(self, known: ListCache, evictions: int) -> Iterator[Sequence[FlowKey]]:
        """Yields slices of the flows whose counters this round reads."""
        now, cache = self._clock(), known.cache
        idle_before = now - known.idle_timeout
        parts: list[tuple[Sequence[FlowKey], int]] = [(cache.idle_since(idle_before), 0)]
        if cache.is_nearly_full():
            recent = now - min(LOOKS_APART, known.idle_timeout / AGEING_ROUNDS)
            expected = round(CANDIDATES_PER_EVICTION * evictions)
            number = min(max(LEAST_CANDIDATES, expected), MOST_CANDIDATES)
            number = max(0, number - cache.count_stale())  # stale flows are evicted first
            # The first candidates are idle flows, which `parts[0]` already has.
            idle = len(cache.coldest_live(idle_before, number))
            parts.append((cache.coldest_live(recent, number), idle))
        for keys, first in parts:
            for start in range(first, len(keys), COUNTED):
                yield keys[start : start + COUNTED]

    def _apply_counts(
        self, known: ListCache, slots: list[FlowSlot], counts: dict[FlowSlot, Count]
    ) -> None:
        now = self._clock()
        for slot in slots:
            packets = counts.get(slot, NOT_COUNTED).packets
            is_used = known.cache.counted(slot.key, packets, now)
            if not is_used and not self._held[slot.list_id]:
                expired = known.cache.expire(slot.key, now - known.idle_timeout)
                self._queue.push(slot.list_id, expired)
