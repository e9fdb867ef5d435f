# SPDX-License-Identifier: Apache-2.0
"""The forwarding state desired of the switch, event by event."""

from __future__ import annotations

import pytest

from scenes import (
    Desired,
    address,
    connected,
    device,
    gateway,
    ifindex,
    key,
    link,
    mac,
    neighbor,
    no_address,
    no_route,
    route,
    slot,
)
from sluice.entities import (
    BLACKHOLE,
    LOCAL,
    MAX_GROUP_WEIGHT,
    PROHIBITED,
    UNREACHABLE,
    Attachment,
    Egress,
    Group,
    Kind,
    L3Interface,
    Nexthop,
    Target,
    TargetKind,
)
from sluice.model import (
    FpmSessionOpened,
    LinkRemoved,
    NeighborState,
    NexthopKind,
    NexthopObjectDeleted,
    NexthopObjectUpdated,
    NexthopSpec,
    Route,
    RouteUpdated,
    StaleRoutesGone,
    format_address,
    parse_address,
)
from sluice.state.nexthops import Path
from sluice.state.stale_sweep import StaleSweep

GW1, GW2, GW3 = "10.0.1.9", "10.0.2.9", "10.0.3.9"


@pytest.fixture
def wanted() -> Desired:
    desired = Desired()
    for n in (1, 2, 3):
        desired.apply(link(n), address(n, f"10.0.{n}.1/24"), address(n, f"2001:db8:{n}::1/64"))
    return desired


def group_of(wanted: Desired, text: str) -> Group:
    target = wanted.target(text)
    assert target is not None
    assert target.kind is TargetKind.GROUP
    group = wanted.entities[Kind.GROUP, target.id]
    assert isinstance(group, Group)
    return group


def nexthop_ids(wanted: Desired) -> dict[int, Nexthop]:
    found = {}
    for (kind, entry), value in wanted.entities.items():
        if kind is Kind.NEXTHOP:
            assert isinstance(entry, int)
            assert isinstance(value, Nexthop)
            found[entry] = value
    return found


class TestInterfaces:
    def test_the_configuration_alone_admits_and_egresses(self) -> None:
        wanted = Desired()
        mac_1 = bytes.fromhex("020000000101")
        assert wanted.entities[Kind.L3_INTERFACE, Attachment(1, 0)] == L3Interface(1, 0)
        assert wanted.entities[Kind.EGRESS_INTERFACE, 1] == Egress(1, 0, mac_1, 1500)
        assert wanted.entities[Kind.LOCAL_PREFIX, slot("ff02::/16")] == LOCAL

    def test_an_address_is_local_and_its_prefix_gleans(self, wanted: Desired) -> None:
        assert wanted.entities[Kind.LOCAL_PREFIX, slot("10.0.1.1/32")] == LOCAL
        assert wanted.entities[Kind.LOCAL_PREFIX, slot("10.0.1.255/32")] == LOCAL
        assert wanted.nexthop("10.0.1.0/24") == Nexthop(1, None, None, True)
        wanted.apply(no_address(1, "10.0.1.1/24"))
        assert (Kind.LOCAL_PREFIX, slot("10.0.1.1/32")) not in wanted.entities
        assert (Kind.LOCAL_PREFIX, slot("10.0.1.255/32")) not in wanted.entities
        assert wanted.target("10.0.1.0/24") is None

    def test_an_address_before_its_link(self) -> None:
        wanted = Desired()
        wanted.apply(address(1, "10.0.1.1/24"))
        assert wanted.target("10.0.1.0/24") is None
        wanted.apply(link(1))
        assert wanted.nexthop("10.0.1.0/24").l3_if == 1
        assert wanted.entities[Kind.LOCAL_PREFIX, slot("10.0.1.1/32")] == LOCAL

    def test_link_local_is_never_routed(self, wanted: Desired) -> None:
        wanted.apply(
            address(1, "fe80::1/64"), address(1, "169.254.1.1/16"), route("fe80::/64", connected(1))
        )
        assert wanted.target("fe80::/64") is None
        assert wanted.target("169.254.0.0/16") is None

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("169.254.0.0/16", "link-local: never forwarded (RFC 3927)"),
            ("169.254.7.0/24", "link-local: never forwarded (RFC 3927)"),
            ("fe80::/64", "link-local: never forwarded (RFC 4291)"),
            ("239.1.0.0/16", "multicast: not routed"),
            ("ff3e::/32", "multicast: not routed"),
        ],
    )
    def test_a_route_that_is_never_installed_says_why(
        self, wanted: Desired, text: str, reason: str
    ) -> None:
        wanted.apply(route(text, gateway(GW1, 1)))
        assert wanted.target(text) is None
        assert wanted.fib.unrouted == {slot(text): reason}
        wanted.apply(route(text, gateway(GW2, 2)))
        assert wanted.fib.unrouted == {slot(text): reason}
        wanted.apply(no_route(text))
        assert not wanted.fib.unrouted

    @pytest.mark.parametrize("text", ["169.0.0.0/8", "169.253.0.0/16", "254.0.0.0/8", "fe00::/8"])
    def test_a_prefix_next_to_those_that_are_not_routed(self, wanted: Desired, text: str) -> None:
        wanted.apply(route(text, gateway(GW1, 1)))
        assert wanted.target(text) is not None
        assert not wanted.fib.unrouted

    def test_an_interface_taken_down_admits_nothing(self, wanted: Desired) -> None:
        wanted.apply(link(1, up=False))
        assert (Kind.L3_INTERFACE, Attachment(1, 0)) not in wanted.entities
        wanted.apply(link(1))
        assert (Kind.L3_INTERFACE, Attachment(1, 0)) in wanted.entities

    def test_mtu_follows_the_kernel(self, wanted: Desired) -> None:
        wanted.apply(link(1, mtu=1400))
        egress = wanted.entities[Kind.EGRESS_INTERFACE, 1]
        assert isinstance(egress, Egress)
        assert egress.mtu == 1400

    def test_a_removed_tap_takes_everything_with_it(self, wanted: Desired) -> None:
        wanted.apply(neighbor(1, GW1, 1), LinkRemoved(ifindex(1)))
        assert wanted.target(f"{GW1}/32") is None
        assert wanted.target("10.0.1.0/24") is None
        assert (Kind.L3_INTERFACE, Attachment(1, 0)) not in wanted.entities


class TestNeighbors:
    def test_a_neighbor_is_a_next_hop_and_a_host_route(self, wanted: Desired) -> None:
        wanted.apply(neighbor(1, GW1, 7))
        assert wanted.nexthop(f"{GW1}/32") == Nexthop(1, b"\x0a\0\1\x09", mac(7), True)
        wanted.apply(neighbor(1, GW1, 8, NeighborState.STALE))
        assert wanted.nexthop(f"{GW1}/32").mac == mac(8)
        wanted.apply(neighbor(1, GW1, None, NeighborState.FAILED))
        assert wanted.target(f"{GW1}/32") is None

    def test_link_local_neighbors_have_no_host_route(self, wanted: Desired) -> None:
        wanted.apply(neighbor(1, "fe80::9", 7))
        assert wanted.target("fe80::9/128") is None

    def test_no_host_route_where_a_longer_prefix_leads_elsewhere(self, wanted: Desired) -> None:
        wanted.apply(neighbor(1, GW1, 7))
        wanted.apply(route("10.0.1.8/29", gateway(GW2, 2)))
        assert wanted.target(f"{GW1}/32") is None
        wanted.apply(no_route("10.0.1.8/29"))
        assert wanted.nexthop(f"{GW1}/32").mac == mac(7)

    def test_no_host_route_off_link(self, wanted: Desired) -> None:
        wanted.apply(neighbor(1, "10.0.2.77", 7))
        assert wanted.target("10.0.2.77/32") is None

    def test_the_daemons_host_route_wins(self, wanted: Desired) -> None:
        wanted.apply(neighbor(1, GW1, 7), route(f"{GW1}/32", gateway(GW2, 2)))
        assert wanted.nexthop(f"{GW1}/32").address == b"\x0a\0\2\x09"
        wanted.apply(no_route(f"{GW1}/32"))
        assert wanted.nexthop(f"{GW1}/32").address == b"\x0a\0\1\x09"

    def test_a_connected_route_of_the_daemon_keeps_host_routes(self, wanted: Desired) -> None:
        wanted.apply(neighbor(1, GW1, 7), route("10.0.1.0/24", connected(1)))
        assert wanted.nexthop(f"{GW1}/32").mac == mac(7)


class TestRoutes:
    def test_a_gateway_without_mac_is_punted_and_asked_for(self, wanted: Desired) -> None:
        changes = wanted.apply(route("192.0.2.0/24", gateway(GW1, 1)))
        assert wanted.nexthop("192.0.2.0/24") == Nexthop(1, b"\x0a\0\1\x09", None, True)
        assert list(changes.resolve) == [(1, b"\x0a\0\1\x09")]

    def test_a_gateways_mac_touches_no_route(self, wanted: Desired) -> None:
        wanted.apply(route("192.0.2.0/24", gateway(GW1, 1)))
        changes = wanted.apply(neighbor(1, GW1, 3))
        assert set(changes.by_kind[Kind.ROUTE]) == {slot(f"{GW1}/32")}
        assert wanted.nexthop("192.0.2.0/24").mac == mac(3)

    def test_next_hops_are_shared_and_go_with_the_last_route(self, wanted: Desired) -> None:
        before = nexthop_ids(wanted)
        wanted.apply(
            route("192.0.2.0/24", gateway(GW1, 1)), route("198.51.100.0/24", gateway(GW1, 1))
        )
        assert wanted.target("192.0.2.0/24") == wanted.target("198.51.100.0/24")
        wanted.apply(no_route("192.0.2.0/24"))
        assert len(nexthop_ids(wanted)) == len(before) + 1
        wanted.apply(no_route("198.51.100.0/24"))
        assert nexthop_ids(wanted) == before

    def test_several_next_hops_make_a_shared_weighted_group(self, wanted: Desired) -> None:
        legs = (gateway(GW1, 1, 10), gateway(GW2, 2, 30))
        wanted.apply(route("192.0.2.0/24", *legs), route("198.51.100.0/24", *reversed(legs)))
        assert wanted.target("192.0.2.0/24") == wanted.target("198.51.100.0/24")
        group = group_of(wanted, "192.0.2.0/24")
        assert sorted(weight for _, weight in group.members) == [1, 3]

    def test_the_same_gateway_twice_is_one_member(self, wanted: Desired) -> None:
        wanted.apply(route("192.0.2.0/24", gateway(GW1, 1), gateway(GW1, 1)))
        assert wanted.nexthop("192.0.2.0/24").l3_if == 1

    @pytest.mark.parametrize(
        "weights",
        [(7, 15, 46, 30), (256, 1), (255, 254, 253), (100, 250), tuple(range(193, 257))],
    )
    def test_weights_keep_their_proportions(
        self, wanted: Desired, weights: tuple[int, ...]
    ) -> None:
        legs = [gateway(f"10.0.1.{n + 2}", 1, weight) for n, weight in enumerate(weights)]
        wanted.apply(route("192.0.2.0/24", *legs))
        written = sorted(weight for _, weight in group_of(wanted, "192.0.2.0/24").members)
        assert [weight * sum(weights) for weight in written] == [
            weight * sum(written) for weight in sorted(weights)
        ]

    @pytest.mark.parametrize("weights", [(1,) * 100, (256,) * 64, (256,) * 63 + (255,) * 30])
    def test_weights_fit_the_selector(self, wanted: Desired, weights: tuple[int, ...]) -> None:
        legs = [gateway(f"10.0.1.{n + 2}", 1, weight) for n, weight in enumerate(weights)]
        wanted.apply(route("192.0.2.0/24", *legs))
        members = group_of(wanted, "192.0.2.0/24").members
        assert sum(weight for _, weight in members) <= MAX_GROUP_WEIGHT
        assert all(weight >= 1 for _, weight in members)
        assert len(members) == min(64, len(weights))

    def test_weights_beyond_the_selector_are_scaled(self, wanted: Desired) -> None:
        """A next hop that is named twice has both weights, here up to 511."""
        legs = [gateway(f"10.0.1.{n + 2}", 1, 256) for n in range(64)]
        more = [gateway(f"10.0.1.{n + 2}", 1, 255 - n) for n in range(64)]
        wanted.apply(route("192.0.2.0/24", *legs, *more))
        written = sorted(weight for _, weight in group_of(wanted, "192.0.2.0/24").members)
        assert sum(written) <= MAX_GROUP_WEIGHT
        wants = [256 + 255 - n for n in reversed(range(64))]
        for weight, want in zip(written, wants, strict=True):
            assert weight / sum(written) == pytest.approx(want / sum(wants), rel=0.01)

    @pytest.mark.parametrize(
        ("kind", "target"),
        [
            (NexthopKind.BLACKHOLE, BLACKHOLE),
            (NexthopKind.UNREACHABLE, UNREACHABLE),
            (NexthopKind.PROHIBIT, PROHIBITED),
        ],
    )
    def test_discards(self, wanted: Desired, kind: NexthopKind, target: Target) -> None:
        wanted.apply(route("192.0.2.0/24", NexthopSpec(None, None, 1, kind)))
        assert wanted.target("192.0.2.0/24") == target

    def test_a_next_hop_off_the_switch_is_unreachable(self, wanted: Desired) -> None:
        wanted.apply(route("192.0.2.0/24", NexthopSpec(b"\x0a\x63\0\1", 99)))
        assert wanted.target("192.0.2.0/24") == UNREACHABLE

    def test_and_becomes_reachable_with_its_interface(self) -> None:
        wanted = Desired()
        wanted.apply(route("192.0.2.0/24", gateway(GW1, 1)))
        assert wanted.target("192.0.2.0/24") == UNREACHABLE
        wanted.apply(link(1), address(1, "10.0.1.1/24"))
        assert wanted.nexthop("192.0.2.0/24").l3_if == 1

    def test_a_gateway_without_interface_is_found_by_its_prefix(self, wanted: Desired) -> None:
        wanted.apply(route("192.0.2.0/24", gateway(GW2, None)))
        assert wanted.nexthop("192.0.2.0/24").l3_if == 2

    def test_ipv6_gateway_for_an_ipv4_route(self, wanted: Desired) -> None:
        wanted.apply(route("192.0.2.0/24", gateway("fe80::9", 1)), neighbor(1, "fe80::9", 5))
        assert wanted.nexthop("192.0.2.0/24").mac == mac(5)

    def test_a_change_of_next_hop_is_one_change_of_the_route(self, wanted: Desired) -> None:
        wanted.apply(route("192.0.2.0/24", gateway(GW1, 1)))
        changes = wanted.apply(route("192.0.2.0/24", gateway(GW2, 2)))
        assert list(changes.by_kind[Kind.ROUTE].values()) == [wanted.target("192.0.2.0/24")]

    def test_tables_of_no_vrf_are_counted(self, wanted: Desired) -> None:
        event = route("192.0.2.0/24", gateway(GW1, 1))
        stranger = event.route._replace(key=event.route.key._replace(table=77))
        wanted.apply(event._replace(route=stranger))
        assert wanted.target("192.0.2.0/24") is None
        assert sum(wanted.fib.problems.values()) == 1


class TestLinks:
    def test_a_dead_link_leaves_the_group_and_comes_back(self, wanted: Desired) -> None:
        wanted.apply(route("192.0.2.0/24", gateway(GW1, 1), gateway(GW2, 2)))
        whole = group_of(wanted, "192.0.2.0/24")
        changes = wanted.apply(device(1, carrier=False))
        assert len(group_of(wanted, "192.0.2.0/24").members) == 1
        assert slot("192.0.2.0/24") not in changes.by_kind.get(Kind.ROUTE, {})
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
    """A neighbour that stopped to answer while its link stayed up."""

    PREFIX = "192.0.2.0/24"

    @pytest.fixture
    def legs(self, wanted: Desired) -> Desired:
        wanted.apply(neighbor(1, GW1, 1), neighbor(2, GW2, 2))
        wanted.apply(route(self.PREFIX, gateway(GW1, 1), gateway(GW2, 2)))
        assert self.ways(wanted) == {GW1, GW2}
        return wanted

    def ways(self, wanted: Desired) -> set[str]:
        """The gateways that the group leads to."""
        members = group_of(wanted, self.PREFIX).members
        nexthops = [nexthop_ids(wanted)[member] for member, _ in members]
        return {format_address(nexthop.address or b"") for nexthop in nexthops}

    def test_it_leaves_its_group_and_comes_back(self, legs: Desired) -> None:
        whole = group_of(legs, self.PREFIX)
        changes = legs.apply(neighbor(1, GW1, None, NeighborState.FAILED))
        assert self.ways(legs) == {GW2}
        assert slot(self.PREFIX) not in changes.by_kind.get(Kind.ROUTE, {})
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
        """The kernel forgets failed entries when it has many: a group must not flap by that."""
        legs.apply(neighbor(1, GW1, None, NeighborState.FAILED))
        changes = legs.apply(neighbor(1, GW1, None, state))
        assert Kind.GROUP not in changes.by_kind
        assert self.ways(legs) == {GW2}

    def test_one_that_was_not_resolved_yet_stays(self, legs: Desired) -> None:
        legs.apply(neighbor(1, GW1, None, NeighborState.NONE))
        assert self.ways(legs) == {GW1, GW2}

    def test_packets_that_wait_in_vain_say_so_too(self, legs: Desired) -> None:
        path = Path(1, parse_address(GW1))
        legs.take(legs.fib.set_silent([path]))
        assert self.ways(legs) == {GW1, GW2}  # it is known: whoever waited was answered
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
        """Its packets are punted, and the controller answers that the host is unreachable."""
        legs.apply(route(self.PREFIX, gateway(GW1, 1)))
        legs.apply(neighbor(1, GW1, None, NeighborState.FAILED))
        assert legs.nexthop(self.PREFIX) == Nexthop(1, parse_address(GW1), None, True)


def obj(identifier: int, text: str, n: int) -> NexthopObjectUpdated:
    return NexthopObjectUpdated(identifier, gateway(text, n))


def group(identifier: int, *members: int) -> NexthopObjectUpdated:
    return NexthopObjectUpdated(identifier, None, tuple((member, 1) for member in members))


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


class TestAdoption:
    def test_what_forwards_keeps_forwarding(self) -> None:
        wanted = Desired()
        found = {
            7: Nexthop(1, b"\x0a\0\1\x09", mac(1), True),
            8: Nexthop(2, b"\x0a\0\2\x09", mac(2), True),
        }
        groups = {5: Group(((7, 1), (8, 1)))}
        changes = wanted.take(wanted.fib.adopt(dict(found), dict(groups), 0.0))
        assert set(changes.resolve) == {(1, b"\x0a\0\1\x09"), (2, b"\x0a\0\2\x09")}
        for n in (1, 2):
            wanted.apply(link(n), address(n, f"10.0.{n}.1/24"))
        wanted.apply(route("192.0.2.0/24", gateway(GW1, 1), gateway(GW2, 2)))
        assert wanted.target("192.0.2.0/24") == Target(TargetKind.GROUP, 5)
        assert {7: found[7], 8: found[8]}.items() <= nexthop_ids(wanted).items()
        assert wanted.target(f"{GW1}/32") == Target(TargetKind.NEXTHOP, 7)

    def test_a_group_that_was_left_without_a_dead_leg_is_taken_over(self) -> None:
        """A new group in its place would move flows of the legs that live."""
        wanted = Desired()
        found = {n: Nexthop(n, parse_address(f"10.0.{n}.9"), mac(n), True) for n in (1, 2, 3)}
        wanted.take(wanted.fib.adopt(dict(found), {5: Group(((1, 1), (3, 1)))}, 0.0))
        for n in (1, 2, 3):
            wanted.apply(link(n), address(n, f"10.0.{n}.1/24"))
        wanted.apply(device(2, carrier=False))
        legs = [gateway(f"10.0.{n}.9", n) for n in (1, 2, 3)]
        wanted.apply(route("192.0.2.0/24", *legs))
        assert wanted.target("192.0.2.0/24") == Target(TargetKind.GROUP, 5)
        assert group_of(wanted, "192.0.2.0/24") == Group(((1, 1), (3, 1)))
        wanted.apply(device(2, carrier=True))
        assert wanted.target("192.0.2.0/24") == Target(TargetKind.GROUP, 5)
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
        wanted.fib.nexthops._nexthop_ids._next = 0x10000  # all others were used once
        wanted.apply(route("192.0.2.0/24", gateway(GW1, 1)))
        assert wanted.target("192.0.2.0/24") is None
        assert wanted.fib.problems["all 65535 next-hop ids are in use"] == 1
        wanted.fib.confirm_deleted(Kind.NEXTHOP, first.id)
        wanted.apply(route("192.0.2.0/24", gateway(GW2, 2)))
        assert wanted.target("192.0.2.0/24") == first


class TestInterfacesTo:
    """By which interfaces packets to an address leave, as the longest prefix says."""

    def to(self, wanted: Desired, text: str) -> set[int]:
        return set(wanted.fib.interfaces_to(0, parse_address(text)))

    def test_on_a_link(self, wanted: Desired) -> None:
        assert self.to(wanted, "10.0.2.77") == {2}
        assert self.to(wanted, "2001:db8:3::77") == {3}
        assert self.to(wanted, "192.0.2.1") == set()

    def test_by_the_longest_route(self, wanted: Desired) -> None:
        wanted.apply(
            route("0.0.0.0/0", gateway(GW1, 1)),
            route("192.0.2.0/24", gateway(GW2, 2)),
            route("2001:db8:ff::/48", gateway("2001:db8:3::9", 3)),
        )
        assert self.to(wanted, "192.0.2.1") == {2}
        assert self.to(wanted, "198.51.100.1") == {1}
        assert self.to(wanted, "2001:db8:ff::1") == {3}
        wanted.apply(no_route("192.0.2.0/24"))
        assert self.to(wanted, "192.0.2.1") == {1}

    def test_by_all_members_of_a_group(self, wanted: Desired) -> None:
        wanted.apply(route("192.0.2.0/24", gateway(GW1, 1), gateway(GW3, 3)))
        assert self.to(wanted, "192.0.2.1") == {1, 3}

    def test_a_route_that_leads_nowhere_hides_shorter_ones(self, wanted: Desired) -> None:
        nowhere = NexthopSpec(None, None, 1, NexthopKind.BLACKHOLE)
        wanted.apply(route("0.0.0.0/0", gateway(GW1, 1)), route("192.0.2.0/24", nowhere))
        assert self.to(wanted, "192.0.2.1") == set()

    def test_by_a_neighbours_host_route(self, wanted: Desired) -> None:
        wanted.apply(neighbor(2, "10.0.2.9", 9))
        assert self.to(wanted, "10.0.2.9") == {2}
