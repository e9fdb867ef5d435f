# SPDX-License-Identifier: Apache-2.0
"""Tests the dump of the kernel's routes with the real kernel."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator

import pytest

from kernel_namespace import DEADLINE, ip, network_namespace
from sluice.model import NexthopKind, NexthopSpec, Prefix, Route, RouteKey, parse_address
from sluice.sources.kernel_routes import KernelRouteDump
from sluice.sources.vrf_devices import LAST_METRIC


@pytest.fixture
def ifindex() -> Iterator[int]:
    with network_namespace():
        ip("link add v1 index 10 type veth peer name v2")
        for command in ("link set v1 up", "link set v2 up", "addr add 10.1.1.1/24 dev v1"):
            ip(command)
        ip("addr add 2001:db8:1::1/64 dev v1 nodad")
        yield 10


def dump() -> dict[RouteKey, Route]:
    routes = KernelRouteDump()
    routes.start()
    end = time.monotonic() + DEADLINE
    while (found := routes.poll(4)) is None:
        left = end - time.monotonic()
        assert left > 0, "the dump did not end in time"
        select.select([routes], [], [], left)
    assert not routes.running
    routes.close()
    return found


def key(text: str, table: int = 254) -> RouteKey:
    return RouteKey(table, Prefix.parse(text))


def via(address: str | None, ifindex: int, weight: int = 1) -> NexthopSpec:
    if address is None:
        return NexthopSpec(None, ifindex, weight, NexthopKind.CONNECTED)
    return NexthopSpec(parse_address(address), ifindex, weight)


def test_connected_routes_are_there_and_local_ones_are_not(ifindex: int) -> None:
    routes = dump()
    assert routes[key("10.1.1.0/24")].nexthops == (via(None, ifindex),)
    assert routes[key("2001:db8:1::/64")].nexthops == (via(None, ifindex),)
    assert key("10.1.1.1/32", 255) not in routes
    assert key("ff00::/8", 255) not in routes


@pytest.mark.parametrize(
    ("command", "route", "nexthops"),
    [
        ("10.2.0.0/16 via 10.1.1.2", "10.2.0.0/16", (via("10.1.1.2", 10),)),
        ("10.2.0.0/16 via inet6 2001:db8:1::2 dev v1", "10.2.0.0/16", (via("2001:db8:1::2", 10),)),
        (
            "10.2.0.0/16 nexthop via 10.1.1.2 weight 3 nexthop via 10.1.1.3",
            "10.2.0.0/16",
            (via("10.1.1.2", 10, 3), via("10.1.1.3", 10)),
        ),
        (
            "2001:db8:2::/48 nexthop via 2001:db8:1::2 nexthop via 2001:db8:1::3 weight 2",
            "2001:db8:2::/48",
            (via("2001:db8:1::2", 10), via("2001:db8:1::3", 10, 2)),
        ),
        (
            "unreachable 10.2.0.0/16",
            "10.2.0.0/16",
            (NexthopSpec(None, None, 1, NexthopKind.UNREACHABLE),),
        ),
        (
            "prohibit 2001:db8:2::/48",
            "2001:db8:2::/48",
            (NexthopSpec(None, None, 1, NexthopKind.PROHIBIT),),
        ),
    ],
)
@pytest.mark.usefixtures("ifindex")
def test_next_hops(command: str, route: str, nexthops: tuple[NexthopSpec, ...]) -> None:
    ip(("-6 " if ":" in route else "") + f"route add {command}")
    assert dump()[key(route)].nexthops == nexthops


@pytest.mark.usefixtures("ifindex")
def test_a_next_hop_object_is_spelled_out() -> None:
    ip("nexthop add id 1 via 10.1.1.2 dev v1")
    ip("nexthop add id 2 via 10.1.1.3 dev v1")
    ip("nexthop add id 3 group 1,3/2")  # next hop 1 with weight 3, and next hop 2
    ip("route add 10.2.0.0/16 nhid 3")
    expected = (via("10.1.1.2", 10, 3), via("10.1.1.3", 10))
    assert dump()[key("10.2.0.0/16")].nexthops == expected


@pytest.mark.usefixtures("ifindex")
def test_the_lowest_metric_counts() -> None:
    ip("route add 10.2.0.0/16 via 10.1.1.3 metric 20")
    ip("route add 10.2.0.0/16 via 10.1.1.2 metric 10")
    route = dump()[key("10.2.0.0/16")]
    assert (route.metric, route.nexthops) == (10, (via("10.1.1.2", 10),))


@pytest.mark.usefixtures("ifindex")
def test_tables_are_kept_apart() -> None:
    ip("route add 10.2.0.0/16 via 10.1.1.2 table 1000")
    routes = dump()
    assert key("10.2.0.0/16", 1000) in routes
    assert key("10.2.0.0/16") not in routes


@pytest.mark.usefixtures("ifindex")
def test_a_large_table_comes_in_slices() -> None:
    lines = [f"route add 10.{i >> 8}.{i & 255}.0/24 via 10.1.1.2" for i in range(512, 5512)]
    ip("-batch -", lines="\n".join(lines))
    assert len([k for k in dump() if k.prefix.length == 24]) == 5001


@pytest.mark.usefixtures("ifindex")
def test_what_the_controller_put_into_a_vrfs_table_keeps_no_route_of_the_daemons() -> None:
    """Checks that the dump leaves out the default route that the controller itself puts into a
    VRF's table.

    This route has the largest metric, so a default route of the routing daemon comes before it.
    """
    for family, default in (("-4", "0.0.0.0/0"), ("-6", "::/0")):
        last = f"unreachable default table 100 metric {LAST_METRIC} proto kernel"
        ip(f"{family} route add {last}")
        assert key(default, 100) not in dump()
        ip(f"{family} route add blackhole default table 100 metric 20 proto bgp")
        assert dump()[key(default, 100)].metric == 20
