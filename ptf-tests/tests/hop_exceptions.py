# SPDX-License-Identifier: Apache-2.0
"""Tests packets that cannot leave as they are (TTL, size, neighbour), and the order of these
checks.
"""

from collections.abc import Mapping

from scapy.layers.inet6 import IPv6ExtHdrFragment
from scapy.packet import Packet, Raw

from sluice_ptf.case import ptf_test
from sluice_ptf.packets import hops, ip4, ip6, udp, udp_to
from sluice_ptf.router import Interface, Router, arriving
from sluice_ptf.schema import Value
from sluice_ptf.standard import TO_B, TO_D, A, B, D

V4 = "10.2.0.9"
V6 = "2001:db8:2::9"
BY_B: Mapping[str, Value] = {"stage": "REWRITE", "egress_l3_if": B.id, "nexthop_id": TO_B.id}
BY_D: Mapping[str, Value] = {"stage": "REWRITE", "egress_l3_if": D.id, "nexthop_id": TO_D.id}


def punted(
    router: Router, packet: Packet, reason: str, way: Mapping[str, Value] = BY_B, by: Interface = A
) -> None:
    """Sends a packet. Expects that it is punted at the rewrite stage, with its next hop in the
    metadata.
    """
    values = dict(way)
    router.punts(by, packet, reason, stage=str(values.pop("stage")), **values)


def sized(dst: str, length: int) -> Packet:
    """Returns an IP packet of `length` bytes, headers included."""
    if ":" in dst:
        return ip6(dst, udp(size=length - 48))
    return ip4(dst, udp(size=length - 28))


def shrink(router: Router, interface: Interface, mtu: int) -> None:
    """Sets the MTU of an interface."""
    smaller = Interface(interface.id, interface.port, interface.mac, interface.vlan, 0, mtu)
    router.modify(router.egress(smaller))


def unresolve(router: Router) -> None:
    """Sets the neighbour behind B to unresolved."""
    router.modify(router.entry("nexthop", {"nexthop_id": TO_B.id}, "resolve_neighbor", l3_if=B.id))


@ptf_test
def a_last_hop_left(router: Router) -> None:
    """A packet with TTL 2 is forwarded. A packet with TTL 1 or 0 is punted."""
    for dst in (V4, V6):
        router.forwards(A, udp_to(dst, **hops(dst, 2)), TO_B)
        router.forwards(A, udp_to(dst, **hops(dst, 255)), TO_B)
        punted(router, udp_to(dst, **hops(dst, 1)), "TTL_EXCEEDED")
        punted(router, udp_to(dst, **hops(dst, 0)), "TTL_EXCEEDED")


@ptf_test
def ttl_from_and_to_vlans(router: Router) -> None:
    """A frame of a VLAN is punted with its tag, and its TTL is not decremented."""
    for dst in ("10.4.0.9", "2001:db8:4::9"):
        punted(router, udp_to(dst, **hops(dst, 1)), "TTL_EXCEEDED", BY_D, by=D)


@ptf_test
def mtu(router: Router) -> None:
    """A packet of the MTU's size is forwarded. A larger one is punted, with and without DF."""
    shrink(router, B, 1300)
    for dst in (V4, V6):
        router.forwards(A, sized(dst, 1300), TO_B)
        punted(router, sized(dst, 1301), "MTU_EXCEEDED")
    large = ip4(V4, udp(size=1400), flags="DF")
    punted(router, large, "MTU_EXCEEDED")


@ptf_test
def a_vlan_tag_is_no_part_of_the_mtu(router: Router) -> None:
    """A VLAN tag does not count for the MTU, which limits the IP packet."""
    for dst in ("10.4.0.9", "2001:db8:4::9"):
        router.forwards(A, sized(dst, 1500), TO_D)
        punted(router, sized(dst, 1501), "MTU_EXCEEDED", BY_D)
        router.forwards(D, sized(dst, 1500), TO_D)


@ptf_test
def jumbo_frames(router: Router) -> None:
    """An interface with an MTU of 8000 forwards packets of 8000 bytes."""
    shrink(router, B, 8000)
    for dst in (V4, V6):
        router.forwards(A, sized(dst, 8000), TO_B)
        punted(router, sized(dst, 8001), "MTU_EXCEEDED")


@ptf_test
def padding_is_no_part_of_the_mtu(router: Router) -> None:
    """Padding behind the IP packet does not count for the MTU."""
    shrink(router, B, 600)
    for dst in (V4, V6):
        router.forwards(A, arriving(A, sized(dst, 600)) + bytes(100), TO_B)


@ptf_test
def fragments_can_exceed_the_mtu(router: Router) -> None:
    """First and later fragments above the MTU are punted, for IPv4 and IPv6."""
    shrink(router, B, 600)
    data = Raw(bytes(800))
    punted(router, ip4(V4, udp(size=800), flags="MF"), "MTU_EXCEEDED")
    punted(router, ip4(V4, data, proto=17, frag=100), "MTU_EXCEEDED")
    punted(router, ip6(V6, IPv6ExtHdrFragment(m=1) / udp(size=800)), "MTU_EXCEEDED")
    punted(router, ip6(V6, IPv6ExtHdrFragment(offset=100, nh=17) / data), "MTU_EXCEEDED")


@ptf_test
def an_unresolved_neighbor_comes_last(router: Router) -> None:
    """TTL is checked before the MTU, and the MTU before the neighbour.

    So no neighbour is resolved for a packet that cannot be sent.
    """
    shrink(router, B, 600)
    for dst in (V4, V6):
        small, large = sized(dst, 600), sized(dst, 601)
        dying_large = large.copy()
        dying_large[0].ttl = 1
        if ":" in dst:
            dying_large[0].hlim = 1
        punted(router, dying_large, "TTL_EXCEEDED")
        punted(router, large, "MTU_EXCEEDED")
        unresolve(router)
        punted(router, small, "NEIGHBOR_UNRESOLVED")
        punted(router, large, "MTU_EXCEEDED")
        punted(router, dying_large, "TTL_EXCEEDED")
        punted(router, udp_to(dst, **hops(dst, 1)), "TTL_EXCEEDED")
        router.modify(router.neighbor(TO_B))


@ptf_test
def routing_comes_first(router: Router) -> None:
    """TTL and size of a packet without a next hop are not checked."""
    router.route("198.51.100.0/24", "blackhole")
    for left in (0, 1, 64):
        router.punts(A, udp_to("192.0.2.1", ttl=left), "NO_ROUTE", stage="ROUTING")
        router.punts(A, udp_to("2001:db9::1", hlim=left), "NO_ROUTE", stage="ROUTING")
        router.drops(A, udp_to("198.51.100.1", ttl=left), "BLACKHOLE")
    router.modify(router.entry("nexthop", {"nexthop_id": TO_B.id}, "discard_nexthop"))
    router.drops(A, udp_to(V4, ttl=1), "NEXTHOP_DISCARD")
