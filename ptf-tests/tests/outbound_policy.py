# SPDX-License-Identifier: Apache-2.0
"""Tests the control flow_cache: the outbound SPD list applies to all packets that are about to
leave: forwarded, decrypted, or from this router.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scapy.layers.inet import ICMP
from scapy.layers.inet6 import IPv6ExtHdrDestOpt
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw

from sluice_ptf.case import ptf_test
from sluice_ptf.frames import tagged
from sluice_ptf.network import HOST4, HOST6, Interface, Nexthop
from sluice_ptf.packets import arp, hops, ip4, ip6, tcp, too_deep, udp, udp_to
from sluice_ptf.policy import (
    ENGINE,
    IN,
    OUT,
    OUT2,
    Flow,
    Policy,
    Sa,
    Verdict,
    hit,
)
from sluice_ptf.probe import ProbeOutcome
from sluice_ptf.router import Router, leaving, routed
from sluice_ptf.schema import Value
from sluice_ptf.shim import ENCRYPT, Shim
from sluice_ptf.standard import OTHER_VRF, TO_B, TO_C, TO_D, TO_E, A, B, D, E

V4, V6 = "10.2.0.9", "2001:db8:2::9"
FLOWS = {V4: Flow(HOST4, V4), V6: Flow(HOST6, V6)}
ASKED: Mapping[str, Value] = {"list_id": OUT.id, "generation": OUT.generation}
WAY: Mapping[str, Value] = {"egress_l3_if": B.id, "nexthop_id": TO_B.id}


def guarded(router: Router) -> Policy:
    """Writes the epoch of the list OUT, and binds the list to interface B."""
    policy = Policy(router)
    policy.guard(B, OUT)
    return policy


def unresolve(router: Router, nexthop: Nexthop) -> None:
    """Sets a neighbour to unresolved."""
    key: Mapping[str, Value] = {"nexthop_id": nexthop.id}
    router.modify(router.entry("nexthop", key, "resolve_neighbor", l3_if=nexthop.interface.id))


# --- transit ------------------------------------------------------------------


@ptf_test
def an_interface_without_a_binding_lets_nothing_out(router: Router) -> None:
    """Drops transit and local IP packets on an interface without a binding.

    Other frames need no binding.
    """
    router.delete(router.unbound(B)[1])
    for dst in (V4, V6):
        router.drops(A, udp_to(dst), "NO_POLICY_BINDING")
        frame = bytes(Ether(src=B.mac, dst=TO_B.mac) / udp_to(dst))
        expected = ProbeOutcome(drops={"NO_POLICY_BINDING": 1})
        for egress in (0, B.id):
            router.packet_out(frame, expected, kind="LOCAL_ORIGIN", egress_l3_if=egress)
    request = bytes(Ether(src=B.mac, dst="ff:ff:ff:ff:ff:ff") / arp(V4) / Raw(bytes(18)))
    expected = ProbeOutcome(out=[(B.port, request)])
    router.packet_out(request, expected, kind="TO_PORT", egress_l3_if=B.id)


@ptf_test
def a_list_without_an_epoch_serves_nobody(router: Router) -> None:
    """Drops packets if the list has no entry or epoch 0, even where a flow of epoch 0 would
    match.
    """
    policy = Policy(router)
    policy.bind(B, OUT)
    for flow in FLOWS.values():
        policy.flow(OUT, flow, Verdict("BYPASS", rule=1), epoch=0)
    for dst in (V4, V6):
        router.drops(A, udp_to(dst), "LIST_NOT_READY")
    policy.ready(OUT.__class__(OUT.direction, OUT.id, 0, OUT.generation))
    for dst in (V4, V6):
        router.drops(A, udp_to(dst), "LIST_NOT_READY")


@ptf_test
def the_interface_that_routing_chose(router: Router) -> None:
    """The list of the egress interface applies. No list applies if that interface has no SPD."""
    policy = guarded(router)
    policy.guard(D, OUT2)
    router.punts(A, udp_to(V4), "OUTBOUND_MISS", stage="OUTBOUND", **WAY, **ASKED)
    router.forwards(A, udp_to("10.3.0.9"), TO_C)
    asked2 = {"list_id": OUT2.id, "generation": OUT2.generation}
    way2 = {"egress_l3_if": D.id, "nexthop_id": TO_D.id}
    router.punts(A, udp_to("10.4.0.9"), "OUTBOUND_MISS", stage="OUTBOUND", **way2, **asked2)
    router.forwards(E, udp_to(V4), TO_E)
    policy.bind(E, OUT2)
    way = {"egress_l3_if": E.id, "nexthop_id": TO_E.id}
    router.punts(E, udp_to(V4), "OUTBOUND_MISS", stage="OUTBOUND", **way, **asked2)


@ptf_test
def routing_comes_first(router: Router) -> None:
    """A packet without an egress interface is not looked up in an outbound list."""
    guarded(router)
    router.route("10.2.7.0/24", "blackhole")
    router.drops(A, udp_to("10.2.7.1"), "BLACKHOLE")
    router.punts(A, udp_to("192.0.2.1"), "NO_ROUTE", stage="ROUTING")


@ptf_test
def a_first_packet_is_punted(router: Router) -> None:
    """A miss is punted before TTL, size and neighbour are checked."""
    guarded(router)
    unresolve(router, TO_B)
    for dst in (V4, V6):
        large = ip6(dst, udp(size=1600)) if ":" in dst else ip4(dst, udp(size=1600))
        for packet in (udp_to(dst), udp_to(dst, **hops(dst, 1)), large):
            router.punts(A, packet, "OUTBOUND_MISS", stage="OUTBOUND", **WAY, **ASKED)


@ptf_test
def bypass_and_discard(router: Router) -> None:
    """Bypass and discard are cached. Their rules count the packets."""
    policy = guarded(router)
    for dst, flow in FLOWS.items():
        entry = policy.flow(OUT, flow, Verdict("BYPASS", rule=2))
        router.forwards(A, udp_to(dst), TO_B, rules=hit(OUT, 2))
        router.delete(entry)
        policy.flow(OUT, flow, Verdict("DISCARD", rule=4))
        for _ in range(2):
            router.drops(A, udp_to(dst), "OUTBOUND_DISCARD", rules=hit(OUT, 4))


@ptf_test
def a_flow_without_a_verdict(router: Router) -> None:
    """A flow without a verdict drops its packets as OUTBOUND_DISCARD.

    A flow that protects by bundle 0 drops its packets as NO_SA.
    """
    policy = guarded(router)
    policy.flow(OUT, FLOWS[V4], Verdict("NONE", rule=6))
    router.drops(A, udp_to(V4), "OUTBOUND_DISCARD", rules=hit(OUT, 6))
    policy.flow(OUT, FLOWS[V6], Verdict("PROTECT", rule=5, sa_bundle=0))
    router.drops(A, udp_to(V6), "NO_SA", rules=hit(OUT, 5))


@ptf_test
def later_punts_carry_the_verdict(router: Router) -> None:
    """A packet punted after the outbound list carries all fields that its re-injection needs."""
    policy = guarded(router)
    policy.guard(A, IN)
    for flow in FLOWS.values():
        policy.flow(IN, flow, Verdict("BYPASS", rule=3))
        policy.flow(OUT, flow, Verdict("BYPASS", rule=2))
    verdict: Mapping[str, Value] = {
        "verdict": "BYPASS",
        "rule": 2,
        "inbound_list_id": IN.id,
        "inbound_generation": IN.generation,
        **WAY,
        **ASKED,
    }
    rules = hit(IN, 3) | hit(OUT, 2)
    for dst in FLOWS:
        packet = udp_to(dst, **hops(dst, 1))
        router.punts(A, packet, "TTL_EXCEEDED", "REWRITE", rules, **verdict)
    router.modify(router.egress(Interface(B.id, B.port, B.mac, mtu=45)))
    router.punts(A, udp_to(V4), "MTU_EXCEEDED", "REWRITE", rules, **verdict)
    router.modify(router.egress(B))
    unresolve(router, TO_B)
    for dst in FLOWS:
        router.punts(A, udp_to(dst), "NEIGHBOR_UNRESOLVED", "REWRITE", rules, **verdict)


# --- local origin -------------------------------------------------------------


def of_the_host(packet: Packet, interface: Interface = B) -> bytes:
    """Returns the frame that the kernel sends by an interface."""
    return bytes(Ether(src=interface.mac, dst="02:cc:00:00:00:01") / packet)


BGP4 = (ip4(V4, tcp(dport=179), src="10.2.0.1"), Flow("10.2.0.1", V4, 6, dst_port=179))
BGP6 = (
    ip6(V6, tcp(dport=179), src="2001:db8:2::1"),
    Flow("2001:db8:2::1", V6, 6, dst_port=179),
)
HELLO = (
    ip4("224.0.0.5", Raw(bytes(24)), proto=89, src="10.2.0.1", ttl=1),
    Flow("10.2.0.1", "224.0.0.5", 89, 0, 0),
)


@ptf_test
def what_this_router_says_asks_too(router: Router) -> None:
    """A miss of a local packet is punted with its egress interface and origin LOCAL."""
    policy = guarded(router)
    policy.guard(A, IN)
    for packet, _flow in (BGP4, BGP6, HELLO):
        frame = of_the_host(packet)
        punt = router.packet_in(
            frame,
            reason="OUTBOUND_MISS",
            stage="OUTBOUND",
            origin="LOCAL",
            egress_l3_if=B.id,
            **ASKED,
        )
        expected = ProbeOutcome(punts=[punt], punted={"OUTBOUND_MISS": 1})
        router.packet_out(frame, expected, kind="LOCAL_ORIGIN", egress_l3_if=B.id)


@ptf_test
def what_this_router_says_by_routing_asks_too(router: Router) -> None:
    """A packet that the controller sends to routing is punted if it misses.

    The punt names the egress interface and the next hop.
    """
    guarded(router)
    for dst in (V4, V6):
        frame = of_the_host(udp_to(dst, **hops(dst, 1)))
        punt = router.packet_in(
            frame, reason="OUTBOUND_MISS", stage="OUTBOUND", origin="LOCAL", **WAY, **ASKED
        )
        expected = ProbeOutcome(punts=[punt], punted={"OUTBOUND_MISS": 1})
        router.packet_out(frame, expected, kind="LOCAL_ORIGIN")


@ptf_test
def local_bypass_and_discard(router: Router) -> None:
    """A bypassed frame keeps its MAC addresses and TTL. A routed packet gets new MAC addresses."""
    policy = guarded(router)
    policy.bind(D, OUT)
    for packet, flow in (BGP4, BGP6, HELLO):
        frame, own = of_the_host(packet), replace(flow, is_local=1)
        policy.flow(OUT, flow, Verdict("DISCARD", rule=7))  # the same packets in transit
        entry = policy.flow(OUT, own, Verdict("BYPASS", rule=1))
        for interface in (B, D):
            out = [(interface.port, tagged(frame, interface.vlan))]
            expected = ProbeOutcome(out=out, rules=hit(OUT, 1))
            router.packet_out(frame, expected, kind="LOCAL_ORIGIN", egress_l3_if=interface.id)
        if flow.protocol == 6:
            expected = ProbeOutcome(out=[(B.port, leaving(frame, TO_B))], rules=hit(OUT, 1))
            router.packet_out(frame, expected, kind="LOCAL_ORIGIN")
        router.delete(entry)
        policy.flow(OUT, own, Verdict("DISCARD", rule=4))
        expected = ProbeOutcome(drops={"OUTBOUND_DISCARD": 1}, rules=hit(OUT, 4))
        router.packet_out(frame, expected, kind="LOCAL_ORIGIN", egress_l3_if=B.id)


@ptf_test
def local_protect(router: Router) -> None:
    """The engine gets a local packet with its original TTL and without the interface's tag."""
    policy = guarded(router)
    policy.bind(D, OUT)
    policy.engine()
    sa = Sa(bundle=0x4001)
    policy.protects(sa)
    policy.protects(replace(sa, vrf=OTHER_VRF))
    for packet, flow in (BGP4, BGP6, HELLO):
        own = replace(flow, is_local=1)
        policy.flow(OUT, own, Verdict("PROTECT", rule=5, sa_bundle=sa.bundle))
        frame = of_the_host(packet)
        shim = Shim(ENCRYPT, sa.engine, sa.bundle, sa.sa)
        expected = ProbeOutcome(out=[(ENGINE.port, shim.on(frame))], rules=hit(OUT, 5))
        for interface in (B, D):
            router.packet_out(frame, expected, kind="LOCAL_ORIGIN", egress_l3_if=interface.id)
    frame = of_the_host(BGP4[0])
    shim = Shim(ENCRYPT, sa.engine, sa.bundle, sa.sa, vrf=OTHER_VRF)
    policy.bind(E, OUT)
    expected = ProbeOutcome(out=[(ENGINE.port, shim.on(frame))], rules=hit(OUT, 5))
    router.packet_out(frame, expected, kind="LOCAL_ORIGIN", vrf=OTHER_VRF)


@ptf_test
def errors_about_what_a_bundle_carried(router: Router) -> None:
    """A packet-out may name a bundle, as for an ICMP error that quotes a protected packet. It
    leaves by this bundle, or is dropped.
    """
    policy = guarded(router)
    policy.engine()
    sa = Sa(bundle=0x4001)
    error = ip4(V4, ICMP(type=11) / Raw(bytes(28)), src="10.2.0.1")
    policy.flow(OUT, Flow("10.2.0.1", V4, 1, 0, 11 << 8, is_local=1), Verdict("BYPASS", rule=1))
    frame = of_the_host(error)
    asked: dict[str, Any] = {"kind": "LOCAL_ORIGIN", "bundle": sa.bundle}
    router.packet_out(frame, ProbeOutcome(drops={"NO_SA": 1}), **asked)
    policy.protects(sa)
    router.packet_out(frame, ProbeOutcome(drops={"NO_SA": 1}), **asked, vrf=OTHER_VRF)
    shim = Shim(ENCRYPT, sa.engine, sa.bundle, sa.sa)
    router.packet_out(frame, ProbeOutcome(out=[(ENGINE.port, shim.on(frame))]), **asked)
    # The bundle applies without interface, list or binding.
    policy.unbind(B)
    router.packet_out(frame, ProbeOutcome(out=[(ENGINE.port, shim.on(frame))]), **asked)
    # A packet-out with an interface is refused, since it would bypass the bundle.
    refused = ProbeOutcome(drops={"PACKET_OUT_INVALID": 1})
    router.packet_out(frame, refused, **asked, egress_l3_if=B.id)
    router.packet_out(
        of_the_host(arp(V4)), ProbeOutcome(drops={"PACKET_OUT_NOT_ALLOWED": 1}), **asked
    )


# --- packets that the parser cannot read completely ---------------------------


@ptf_test
def deep_chains_without_an_spd(router: Router) -> None:
    """Packets with too many headers are routed by their addresses if no SPD applies.

    IPv4 options are first punted, so that the CPU checks them for source routes.
    """
    Policy(router)
    router.forwards(A, too_deep(V6), TO_B)
    router.punts(A, too_deep(V4), "IP_OPTIONS", stage="ROUTING")


@ptf_test
def deep_chains_under_an_outbound_list(router: Router) -> None:
    """A packet with too many headers is punted for a search, even if a flow without ports
    matches.
    """
    policy = guarded(router)
    policy.flow(OUT, Flow(HOST6, V6, 60, 0, 0), Verdict("BYPASS", rule=1))
    policy.flow(OUT, Flow(HOST4, V4, 17, 0, 0), Verdict("BYPASS", rule=1))
    router.punts(A, too_deep(V6), "EXTENSION_HEADERS", stage="OUTBOUND", **WAY, **ASKED)
    router.punts(A, too_deep(V4), "IP_OPTIONS", stage="ROUTING")


@ptf_test
def deep_chains_under_an_inbound_list(router: Router) -> None:
    """If an inbound list applies, a packet with too many headers is punted for a search of this
    list, before the pipeline punts it for a check of its options.
    """
    policy = Policy(router)
    policy.guard(A, IN)
    asked = {"list_id": IN.id, "generation": IN.generation}
    policy.flow(IN, Flow(HOST6, V6, 60, 0, 0), Verdict("BYPASS", rule=1))
    policy.flow(IN, Flow(HOST4, V4, 17, 0, 0), Verdict("BYPASS", rule=1))
    for dst in (V4, V6):
        router.punts(A, too_deep(dst), "EXTENSION_HEADERS", stage="INBOUND", **asked)
    router.drops(A, ip4(V4, udp(), options=b"\x83\x03\x04" + b"\1" * 13), "SOURCE_ROUTE")


def routed_on(left: int, kind: int = 4) -> Packet:
    """Returns UDP to B's link behind a routing header with one address."""
    header = bytes([17, 2, kind, left]) + bytes(4) + bytes(16)
    return ip6(V6, Raw(header + bytes(udp())), nh=43)


@ptf_test
def segments_left_under_an_outbound_list(router: Router) -> None:
    """Drops packets whose routing header has segments left, because the rules would be applied to
    an intermediate destination.

    A routing header without segments left has no effect.
    """
    policy = guarded(router)
    policy.flow(OUT, FLOWS[V6], Verdict("BYPASS", rule=2))
    router.forwards(A, routed_on(0), TO_B, rules=hit(OUT, 2))
    for kind in (2, 3, 4, 255):
        for left in (1, 255):
            router.drops(A, routed_on(left, kind), "SEGMENTS_LEFT")
    made_here: Mapping[str, Value] = {"kind": "LOCAL_ORIGIN", "egress_l3_if": B.id}
    refused = ProbeOutcome(drops={"SEGMENTS_LEFT": 1})
    router.packet_out(of_the_host(routed_on(1)), refused, **made_here)


@ptf_test
def segments_left_under_an_inbound_list(router: Router) -> None:
    """Drops packets with segments left also where only an inbound list applies."""
    policy = Policy(router)
    policy.guard(A, IN)
    policy.flow(IN, FLOWS[V6], Verdict("BYPASS", rule=2))
    router.forwards(A, routed_on(0), TO_B, rules=hit(IN, 2))
    router.drops(A, routed_on(1), "SEGMENTS_LEFT")


@ptf_test
def chains_that_are_walked(router: Router) -> None:
    """Options and extension headers do not change a packet's flow, if the parser can walk them
    all.
    """
    policy = guarded(router)
    policy.guard(A, IN)
    for of in (IN, OUT):
        policy.flow(of, FLOWS[V4], Verdict("BYPASS", rule=2))
        policy.flow(of, FLOWS[V6], Verdict("BYPASS", rule=2))
    rules = hit(IN, 2) | hit(OUT, 2)
    router.forwards(A, ip4(V4, udp(), options=b"\x94\x04\0\0" + b"\1" * 8), TO_B, rules=rules)
    chain = IPv6ExtHdrDestOpt() / IPv6ExtHdrDestOpt() / IPv6ExtHdrDestOpt() / udp()
    router.forwards(A, ip6(V6, chain), TO_B, rules=rules)


@ptf_test
def a_tag_is_no_part_of_a_flow(router: Router) -> None:
    """VLAN, priority and egress interface are no part of a flow's key."""
    policy = guarded(router)
    policy.flow(OUT, FLOWS[V4], Verdict("BYPASS", rule=2))
    for priority in (0, 7):
        tag = Dot1Q(vlan=D.vlan, prio=priority)
        frame = bytes(Ether(src="02:aa:00:00:00:01", dst=D.mac) / tag / udp_to(V4))
        expected = routed(frame, TO_B)
        router.forwards(D, frame, TO_B, sent=expected, rules=hit(OUT, 2))
