# SPDX-License-Identifier: Apache-2.0
"""Tests the key of a flow: it has every field on which a rule may match, and no other field.

This is the condition in RFC 4301, 4.4.1 for caching the verdicts of an ordered search: the key of
an exact-match cache must hold all fields on which any rule matches.
"""

from collections.abc import Callable
from dataclasses import replace

from scapy.layers.inet import ICMP, IP, TCP
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6EchoRequest,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
)
from scapy.layers.sctp import SCTP
from scapy.packet import Packet, Raw

from sluice_ptf.case import ptf_test
from sluice_ptf.network import HOST4, HOST6
from sluice_ptf.packets import DPORT, SPORT, echo, ip4, ip6, tcp, udp, udp_to
from sluice_ptf.policy import IN, IN2, OUT, OUT2, Flow, Policy, PolicyList, Verdict, hit
from sluice_ptf.router import Router
from sluice_ptf.shim import ESP, esp
from sluice_ptf.standard import TO_B, A, B

V4, V6 = "10.2.0.9", "2001:db8:2::9"
LISTS = ((IN, A, "INBOUND"), (OUT, B, "OUTBOUND"))
BYPASS = Verdict("BYPASS", rule=2)
FRAGMENTS = ("WHOLE", "FIRST", "LATER")
MOBILITY = 135


def mobility(kind: int, data: bytes = bytes(2)) -> Raw:
    """Returns a mobility message (RFC 6275, 6.1.1) of a type. Its checksum is arbitrary."""
    header = bytes([59, len(data) - 2 >> 3, kind, 0, 0x12, 0x34])
    return Raw(header + data)


def on_both(router: Router, check: Callable[[Policy, PolicyList], None]) -> None:
    """Runs a check for an inbound list, then for an outbound list. Only one of them is bound at a
    time.
    """
    for of, interface, _stage in LISTS:
        policy = Policy(router)
        policy.guard(interface, of)
        check(policy, of)
        policy.unbind(interface)


def misses(router: Router, of: PolicyList, packet: Packet) -> None:
    """Expects that the packet matches no flow of the list."""
    asked = {"list_id": of.id, "generation": of.generation}
    reason = "FRAGMENT" if is_fragment(packet) else f"{of.direction.upper()}_MISS"
    if of.direction == "inbound":
        router.punts(A, packet, reason, stage="INBOUND", **asked)
    else:
        way = {"egress_l3_if": B.id, "nexthop_id": TO_B.id}
        router.punts(A, packet, reason, stage="OUTBOUND", **way, **asked)


def is_fragment(packet: Packet) -> bool:
    """Returns whether a packet is a fragment, first or later."""
    if IP in packet:
        return bool(packet[IP].flags.MF or packet[IP].frag)
    header = packet.getlayer(IPv6ExtHdrFragment)
    return header is not None and bool(header.m or header.offset)


def is_of(policy: Policy, of: PolicyList, packet: Packet, flow: Flow) -> None:
    """Expects that the packet belongs to the flow: it misses while the flow is not installed, and
    hits when it is.
    """
    misses(policy.router, of, packet)
    entry = policy.flow(of, flow, BYPASS)
    policy.router.forwards(A, packet, TO_B, rules=hit(of, 2))
    policy.router.delete(entry)


def variants(flow: Flow) -> list[Flow]:
    """Returns flows that differ from `flow` in one field each."""
    other = {4: ("10.1.0.98", "10.2.0.8"), 6: ("2001:db8:1::98", "2001:db8:2::8")}
    src, dst = other[6 if ":" in flow.dst_addr else 4]
    return [
        replace(flow, src_addr=src),
        replace(flow, dst_addr=dst),
        replace(flow, protocol=flow.protocol ^ 1),
        replace(flow, src_port=flow.src_port ^ 1),
        replace(flow, src_port=flow.src_port ^ 0x8000),
        replace(flow, dst_port=flow.dst_port ^ 1),
        replace(flow, dst_port=flow.dst_port ^ 0x8000),
        *(replace(flow, fragment=one) for one in FRAGMENTS if one != flow.fragment),
        replace(flow, is_local=1 - flow.is_local),
        replace(flow, bundle=flow.bundle + 1),
    ]


@ptf_test
def every_field_tells_flows_apart(router: Router) -> None:
    """A packet does not match flows that differ from its own flow in one field or in the list."""

    def check(policy: Policy, of: PolicyList) -> None:
        for flow in (Flow(HOST4, V4), Flow(HOST6, V6)):
            entries = [policy.flow(of, other, BYPASS) for other in variants(flow)]
            other_list = IN2 if of is IN else OUT2
            entries.append(policy.flow(other_list, flow, BYPASS, epoch=of.epoch))
            is_of(policy, of, udp_to(flow.dst_addr), flow)
            router.delete(*entries)

    on_both(router, check)


@ptf_test
def packets_of_other_flows_miss(router: Router) -> None:
    """Packets that differ in one field from the packets of an installed flow miss."""

    def check(policy: Policy, of: PolicyList) -> None:
        policy.flow(of, Flow(HOST4, V4), BYPASS)
        policy.flow(of, Flow(HOST6, V6), BYPASS)
        for packet in (
            udp_to("10.2.0.8"),
            udp_to(V4, src="10.1.0.98"),
            ip4(V4, tcp()),
            ip4(V4, udp(dport=DPORT ^ 1)),
            ip4(V4, udp(sport=SPORT ^ 0x8000)),
            ip4(V4, Raw(bytes(16)), proto=17, frag=3),
            udp_to("2001:db8:2::8"),
            udp_to(V6, src="2001:db8:1::98"),
            ip6(V6, tcp()),
            ip6(V6, udp(dport=DPORT ^ 0x8000)),
            ip6(V6, udp(sport=SPORT ^ 1)),
            ip6(V6, IPv6ExtHdrFragment(offset=3, nh=17) / Raw(bytes(16))),
        ):
            misses(router, of, packet)
        router.forwards(A, udp_to(V4), TO_B, rules=hit(of, 2))
        router.forwards(A, udp_to(V6), TO_B, rules=hit(of, 2))

    on_both(router, check)


@ptf_test
def nothing_else_tells_flows_apart(router: Router) -> None:
    """TOS, TTL, identification, flags, size, options and extension headers are not in the key."""

    def check(policy: Policy, of: PolicyList) -> None:
        policy.flow(of, Flow(HOST4, V4, protocol=6), BYPASS)
        policy.flow(of, Flow(HOST6, V6), BYPASS)
        for packet in (
            ip4(V4, tcp(), tos=0xB8, id=7, ttl=9, flags="DF"),
            ip4(V4, TCP(sport=SPORT, dport=DPORT, flags="S") / Raw(bytes(200))),
            ip4(V4, tcp(), options=b"\x94\x04\0\0"),
            ip6(V6, udp(size=300), tc=3, fl=0x12345, hlim=7),
            ip6(V6, IPv6ExtHdrDestOpt() / udp()),
            ip6(V6, IPv6ExtHdrDestOpt() / IPv6ExtHdrFragment() / udp()),
        ):
            router.forwards(A, packet, TO_B, rules=hit(of, 2))

    on_both(router, check)


@ptf_test
def ports(router: Router) -> None:
    """TCP, UDP and SCTP ports are in the key. For the key, ESP in UDP counts as UDP."""

    def check(policy: Policy, of: PolicyList) -> None:
        sctp = SCTP(sport=SPORT, dport=DPORT) / Raw(bytes(20))
        nat_t = udp(dport=4500, sport=4500, size=0) / Raw(esp(0x1000))
        for protocol, payload in ((6, tcp()), (17, udp()), (132, sctp)):
            is_of(policy, of, ip4(V4, payload), Flow(HOST4, V4, protocol))
            is_of(policy, of, ip6(V6, payload), Flow(HOST6, V6, protocol))
        is_of(policy, of, ip4(V4, nat_t), Flow(HOST4, V4, 17, 4500, 4500))
        is_of(policy, of, ip6(V6, nat_t), Flow(HOST6, V6, 17, 4500, 4500))

    on_both(router, check)


@ptf_test
def protocols_without_ports(router: Router) -> None:
    """ESP, GRE, OSPF and unknown protocols have no ports. The bytes at that position are
    ignored.
    """

    def check(policy: Policy, of: PolicyList) -> None:
        for protocol in (ESP, 47, 89, 51, 253):
            data = Raw(esp(0x0BAD0BAD))
            is_of(policy, of, ip4(V4, data, proto=protocol), Flow(HOST4, V4, protocol, 0, 0))
            is_of(policy, of, ip6(V6, data, nh=protocol), Flow(HOST6, V6, protocol, 0, 0))

    on_both(router, check)


@ptf_test
def icmp_type_and_code(router: Router) -> None:
    """ICMP type and code are in the key, as destination port. Identifiers are not."""

    def check(policy: Policy, of: PolicyList) -> None:
        is_of(policy, of, ip4(V4, echo()), Flow(HOST4, V4, 1, 0, 8 << 8))
        is_of(policy, of, ip6(V6, ICMPv6EchoRequest()), Flow(HOST6, V6, 58, 0, 128 << 8))
        # A rule for ICMP types matches the protocol in either IP version.
        crossed4, crossed6 = Raw(bytes(ICMPv6EchoRequest())), Raw(bytes(echo()))
        is_of(policy, of, ip4(V4, crossed4, proto=58), Flow(HOST4, V4, 58, 0, 128 << 8))
        is_of(policy, of, ip6(V6, crossed6, nh=1), Flow(HOST6, V6, 1, 0, 8 << 8))
        policy.flow(of, Flow(HOST4, V4, 1, 0, 3 << 8 | 4), BYPASS)
        policy.flow(of, Flow(HOST6, V6, 58, 0, 1 << 8 | 3), BYPASS)
        for code in (3, 4, 5):
            packet4 = ip4(V4, ICMP(type=3, code=code) / Raw(bytes(28)))
            packet6 = ip6(V6, ICMPv6DestUnreach(code=code) / Raw(bytes(48)))
            if code == 4:
                router.forwards(A, packet4, TO_B, rules=hit(of, 2))
            else:
                misses(router, of, packet4)
            if code == 3:
                router.forwards(A, packet6, TO_B, rules=hit(of, 2))
            else:
                misses(router, of, packet6)
        for identifier in (1, 2):
            packet = ip4(V4, ICMP(type=0, id=identifier))
            entry = policy.flow(of, Flow(HOST4, V4, 1, 0, 0), BYPASS)
            router.forwards(A, packet, TO_B, rules=hit(of, 2))
            router.delete(entry)

    on_both(router, check)


@ptf_test
def mobility_types(router: Router) -> None:
    """The type of a mobility message is in the key, as destination port. All else in the message
    is not.
    """

    def check(policy: Policy, of: PolicyList) -> None:
        for kind in (0, 5, 255):
            message = mobility(kind)
            is_of(policy, of, ip4(V4, message, proto=MOBILITY), Flow(HOST4, V4, MOBILITY, 0, kind))
            is_of(policy, of, ip6(V6, message, nh=MOBILITY), Flow(HOST6, V6, MOBILITY, 0, kind))
        update = policy.flow(of, Flow(HOST6, V6, MOBILITY, 0, 5), BYPASS)
        for packet in (
            ip6(V6, mobility(5), nh=MOBILITY),
            ip6(V6, mobility(5, data=b"\xff" * 10), nh=MOBILITY),
            ip6(V6, IPv6ExtHdrDestOpt(nh=MOBILITY) / mobility(5)),
        ):
            router.forwards(A, packet, TO_B, rules=hit(of, 2))
        misses(router, of, ip6(V6, mobility(6), nh=MOBILITY))
        router.delete(update)

    on_both(router, check)


@ptf_test
def first_fragments_have_mobility_types(router: Router) -> None:
    """A first fragment of a mobility message is looked up with its type, a later fragment with
    none.
    """

    def check(policy: Policy, of: PolicyList) -> None:
        message = mobility(5, data=bytes(10))
        first4 = ip4(V4, message, proto=MOBILITY, flags="MF")
        is_of(policy, of, first4, Flow(HOST4, V4, MOBILITY, 0, 5, "FIRST"))
        later4 = ip4(V4, message, proto=MOBILITY, frag=2)
        is_of(policy, of, later4, Flow(HOST4, V4, MOBILITY, 0, 0, "LATER"))
        first6 = ip6(V6, IPv6ExtHdrFragment(m=1, nh=MOBILITY) / message)
        is_of(policy, of, first6, Flow(HOST6, V6, MOBILITY, 0, 5, "FIRST"))
        later6 = ip6(V6, IPv6ExtHdrFragment(offset=2, nh=MOBILITY) / message)
        is_of(policy, of, later6, Flow(HOST6, V6, MOBILITY, 0, 0, "LATER"))

    on_both(router, check)


@ptf_test
def first_fragments_have_ports(router: Router) -> None:
    """A first fragment is looked up with its ports, but does not match a flow of whole packets."""

    def check(policy: Policy, of: PolicyList) -> None:
        whole = [policy.flow(of, Flow(HOST4, V4), BYPASS), policy.flow(of, Flow(HOST6, V6), BYPASS)]
        first4 = ip4(V4, udp(size=64), flags="MF")
        is_of(policy, of, first4, Flow(HOST4, V4, fragment="FIRST"))
        first6 = ip6(V6, IPv6ExtHdrFragment(m=1) / udp(size=64))
        is_of(policy, of, first6, Flow(HOST6, V6, fragment="FIRST"))
        router.delete(*whole)

    on_both(router, check)


@ptf_test
def later_fragments_have_none(router: Router) -> None:
    """A later fragment has no ports. So all later fragments of one protocol between two hosts
    belong to one flow.
    """

    def check(policy: Policy, of: PolicyList) -> None:
        later4 = Flow(HOST4, V4, 17, 0, 0, fragment="LATER")
        later6 = Flow(HOST6, V6, 17, 0, 0, fragment="LATER")
        like_ports = Raw(bytes(udp()))
        whole = [policy.flow(of, Flow(HOST4, V4), BYPASS), policy.flow(of, Flow(HOST6, V6), BYPASS)]
        is_of(policy, of, ip4(V4, like_ports, proto=17, frag=8, flags="MF"), later4)
        is_of(policy, of, ip4(V4, like_ports, proto=17, frag=8), later4)
        is_of(policy, of, ip4(V4, Raw(b"x"), proto=17, frag=8191), later4)
        middle = ip6(V6, IPv6ExtHdrFragment(offset=8, m=1, nh=17) / like_ports)
        is_of(policy, of, middle, later6)
        is_of(policy, of, ip6(V6, IPv6ExtHdrFragment(offset=8, nh=17) / like_ports), later6)
        icmp = Flow(HOST4, V4, 1, 0, 0, fragment="LATER")
        is_of(policy, of, ip4(V4, Raw(bytes(echo())), proto=1, frag=8), icmp)
        router.delete(*whole)

    on_both(router, check)
