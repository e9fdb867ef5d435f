# SPDX-License-Identifier: Apache-2.0
"""Tests the reconciler's writes and their order, with a switch that refuses dangling references."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping
from itertools import pairwise
from typing import Any

import pytest

from fake_switch import (
    FAILED_PRECONDITION,
    RESOURCE_EXHAUSTED,
    FakeSwitch,
    load_codec,
)
from scenes import SPECS, address, gateway, link, neighbor, no_route, route, slot
from sluice.entities import (
    OPENING,
    EntityChanges,
    EntityKey,
    EntityKind,
    EntityValue,
    Nexthop,
    PuntLimit,
    RouteTarget,
    RouteTargetKind,
    RuleEntry,
    RuleMatch,
    RuleVerdict,
)
from sluice.model import Event, NexthopKind, NexthopSpec, parse_address
from sluice.p4runtime.messages import UpdateType
from sluice.p4runtime.session import P4RuntimeError, Status
from sluice.readback import BATCH, SLICE
from sluice.reconciler import Reconciler
from sluice.state.fib import Fib
from sluice.state.nexthops import Path

CODEC = load_codec()


class Bench:
    """Runs a Fib and a reconciler with a fake switch. The test sets the clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.fib = Fib(SPECS)
        self.switch = FakeSwitch(CODEC)
        self.reconciler = Reconciler(CODEC, self._deleted, lambda: self.now)
        self.reconciler.submit(self.fib.start())

    def _deleted(self, kind: EntityKind, key: object) -> None:
        if isinstance(key, int):
            self.fib.confirm_deleted(kind, key)

    async def connect(self) -> None:
        await self.reconciler.read_back(self.switch)
        await self.reconciler.compare()

    def feed(self, *events: Event) -> None:
        self.reconciler.submit(self.fib.apply(events, self.now))

    async def settle(self, until: Callable[[], bool] | None = None) -> None:
        """Runs the reconciler until `until` returns true; by default, until nothing is pending
        except failed updates.
        """
        task = asyncio.create_task(self.reconciler.run(self.switch))
        try:
            for _ in range(100_000):
                await asyncio.sleep(0)
                if task.done():
                    break
                done = self.reconciler.compared and not self.reconciler.pending
                if until() if until else done:
                    break
            else:
                raise AssertionError("does not settle")
        finally:
            task.cancel()
            results = await asyncio.gather(task, return_exceptions=True)
        if isinstance(results[0], Exception):
            raise results[0]

    async def ready(self) -> None:
        await self.connect()
        for n in (1, 2, 3):
            self.feed(link(n), address(n, f"10.0.{n}.1/24"))
        await self.settle()

    def check(self) -> None:
        """Checks that the switch holds the desired entries, and that no update would have left a
        dangling reference.
        """
        desired = {
            (kind, key): value
            for kind, entries in self.reconciler.desired.items()
            for key, value in entries.items()
        }
        assert self.switch.entities == desired
        assert self.switch.violations == []
        assert self.reconciler.synced


BLACKHOLE = NexthopSpec(None, None, 1, NexthopKind.BLACKHOLE)


def many(count: int, *nexthops: object) -> list[Event]:
    prefixes = [f"{20 + (n >> 16)}.{n >> 8 & 255}.{n & 255}.0/24" for n in range(count)]
    return [route(prefix, *nexthops) for prefix in prefixes]  # type: ignore[arg-type]


def test_everything_goes_in_and_out_in_order() -> None:
    async def scenario() -> None:
        bench = Bench()
        await bench.ready()
        bench.switch.log.clear()
        bench.feed(*many(3 * BATCH, gateway("10.0.1.9", 1), gateway("10.0.2.9", 2)))
        await bench.settle()
        bench.check()
        inserts = [
            kind for operation, kind, _ in bench.switch.log if operation is UpdateType.INSERT
        ]
        assert inserts == sorted(inserts)
        bench.switch.log.clear()
        bench.feed(*(no_route(f"20.{n >> 8}.{n & 255}.0/24") for n in range(3 * BATCH)))
        await bench.settle()
        bench.check()
        deletes = [
            kind for operation, kind, _ in bench.switch.log if operation is UpdateType.DELETE
        ]
        assert deletes == sorted(deletes, reverse=True)

    asyncio.run(scenario())


def test_a_change_is_a_modify() -> None:
    async def scenario() -> None:
        bench = Bench()
        await bench.ready()
        bench.feed(route("20.0.0.0/24", gateway("10.0.1.9", 1)))
        await bench.settle()
        bench.switch.log.clear()
        bench.feed(route("20.0.0.0/24", gateway("10.0.2.9", 2)))
        await bench.settle()
        bench.check()
        operations = [
            operation for operation, kind, _ in bench.switch.log if kind is EntityKind.ROUTE
        ]
        assert operations == [UpdateType.MODIFY]

    asyncio.run(scenario())


def test_changes_of_one_key_are_coalesced_and_no_change_is_no_write() -> None:
    async def scenario() -> None:
        bench = Bench()
        await bench.ready()
        bench.switch.log.clear()
        bench.feed(route("20.0.0.0/24", gateway("10.0.1.9", 1)))
        bench.feed(no_route("20.0.0.0/24"))
        await bench.settle()
        assert bench.switch.log == []
        bench.check()

    asyncio.run(scenario())


def test_what_is_right_is_not_touched_after_a_reconnect() -> None:
    async def scenario() -> None:
        bench = Bench()
        await bench.ready()
        bench.feed(*many(20, gateway("10.0.1.9", 1)), neighbor(1, "10.0.1.9", 3))
        await bench.settle()
        wrong = (EntityKind.NEXTHOP, 1)
        bench.switch.entities[wrong] = Nexthop(1, None, b"\2\0\0\0\0\x66", True)
        bench.switch.raw[wrong] = CODEC._encoder._entity(*wrong, bench.switch.entities[wrong])
        bench.switch.raw.pop((EntityKind.ROUTE, slot("20.0.3.0/24")))
        bench.switch.entities.pop((EntityKind.ROUTE, slot("20.0.3.0/24")))
        bench.switch.log.clear()
        await bench.connect()
        await bench.settle()
        bench.check()
        touched = {(kind, key) for _, kind, key in bench.switch.log}
        assert touched == {wrong, (EntityKind.ROUTE, slot("20.0.3.0/24"))}

    asyncio.run(scenario())


def test_orphans_stay_until_released() -> None:
    async def scenario() -> None:
        first = Bench()
        await first.ready()
        first.feed(*many(5, gateway("10.0.1.9", 1), gateway("10.0.2.9", 2)))
        await first.settle()
        second = Bench()
        second.switch = first.switch
        await second.reconciler.read_back(second.switch)
        found = second.reconciler.installed.by_kind
        nexthops = {k: v for k, v in found[EntityKind.NEXTHOP].items() if isinstance(k, int)}
        groups = {k: v for k, v in found[EntityKind.GROUP].items() if isinstance(k, int)}
        second.reconciler.submit(second.fib.adopt(nexthops, groups, 0.0))  # type: ignore[arg-type]
        await second.reconciler.compare()
        second.switch.log.clear()
        for n in (1, 2, 3):
            second.feed(link(n), address(n, f"10.0.{n}.1/24"))
        second.feed(route("20.0.2.0/24", gateway("10.0.1.9", 1), gateway("10.0.2.9", 2)))
        await second.settle()
        assert second.switch.log == []
        assert second.reconciler.orphans
        second.reconciler.release(EntityKind)
        await second.settle()
        second.check()
        assert len(second.switch.of(EntityKind.ROUTE)) == 4
        assert not second.reconciler.orphans

    asyncio.run(scenario())


def test_many_orphans_go_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that many orphans are deleted in slices, so that the loop does not stall.

    Orphans are entries in the switch that are not desired. Here the routing daemon has lost its
    whole table.
    """
    monkeypatch.setattr("sluice.reconciler.BATCHES_PER_TURN", 2)
    count, most = 9 * BATCH, 0

    async def scenario() -> None:
        nonlocal most
        first = Bench()
        await first.ready()
        first.feed(*many(count, gateway("10.0.1.9", 1), gateway("10.0.2.9", 2)))
        await first.settle()
        second = Bench()
        second.switch = first.switch
        await second.ready()
        second.reconciler.release(EntityKind)
        assert second.reconciler.pending >= count
        assert not second.reconciler.orphans
        gone = route("20.0.2.0/24", gateway("10.0.1.9", 1))
        second.feed(gone)  # wanted again before its slice is deleted
        kept = slot("20.0.2.0/24")

        def looked() -> bool:
            nonlocal most
            most = max(most, len(second.reconciler._deletes[EntityKind.ROUTE]))
            return second.reconciler.compared and not second.reconciler.pending

        await second.settle(looked)
        second.check()
        assert 0 < most <= 2 * BATCH
        assert kept in second.switch.of(EntityKind.ROUTE)
        assert len(second.switch.of(EntityKind.ROUTE)) == 4

    asyncio.run(scenario())


def test_orphans_that_were_named_meanwhile_are_forgotten_in_slices() -> None:
    """Checks that orphans that the routing daemon has announced are removed from the list of
    orphans in slices.

    Here a controller starts, the switch holds a full table, and the daemon announces the same
    table. So nothing is written.
    """
    count = 4 * SLICE

    async def scenario() -> None:
        first = Bench()
        await first.ready()
        first.feed(*many(count, gateway("10.0.1.9", 1)))
        await first.settle()
        second = Bench()
        second.switch = first.switch
        await second.ready()
        await second.settle(lambda: second.reconciler.compared)
        second.feed(*many(count, gateway("10.0.1.9", 1)))
        left = second.reconciler._orphans[EntityKind.ROUTE]
        assert len(left) >= count
        seen = [len(left)]

        def looked() -> bool:
            seen.append(len(left))
            return not left

        second.reconciler.release(EntityKind)
        await second.settle(looked)
        await second.settle()
        second.check()
        assert max(before - after for before, after in pairwise(seen)) <= SLICE

    asyncio.run(scenario())


def test_a_refused_update_is_named_retried_and_holds_back_what_needs_it() -> None:
    async def scenario() -> None:
        bench = Bench()
        await bench.ready()
        broken = True
        bench.switch.refuse = lambda operation, kind, key: (
            RESOURCE_EXHAUSTED if broken and kind is EntityKind.NEXTHOP and key == 4 else 0
        )
        bench.feed(*many(10, gateway("10.0.1.9", 1)))
        bench.feed(route("30.0.0.0/8", gateway("10.0.2.9", 2)))
        await bench.settle()
        assert len(bench.switch.of(EntityKind.ROUTE)) == 3 + 1
        names = {str(failure) for _, failure in bench.reconciler.failures.items()}
        assert names == {"RESOURCE_EXHAUSTED", "WAITING: nexthop 4 is not installed"}
        assert not bench.reconciler.synced
        broken = False
        bench.now += 0.2
        await bench.settle(until=lambda: bench.reconciler.synced)
        bench.check()

    asyncio.run(scenario())


def test_a_full_table_keeps_what_fits() -> None:
    async def scenario() -> None:
        bench = Bench()
        await bench.ready()
        bench.switch.capacity[EntityKind.ROUTE] = 10
        bench.feed(*many(50, gateway("10.0.1.9", 1)))
        await bench.settle()
        assert len(bench.switch.of(EntityKind.ROUTE)) == 10
        assert len(bench.reconciler.failures) == 43
        bench.feed(*(no_route(f"20.0.{n}.0/24") for n in range(45)))
        await bench.settle()
        bench.now += 60
        await bench.settle(until=lambda: bench.reconciler.synced)
        bench.check()

    asyncio.run(scenario())


def test_a_switch_that_is_not_as_thought_is_corrected_at_once() -> None:
    async def scenario() -> None:
        bench = Bench()
        await bench.ready()
        bench.feed(*many(3, gateway("10.0.1.9", 1)))
        await bench.settle()
        del bench.switch.entities[EntityKind.ROUTE, slot("20.0.1.0/24")]
        bench.switch.entities[EntityKind.ROUTE, slot("20.0.9.0/24")] = RouteTarget(
            RouteTargetKind.BLACKHOLE
        )
        bench.feed(
            route("20.0.1.0/24", gateway("10.0.2.9", 2)),
            route("20.0.9.0/24", gateway("10.0.2.9", 2)),
        )
        await bench.settle(until=lambda: bench.reconciler.synced)
        bench.check()

    asyncio.run(scenario())


def test_deletes_wait_for_users_that_could_not_be_moved() -> None:
    async def scenario() -> None:
        bench = Bench()
        await bench.ready()
        bench.feed(*many(3, gateway("10.0.1.9", 1)))
        await bench.settle()
        stuck = slot("20.0.1.0/24")
        bench.switch.refuse = lambda operation, kind, key: (
            FAILED_PRECONDITION if key == stuck else 0
        )
        bench.feed(*many(3, gateway("10.0.2.9", 2)))
        await bench.settle()
        assert (EntityKind.NEXTHOP, 4) in bench.switch.entities
        bench.switch.refuse = lambda *_: 0
        bench.now += 1
        await bench.settle(until=lambda: bench.reconciler.synced)
        bench.check()
        assert (EntityKind.NEXTHOP, 4) not in bench.switch.entities

    asyncio.run(scenario())


def test_links_overtake_a_long_run_of_routes() -> None:
    async def scenario() -> None:
        bench = Bench()
        await bench.ready()
        bench.feed(*many(6 * BATCH, gateway("10.0.1.9", 1)))
        await bench.settle(until=lambda: len(bench.switch.log) > BATCH)
        bench.feed(neighbor(1, "10.0.1.9", 5))
        await bench.settle()
        bench.check()
        modified = bench.switch.log.index((UpdateType.MODIFY, EntityKind.NEXTHOP, 4))
        assert modified < 6 * BATCH

    asyncio.run(scenario())


def test_a_lost_session_is_taken_up_where_it_broke() -> None:
    async def scenario() -> None:
        bench = Bench()
        await bench.ready()
        bench.feed(
            *many(6 * BATCH, gateway("10.0.1.9", 1)), route("30.0.0.0/8", gateway("10.0.3.9", 3))
        )
        bench.switch.break_after = bench.switch.writes + 4
        with pytest.raises(P4RuntimeError):
            await bench.settle()
        bench.reconciler.disconnect()
        bench.switch.break_after = None
        bench.feed(no_route("30.0.0.0/8"))
        bench.reconciler.release(EntityKind)
        await bench.connect()
        await bench.settle()
        bench.check()
        assert bench.fib.nexthops._nexthop_ids._quarantine == set()

    asyncio.run(scenario())


def test_waiting_for_an_entity() -> None:
    async def scenario() -> None:
        bench = Bench()
        await bench.ready()
        bench.feed(route("20.0.0.0/24", gateway("10.0.1.9", 1)))
        called: list[str] = []
        bench.reconciler.when_installed(EntityKind.NEXTHOP, 4, lambda: called.append("later"))
        assert called == []
        await bench.settle()
        assert called == ["later"]
        bench.reconciler.when_installed(EntityKind.NEXTHOP, 4, lambda: called.append("at once"))
        assert called == ["later", "at once"]

    asyncio.run(scenario())


def test_settings_are_written_at_every_connection() -> None:
    async def scenario() -> None:
        bench = Bench()
        changes = EntityChanges()
        changes.set(EntityKind.PUNT_METER, "LOCAL", PuntLimit(100, 10))
        bench.reconciler.submit(changes)
        for _ in range(2):
            bench.switch.log.clear()
            await bench.connect()
            await bench.settle()
            assert (UpdateType.MODIFY, EntityKind.PUNT_METER, 6) in bench.switch.log
        assert bench.switch.violations == []

    asyncio.run(scenario())


def loaded(bench: Bench, count: int) -> None:
    """Loads a table with routes via two gateways, one of which is resolved, a default route, and a
    route that drops packets.
    """
    bench.reconciler.near = bench.fib.on_link_routes
    for n in (1, 2, 3):
        bench.feed(link(n), address(n, f"10.0.{n}.1/24"))
    bench.feed(neighbor(1, "10.0.1.9", 4))
    bench.feed(*many(count, gateway("10.0.1.9", 1), gateway("10.0.2.9", 2)))
    bench.feed(route("0.0.0.0/0", gateway("10.0.1.9", 1)), route("20.0.0.0/12", BLACKHOLE))


def test_an_empty_switch_gets_its_links_before_the_table() -> None:
    """Checks that an empty switch gets its on-link routes before all other routes.

    Otherwise, after a restart of the switch, packets between connected hosts would wait for a full
    table.
    """

    async def scenario() -> None:
        bench = Bench()
        loaded(bench, 2_000)
        await bench.connect()
        await bench.settle()
        bench.check()
        order = [(kind, key) for _, kind, key in bench.switch.log]
        routes = [key for kind, key in order if kind is EntityKind.ROUTE]
        near = {slot(f"10.0.{n}.0/24") for n in (1, 2, 3)} | {slot("10.0.1.9/32")}
        assert set(routes[: len(near)]) == near
        others = [place for place, (kind, _) in enumerate(order) if kind is not EntityKind.ROUTE]
        table = order.index((EntityKind.ROUTE, routes[len(near)]))
        assert max(others) < table  # all other entities, such as interfaces
        admitted = min(place for place in others if order[place][0] is EntityKind.L3_INTERFACE)
        assert max(order.index((EntityKind.ROUTE, key)) for key in near) < admitted
        assert routes[len(near)] == slot("20.0.0.0/12")
        assert routes[len(near) + 1] == slot("0.0.0.0/0")

    asyncio.run(scenario())


def test_links_are_acknowledged_before_the_table_is_sent() -> None:
    async def scenario() -> None:
        bench = Bench()
        loaded(bench, 100_000)
        await bench.connect()
        admitted = bench.reconciler.installed.by_kind[EntityKind.L3_INTERFACE]
        await bench.settle(lambda: len(admitted) == 3)
        sent = sum(kind is EntityKind.ROUTE for _, kind, _ in bench.switch.log)
        assert sent == 4
        assert bench.reconciler.desired[EntityKind.ROUTE].keys() > {slot("20.0.7.0/24")}

    asyncio.run(scenario())


def test_a_table_waits_in_its_queue_while_no_interface_may_open() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.reconciler.hold(OPENING)
        loaded(bench, 3_000)
        await bench.connect()
        task = asyncio.create_task(bench.reconciler.run(bench.switch))
        while not bench.reconciler.compared:
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert not any(kind is EntityKind.ROUTE for _, kind, _ in bench.switch.log)
        assert not any(
            kind is EntityKind.ROUTE for (kind, _), _ in bench.reconciler.failures.items()
        )
        bench.reconciler.open()
        while not bench.reconciler.synced:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        bench.check()
        kinds = [kind for _, kind, _ in bench.switch.log]
        assert kinds[-3_000:] == [EntityKind.ROUTE] * 3_000
        first = kinds.index(EntityKind.L3_INTERFACE)
        assert kinds[:first].count(EntityKind.ROUTE) == 4

    asyncio.run(scenario())


def test_what_comes_while_the_table_is_compared_goes_first() -> None:
    async def scenario() -> None:
        bench = Bench()
        loaded(bench, 1_500)
        await bench.connect()
        admitted = bench.reconciler.installed.by_kind[EntityKind.L3_INTERFACE]
        await bench.settle(lambda: len(admitted) == 3)
        assert not bench.reconciler.compared
        bench.feed(neighbor(2, "10.0.2.9", 5), no_route("20.0.7.0/24"))
        await bench.settle()
        bench.check()
        routes = [key for _, kind, key in bench.switch.log if kind is EntityKind.ROUTE]
        assert routes[4] == slot("10.0.2.9/32")

    asyncio.run(scenario())


class CountingTable(MutableMapping[Any, Any]):
    """Wraps a table and counts the lookups in it."""

    def __init__(self, table: MutableMapping[Any, Any], looked_up: Counter[str]) -> None:
        self._table = table
        self._looked_up = looked_up

    def get(self, key: Any, default: Any = None) -> Any:
        self._looked_up["get"] += 1
        return self._table.get(key, default)

    def __contains__(self, key: object) -> bool:
        self._looked_up["in"] += 1
        return key in self._table

    def __getitem__(self, key: Any) -> Any:
        return self._table[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._table[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._table[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


def test_a_comparison_is_made_in_slices_and_changes_wait_for_its_end() -> None:
    async def scenario() -> None:
        bench = Bench()
        await bench.ready()
        count = 3 * SLICE
        bench.feed(*many(count, gateway("10.0.1.9", 1)))
        await bench.settle()
        bench.reconciler.disconnect()
        for n in range(0, count, 7):  # another client has deleted these routes meanwhile
            key = EntityKind.ROUTE, slot(f"20.{n >> 8}.{n & 255}.0/24")
            del bench.switch.entities[key], bench.switch.raw[key]
        await bench.reconciler.read_back(bench.switch)
        looked_up = Counter[str]()
        reconciler = bench.reconciler
        for tables in (reconciler.desired, reconciler.installed.by_kind):
            tables[EntityKind.ROUTE] = CountingTable(tables[EntityKind.ROUTE], looked_up)
        await reconciler.compare()
        task = asyncio.create_task(reconciler._compare_routes())
        turns = most = 0
        while not task.done():
            before = looked_up.total()
            await asyncio.sleep(0)
            most = max(most, looked_up.total() - before)
            turns += 1
            if not task.done():  # the auditor must not correct routes during the comparison
                assert reconciler.is_under_way(EntityKind.ROUTE, slot("10.0.1.0/24"))
            bench.feed(no_route(f"20.0.{turns}.0/24"), *many(turns, gateway("10.0.2.9", 2))[-1:])
            bench.feed(neighbor(1, "10.0.1.9", turns))
            macs = [one.mac for one in reconciler.desired[EntityKind.NEXTHOP].values()]  # type: ignore[union-attr]
            assert bench.fib.neighbors.mac_of(Path(1, parse_address("10.0.1.9"))) in macs
        await task
        assert 0 < most <= SLICE + 50
        assert bench.reconciler.compared
        await bench.settle()
        bench.check()

    asyncio.run(scenario())


def test_changes_that_came_during_a_comparison_survive_its_failure() -> None:
    async def scenario() -> None:
        bench = Bench()
        await bench.ready()
        bench.feed(*many(2 * SLICE, gateway("10.0.1.9", 1)))
        await bench.settle()
        bench.reconciler.disconnect()
        await bench.reconciler.read_back(bench.switch)
        await bench.reconciler.compare()
        task = asyncio.create_task(bench.reconciler._compare_routes())
        await asyncio.sleep(0)
        bench.feed(route("30.0.0.0/8", gateway("10.0.2.9", 2)))
        assert bench.reconciler.pending
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert not bench.reconciler.compared
        await bench.connect()
        await bench.settle()
        bench.check()
        assert (EntityKind.ROUTE, slot("30.0.0.0/8")) in bench.switch.entities

    asyncio.run(scenario())


def rule_entries(rules: int) -> dict[EntityKey, EntityValue]:
    return {
        RuleEntry(1, priority, RuleMatch(4, protocol=6, destination_port=(priority, priority))): (
            RuleVerdict(priority, 1, 0)
        )
        for priority in range(1, rules + 1)
    }


def test_an_entity_is_under_way_until_the_switch_acknowledges_it() -> None:
    """Otherwise the auditor takes it for an entity of another client, and deletes it."""

    class SlowSwitch(FakeSwitch):
        async def write(self, updates: list[bytes], *, atomic: bool = False) -> list[Status]:
            statuses = await super().write(updates, atomic=atomic)
            for key in entries:
                assert bench.reconciler.is_under_way(EntityKind.INBOUND_RULE, key)
            return statuses

    bench = Bench()
    bench.switch = SlowSwitch(CODEC)
    entries = rule_entries(3)

    async def scenario() -> None:
        kind = EntityKind.INBOUND_RULE
        await bench.connect()
        assert await bench.reconciler.install(bench.switch, kind, entries) is None
        assert not any(bench.reconciler.is_under_way(kind, key) for key in entries)
        assert bench.switch.of(kind) == bench.reconciler.installed.by_kind[kind] == entries

    asyncio.run(scenario())


def test_adopts_many_entities_without_a_stall() -> None:
    """The time must be linear in the number of entities, not quadratic."""
    bench = Bench()
    entries = rule_entries(20_000)
    kind = EntityKind.INBOUND_RULE

    async def scenario() -> None:
        await bench.connect()
        bench.reconciler.installed.put(kind, entries.items())
        await bench.reconciler.compare()
        assert bench.reconciler.orphans == len(entries)
        began = time.thread_time()
        await bench.reconciler.adopt(kind, entries)
        assert time.thread_time() - began < 2  # one by one, this would take 10 s
        assert bench.reconciler.orphans == 0
        assert bench.reconciler.desired[kind] == entries

    asyncio.run(scenario())


def test_a_cancellation_that_comes_together_with_work_ends_the_task() -> None:
    bench = Bench()

    async def scenario() -> None:
        await bench.ready()
        # The failure's retry time ends the wait for work.
        bench.reconciler.failures.record(EntityKind.NEXTHOP, 99, RESOURCE_EXHAUSTED, "")
        task = asyncio.create_task(bench.reconciler.run(bench.switch))
        for _ in range(20):
            await asyncio.sleep(0)
        bench.reconciler.submit(EntityChanges())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)

    asyncio.run(scenario())
