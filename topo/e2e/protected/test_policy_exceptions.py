# SPDX-License-Identifier: Apache-2.0
"""Tests protected packets that cannot be forwarded: the packet is too big, its TTL expires, or its
next hop has no MAC address.

The router then sends an ICMP error to the packet's sender. If the packet arrived through a tunnel,
the error returns through the same tunnel.
"""

import pytest

from sluice_testkit.packet import ICMP, ICMPV6
from sluice_topo import probes

from .monitor import LeakMonitor, is_esp, time_exceeded
from .network import HUB, HUB_TO_SPOKE2, ROOM, SOON, ProtectedNetwork, flush_path_mtu

VERSIONS = pytest.mark.parametrize("version", [4, 6])
HEADERS = {4: 28, 6: 48}
DO_NOT_FRAGMENT = ("-M", "do")


@VERSIONS
def test_a_packet_of_exactly_the_room_passes_whole(
    walks: ProtectedNetwork, monitor: LeakMonitor, version: int
) -> None:
    h1, h2 = walks.host("h1"), walks.host("h2")
    size = ROOM[12] - HEADERS[version]
    seen = walks.ping(h1.namespace, h2.address(version), size=size, options=DO_NOT_FRAGMENT)
    assert seen.lost == 0, walks.where_lost(seen)
    assert max(len(frame.data) for frame in monitor.sent("r1-2", is_esp)) == 14 + 1500


@VERSIONS
def test_too_big_for_a_protected_flow_is_told_the_mtu_less_overhead(
    walks: ProtectedNetwork, monitor: LeakMonitor, version: int
) -> None:
    h1, h2 = walks.host("h1"), walks.host("h2")
    size = ROOM[12] + 1 - HEADERS[version]
    told = walks.ping(
        h1.namespace, h2.address(version), size=size, count=1, options=DO_NOT_FRAGMENT
    )
    assert told.received == 0
    assert f"mtu={ROOM[12]}" in told.output.replace(" ", ""), told.output
    assert not walks.engines["r1"].encrypted
    flush_path_mtu(h1.namespace)


@VERSIONS
def test_too_big_behind_the_hub_is_told_through_the_tunnel_it_came_by(
    walks: ProtectedNetwork, monitor: LeakMonitor, version: int
) -> None:
    """A packet from spoke 2 to spoke 3 fits into the tunnel to the hub, but not into the second
    tunnel, whose MTU is 20 bytes smaller.

    So the hub sends the error, through the tunnel to spoke 2.
    """
    h2, h3 = walks.host("h2"), walks.host("h3")
    size = ROOM[13] + 1 - HEADERS[version]
    told = walks.ping(
        h2.namespace, h3.address(version), size=size, count=1, options=DO_NOT_FRAGMENT
    )
    assert f"mtu={ROOM[13]}" in told.output.replace(" ", ""), told.output
    (error,) = walks.engines["r1"].encrypted
    assert (error.source, error.destination) == (HUB_TO_SPOKE2[version], h2.address(version))
    assert (monitor.esp("r2"), monitor.esp("r1-2"), monitor.esp("r1-3")) == (1, 1, 0)
    flush_path_mtu(h2.namespace)


def test_a_large_packet_of_the_routers_own_is_cut_and_protected(
    walks: ProtectedNetwork, monitor: LeakMonitor
) -> None:
    """If the host stack sends a packet that is too long for the tunnel, the controller fragments it
    before encryption.
    """
    options = ("-I", HUB[4], "-M", "dont")
    seen = walks.ping(walks.place("r1"), walks.host("h2").address(4), size=1472, options=options)
    assert seen.lost == 0, walks.where_lost(seen)
    assert all(len(f.data) <= 14 + ROOM[12] for f in walks.engines["r1"].encrypted)
    assert len([f for f in walks.engines["r1"].encrypted if f.is_fragment]) == 10


@VERSIONS
def test_the_routers_own_stack_is_told_the_mtu_less_overhead(
    walks: ProtectedNetwork, monitor: LeakMonitor, version: int
) -> None:
    """The router's own switch sends the error to the host stack, because no other router knows the
    overhead of ESP.
    """
    place, h2 = walks.place("r1"), walks.host("h2").address(version)
    size = ROOM[12] + 1 - HEADERS[version]
    options = ("-I", HUB[version], *DO_NOT_FRAGMENT, *SOON)
    told = walks.ping(place, h2, count=1, size=size, options=options)
    assert told.received == 0
    assert f"mtu={ROOM[12]}" in told.output.replace(" ", ""), told.output
    assert not walks.engines["r1"].encrypted
    flush_path_mtu(place)


@VERSIONS
def test_ttl_1_on_a_protected_interface_is_answered_and_goes_nowhere(
    walks: ProtectedNetwork, monitor: LeakMonitor, version: int
) -> None:
    h1, h2 = walks.host("h1"), walks.host("h2")
    seen = walks.ping(h1.namespace, h2.address(version), count=1, options=("-t", "1", *SOON))
    assert seen.received == 0
    (error,) = time_exceeded(monitor, "h1", version)
    assert error.source == HUB[version]
    assert not walks.engines["r1"].encrypted


@VERSIONS
def test_every_hop_of_a_protected_path_answers_through_the_tunnels(
    walks: ProtectedNetwork, monitor: LeakMonitor, version: int
) -> None:
    """Traceroute shows every router of a protected path. Each ICMP error returns through the tunnel
    of its packet.
    """
    h2, h3 = walks.host("h2"), walks.host("h3")
    hops = probes.traceroute(h2.namespace, h3.address(version))
    gateway = next(g for g in h2.description.gateways if (":" in g) == (version == 6))
    spoke3 = {4: "10.0.30.1", 6: "2001:db8:0:30::1"}[version]
    wanted = [gateway, HUB_TO_SPOKE2[version], spoke3, h3.address(version)]
    assert hops == [{hop} for hop in wanted]


@VERSIONS
def test_host_unreachable_behind_the_hub_is_told_through_the_tunnel(
    walks: ProtectedNetwork, monitor: LeakMonitor, version: int
) -> None:
    h2 = walks.host("h2")
    nobody = {4: "10.1.0.99", 6: "2001:db8:1::99"}[version]
    unreachable = {4: (ICMP, 3), 6: (ICMPV6, 1)}[version]
    seen = walks.ping(h2.namespace, nobody, count=1, options=("-W", "6"))
    assert "nreachable" in seen.output, seen.output
    assert monitor.arrived("h2", lambda f: (f.protocol, f.icmp_type) == unreachable)
    assert {frame.source for frame in walks.engines["r1"].encrypted} == {HUB_TO_SPOKE2[version]}
