# SPDX-License-Identifier: Apache-2.0
"""Connected prefixes and neighbours' host routes, beside routes of the routing daemon."""

from __future__ import annotations

from scenes import (
    Desired,
    connected,
    gateway,
    mac,
    neighbor,
    no_route,
    route,
)
from sluice.entities import (
    Nexthop,
)
from sluice.model import (
    NeighborState,
)
from state.forwarding import GW1, GW2


def test_a_neighbor_is_a_next_hop_and_a_host_route(wanted: Desired) -> None:
    wanted.apply(neighbor(1, GW1, 7))
    assert wanted.nexthop(f"{GW1}/32") == Nexthop(1, b"\x0a\0\1\x09", mac(7), True)
    wanted.apply(neighbor(1, GW1, 8, NeighborState.STALE))
    assert wanted.nexthop(f"{GW1}/32").mac == mac(8)
    wanted.apply(neighbor(1, GW1, None, NeighborState.FAILED))
    assert wanted.target(f"{GW1}/32") is None


def test_link_local_neighbors_have_no_host_route(wanted: Desired) -> None:
    wanted.apply(neighbor(1, "fe80::9", 7))
    assert wanted.target("fe80::9/128") is None


def test_no_host_route_where_a_longer_prefix_leads_elsewhere(wanted: Desired) -> None:
    wanted.apply(neighbor(1, GW1, 7))
    wanted.apply(route("10.0.1.8/29", gateway(GW2, 2)))
    assert wanted.target(f"{GW1}/32") is None
    wanted.apply(no_route("10.0.1.8/29"))
    assert wanted.nexthop(f"{GW1}/32").mac == mac(7)


def test_no_host_route_off_link(wanted: Desired) -> None:
    wanted.apply(neighbor(1, "10.0.2.77", 7))
    assert wanted.target("10.0.2.77/32") is None


def test_the_daemons_host_route_wins(wanted: Desired) -> None:
    wanted.apply(neighbor(1, GW1, 7), route(f"{GW1}/32", gateway(GW2, 2)))
    assert wanted.nexthop(f"{GW1}/32").address == b"\x0a\0\2\x09"
    wanted.apply(no_route(f"{GW1}/32"))
    assert wanted.nexthop(f"{GW1}/32").address == b"\x0a\0\1\x09"


def test_a_connected_route_of_the_daemon_keeps_host_routes(wanted: Desired) -> None:
    wanted.apply(neighbor(1, GW1, 7), route("10.0.1.0/24", connected(1)))
    assert wanted.nexthop(f"{GW1}/32").mac == mac(7)
