# SPDX-License-Identifier: Apache-2.0
"""The routing daemon's routes: next-hop objects, sessions, shared entries."""

from __future__ import annotations

from scenes import (
    Desired,
    gateway,
    key,
    no_route,
    route,
)
from sluice.model import (
    FpmSessionOpened,
    NexthopObjectDeleted,
    Route,
    RouteUpdated,
    StaleRoutesGone,
)
from sluice.state.stale_sweep import StaleSweep
from state.forwarding import GW1, GW2, GW3, group, group_of, obj


class TestNexthopObjects:
    def test_group_and_route_before_members(self, wanted: Desired) -> None:
        wanted.apply(route("192.0.2.0/24", obj=42), group(42, 1, 2))
        assert wanted.target("192.0.2.0/24") is None
        assert wanted.fib.rib.waiting_objects() == {42: 1}
        wanted.apply(obj(1, GW1, 1))
        assert wanted.nexthop("192.0.2.0/24").l3_if == 1
        wanted.apply(obj(2, GW2, 2))
        assert len(group_of(wanted, "192.0.2.0/24").members) == 2

    def test_routes_follow_a_changed_object(self, wanted: Desired) -> None:
        wanted.apply(obj(1, GW1, 1), obj(2, GW2, 2), group(42, 1, 2), route("192.0.2.0/24", obj=42))
        wanted.apply(group(42, 2))
        assert wanted.nexthop("192.0.2.0/24").l3_if == 2
        wanted.apply(obj(2, GW3, 3))
        assert wanted.nexthop("192.0.2.0/24").l3_if == 3

    def test_an_object_sent_again_changes_nothing(self, wanted: Desired) -> None:
        wanted.apply(obj(1, GW1, 1), route("192.0.2.0/24", obj=1))
        assert not wanted.apply(obj(1, GW1, 1))

    def test_routes_go_with_their_object(self, wanted: Desired) -> None:
        wanted.apply(obj(1, GW1, 1), route("192.0.2.0/24", obj=1), NexthopObjectDeleted(1))
        assert wanted.target("192.0.2.0/24") is None
        wanted.apply(obj(1, GW1, 1))
        assert wanted.nexthop("192.0.2.0/24").l3_if == 1

    def test_next_hops_beside_an_objects_number_count(self, wanted: Desired) -> None:
        """The kernel names both. The route leads by what is spelled out, whatever the object is."""
        legs = (gateway(GW1, 1),)
        spelled = [
            RouteUpdated(Route(key(text), 186, 20, legs, 7))
            for text in ("192.0.2.0/24", "198.51.100.0/24")
        ]
        wanted.apply(*spelled)
        wanted.apply(no_route("192.0.2.0/24"), no_route("198.51.100.0/24"))
        wanted.apply(spelled[0])
        assert wanted.nexthop("192.0.2.0/24").l3_if == 1

    def test_groups_in_a_circle_end(self, wanted: Desired) -> None:
        wanted.apply(group(1, 2), group(2, 1), route("192.0.2.0/24", obj=1))
        assert wanted.target("192.0.2.0/24") is None


class TestSessions:
    def test_routes_stay_over_a_reconnect_and_go_when_not_named_again(
        self, wanted: Desired
    ) -> None:
        wanted.apply(
            FpmSessionOpened("a"),
            obj(1, GW1, 1),
            route("192.0.2.0/24", obj=1),
            route("198.51.100.0/24", obj=1),
            route("203.0.113.0/24", obj=1),
        )
        assert not wanted.apply(FpmSessionOpened("b"))
        # Object 1 is now something else, which must not move the old session's routes.
        wanted.apply(obj(1, GW2, 2), route("192.0.2.0/24", obj=1))
        assert wanted.nexthop("192.0.2.0/24").l3_if == 2
        assert wanted.nexthop("198.51.100.0/24").l3_if == 1
        assert wanted.fib.rib.stale == 2
        sweep = StaleSweep(
            wanted.fib, {key("203.0.113.0/24"): Route(key("203.0.113.0/24"), 186, 20, ())}
        )
        while (gone := sweep.next()) is not None:
            wanted.apply(gone)
        assert sweep.still_in_kernel == 1
        assert wanted.target("198.51.100.0/24") is None
        assert wanted.nexthop("203.0.113.0/24").l3_if == 1
        wanted.apply(StaleRoutesGone((key("203.0.113.0/24"), key("192.0.2.0/24"))))
        assert wanted.nexthop("192.0.2.0/24").l3_if == 2  # named again: not stale
        assert wanted.target("203.0.113.0/24") is None


class TestMemory:
    """A full table has a million of everything that a route has of its own."""

    def test_routes_that_say_the_same_share_all_but_their_prefix(self, wanted: Desired) -> None:
        wanted.apply(route("192.0.2.0/24", gateway(GW1, 1)), route("20.0.0.0/8", gateway(GW1, 1)))
        one, other = (wanted.fib.rib.get(key(text)) for text in ("192.0.2.0/24", "20.0.0.0/8"))
        assert one is other is not None
        wanted.apply(route("20.0.0.0/8", gateway(GW2, 2)))
        assert wanted.nexthop("192.0.2.0/24").l3_if == 1
        assert wanted.nexthop("20.0.0.0/8").l3_if == 2
