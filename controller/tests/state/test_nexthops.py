# SPDX-License-Identifier: Apache-2.0
"""Tests next hops and groups when links fail, when neighbours stop answering, and when ids are
adopted from the switch.
"""

from __future__ import annotations

import pytest

from scenes import (
    Desired,
    address,
    device,
    gateway,
    link,
    mac,
    neighbor,
    no_route,
    route,
    slot,
)
from sluice.entities import (
    EntityKind,
    Nexthop,
    NexthopGroup,
    RouteTarget,
    RouteTargetKind,
)
from sluice.model import (
    NeighborState,
    format_address,
    parse_address,
)
from sluice.state.nexthops import Path
from state.forwarding import GW1, GW2, GW3, group_of, nexthop_ids


class TestLinks:
    def test_a_dead_link_leaves_the_group_and_comes_back(self, wanted: Desired) -> None:
        wanted.apply(route("192.0.2.0/24", gateway(GW1, 1), gateway(GW2, 2)))
        whole = group_of(wanted, "192.0.2.0/24")
        changes = wanted.apply(device(1, carrier=False))
        assert len(group_of(wanted, "192.0.2.0/24").members) == 1
        assert slot("192.0.2.0/24") not in changes.by_kind.get(EntityKind.ROUTE, {})
        wanted.apply(device(1, carrier=True))
        assert group_of(wanted, "192.0.2.0/24") == whole

    def test_with_all_links_dead_the_group_stays_and_drops(self, wanted: Desired) -> None:
        wanted.apply(route("192.0.2.0/24", gateway(GW1, 1), gateway(GW2, 2)))
        wanted.apply(device(1, carrier=False), device(2, carrier=False))
        members = group_of(wanted, "192.0.2.0/24").members
        assert len(members) == 2
        assert not any(nexthop_ids(wanted)[member].up for member, _ in members)

    def test_a_route_of_one_dead_next_hop_drops(self, wanted: Desired) -> None:
        wanted.apply(route("192.0.2.0/24", gateway(GW1, 1)), device(1, carrier=False))
        assert not wanted.nexthop("192.0.2.0/24").up
        assert wanted.target("10.0.1.0/24") is None


class TestSilentNeighbors:
    """Tests neighbours that have stopped answering while their link is up."""

    PREFIX = "192.0.2.0/24"

    @pytest.fixture
    def legs(self, wanted: Desired) -> Desired:
        wanted.apply(neighbor(1, GW1, 1), neighbor(2, GW2, 2))
        wanted.apply(route(self.PREFIX, gateway(GW1, 1), gateway(GW2, 2)))
        assert self.ways(wanted) == {GW1, GW2}
        return wanted

    def ways(self, wanted: Desired) -> set[str]:
        """Returns the gateways of the group's members."""
        members = group_of(wanted, self.PREFIX).members
        nexthops = [nexthop_ids(wanted)[member] for member, _ in members]
        return {format_address(nexthop.address or b"") for nexthop in nexthops}

    def test_it_leaves_its_group_and_comes_back(self, legs: Desired) -> None:
        whole = group_of(legs, self.PREFIX)
        changes = legs.apply(neighbor(1, GW1, None, NeighborState.FAILED))
        assert self.ways(legs) == {GW2}
        assert slot(self.PREFIX) not in changes.by_kind.get(EntityKind.ROUTE, {})
        legs.apply(neighbor(1, GW1, 1))
        assert group_of(legs, self.PREFIX) == whole

    def test_all_groups_follow(self, legs: Desired) -> None:
        legs.apply(route("198.51.100.0/24", gateway(GW1, 1), gateway(GW3, 3)))
        legs.apply(neighbor(1, GW1, None, NeighborState.FAILED))
        assert len(group_of(legs, "198.51.100.0/24").members) == 1
        assert self.ways(legs) == {GW2}

    @pytest.mark.parametrize(
        "state",
        [
            NeighborState.STALE,
            NeighborState.DELAY,
            NeighborState.PROBE,
            NeighborState.NOARP,
            NeighborState.PERMANENT,
        ],
    )
    def test_a_neighbor_that_is_merely_confirmed_stays(
        self, legs: Desired, state: NeighborState
    ) -> None:
        assert not legs.apply(neighbor(1, GW1, 1, state))
        legs.apply(neighbor(1, GW1, None, NeighborState.FAILED), neighbor(1, GW1, 1, state))
        assert self.ways(legs) == {GW1, GW2}

    @pytest.mark.parametrize("state", [NeighborState.INCOMPLETE, NeighborState.NONE])
    def test_a_new_attempt_is_no_answer(self, legs: Desired, state: NeighborState) -> None:
        """Checks that a new attempt to resolve a failed neighbour does not bring it back into the
        group.

        The kernel also removes failed entries when it has many. This must not make a group flap.
        """
        legs.apply(neighbor(1, GW1, None, NeighborState.FAILED))
        changes = legs.apply(neighbor(1, GW1, None, state))
        assert EntityKind.GROUP not in changes.by_kind
        assert self.ways(legs) == {GW2}

    def test_one_that_was_not_resolved_yet_stays(self, legs: Desired) -> None:
        legs.apply(neighbor(1, GW1, None, NeighborState.NONE))
        assert self.ways(legs) == {GW1, GW2}

    def test_packets_that_wait_in_vain_say_so_too(self, legs: Desired) -> None:
        path = Path(1, parse_address(GW1))
        legs.take(legs.fib.set_silent([path]))
        # The neighbour is resolved, so its packets are sent and it does not count as silent.
        assert self.ways(legs) == {GW1, GW2}
        legs.apply(neighbor(1, GW1, None, NeighborState.INCOMPLETE))
        legs.take(legs.fib.set_silent([path, Path(1, parse_address("10.0.1.77"))]))
        assert self.ways(legs) == {GW2}
        legs.apply(neighbor(1, GW1, 1))
        assert self.ways(legs) == {GW1, GW2}

    def test_with_all_silent_the_group_keeps_asking_for_all(self, legs: Desired) -> None:
        legs.apply(neighbor(1, GW1, None, NeighborState.FAILED))
        legs.apply(neighbor(2, GW2, None, NeighborState.FAILED))
        assert self.ways(legs) == {GW1, GW2}
        assert all(nexthop.up for nexthop in nexthop_ids(legs).values())
        legs.apply(neighbor(2, GW2, 2))
        assert self.ways(legs) == {GW2}

    def test_a_silent_one_on_a_link_is_better_than_a_dead_link(self, legs: Desired) -> None:
        legs.apply(neighbor(1, GW1, None, NeighborState.FAILED), device(2, carrier=False))
        assert self.ways(legs) == {GW1}
        legs.apply(device(2, carrier=True))
        assert self.ways(legs) == {GW2}

    def test_a_new_group_knows_who_is_silent(self, legs: Desired) -> None:
        legs.apply(neighbor(3, GW3, None, NeighborState.FAILED))
        legs.apply(route(self.PREFIX, gateway(GW1, 1), gateway(GW3, 3)))
        assert self.ways(legs) == {GW1}

    def test_a_route_of_one_silent_neighbor_asks_for_it(self, legs: Desired) -> None:
        """Checks that a route whose only neighbour is silent keeps its next hop, but without MAC
        address.

        Then the switch punts the route's packets. The controller tries to resolve the neighbour,
        and answers with ICMP host unreachable.
        """
        legs.apply(route(self.PREFIX, gateway(GW1, 1)))
        legs.apply(neighbor(1, GW1, None, NeighborState.FAILED))
        assert legs.nexthop(self.PREFIX) == Nexthop(1, parse_address(GW1), None, True)


class TestAdoption:
    def test_what_forwards_keeps_forwarding(self) -> None:
        wanted = Desired()
        found = {
            7: Nexthop(1, b"\x0a\0\1\x09", mac(1), True),
            8: Nexthop(2, b"\x0a\0\2\x09", mac(2), True),
        }
        groups = {5: NexthopGroup(((7, 1), (8, 1)))}
        changes = wanted.take(wanted.fib.adopt(dict(found), dict(groups), 0.0))
        assert set(changes.resolve) == {(1, b"\x0a\0\1\x09"), (2, b"\x0a\0\2\x09")}
        for n in (1, 2):
            wanted.apply(link(n), address(n, f"10.0.{n}.1/24"))
        wanted.apply(route("192.0.2.0/24", gateway(GW1, 1), gateway(GW2, 2)))
        assert wanted.target("192.0.2.0/24") == RouteTarget(RouteTargetKind.GROUP, 5)
        assert {7: found[7], 8: found[8]}.items() <= nexthop_ids(wanted).items()
        assert wanted.target(f"{GW1}/32") == RouteTarget(RouteTargetKind.NEXTHOP, 7)

    def test_a_group_that_was_left_without_a_dead_leg_is_taken_over(self) -> None:
        """Checks that a starting controller adopts a group in the switch that lacks a member whose
        link is down.

        If the controller created a new group, flows of the other members would move.
        """
        wanted = Desired()
        found = {n: Nexthop(n, parse_address(f"10.0.{n}.9"), mac(n), True) for n in (1, 2, 3)}
        wanted.take(wanted.fib.adopt(dict(found), {5: NexthopGroup(((1, 1), (3, 1)))}, 0.0))
        for n in (1, 2, 3):
            wanted.apply(link(n), address(n, f"10.0.{n}.1/24"))
        wanted.apply(device(2, carrier=False))
        legs = [gateway(f"10.0.{n}.9", n) for n in (1, 2, 3)]
        wanted.apply(route("192.0.2.0/24", *legs))
        assert wanted.target("192.0.2.0/24") == RouteTarget(RouteTargetKind.GROUP, 5)
        assert group_of(wanted, "192.0.2.0/24") == NexthopGroup(((1, 1), (3, 1)))
        wanted.apply(device(2, carrier=True))
        assert wanted.target("192.0.2.0/24") == RouteTarget(RouteTargetKind.GROUP, 5)
        assert len(group_of(wanted, "192.0.2.0/24").members) == 3

    def test_found_ids_mean_nothing_else_until_deleted(self) -> None:
        wanted = Desired()
        wanted.fib.adopt({1: None, 2: None}, {}, 0.0)
        wanted.apply(link(1), address(1, "10.0.1.1/24"))
        assert set(nexthop_ids(wanted)) == {3}

    def test_released_ids_rest_until_deleted(self, wanted: Desired) -> None:
        wanted.apply(route("192.0.2.0/24", gateway(GW1, 1)))
        first = wanted.target("192.0.2.0/24")
        assert first is not None
        wanted.apply(no_route("192.0.2.0/24"))
        wanted.fib.nexthops._nexthop_ids._next = 0x10000  # as if all other ids had been used once
        wanted.apply(route("192.0.2.0/24", gateway(GW1, 1)))
        assert wanted.target("192.0.2.0/24") is None
        assert wanted.fib.problems["all 65535 next-hop ids are in use"] == 1
        wanted.fib.confirm_deleted(EntityKind.NEXTHOP, first.id)
        wanted.apply(route("192.0.2.0/24", gateway(GW2, 2)))
        assert wanted.target("192.0.2.0/24") == first
