# SPDX-License-Identifier: Apache-2.0
"""Tests the comparison of the routing daemon's routes with the kernel's, slice by slice."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from scenes import SPECS
from sluice.entities import EntityKey, EntityKind, RouteSlot
from sluice.model import (
    FpmSessionOpened,
    Prefix,
    Route,
    RouteDeleted,
    RouteEvent,
    RouteKey,
    RouteUpdated,
    StaleRoutesGone,
)
from sluice.route_comparison import RouteComparison
from sluice.sources.replay import ReplayGate
from sluice.state.fib import Fib
from sluice.state.stale_sweep import KERNEL_ROUTES_PER_SLICE
from sluice.unreplayed_routes import UnreplayedRoutes

MAIN, TABLE = 254, 100
STATIC = 196


def some(table: int, *numbers: int) -> dict[RouteKey, Route]:
    keys = [RouteKey(table, Prefix(bytes([20, n >> 8, n & 255, 0]), 24)) for n in numbers]
    return {key: Route(key, STATIC, 20, ()) for key in keys}


class Dump:
    """Fakes the dump of the kernel's routes. The first poll returns all of them."""

    def __init__(self, routes: dict[RouteKey, Route]) -> None:
        self.running = False
        self._routes = routes

    def fileno(self) -> int:
        return -1

    def start(self, wanted: Callable[[RouteKey], bool]) -> None:
        self.running = True
        self._wanted = wanted

    def poll(self, datagrams: int) -> dict[RouteKey, Route]:
        self.running = False
        self.given = {key: route for key, route in self._routes.items() if self._wanted(key)}
        return dict(self.given)


class Switch:
    """Fakes a switch with routes that no daemon has announced. They are deleted one per step."""

    def __init__(self, fib: Fib) -> None:
        self.comparisons: int | None = 1
        self.unreplayed: list[RouteSlot] = []
        self._fib = fib

    def is_orphan(self, kind: EntityKind, key: EntityKey) -> bool:
        return key in self.unreplayed

    def delete_orphans_unless(
        self, kind: EntityKind, is_kept: Callable[[EntityKey], bool]
    ) -> Iterator[None]:
        for slot in list(self.unreplayed):
            if self._fib.rib.get(self._fib.key_of(slot)) is not None or not is_kept(slot):
                self.unreplayed.remove(slot)
            yield


class Bench:
    """Sets up a new session of the routing daemon. `stale` holds the routes of the earlier
    session.
    """

    def __init__(self, stale: dict[RouteKey, Route], kernel: dict[RouteKey, Route]) -> None:
        self.fib = Fib(SPECS, {MAIN: 0, TABLE: 1})
        self.gate = ReplayGate(3.0, tables=frozenset({TABLE}))
        self.switch = Switch(self.fib)
        self.compare_with(Dump(kernel))
        self.fib.apply([FpmSessionOpened("a"), *map(RouteUpdated, stale.values())], 0.0)
        self.tell(FpmSessionOpened("b"))

    def compare_with(self, dump: Dump) -> None:
        self.dump = dump
        left = UnreplayedRoutes(self.switch, self.fib)
        self.comparison = RouteComparison(self.fib, self.gate, dump, left)

    def tell(self, event: RouteEvent) -> None:
        self.comparison.note([event], 0.0)
        self.fib.apply([event], 0.0)

    def step(self) -> bool:
        """Runs one slice. Returns whether it was the last slice."""
        step = self.comparison.step(3.0)
        assert step.routes <= KERNEL_ROUTES_PER_SLICE
        self.fib.apply(step.events, 3.0)
        return not step.more

    def begin(self) -> None:
        """Begins a comparison, and runs it until it starts the dump of the kernel's routes."""
        assert self.comparison.start_if_due(3.0)
        while not self.dump.running:
            assert not self.step() or self.dump.running

    def finish(self) -> None:
        while self.comparison.running:
            self.step()

    def keys(self) -> set[RouteKey]:
        return set(self.fib.rib)


def test_routes_that_the_replay_left_out_are_taken_before_stale_ones_go() -> None:
    """Checks that routes that are missing in the replay are taken from the kernel before stale
    routes are removed.

    Routes are taken only from the kernel's tables of VRFs, not from its main table.
    """
    count = 3 * KERNEL_ROUTES_PER_SLICE
    in_vrf, in_main = some(TABLE, *range(count)), some(MAIN, *range(count, 2 * count))
    known = some(TABLE, 0, 1) | some(MAIN, 0, 1) | some(TABLE, 9000)
    bench = Bench(known, in_vrf | in_main)
    bench.begin()
    bench.finish()
    assert bench.keys() == in_vrf.keys()
    assert bench.fib.rib.stale == 0
    assert bench.gate.due is None  # otherwise another comparison would follow


def test_nothing_follows_from_what_the_kernel_said_before_a_new_session() -> None:
    bench = Bench(some(TABLE, 1) | some(MAIN, 1), some(TABLE, *range(5 * KERNEL_ROUTES_PER_SLICE)))
    bench.begin()
    for _ in range(3):
        assert not bench.step()
    taken = bench.keys()
    assert len(taken) > KERNEL_ROUTES_PER_SLICE
    bench.tell(FpmSessionOpened("c"))
    bench.finish()
    assert bench.keys() == taken
    assert bench.fib.rib.stale == len(taken)
    assert bench.gate.due == 3.0


def test_what_the_daemon_withdraws_meanwhile_does_not_come_back() -> None:
    count = 3 * KERNEL_ROUTES_PER_SLICE
    bench = Bench({}, some(TABLE, *range(count)))
    bench.begin()
    assert not bench.step()
    (gone,) = some(TABLE, count - 1)
    bench.tell(RouteDeleted(gone))
    bench.finish()
    assert bench.keys() == some(TABLE, *range(count - 1)).keys()


def test_the_kernel_is_not_asked_where_nothing_could_follow() -> None:
    """Checks that the kernel's routes are not read if they could change nothing.

    This holds if no route is left from an earlier session, and no VRF has a table of its own.
    """
    bench = Bench({}, some(MAIN, 1, 2))
    bench.gate = ReplayGate(3.0)
    dump = Dump(some(MAIN, 1, 2))
    bench.compare_with(dump)
    bench.tell(FpmSessionOpened("c"))
    assert not bench.comparison.start_if_due(2.0)
    assert bench.comparison.start_if_due(3.0)
    assert bench.comparison.running
    assert bench.comparison.step(3.0).more
    assert not dump.running
    step = bench.comparison.step(3.0)
    assert step.settled
    assert not step.events
    assert bench.gate.due is None


def test_stale_routes_go_in_events_of_their_own() -> None:
    bench = Bench(some(MAIN, 1, 2), some(MAIN, 2))
    bench.begin()
    events: list[RouteEvent] = []
    while (step := bench.comparison.step(3.0)).more:
        events += step.events
    assert events == [StaleRoutesGone(tuple(some(MAIN, 1)))]
    assert step.settled
    assert bench.gate.due == 33.0


def slots(*numbers: int) -> list[RouteSlot]:
    return [RouteSlot(0, key.prefix) for key in some(MAIN, *numbers)]


def test_of_what_was_left_in_the_switch_only_that_goes_which_the_kernel_lost() -> None:
    """Checks that a route in the switch that the daemon has not announced is deleted only if the
    kernel does not have it.

    Of the kernel's routes, only those with the same prefixes are read.
    """
    dump = Dump(some(MAIN, *range(100)) | some(TABLE, 2))
    bench = Bench({}, {})
    bench.gate = ReplayGate(3.0)
    bench.compare_with(dump)
    bench.tell(FpmSessionOpened("c"))
    bench.tell(RouteUpdated(*some(MAIN, 1).values()))
    bench.switch.unreplayed = slots(1, 2, 200)
    bench.begin()
    bench.finish()
    assert dump.given.keys() == some(MAIN, 2).keys()
    assert bench.switch.unreplayed == slots(2)
    assert bench.comparison.kept == 1
    assert bench.gate.due == 33.0


def test_nothing_is_left_for_certain_until_the_switch_was_read() -> None:
    bench = Bench({}, {})
    bench.switch.comparisons = None
    assert not bench.comparison.start_if_due(3.0)
    assert bench.gate.due == 6.0


def test_nothing_follows_from_what_the_kernel_said_before_the_switch_was_read_again() -> None:
    """Checks that a comparison deletes nothing if the switch is read again while it runs.

    The kernel's routes were read only for those routes that the switch held before.
    """
    bench = Bench({}, {})
    bench.switch.unreplayed = slots(1, 2)
    bench.begin()
    while bench.comparison._sweep is None:
        assert not bench.step()
    bench.switch.comparisons = 2
    bench.finish()
    assert bench.switch.unreplayed == slots(1, 2)
    assert bench.gate.due == 6.0
