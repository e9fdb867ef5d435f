# SPDX-License-Identifier: Apache-2.0
"""Tests the desired state of the switch: after events, each prefix must have the right target."""

from __future__ import annotations

import pytest

from scenes import (
    Desired,
    address,
    connected,
    gateway,
    mac,
    neighbor,
    no_route,
    route,
    slot,
)
from sluice.entities import (
    EntityKind,
    Nexthop,
)
from sluice.model import (
    NexthopKind,
    NexthopSpec,
    parse_address,
)
from state.forwarding import GW1, GW2, GW3, nexthop_ids


def test_link_local_is_never_routed(wanted: Desired) -> None:
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
def test_a_route_that_is_never_installed_says_why(wanted: Desired, text: str, reason: str) -> None:
    wanted.apply(route(text, gateway(GW1, 1)))
    assert wanted.target(text) is None
    assert wanted.fib.unrouted == {slot(text): reason}
    wanted.apply(route(text, gateway(GW2, 2)))
    assert wanted.fib.unrouted == {slot(text): reason}
    wanted.apply(no_route(text))
    assert not wanted.fib.unrouted


@pytest.mark.parametrize("text", ["169.0.0.0/8", "169.253.0.0/16", "254.0.0.0/8", "fe00::/8"])
def test_a_prefix_next_to_those_that_are_not_routed(wanted: Desired, text: str) -> None:
    wanted.apply(route(text, gateway(GW1, 1)))
    assert wanted.target(text) is not None
    assert not wanted.fib.unrouted


def test_a_gateway_without_mac_is_punted_and_asked_for(wanted: Desired) -> None:
    changes = wanted.apply(route("192.0.2.0/24", gateway(GW1, 1)))
    assert wanted.nexthop("192.0.2.0/24") == Nexthop(1, b"\x0a\0\1\x09", None, True)
    assert list(changes.resolve) == [(1, b"\x0a\0\1\x09")]


def test_a_gateways_mac_touches_no_route(wanted: Desired) -> None:
    wanted.apply(route("192.0.2.0/24", gateway(GW1, 1)))
    changes = wanted.apply(neighbor(1, GW1, 3))
    assert set(changes.by_kind[EntityKind.ROUTE]) == {slot(f"{GW1}/32")}
    assert wanted.nexthop("192.0.2.0/24").mac == mac(3)


def test_next_hops_are_shared_and_go_with_the_last_route(wanted: Desired) -> None:
    before = nexthop_ids(wanted)
    wanted.apply(route("192.0.2.0/24", gateway(GW1, 1)), route("198.51.100.0/24", gateway(GW1, 1)))
    assert wanted.target("192.0.2.0/24") == wanted.target("198.51.100.0/24")
    wanted.apply(no_route("192.0.2.0/24"))
    assert len(nexthop_ids(wanted)) == len(before) + 1
    wanted.apply(no_route("198.51.100.0/24"))
    assert nexthop_ids(wanted) == before


def test_a_change_of_next_hop_is_one_change_of_the_route(wanted: Desired) -> None:
    wanted.apply(route("192.0.2.0/24", gateway(GW1, 1)))
    changes = wanted.apply(route("192.0.2.0/24", gateway(GW2, 2)))
    assert list(changes.by_kind[EntityKind.ROUTE].values()) == [wanted.target("192.0.2.0/24")]


def test_tables_of_no_vrf_are_counted(wanted: Desired) -> None:
    event = route("192.0.2.0/24", gateway(GW1, 1))
    stranger = event.route._replace(key=event.route.key._replace(table=77))
    wanted.apply(event._replace(route=stranger))
    assert wanted.target("192.0.2.0/24") is None
    assert sum(wanted.fib.problems.values()) == 1


class TestInterfacesTo:
    """Tests which interfaces packets to an address use, by the longest match."""

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
