# SPDX-License-Identifier: Apache-2.0
"""Tests routes of a daemon in a VRF's network namespace.

The controller gives these routes the table of the VRF, and interface indexes that are unique among
all namespaces.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any, cast

from sluice.model import (
    MAIN_TABLE,
    FpmSessionClosed,
    FpmSessionOpened,
    LinkChanged,
    NexthopKind,
    NexthopObjectDeleted,
    NexthopObjectUpdated,
    NexthopSpec,
    Prefix,
    Route,
    RouteDeleted,
    RouteEvent,
    RouteKey,
    RouteUpdated,
    parse_address,
)
from sluice.namespaces import INDEX_LIMIT, base, namespace_of
from sluice.sources.namespace_routes import NamespaceRoutes

RED, TABLE = 3, 100
GATEWAY = parse_address("10.0.1.9")
PREFIX = Prefix.parse("20.0.0.0/8")


class FakeSource:
    def __init__(self, *slices: list[RouteEvent]) -> None:
        self.slices = deque(slices)
        self.counters: Counter[str] = Counter()
        self.links: list[LinkChanged] = []

    def poll(self, limit: int) -> list[RouteEvent]:
        return self.slices.popleft() if self.slices else []

    def link_changed(self, event: LinkChanged) -> None:
        self.links.append(event)


def routes_of(source: FakeSource) -> NamespaceRoutes:
    return NamespaceRoutes(cast(Any, source), RED, TABLE, "red")


def route(table: int, *specs: NexthopSpec, obj: int | None = None) -> RouteUpdated:
    return RouteUpdated(Route(RouteKey(table, PREFIX), 186, 20, specs, obj))


def test_routes_are_in_the_vrfs_table_by_its_own_interfaces() -> None:
    leg, drop = NexthopSpec(GATEWAY, 7), NexthopSpec(None, None, 1, NexthopKind.BLACKHOLE)
    source = FakeSource([route(MAIN_TABLE, leg), route(MAIN_TABLE, drop), route(MAIN_TABLE, obj=5)])
    by_leg, dropped, by_object = (
        event.route for event in routes_of(source).poll(9) if isinstance(event, RouteUpdated)
    )
    assert by_leg.key == dropped.key == by_object.key == RouteKey(TABLE, PREFIX)
    assert by_leg.nexthops == (NexthopSpec(GATEWAY, base(RED) + 7),)
    assert dropped.nexthops == (drop,)
    assert (by_object.nexthops, by_object.nexthop_id) == ((), 5)


def test_routes_that_share_their_next_hops_go_on_to_do_so() -> None:
    said = (NexthopSpec(GATEWAY, 7),)
    one, other = RouteUpdated(Route(RouteKey(MAIN_TABLE, PREFIX), 186, 20, said)), route(MAIN_TABLE)
    other = RouteUpdated(one.route._replace(key=RouteKey(MAIN_TABLE, Prefix.parse("30.0.0.0/8"))))
    first, second = routes_of(FakeSource([one, other])).poll(9)
    assert isinstance(first, RouteUpdated)
    assert isinstance(second, RouteUpdated)
    assert first.route.nexthops is second.route.nexthops


def test_other_tables_are_ignored_and_counted() -> None:
    source = FakeSource([route(TABLE, NexthopSpec(GATEWAY, 7)), RouteDeleted(RouteKey(9, PREFIX))])
    source.slices.append([RouteDeleted(RouteKey(MAIN_TABLE, PREFIX))])
    routes = routes_of(source)
    assert routes.poll(9) == [RouteDeleted(RouteKey(TABLE, PREFIX))]
    assert routes.counters["routes_of_another_table"] == 2


def test_no_index_reaches_into_another_namespace() -> None:
    for index in (INDEX_LIMIT, INDEX_LIMIT + 7, 2**32 - 1, -1):
        (event,) = routes_of(FakeSource([route(MAIN_TABLE, NexthopSpec(GATEWAY, index))])).poll(9)
        assert isinstance(event, RouteUpdated)
        (spec,) = event.route.nexthops
        assert spec.ifindex == base(RED)  # no interface has this index


def test_objects_and_sessions_say_whose_they_are() -> None:
    object_ = NexthopObjectUpdated(5, NexthopSpec(GATEWAY, 7), ((1, 2),))
    said: list[RouteEvent] = [object_, NexthopObjectDeleted(5)]
    said += [FpmSessionOpened("127.0.0.1:9"), FpmSessionClosed("why")]
    assert routes_of(FakeSource(said)).poll(9) == [
        NexthopObjectUpdated(5, NexthopSpec(GATEWAY, base(RED) + 7), ((1, 2),), RED),
        NexthopObjectDeleted(5, RED),
        FpmSessionOpened("127.0.0.1:9, VRF red", RED),
        FpmSessionClosed("why", RED),
    ]


def test_the_source_is_told_of_links_as_its_daemon_knows_them() -> None:
    source = FakeSource()
    link = LinkChanged(base(RED) + 7, "eth7", True, True, 1500, bytes(6))
    assert namespace_of(link.ifindex) == RED
    routes_of(source).link_changed(link)
    assert [event.ifindex for event in source.links] == [7]
