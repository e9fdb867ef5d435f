# SPDX-License-Identifier: Apache-2.0
"""Tests next-hop groups: by a hash over a packet's flow, the target selects one of several next
hops (members).

The tests do not check which member a flow gets. They check that a flow keeps its member, that the
shares of flows follow the weights, and that every selected member is in the group.
"""

from collections import Counter
from collections.abc import Iterable

from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6ExtHdrFragment, IPv6ExtHdrHopByHop
from scapy.packet import Packet, Raw

from sluice_ptf.case import link_down, ptf_test
from sluice_ptf.packets import ip4, ip6, tcp, udp, udp_to
from sluice_ptf.router import FromPort, Member, Nexthop, Router, arriving, routed
from sluice_ptf.standard import TO_B, TO_C, TO_D, A, B, C, D
from sluice_testkit.wait import wait_until

GROUP = 5
V4 = "192.0.2.1"
V6 = "2001:db9::1"

# Next hops to the same three neighbours, with other ids, as members of groups.
VIA_B = Nexthop(id=102, interface=B, mac="02:bc:00:00:00:02")
VIA_C = Nexthop(id=103, interface=C, mac="02:bc:00:00:00:03")
VIA_D = Nexthop(id=104, interface=D, mac="02:bc:00:00:00:04")


def group(router: Router, *members: Member) -> None:
    """Adds a group, with an IPv4 and an IPv6 route to the group."""
    router.nexthop(*(member.nexthop for member in members))
    router.group(GROUP, members)
    router.route("192.0.2.0/24", "set_nexthop_group", group_id=GROUP)
    router.route("2001:db9::/32", "set_nexthop_group", group_id=GROUP)


def paths(router: Router, packets: Iterable[Packet], *legal: Nexthop) -> list[Nexthop]:
    """Sends packets, and returns the next hop of each.

    Checks that each packet leaves once, by one of the `legal` next hops, with the right MAC
    addresses.
    """
    frames = [arriving(A, packet) for packet in packets]
    outcome = router.exchange(*(FromPort(A.port, frame) for frame in frames))
    assert not outcome.punts
    assert not outcome.drops, outcome.drops
    expected = [
        {(via.interface.port, routed(frame, via)): via for via in legal} for frame in frames
    ]
    left = Counter(outcome.out)
    taken = []
    for ways in expected:
        way = next((one for one in ways if left[one]), None)
        assert way is not None, f"no packet of {ways} is among the received {left}"
        left[way] -= 1
        taken.append(ways[way])
    assert not +left, f"unexpected packets left the switch: {+left}"
    return taken


def flows(dst: str, count: int) -> list[Packet]:
    """Returns packets of `count` flows, which differ in the source port."""
    datagrams = [udp(sport=20000 + index * 7) for index in range(count)]
    return [(ip6 if ":" in dst else ip4)(dst, datagram) for datagram in datagrams]


@ptf_test
def a_group_of_one(router: Router) -> None:
    """All packets of a group with one member go to that member."""
    group(router, Member(VIA_B))
    for dst in (V4, V6):
        assert set(paths(router, flows(dst, 20), VIA_B)) == {VIA_B}


@ptf_test
def equal_weights_share_the_flows(router: Router) -> None:
    """Each of three members with equal weights gets about a third of the flows."""
    group(router, Member(VIA_B), Member(VIA_C), Member(VIA_D))
    for dst in (V4, V6):
        shares = Counter(paths(router, flows(dst, 600), VIA_B, VIA_C, VIA_D))
        assert all(140 < shares[via] < 260 for via in (VIA_B, VIA_C, VIA_D)), shares


@ptf_test
def weights_are_proportions(router: Router) -> None:
    """Members with weights 1 and 3 get about 1/4 and 3/4 of the flows."""
    group(router, Member(VIA_B, weight=1), Member(VIA_C, weight=3))
    for dst in (V4, V6):
        shares = Counter(paths(router, flows(dst, 800), VIA_B, VIA_C))
        assert 140 < shares[VIA_B] < 260, shares


@ptf_test
def a_flow_keeps_its_path(router: Router) -> None:
    """All packets of one flow take the same next hop, with any values in other fields."""
    group(router, Member(VIA_B), Member(VIA_C), Member(VIA_D))
    for dst in (V4, V6):
        once = paths(router, flows(dst, 64), VIA_B, VIA_C, VIA_D)
        again = paths(router, flows(dst, 64), VIA_B, VIA_C, VIA_D)
        assert once == again
    same = [ip4(V4, udp(size=size), id=size, ttl=30 + size, tos=size) for size in range(64)]
    assert len(set(paths(router, same, VIA_B, VIA_C, VIA_D))) == 1


@ptf_test
def every_part_of_the_flow_counts(router: Router) -> None:
    """Flows are spread even if they differ only in source, destination, protocol, a port or the
    flow label.
    """
    group(router, Member(VIA_B), Member(VIA_C))
    spread = {
        "source": [ip4(V4, udp(), src=f"10.1.0.{index}") for index in range(2, 64)],
        "destination": [ip4(f"192.0.2.{index}", udp()) for index in range(1, 64)],
        "protocol": [ip4(V4, Raw(bytes(20)), proto=index) for index in range(140, 200)],
        "source port": [ip4(V4, tcp(sport=index)) for index in range(3000, 3064)],
        "destination port": [ip4(V4, tcp(dport=index)) for index in range(3000, 3064)],
        "source, IPv6": [ip6(V6, udp(), src=f"2001:db8:1::{index:x}") for index in range(2, 64)],
        "destination, IPv6": [ip6(f"2001:db9::{index:x}", udp()) for index in range(1, 64)],
        "flow label": [ip6(V6, udp(), fl=index) for index in range(64)],
        "ports behind options": [
            ip6(V6, IPv6ExtHdrHopByHop() / udp(sport=index)) for index in range(3000, 3064)
        ],
    }
    for what, packets in spread.items():
        assert len(set(paths(router, packets, VIA_B, VIA_C))) == 2, what


@ptf_test
def fragments_take_one_path(router: Router) -> None:
    """All fragments of a datagram take the same next hop, although later ones have no ports."""
    group(router, Member(VIA_B), Member(VIA_C), Member(VIA_D))
    data = Raw(bytes(24))
    v4 = [IP(bytes(ip4(V4, UDP(sport=port, dport=7000) / data, flags="MF"))) for port in range(40)]
    v4 += [ip4(V4, data, proto=17, flags="MF", frag=4), ip4(V4, data, proto=17, frag=7)]
    assert len(set(paths(router, v4, VIA_B, VIA_C, VIA_D))) == 1
    v6 = [
        ip6(V6, IPv6ExtHdrFragment(m=1, nh=17) / UDP(sport=port, dport=7000) / data)
        for port in range(40)
    ]
    v6 += [ip6(V6, IPv6ExtHdrFragment(m=0, offset=4, nh=17) / data)]
    assert len(set(paths(router, v6, VIA_B, VIA_C, VIA_D))) == 1


@ptf_test
def an_atomic_fragment_is_a_whole_packet(router: Router) -> None:
    """An atomic fragment (RFC 6946) takes the next hop of its flow."""
    group(router, Member(VIA_B), Member(VIA_C), Member(VIA_D))
    ports = range(2000, 2032)
    whole = [ip6(V6, udp(sport=port)) for port in ports]
    atomic = [ip6(V6, IPv6ExtHdrFragment(m=0, offset=0) / udp(sport=port)) for port in ports]
    taken = paths(router, whole, VIA_B, VIA_C, VIA_D)
    assert paths(router, atomic, VIA_B, VIA_C, VIA_D) == taken


@ptf_test
def a_group_can_shrink_and_grow(router: Router) -> None:
    """After a MODIFY of a group, a removed member gets no flow and an added member gets a share."""
    everybody = [Member(VIA_B), Member(VIA_C), Member(VIA_D)]
    group(router, *everybody)
    router.modify(router.group_of(GROUP, everybody[:2]))
    assert set(paths(router, flows(V4, 100), VIA_B, VIA_C)) == {VIA_B, VIA_C}
    router.modify(router.group_of(GROUP, everybody[:1]))
    assert set(paths(router, flows(V4, 20), VIA_B)) == {VIA_B}
    router.modify(router.group_of(GROUP, everybody))
    assert set(paths(router, flows(V4, 100), VIA_B, VIA_C, VIA_D)) == {VIA_B, VIA_C, VIA_D}


@ptf_test
def a_member_can_change(router: Router) -> None:
    """After a MODIFY of a member, the group's packets go to another next hop."""
    group(router, Member(VIA_B))
    other = router.member(Member(VIA_B))
    action = router.client.schema.action_call("set_group_nexthop", {"nexthop_id": TO_C.id})
    other.action.CopyFrom(action)
    router.modify(other)
    router.forwards(A, udp_to(V4), TO_C)


@ptf_test
def groups_are_shared_by_routes(router: Router) -> None:
    """Routes of both IP versions can share a group. Another group is not affected."""
    group(router, Member(VIA_B))
    router.nexthop(VIA_C)
    router.group(GROUP + 1, [Member(VIA_C)])
    router.route("198.51.100.0/24", "set_nexthop_group", group_id=GROUP)
    router.route("203.0.113.0/24", "set_nexthop_group", group_id=GROUP + 1)
    router.forwards(A, udp_to("198.51.100.1"), VIA_B)
    router.forwards(A, udp_to("203.0.113.1"), VIA_C)


@ptf_test
def a_route_may_name_no_group(router: Router) -> None:
    """Drops packets of a route whose group does not exist, as between two writes of a
    controller.
    """
    router.route("192.0.2.0/24", "set_nexthop_group", group_id=999)
    router.drops(A, udp_to(V4), "NO_NEXTHOP")


@ptf_test
def members_share_next_hops_with_routes(router: Router) -> None:
    """A group can use next hops that routes also use directly."""
    router.group(GROUP, [Member(TO_B), Member(TO_D)])
    router.route("192.0.2.0/24", "set_nexthop_group", group_id=GROUP)
    assert set(paths(router, flows(V4, 60), TO_B, TO_D)) == {TO_B, TO_D}
    router.forwards(A, udp_to("10.2.0.9"), TO_B)


@ptf_test
def an_unresolved_member(router: Router) -> None:
    """Flows of a member without a MAC address are punted. Flows of other members are forwarded."""
    group(router, Member(VIA_B), Member(VIA_C))
    unresolved = router.entry("nexthop", {"nexthop_id": VIA_C.id}, "resolve_neighbor", l3_if=C.id)
    router.modify(unresolved)
    sends = [FromPort(A.port, arriving(A, packet)) for packet in flows(V4, 60)]
    outcome = router.exchange(*sends)
    assert {port for port, _frame in outcome.out} == {B.port}
    assert {punt.metadata["nexthop_id"] for punt in outcome.punts} == {VIA_C.id}
    assert len(outcome.out) + len(outcome.punts) == len(sends)
    assert outcome.punted == {"NEIGHBOR_UNRESOLVED": len(outcome.punts)}


@ptf_test
def a_member_leaves_with_its_port(router: Router) -> None:
    """A member whose watch port is down takes no flows until it is up again."""
    group(router, Member(VIA_B, watch_port=B.port), Member(VIA_C, watch_port=C.port))

    def taken() -> set[int]:
        sends = [FromPort(A.port, arriving(A, packet)) for packet in flows(V4, 40)]
        return {port for port, _frame in router.probe.collect(sends, skip={C.port}).out}

    with link_down(C.port):
        wait_until(lambda: taken() == {B.port}, 10, "all flows to leave by the other port")
    wait_until(lambda: taken() == {B.port, C.port}, 10, "flows on both ports again")


@ptf_test
def seeds_make_choices_independent(router: Router) -> None:
    """With another hash seed, flows that took the same next hop are spread over all next hops.

    Otherwise the next router, which gets only these flows, would send all of them to one of its
    next hops.
    """
    group(router, Member(VIA_B), Member(VIA_C))
    before = paths(router, flows(V4, 200), VIA_B, VIA_C)
    router.default("hash_seed", "set_hash_seed", value=0x5EED1234)
    after = paths(router, flows(V4, 200), VIA_B, VIA_C)
    for first in (VIA_B, VIA_C):
        then = Counter(new for old, new in zip(before, after, strict=True) if old == first)
        assert min(then[VIA_B], then[VIA_C]) > 20, then
    router.undo_default("hash_seed")
    assert paths(router, flows(V4, 200), VIA_B, VIA_C) == before
