# SPDX-License-Identifier: Apache-2.0
"""Simulates a flow cache under a Zipf trace, beside a true LRU cache that takes the same packets.

The simulation runs the controller's own `NativeFlowCache` and `FlowTables`, with their ageing
rounds, in an event loop whose time is simulated. `SimulatedSwitch` holds the flows and counts their
packets. It answers writes and reads of counters after a delay. Writes and requests are not encoded,
because that would take most of the time and change no decision.

Each packet belongs to one of a population of flows. The n-th flow has a probability proportional to
1 / n^s (Zipf). A trace may also have packets of flows that have no other packet.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from array import array
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import NamedTuple, cast

from sluice._native import FlowBatch
from sluice.p4.counters import Count
from sluice.p4.flows import FlowCodec, FlowSlot
from sluice.p4runtime.session import Status, WriteOutcome
from sluice.policy.flow_tables import FlowTables, FlowWriter, ListCache
from sluice.policy.model import Action, Direction, FlowKey, FragmentClass
from sluice.state.flow_cache import FlowOperation, FlowVerdict, FlowWrite
from sluice.state.native_flows import NativeFlowCache

LIST_ID, EPOCH = 1, 1
VERDICT = FlowVerdict(EPOCH, 1, Action.BYPASS)
ABSENT = -1
SLICE = 0.002
"""Seconds between two deliveries of first packets to the controller."""
WRITE_SECONDS = 0.001
"""Seconds until the switch answers a write."""
READ_SECONDS = 40e-6
"""Seconds that controller and switch need to read one counter."""
FULL = 0.99
"""Share of a cache's size from which the cache is full. The rest are writes under way."""
CHOSEN = 1 << 14
"""Packets whose flows are chosen at a time."""


class Trace(NamedTuple):
    """Describes a trace, and the cache that it runs through. Rates are per second."""

    exponent: float
    population: int
    rate: int
    size: int
    single: int = 0  # packets of flows with a single packet, in addition to `rate`
    idle_timeout: float = 3600.0

    @property
    def numbers(self) -> int:
        """Upper bound of flow numbers: the population first, then flows with a single packet."""
        return self.population + (4 * self.size if self.single else 0)

    @property
    def name(self) -> str:
        """Name of the trace in results."""
        single = f", {self.single:,} flows of one packet a second" if self.single else ""
        return f"{self.size:,} flows, Zipf {self.exponent:g} of {self.population:,}{single}"


class SimulationResult(NamedTuple):
    """Holds the hit rates of both caches, and rates per second of the flow cache."""

    ours: float
    lru: float
    new_flows: float
    evictions: float
    counters_read: float


class SimulatedClock(selectors.SelectSelector):
    """Advances the time of an event loop at once when the loop would wait."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Returns the ready files, and skips the time until the next timer."""
        self.now += timeout or 0.0
        return super().select(0)


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Runs tasks and timers in simulated time."""

    def __init__(self, clock: SimulatedClock) -> None:
        super().__init__(clock)
        self._clock = clock

    def time(self) -> float:
        """Returns the simulated time in seconds."""
        return self._clock.now


class PassingCodec:
    """Stands in for `FlowCodec`: passes writes and requests on without encoding them."""

    def updates(self, batch: FlowBatch, _: Mapping[int, Direction]) -> list[FlowWrite]:
        """Returns the writes."""
        return [write for _, write in batch.writes()]

    def count_request(self, slot: FlowSlot) -> FlowSlot:
        """Returns the flow."""
        return slot

    def counts(self, part: dict[FlowSlot, Count]) -> dict[FlowSlot, Count]:
        """Returns the counts."""
        return part


def key_of(flow: int) -> FlowKey:
    """Returns the key of a flow, which its number determines."""
    source = flow.to_bytes(4, "big")
    return FlowKey(source, b"\x0a\0\0\1", 17, 1024, 53, FragmentClass.WHOLE, False, 0)


def flow_of(key: FlowKey) -> int:
    """Returns the number of a flow."""
    return int.from_bytes(key.source, "big")


class SimulatedSwitch:
    """Holds flows and counts their packets. `packets` has the count of each flow by its number."""

    def __init__(self, numbers: int, capacity: int) -> None:
        self.packets = array("l", [ABSENT]) * numbers
        self.flows = 0
        self.counters_read = 0
        self._capacity = capacity

    def post_write(
        self, updates: Sequence[FlowWrite], done: Callable[[WriteOutcome], None]
    ) -> None:
        """Applies a batch, and answers it later."""
        asyncio.get_running_loop().call_later(WRITE_SECONDS, self._apply, updates, done)

    def _apply(self, updates: Sequence[FlowWrite], done: Callable[[list[Status]], None]) -> None:
        for write in updates:
            flow = flow_of(write.key)
            assert (self.packets[flow] == ABSENT) == (write.operation is FlowOperation.INSERT)
            if write.operation is FlowOperation.DELETE:
                self.packets[flow] = ABSENT
                self.flows -= 1
            elif write.operation is FlowOperation.INSERT:
                self.packets[flow] = 0
                self.flows += 1
        assert self.flows <= self._capacity
        done([])

    async def read(self, slots: Sequence[FlowSlot]) -> AsyncIterator[dict[FlowSlot, Count]]:
        """Yields the packet counts of these flows."""
        await asyncio.sleep(READ_SECONDS * len(slots))
        self.counters_read += len(slots)
        yield {
            slot: Count(packets, 0)
            for slot in slots
            if (packets := self.packets[flow_of(slot.key)]) != ABSENT
        }


class TrueLru:
    """Holds the flows of the latest packets."""

    def __init__(self, size: int) -> None:
        self._flows: OrderedDict[int, None] = OrderedDict()
        self._size = size

    def hits(self, packets: Iterable[int]) -> int:
        """Takes packets, and returns how many of them found their flow."""
        flows, hits = self._flows, 0
        for flow in packets:
            if flow in flows:
                flows.move_to_end(flow)
                hits += 1
            else:
                flows[flow] = None
                if len(flows) > self._size:
                    flows.popitem(last=False)
        return hits


def packets(trace: Trace, seed: int) -> Iterator[list[int]]:
    """Yields the flows of the packets of each slice of time."""
    chance = random.Random(seed)
    flows = range(trace.population)
    weights = array("d", accumulate((n + 1) ** -trace.exponent for n in flows))

    def chosen() -> Iterator[int]:
        while True:
            yield from chance.choices(flows, cum_weights=weights, k=CHOSEN)

    source, single = chosen(), trace.population
    zipf_packets, single_packets = round(trace.rate * SLICE), round(trace.single * SLICE)
    while True:
        following = list(islice(source, zipf_packets))
        # The numbers of single-packet flows repeat, but only long after both caches have evicted
        # the earlier flow with the same number.
        ends = single + single_packets
        following += range(single, ends)
        single = ends if ends < trace.numbers - single_packets else trace.population
        yield following


async def run(trace: Trace, warmup: float, seconds: float, seed: int) -> SimulationResult:
    """Runs a trace through both caches. The result covers the time after the warm-up."""
    loop = asyncio.get_running_loop()
    switch = SimulatedSwitch(trace.numbers, trace.size)
    tables = FlowTables(cast(FlowCodec, PassingCodec()), loop.time)
    cache = NativeFlowCache(trace.size, EPOCH)
    tables.rebuild({LIST_ID: ListCache(Direction.OUTBOUND, cache, trace.idle_timeout)}, [])
    running = asyncio.create_task(tables.run(cast(FlowWriter, switch)))
    await asyncio.sleep(0)
    lru, source = TrueLru(trace.size), packets(trace, seed)
    number = ours = of_lru = read = evicted = 0
    for at in range(round((warmup + seconds) / SLICE)):
        if at == round(warmup / SLICE):
            if switch.flows < FULL * trace.size:
                raise ValueError(f"{trace.name}: the cache is not full after {warmup:g} s")
            number = ours = of_lru = 0
            read, evicted = switch.counters_read, tables.counters["flows evicted"]
        some = next(source)
        number += len(some)
        of_lru += lru.hits(some)
        counts, now = switch.packets, loop.time()
        for flow in some:
            if counts[flow] != ABSENT:
                counts[flow] += 1
                ours += 1
            else:
                tables.offer(LIST_ID, key_of(flow), VERDICT, now)
        tables.flush()
        await asyncio.sleep(SLICE)
        if running.done():
            running.result()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return SimulationResult(
        ours / number,
        of_lru / number,
        (number - ours) / seconds,
        (tables.counters["flows evicted"] - evicted) / seconds,
        (switch.counters_read - read) / seconds,
    )


def simulate(trace: Trace, warmup: float, seconds: float, seed: int) -> SimulationResult:
    """Runs a trace through both caches in simulated time."""
    with asyncio.Runner(loop_factory=lambda: SimulatedLoop(SimulatedClock())) as runner:
        return runner.run(run(trace, warmup, seconds, seed))
