# SPDX-License-Identifier: Apache-2.0
"""Tests the routing daemon's routes: next-hop objects, changes of the session, and the sharing of
attributes.
"""

from __future__ import annotations

import pytest

from scenes import (
    Desired,
    gateway,
    key,
    no_route,
    route,
    slot,
)
from sluice.model import (
    FpmSessionOpened,
    NexthopObjectDeleted,
    Route,
    RouteUpdated,
    StaleRoutesGone,
    parse_address,
)
from sluice.state.ids import OutOfIdsError
from sluice.state.nexthops import Path
from sluice.state.rib import moved_routes
from sluice.state.stale_sweep import StaleSweep
from state.forwarding import GW1, GW2, GW3, Stages, group, group_of, obj


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
        """Checks that a route with both next hops and the id of a next-hop object uses its next
        hops.

        The kernel's messages contain both.
        """
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
        # In the new session, object 1 is another next hop. Routes of the earlier session must not
        # use it.
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
        # The new session has announced this route, so it is not stale.
        assert wanted.nexthop("192.0.2.0/24").l3_if == 2
        assert wanted.target("203.0.113.0/24") is None


class TestMemory:
    """Tests that routes share their attributes.

    In a full table, an attribute that routes do not share would be stored a million times.
    """

    def test_routes_that_say_the_same_share_all_but_their_prefix(self, wanted: Desired) -> None:
        wanted.apply(route("192.0.2.0/24", gateway(GW1, 1)), route("20.0.0.0/8", gateway(GW1, 1)))
        one, other = (wanted.fib.rib.get(key(text)) for text in ("192.0.2.0/24", "20.0.0.0/8"))
        assert one is other is not None
        wanted.apply(route("20.0.0.0/8", gateway(GW2, 2)))
        assert wanted.nexthop("192.0.2.0/24").l3_if == 1
        assert wanted.nexthop("20.0.0.0/8").l3_if == 2


class TestChanges:
    """Tests that each event returns the routes that it changed."""

    def test_an_update_returns_the_route_with_its_path_set(self) -> None:
        stages = Stages()
        [change] = stages.update(route("192.0.2.0/24", gateway(GW1, 1)))
        assert change.slot == slot("192.0.2.0/24")
        assert change.paths is not None
        assert [member.path for member in change.paths.members] == [Path(1, parse_address(GW1))]
        [other] = stages.update(route("198.51.100.0/24", gateway(GW1, 1)))
        assert other.paths is change.paths

    def test_a_deletion_returns_the_route_and_an_unknown_one_nothing(self) -> None:
        stages = Stages()
        stages.update(route("192.0.2.0/24", gateway(GW1, 1)))
        there, elsewhere = slot("192.0.2.0/24"), slot("198.51.100.0/24")
        assert stages.rib.delete(elsewhere, stages.changes) == ()
        assert stages.rib.delete(there, stages.changes) == ((there, None),)
        assert stages.rib.delete(there, stages.changes) == ()
        assert stages.nexthops.paths() == []

    def test_a_new_object_returns_the_routes_that_waited_for_it(self) -> None:
        stages = Stages()
        [waiting] = stages.update(route("192.0.2.0/24", obj=7))
        assert waiting.paths is None
        stages.update(route("198.51.100.0/24", obj=7))
        stages.rib.delete(slot("198.51.100.0/24"), stages.changes)
        stages.update(route("203.0.113.0/24", obj=7))
        stages.update(route("203.0.113.0/24", gateway(GW1, 1)))
        [change] = stages.rib.update_object(obj(7, GW2, 2), stages.changes)
        assert change.slot == slot("192.0.2.0/24")
        assert change.paths is not None
        assert list(stages.rib.update_object(obj(7, GW2, 2), stages.changes)) == []

    def test_routes_of_an_object_that_leads_elsewhere_are_left_to_a_walk(self) -> None:
        stages = Stages()
        list(stages.rib.update_object(obj(7, GW1, 1), stages.changes))
        stages.update(route("192.0.2.0/24", obj=7))
        stages.update(route("198.51.100.0/24", gateway(GW1, 1)))
        assert list(stages.rib.update_object(obj(7, GW2, 2), stages.changes)) == []
        assert stages.rib.target_changes == 1
        slots = [slot("192.0.2.0/24"), slot("198.51.100.0/24"), slot("203.0.113.0/24")]
        [change] = moved_routes(stages.table, slots, ())
        assert change.slot == slot("192.0.2.0/24")
        stages.rib.moved_objects.clear()
        assert list(moved_routes(stages.table, slots, ())) == []

    def test_changes_before_ids_run_out_are_returned(self) -> None:
        stages = Stages()
        stages.update(route("192.0.2.0/24", obj=7))
        stages.update(route("198.51.100.0/24", obj=8))
        list(stages.rib.update_object(group(8, 7, 9), stages.changes))
        list(stages.rib.update_object(obj(9, GW2, 2), stages.changes))
        stages.nexthops._group_ids._next = 0x10000  # as if all group ids had been used once
        changed = stages.rib.update_object(obj(7, GW1, 1), stages.changes)
        assert next(changed).slot == slot("192.0.2.0/24")
        with pytest.raises(OutOfIdsError, match="next-hop group"):
            next(changed)
