# SPDX-License-Identifier: Apache-2.0
"""Tests routing: the longest prefix match in each VRF, and the targets of a route."""

import random
from ipaddress import IPv4Address, IPv4Network

from sluice_ptf.case import ptf_test
from sluice_ptf.packets import udp_to
from sluice_ptf.router import Interface, Nexthop, Router
from sluice_ptf.standard import OTHER_VRF, TO_B, TO_C, TO_D, TO_E, A, B, D, E

V4 = "10.2.0.9"
V6 = "2001:db8:2::9"


@ptf_test
def a_route_to_each_neighbor(router: Router) -> None:
    """IPv4 and IPv6 packets are routed to the neighbour on each interface."""
    for nexthop, network in ((TO_B, 2), (TO_C, 3), (TO_D, 4)):
        router.forwards(A, udp_to(f"10.{network}.200.1"), nexthop)
        router.forwards(A, udp_to(f"2001:db8:{network}:ffff::1"), nexthop)


@ptf_test
def back_out_of_the_same_interface(router: Router) -> None:
    """A packet may leave by the port by which it arrived."""
    router.forwards(B, udp_to(V4), TO_B)
    router.forwards(D, udp_to("2001:db8:4::9"), TO_D)


@ptf_test
def no_route(router: Router) -> None:
    """A packet without a route is punted, so that the CPU can send an ICMP error."""
    for dst in ("192.0.2.1", "2001:db9::1"):
        for source in (A, D, E):
            router.punts(source, udp_to(dst), "NO_ROUTE", stage="ROUTING")


@ptf_test
def longest_match_ipv4(router: Router) -> None:
    """A packet takes the longest of its matching prefixes, which are nested from /0 to /32."""
    ladder = [(0, TO_B), (1, TO_C), (8, TO_D), (15, TO_B), (23, TO_C), (24, TO_D), (31, TO_B)]
    dst = "172.16.85.170"
    bits = int.from_bytes(bytes(int(part) for part in dst.split(".")), "big")
    router.punts(A, udp_to(dst), "NO_ROUTE", stage="ROUTING")
    entries = []
    for length, nexthop in [*ladder, (32, TO_C)]:
        base = bits >> (32 - length) << (32 - length)
        prefix = ".".join(str(base >> shift & 255) for shift in (24, 16, 8, 0))
        entries.append(router.route(f"{prefix}/{length}", nexthop_id=nexthop.id))
        router.forwards(A, udp_to(dst), nexthop)
    for entry, (_length, nexthop) in zip(reversed(entries), reversed(ladder), strict=False):
        router.delete(entry)
        router.forwards(A, udp_to(dst), nexthop)


@ptf_test
def longest_match_ipv6(router: Router) -> None:
    """A packet takes the longest of its matching prefixes, nested from /0 to /128, also across bit
    64.
    """
    for length, nexthop in (
        (0, TO_B),
        (3, TO_C),
        (32, TO_D),
        (47, TO_B),
        (63, TO_C),
        (64, TO_D),
        (65, TO_B),
        (127, TO_C),
        (128, TO_D),
    ):
        bits = 0x20010DB9AAAAAAAA5555555555555555 >> (128 - length) << (128 - length)
        groups = [f"{bits >> shift & 0xFFFF:x}" for shift in range(112, -1, -16)]
        router.route(f"{':'.join(groups)}/{length}", nexthop_id=nexthop.id)
        router.forwards(A, udp_to("2001:db9:aaaa:aaaa:5555:5555:5555:5555"), nexthop)


@ptf_test
def neighbors_of_a_prefix_are_not_in_it(router: Router) -> None:
    """The addresses before and after a prefix do not match it."""
    router.route("192.0.2.64/26", nexthop_id=TO_C.id)
    for dst in ("192.0.2.64", "192.0.2.127"):
        router.forwards(A, udp_to(dst), TO_C)
    for dst in ("192.0.2.63", "192.0.2.128"):
        router.punts(A, udp_to(dst), "NO_ROUTE", stage="ROUTING")


@ptf_test
def vrfs_are_separate(router: Router) -> None:
    """A prefix may have different targets in two VRFs.

    A prefix of one VRF does not exist in the other.
    """
    router.forwards(A, udp_to(V4), TO_B)
    router.forwards(A, udp_to(V6), TO_B)
    router.forwards(E, udp_to(V4), TO_E)
    router.forwards(E, udp_to(V6), TO_E)
    router.punts(E, udp_to("10.3.0.9"), "NO_ROUTE", stage="ROUTING")
    router.punts(E, udp_to("2001:db8:3::9"), "NO_ROUTE", stage="ROUTING")


@ptf_test
def a_default_route_is_of_its_vrf(router: Router) -> None:
    """0.0.0.0/0 and ::/0 of VRF 7 do not match packets of VRF 0."""
    for prefix, dst in (("0.0.0.0/0", "192.0.2.1"), ("::/0", "2001:db9::1")):
        router.route(prefix, vrf=OTHER_VRF, nexthop_id=TO_E.id)
        router.forwards(E, udp_to(dst), TO_E)
        router.punts(A, udp_to(dst), "NO_ROUTE", stage="ROUTING")


@ptf_test
def a_route_can_leak_into_another_vrf(router: Router) -> None:
    """The next hop of a route may be on an interface of another VRF."""
    router.route("192.0.2.0/24", vrf=OTHER_VRF, nexthop_id=TO_B.id)
    router.forwards(E, udp_to("192.0.2.1"), TO_B)


@ptf_test
def a_route_can_change(router: Router) -> None:
    """A MODIFY changes a route to another next hop, to a blackhole, and back."""
    router.modify(router.route_entry("10.2.0.0/16", nexthop_id=TO_C.id))
    router.forwards(A, udp_to(V4), TO_C)
    router.modify(router.route_entry("10.2.0.0/16", "blackhole"))
    router.drops(A, udp_to(V4), "BLACKHOLE")
    router.modify(router.route_entry("10.2.0.0/16", nexthop_id=TO_B.id))
    router.forwards(A, udp_to(V4), TO_B)


@ptf_test
def blackhole(router: Router) -> None:
    """Drops packets of a blackhole route silently, also inside a prefix that is forwarded."""
    router.route("10.2.7.0/24", "blackhole")
    router.route("2001:db8:2:7::/64", "blackhole")
    for dst in ("10.2.7.1", "2001:db8:2:7::1"):
        router.drops(A, udp_to(dst), "BLACKHOLE")
    router.forwards(A, udp_to(V4), TO_B)


@ptf_test
def unreachable_and_prohibited(router: Router) -> None:
    """Unreachable and prohibited routes are punted, each under its own reason."""
    for reason, v4, v6 in (
        ("UNREACHABLE", "192.0.2.0/24", "2001:db9:1::/48"),
        ("PROHIBITED", "198.51.100.0/24", "2001:db9:2::/48"),
    ):
        for prefix in (v4, v6):
            router.route(prefix, "punt_route", reason=reason)
            dst = prefix.replace("0/24", "1").replace("/48", "1")
            router.punts(A, udp_to(dst), reason, stage="ROUTING")


@ptf_test
def a_missing_next_hop(router: Router) -> None:
    """Drops packets of a route whose next hop does not exist, as between two writes of a
    controller.
    """
    router.route("192.0.2.0/24", nexthop_id=999)
    router.route("2001:db9::/32", nexthop_id=999)
    for dst in ("192.0.2.1", "2001:db9::1"):
        router.drops(A, udp_to(dst), "NO_NEXTHOP")


@ptf_test
def a_next_hop_can_discard(router: Router) -> None:
    """Drops packets of a next hop that discards, as after an interface went down."""
    router.modify(router.entry("nexthop", {"nexthop_id": TO_B.id}, "discard_nexthop"))
    for dst in (V4, V6):
        router.drops(A, udp_to(dst), "NEXTHOP_DISCARD")
    router.modify(router.neighbor(TO_B))
    router.forwards(A, udp_to(V4), TO_B)


@ptf_test
def a_neighbor_can_move(router: Router) -> None:
    """One write to a next hop redirects all its routes: first to a new MAC address, then to a new
    interface.
    """
    moved = Nexthop(TO_B.id, B, "02:bb:00:00:00:ff")
    router.modify(router.neighbor(moved))
    router.forwards(A, udp_to(V4), moved)
    router.forwards(A, udp_to(V6), moved)
    moved = Nexthop(TO_B.id, D, "02:bb:00:00:00:fe")
    router.modify(router.neighbor(moved))
    router.forwards(A, udp_to(V4), moved)


@ptf_test
def an_unresolved_neighbor(router: Router) -> None:
    """A packet to an unresolved neighbour is punted with its next hop and egress interface."""
    unresolved = {"nexthop_id": TO_B.id}
    router.modify(router.entry("nexthop", unresolved, "resolve_neighbor", l3_if=B.id))
    for dst in (V4, V6):
        router.punts(
            A,
            udp_to(dst),
            "NEIGHBOR_UNRESOLVED",
            stage="REWRITE",
            egress_l3_if=B.id,
            nexthop_id=TO_B.id,
        )


@ptf_test
def an_interface_that_cannot_send(router: Router) -> None:
    """Drops packets of a next hop whose interface has no egress entry."""
    gone = Interface(id=77, port=3, mac="02:00:00:00:01:77")
    nexthop = Nexthop(id=77, interface=gone, mac="02:bb:00:00:00:77")
    router.insert(*router.unbound(gone))
    router.nexthop(nexthop)
    router.route("192.0.2.0/24", nexthop_id=nexthop.id)
    router.drops(A, udp_to("192.0.2.1"), "NO_EGRESS_INTERFACE")


@ptf_test
def many_routes(router: Router) -> None:
    """2,000 nested prefixes give the same results as a linear search."""
    draw = random.Random(1)
    routes: dict[IPv4Network, Nexthop] = {}
    for index in range(2000):
        length = 17 + index % 16
        base = (100 << 24 | index << 13) >> (32 - length) << (32 - length)
        routes[IPv4Network((base, length))] = (TO_B, TO_C, TO_D)[index % 3]
    router.insert(
        *(
            router.route_entry(str(prefix), nexthop_id=nexthop.id)
            for prefix, nexthop in routes.items()
        )
    )
    for prefix in draw.sample(list(routes), 60):
        dst = IPv4Address(int(prefix.network_address) | draw.getrandbits(32 - prefix.prefixlen))
        longest = max((one for one in routes if dst in one), key=lambda one: one.prefixlen)
        router.forwards(A, udp_to(str(dst)), routes[longest])
