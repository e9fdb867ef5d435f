# SPDX-License-Identifier: Apache-2.0
"""Tests which counters the ageing rounds of a full cache read, and which flows a full cache keeps.

The switch of these tests answers at once. The test sets the caches' clock, but rounds start in real
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

from fake_switch import PIPELINE
from sluice.p4.flows import FlowCodec, FlowSlot
from sluice.p4.schema import Schema, load_pipeline
from sluice.p4messages import p4r
from sluice.p4runtime.session import WriteOutcome
from sluice.policy import flow_tables
from sluice.policy.flow_tables import FlowTables, ListCache
from sluice.policy.model import Action, Direction, FlowKey, FragmentClass
from sluice.state.flow_cache import FlowVerdict
from sluice.state.native_flows import NativeFlowCache

CODEC = FlowCodec(Schema(load_pipeline(PIPELINE).p4info))
SIZE = 4000
LISTS = (1, 2)
DEADLINE = 20.0


def verdict(epoch: int) -> FlowVerdict:
    return FlowVerdict(epoch, 1, Action.BYPASS)


def key(number: int) -> FlowKey:
    return FlowKey(number.to_bytes(4, "big"), bytes(4), 17, 1, 2, FragmentClass.WHOLE, False, 0)


class Switch:
    """Answers writes and reads. Flows in `busy` get a packet before each read."""

    def __init__(self) -> None:
        self.busy: set[FlowSlot] = set()
        self.read_slots: list[FlowSlot] = []
        self._packets = 0

    def post_write(self, _: list[bytes], done: Callable[[WriteOutcome], None]) -> None:
        asyncio.get_running_loop().call_soon(done, [])

    async def read(self, entities: list[p4r.Entity]) -> AsyncIterator[Sequence[p4r.Entity]]:
        await asyncio.sleep(0)
        self._packets += 1
        slots = list(CODEC.counts(entities))
        self.read_slots += slots
        for entity, slot in zip(entities, slots, strict=True):
            if slot in self.busy:
                entity.direct_counter_entry.data.packet_count = self._packets
        yield entities


class FullCaches:
    """Holds two full lists, whose flows are older than a second."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.switch = Switch()
        self.tables = FlowTables(CODEC, lambda: self.now)
        caches = {
            one: ListCache(Direction.OUTBOUND, NativeFlowCache(SIZE, 1), 3600.0) for one in LISTS
        }
        self.tables.rebuild(caches, [])
        self.caches = [caches[one].cache for one in LISTS]

    async def fill(self) -> None:
        for list_id in LISTS:
            self.offer(list_id, range(SIZE))
        await self.until(lambda: self._inserted() == len(LISTS) * SIZE)
        self.now += 10.0

    def offer(self, list_id: int, numbers: range, epoch: int = 1) -> None:
        for number in numbers:
            self.tables.offer(list_id, key(number), verdict(epoch), self.now)
        self.tables.flush()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE):
            while not condition():
                await asyncio.sleep(0.005)

    async def round_read(self) -> None:
        """Waits until a round has read counters and has ended."""
        await self.until(lambda: bool(self.switch.read_slots))
        seen = 0
        while seen < len(self.switch.read_slots):
            seen = len(self.switch.read_slots)
            await asyncio.sleep(0.2)

    def read_of(self, list_id: int) -> list[FlowKey]:
        return [slot.key for slot in self.switch.read_slots if slot.list_id == list_id]

    def _inserted(self) -> int:
        return self.tables.counters["flow insert: done"]


def run(scenario: Callable[[FullCaches], Awaitable[None]]) -> None:
    async def started() -> None:
        world = FullCaches()
        running = asyncio.create_task(world.tables.run(world.switch))
        try:
            await asyncio.sleep(0)
            await world.fill()
            await scenario(world)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(started())


def test_more_evictions_have_more_candidates_read() -> None:
    async def scenario(world: FullCaches) -> None:
        world.offer(1, range(SIZE, SIZE + 2000))
        await world.round_read()
        assert world.read_of(1) == [key(number) for number in range(2000, SIZE)]  # all old flows
        assert len(world.read_of(2)) == flow_tables.LEAST_CANDIDATES  # no evictions in this list

    run(scenario)


def test_few_evictions_have_the_least_candidates_read() -> None:
    async def scenario(world: FullCaches) -> None:
        world.offer(1, range(SIZE, SIZE + flow_tables.EVICTIONS))
        await world.round_read()
        assert len(world.read_of(1)) == flow_tables.LEAST_CANDIDATES

    run(scenario)


def test_the_candidates_of_a_round_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_tables, "MOST_CANDIDATES", 1500)

    async def scenario(world: FullCaches) -> None:
        world.offer(1, range(SIZE, SIZE + 2000))
        await world.round_read()
        assert world.read_of(1) == [key(number) for number in range(2000, 3500)]

    run(scenario)


def test_candidates_in_use_outlive_as_many_evictions_as_before() -> None:
    """Every third flow is in use. A flow in use that the round has read is not evicted next."""

    async def scenario(world: FullCaches) -> None:
        busy = {key(number) for number in range(1000, SIZE, 3)}
        world.switch.busy = {FlowSlot(Direction.OUTBOUND, 1, one) for one in busy}
        world.offer(1, range(SIZE, SIZE + 1000))
        await world.round_read()
        counted = set(world.read_of(1)) & busy
        assert len(counted) == 500
        world.offer(1, range(SIZE + 1000, SIZE + 2000))
        kept = {one for one, _ in world.caches[0].flows()}
        assert counted <= kept
        assert len(kept) == SIZE

    run(scenario)


def test_candidates_are_not_read_while_stale_flows_are_left() -> None:
    async def scenario(world: FullCaches) -> None:
        for list_id in LISTS:
            world.tables.retire(list_id, 2)
        world.offer(1, range(SIZE, SIZE + 1000), epoch=2)
        world.now += 10.0
        await asyncio.sleep(1.5)
        assert world.switch.read_slots == []
        assert world.tables.counters["flows evicted"] == 1000

    run(scenario)
