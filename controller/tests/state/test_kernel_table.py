# SPDX-License-Identifier: Apache-2.0
"""Tests the choice among the kernel's routes of one prefix."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sluice.model import (
    MAIN_TABLE,
    NexthopSpec,
    Prefix,
    Route,
    RouteDeleted,
    RouteKey,
    RouteUpdated,
)
from sluice.state.kernel_table import KernelTable

KEYS = tuple(RouteKey(MAIN_TABLE, Prefix.parse(f"10.{n}.0.0/16")) for n in range(3))


def route(key: RouteKey, metric: int, ifindex: int = 1) -> Route:
    return Route(key, 3, metric, (NexthopSpec(None, ifindex),))


def test_lowest_metric_is_the_best() -> None:
    table = KernelTable()
    high, low = route(KEYS[0], 200), route(KEYS[0], 100, 2)
    assert table.update(high) == RouteUpdated(high)
    assert table.update(low) == RouteUpdated(low)
    assert table.update(route(KEYS[0], 300)) is None
    assert table.delete(KEYS[0], 100) == RouteUpdated(high)
    assert table.delete(KEYS[0], 300) is None
    assert table.delete(KEYS[0], 200) == RouteDeleted(KEYS[0])
    assert len(table) == 0


def test_route_that_is_not_known_is_no_event() -> None:
    assert KernelTable().delete(KEYS[0], 0) is None


def test_repeated_route_is_no_event() -> None:
    table = KernelTable()
    table.update(route(KEYS[0], 0))
    assert table.update(route(KEYS[0], 0)) is None


def test_routes_that_a_dump_did_not_show_are_gone() -> None:
    table = KernelTable()
    kept, worse, gone = route(KEYS[0], 10), route(KEYS[0], 20), route(KEYS[1], 0)
    for one in (kept, worse, gone):
        table.update(one)
    assert table.keep_only([(KEYS[0], 20)]) in (
        [RouteUpdated(worse), RouteDeleted(KEYS[1])],
        [RouteDeleted(KEYS[1]), RouteUpdated(worse)],
    )


def test_dump_that_shows_all_routes_deletes_none() -> None:
    table = KernelTable()
    for one in (route(KEYS[0], 10), route(KEYS[0], 20), route(KEYS[1], 0)):
        table.update(one)
    assert table.keep_only({(one.key, one.metric) for one in table.routes()}) == []
    assert len(list(table.routes())) == 3


CHANGES = st.lists(
    st.tuples(st.booleans(), st.sampled_from(KEYS), st.integers(0, 3), st.integers(1, 2))
)


@given(CHANGES)
def test_events_lead_to_the_best_routes(changes: list[tuple[bool, RouteKey, int, int]]) -> None:
    """The events must give a receiver, for each prefix, the route with the lowest metric."""
    table = KernelTable()
    all_routes: dict[tuple[RouteKey, int], Route] = {}
    received: dict[RouteKey, Route] = {}
    for is_update, key, metric, ifindex in changes:
        if is_update:
            all_routes[key, metric] = route(key, metric, ifindex)
            event: RouteUpdated | RouteDeleted | None = table.update(all_routes[key, metric])
        else:
            all_routes.pop((key, metric), None)
            event = table.delete(key, metric)
        if isinstance(event, RouteUpdated):
            assert received.get(event.route.key) != event.route
            received[event.route.key] = event.route
        elif event is not None:
            del received[event.key]
    best = {
        key: min((one for one in all_routes.values() if one.key == key), key=lambda one: one.metric)
        for key in {key for key, _ in all_routes}
    }
    assert received == best
    assert {key: table.best(key) for key in best} == best
    assert sorted(table.routes()) == sorted(all_routes.values())
