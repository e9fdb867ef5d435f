# SPDX-License-Identifier: Apache-2.0
"""Tests that while a large table is read back from the switch, work that does not depend on the
table goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from fake_switch import FakeSwitch
from scenes import address, gateway, link, neighbor, no_route, route, slot
from sluice.entities import EntityKind, Nexthop, NexthopGroup
from sluice.model import NeighborState
from sluice.p4messages import p4r
from sluice.p4runtime.session import UNAVAILABLE, P4RuntimeError
from sluice.table_reading import TableReading
from test_reconciler import CODEC, Bench, many

ROUTES = 200


class SlowSwitch(FakeSwitch):
    """Yields its routes in two parts, the second after `more` is set."""

    def __init__(self) -> None:
        super().__init__(CODEC)
        self.more = asyncio.Event()
        self.fails = False

    async def read_parts(self, entities: list[p4r.Entity]) -> AsyncIterator[bytes]:
        found = self.found(entities)
        half = len(found) // 2 if any(map(CODEC.is_route, entities)) else len(found)
        yield p4r.ReadResponse(entities=found[:half]).SerializeToString()
        if half < len(found):
            await self.more.wait()
        if self.fails:
            raise P4RuntimeError(UNAVAILABLE, "gone")
        yield p4r.ReadResponse(entities=found[half:]).SerializeToString()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.table_reading.LARGE", 50)


async def restarted(switch: SlowSwitch) -> Bench:
    """Returns a new controller that has read half of the table back, and has received no events of
    the kernel yet.
    """
    switch.more.set()
    first = Bench()
    first.switch = switch
    await first.ready()
    first.feed(neighbor(1, "10.0.1.9", 3), *many(ROUTES, gateway("10.0.1.9", 1)))
    first.feed(route("30.0.0.0/8", gateway("10.0.2.9", 2)), neighbor(2, "10.0.2.9", 4))
    await first.settle()
    switch.more.clear()
    second = Bench()
    second.switch = switch
    await second.reconciler.read_back(switch)
    found = second.reconciler.installed.by_kind
    nexthops = {k: v for k, v in found[EntityKind.NEXTHOP].items() if isinstance(v, Nexthop)}
    groups = {k: v for k, v in found[EntityKind.GROUP].items() if isinstance(v, NexthopGroup)}
    second.reconciler.submit(second.fib.adopt(nexthops, groups, 0.0))  # type: ignore[arg-type]
    await second.reconciler.compare()
    switch.log.clear()
    return second


def kernel(bench: Bench) -> None:
    for n in (1, 2, 3):
        bench.feed(link(n), address(n, f"10.0.{n}.1/24"))


def test_interfaces_and_next_hops_do_not_wait_for_a_large_table() -> None:
    async def scenario() -> None:
        switch = SlowSwitch()
        bench = await restarted(switch)
        kernel(bench)
        bench.feed(neighbor(1, "10.0.1.9", 7))  # the neighbour now has another MAC address
        bench.feed(*many(ROUTES, gateway("10.0.1.9", 1))[1:], no_route("20.0.0.0/24"))
        bench.reconciler.release(EntityKind)  # the other gateway's next hop has no routes
        await bench.settle(lambda: bench.reconciler.forwards)
        assert not bench.reconciler.compared
        assert not bench.reconciler.synced
        assert {kind for _, kind, _ in switch.log if kind > EntityKind.HASH_SEED} == {
            EntityKind.NEXTHOP
        }
        assert slot("20.0.0.0/24") in switch.of(EntityKind.ROUTE)
        assert bench.reconciler.is_under_way(EntityKind.ROUTE, slot("20.0.0.0/24"))
        switch.more.set()
        await bench.settle()
        bench.check()
        assert slot("20.0.0.0/24") not in switch.of(EntityKind.ROUTE)
        assert slot("20.0.1.0/24") in switch.of(EntityKind.ROUTE)

    asyncio.run(scenario())


def test_nothing_that_routes_refer_to_goes_while_they_are_read() -> None:
    async def scenario() -> None:
        switch = SlowSwitch()
        bench = await restarted(switch)
        kernel(bench)
        bench.feed(neighbor(2, "10.0.2.9", None, state=NeighborState.NONE))
        bench.reconciler.release(EntityKind)
        await bench.settle(lambda: bench.reconciler.forwards)
        assert len(switch.of(EntityKind.NEXTHOP)) == 5
        assert switch.violations == []
        switch.more.set()
        await bench.settle()
        bench.check()
        assert len(switch.of(EntityKind.NEXTHOP)) < 5

    asyncio.run(scenario())


def test_a_session_that_ends_meanwhile_loses_no_change() -> None:
    async def scenario() -> None:
        switch = SlowSwitch()
        bench = await restarted(switch)
        kernel(bench)
        bench.feed(*many(ROUTES, gateway("10.0.1.9", 1)), neighbor(1, "10.0.1.9", 3))
        switch.fails = True
        switch.more.set()
        with pytest.raises(P4RuntimeError, match="gone"):
            await bench.settle()
        bench.reconciler.disconnect()
        assert not bench.reconciler.is_under_way(EntityKind.ROUTE, slot("30.0.0.0/8"))
        switch.fails = False
        await bench.connect()
        bench.reconciler.release(EntityKind)
        await bench.settle()
        bench.check()
        assert slot("30.0.0.0/8") not in switch.of(EntityKind.ROUTE)

    asyncio.run(scenario())


def test_a_small_table_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.table_reading.LARGE", 1000)

    async def scenario() -> None:
        switch = SlowSwitch()
        switch.more.set()
        first = Bench()
        first.switch = switch
        await first.ready()
        first.feed(*many(ROUTES, gateway("10.0.1.9", 1)))
        await first.settle()
        switch.more.clear()
        task = asyncio.create_task(first.reconciler.read_back(switch))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not task.done()
        switch.more.set()
        await task
        assert len(first.reconciler.installed.by_kind[EntityKind.ROUTE]) == ROUTES + 3

    asyncio.run(scenario())


def test_what_waits_for_a_reading_ends_it_when_it_is_cancelled() -> None:
    async def scenario() -> None:
        ended = asyncio.Event()

        async def forever() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        reading = TableReading([], lambda: None)
        task = asyncio.create_task(reading.begin(forever()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        async with asyncio.timeout(5):
            await ended.wait()
        assert not (await reading_state(reading))

    async def reading_state(reading: TableReading) -> bool:
        try:
            return reading.complete()
        except asyncio.CancelledError:
            return False

    asyncio.run(scenario())
