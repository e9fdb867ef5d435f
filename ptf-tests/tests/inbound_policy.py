# SPDX-License-Identifier: Apache-2.0
"""Tests the control ipsec_inbound. It applies the inbound SPD list to packets before they are
routed or delivered.

The packets are received in clear, or come back decrypted from an engine.
"""

from collections.abc import Mapping

from scapy.layers.inet6 import ICMPv6ND_NS
from scapy.packet import Raw

from sluice_ptf.case import ptf_test
from sluice_ptf.network import HOST4, HOST6
from sluice_ptf.packets import arp, echo, hops, ip4, ip6, tcp, udp_to
from sluice_ptf.policy import (
    ENGINE,
    IN,
    IN2,
    LAST_RULE,
    OUT,
    Flow,
    Policy,
    Verdict,
    decrypted,
    hit,
)
from sluice_ptf.probe import ProbeOutcome
from sluice_ptf.router import Router, arriving, routed
from sluice_ptf.schema import Value
from sluice_ptf.standard import TO_B, A, B, D

V4, V6 = "10.2.0.9", "2001:db8:2::9"
OURS4, OURS6 = "10.1.0.1", "2001:db8:1::1"
TRANSIT = {V4: Flow(HOST4, V4), V6: Flow(HOST6, V6)}
TO_US = {OURS4: Flow(HOST4, OURS4, is_local=1), OURS6: Flow(HOST6, OURS6, is_local=1)}
ASKED: Mapping[str, Value] = {"list_id": IN.id, "generation": IN.generation}
PASSED: Mapping[str, Value] = {"inbound_list_id": IN.id, "inbound_generation": IN.generation}
BUNDLE = 0x4001
AH = 51


def guarded(router: Router) -> Policy:
    """Writes the epoch of the list IN, and binds the list to interface A."""
    policy = Policy(router)
    policy.guard(A, IN)
    return policy


def carried(flow: Flow, bundle: int = BUNDLE) -> Flow:
    """Returns the flow for the same packets when they were decrypted by an SA of the bundle."""
    return Flow(**vars(flow) | {"bundle": bundle})


# --- bindings and lists -------------------------------------------------------


@ptf_test
def an_interface_without_a_binding_takes_nothing(router: Router) -> None:
    """Drops all IP packets on an interface without a binding. Other frames pass."""
    router.delete(router.unbound(A)[0])
    for dst in (V4, V6, OURS4, OURS6, "192.0.2.1"):
        router.drops(A, udp_to(dst), "NO_POLICY_BINDING")
    router.punts(A, arp(OURS4), "ARP", stage="LOCAL_DELIVERY")


@ptf_test
def admission_comes_first(router: Router) -> None:
    """Malformed packets and martians are dropped under their own reasons, with any policy."""
    guarded(router)
    router.drops(A, udp_to(V4, src="127.0.0.1"), "MARTIAN")
    router.drops(A, ip4(V4, echo(), chksum=1), "BAD_CHECKSUM")


@ptf_test
def a_list_without_an_epoch_serves_nobody(router: Router) -> None:
    """Drops packets if the list has no entry or epoch 0, even where a flow of epoch 0 would
    match.
    """
    policy = Policy(router)
    policy.bind(A, IN)
    for flow in (*TRANSIT.values(), *TO_US.values()):
        policy.flow(IN, flow, Verdict("BYPASS", rule=1), epoch=0)
    for dst in (V4, V6, OURS4, OURS6):
        router.drops(A, udp_to(dst), "LIST_NOT_READY")
    policy.ready(IN.__class__(IN.direction, IN.id, 0, IN.generation))
    for dst in (V4, V6, OURS4, OURS6):
        router.drops(A, udp_to(dst), "LIST_NOT_READY")


@ptf_test
def interfaces_are_guarded_one_by_one(router: Router) -> None:
    """A list applies only to the interfaces that are bound to it, and only in its own direction."""
    guarded(router)
    router.forwards(D, udp_to(V4), TO_B)
    frame = arriving(A, udp_to(V4))
    router.punts(A, frame, "INBOUND_MISS", stage="INBOUND", **ASKED)


# --- misses -------------------------------------------------------------------


@ptf_test
def a_first_packet_is_punted(router: Router) -> None:
    """A packet that misses is punted before routing.

    The punt names the list that the controller must search, and the list's generation.
    """
    guarded(router)
    for dst in (V4, V6, "192.0.2.1", "2001:db9::1"):
        router.punts(A, udp_to(dst), "INBOUND_MISS", stage="INBOUND", **ASKED)


@ptf_test
def a_first_packet_for_this_router_is_punted(router: Router) -> None:
    """A packet for this router that misses is punted with is_local set.

    No packet is delivered before its verdict.
    """
    guarded(router)
    for packet in (
        udp_to(OURS4),
        udp_to(OURS6),
        ip4(OURS4, tcp(dport=179)),
        ip4("224.0.0.5", echo(), proto=89, ttl=1),
        ip6("ff02::1:ff00:1", ICMPv6ND_NS(tgt=OURS6), hlim=255),
    ):
        router.punts(A, packet, "INBOUND_MISS", stage="INBOUND", is_local=1, **ASKED)


@ptf_test
def misses_of_vlans_and_vrfs(router: Router) -> None:
    """A packet that misses is punted as the unchanged frame, with its VLAN tag."""
    policy = Policy(router)
    policy.guard(D, IN2)
    for dst in (V4, V6):
        asked = {"list_id": IN2.id, "generation": IN2.generation}
        router.punts(D, udp_to(dst), "INBOUND_MISS", stage="INBOUND", **asked)


# --- hits ---------------------------------------------------------------------


@ptf_test
def bypass(router: Router) -> None:
    """A bypassed packet continues to routing or delivery. Its rule counts the packet."""
    policy = guarded(router)
    for dst, flow in (TRANSIT | TO_US).items():
        policy.flow(IN, flow, Verdict("BYPASS", rule=3))
        if dst in TRANSIT:
            router.forwards(A, udp_to(dst), TO_B, rules=hit(IN, 3))
        else:
            rules, stage = hit(IN, 3), "LOCAL_DELIVERY"
            router.punts(A, udp_to(dst), "LOCAL", stage, rules, is_local=1, **PASSED)


@ptf_test
def discard(router: Router) -> None:
    """A cached discard drops every packet of its flow without a punt."""
    policy = guarded(router)
    for dst, flow in (TRANSIT | TO_US).items():
        policy.flow(IN, flow, Verdict("DISCARD", rule=4))
        for _ in range(2):
            router.drops(A, udp_to(dst), "INBOUND_DISCARD", rules=hit(IN, 4))


@ptf_test
def the_first_and_the_last_rule_id(router: Router) -> None:
    """Rule ids from 0 to LAST_RULE are valid. They have more than 16 bits."""
    policy = guarded(router)
    for rule in (0, 65535, 65536, LAST_RULE):
        refused = policy.flow(IN, TRANSIT[V4], Verdict("DISCARD", rule))
        router.drops(A, udp_to(V4), "INBOUND_DISCARD", rules=hit(IN, rule))
        passed = policy.flow(IN, TRANSIT[V6], Verdict("BYPASS", rule))
        router.forwards(A, udp_to(V6), TO_B, rules=hit(IN, rule))
        router.delete(refused, passed)


@ptf_test
def cleartext_that_ought_to_be_protected(router: Router) -> None:
    """Drops a clear packet that a protect rule matches, as INBOUND_CLEARTEXT (RFC 4301, 5.2)."""
    policy = guarded(router)
    for dst, flow in (TRANSIT | TO_US).items():
        policy.flow(IN, flow, Verdict("PROTECT", rule=5, sa_bundle=BUNDLE))
        router.drops(A, udp_to(dst), "INBOUND_CLEARTEXT", rules=hit(IN, 5))


@ptf_test
def a_flow_without_a_verdict(router: Router) -> None:
    """A flow without a verdict discards its packets."""
    policy = guarded(router)
    policy.flow(IN, TRANSIT[V4], Verdict("NONE", rule=6))
    router.drops(A, udp_to(V4), "INBOUND_DISCARD", rules=hit(IN, 6))


@ptf_test
def later_punts_name_the_verdict_applied(router: Router) -> None:
    """The punt of a packet at a later stage names the inbound list, and its generation, that
    permitted the packet.
    """
    policy = guarded(router)
    router.route("203.0.113.0/24", "punt_route", reason="PROHIBITED")
    way: Mapping[str, Value] = {"egress_l3_if": B.id, "nexthop_id": TO_B.id}
    for dst, left, reason, stage, known in (
        ("192.0.2.1", 64, "NO_ROUTE", "ROUTING", {}),
        ("203.0.113.1", 64, "PROHIBITED", "ROUTING", {}),
        (V4, 1, "TTL_EXCEEDED", "REWRITE", way),
        (V6, 1, "TTL_EXCEEDED", "REWRITE", way),
    ):
        source = HOST6 if ":" in dst else HOST4
        policy.flow(IN, Flow(source, dst), Verdict("BYPASS", rule=3))
        packet = udp_to(dst, **hops(dst, left))
        router.punts(A, packet, reason, stage, hit(IN, 3), **known, **PASSED)


@ptf_test
def policy_does_not_make_neighbor_discovery_valid(router: Router) -> None:
    """Neighbour discovery with a hop limit below 255 is dropped even if a rule bypasses it."""
    policy = guarded(router)
    dst = "ff02::1:ff00:1"
    flow = Flow(HOST6, dst, protocol=58, src_port=0, dst_port=135 << 8, is_local=1)
    policy.flow(IN, flow, Verdict("BYPASS", rule=1))
    solicit = ip6(dst, ICMPv6ND_NS(tgt=OURS6), hlim=255)
    rules, stage = hit(IN, 1), "LOCAL_DELIVERY"
    router.punts(A, solicit, "NEIGHBOR_DISCOVERY", stage, rules, is_local=1, **PASSED)
    solicit = ip6(dst, ICMPv6ND_NS(tgt=OURS6), hlim=254)
    router.drops(A, solicit, "ND_INVALID", rules=rules)


# --- decrypted packets --------------------------------------------------------


def with_bundle(router: Router) -> Policy:
    """Configures an engine, with IN for packets of BUNDLE and IN2 for interface A."""
    policy = Policy(router)
    policy.engine()
    policy.guard(A, IN2)
    policy.ready(IN)
    policy.carries(BUNDLE, IN)
    return policy


@ptf_test
def decrypted_is_checked_against_its_own_spd(router: Router) -> None:
    """A decrypted packet is looked up in its bundle's list, not in the list of the interface.

    Its punt names the bundle and has origin DECRYPTED.
    """
    policy = with_bundle(router)
    for dst, local in ((V4, 0), (V6, 0), (OURS4, 1), (OURS6, 1)):
        punt = router.packet_in(
            arriving(ENGINE, udp_to(dst)),
            ingress_port=ENGINE.port,
            ingress_l3_if=A.id,
            reason="INBOUND_MISS",
            stage="INBOUND",
            origin="DECRYPTED",
            bundle=BUNDLE,
            is_local=local,
            **ASKED,
        )
        expected = ProbeOutcome(punts=[punt], punted={"INBOUND_MISS": 1})
        policy.from_engine(decrypted(BUNDLE, A), udp_to(dst), expected)


@ptf_test
def decrypted_by_the_right_sa(router: Router) -> None:
    """A rule that protects by the packet's own bundle admits it. The packet is then forwarded or
    delivered.
    """
    policy = with_bundle(router)
    for dst, flow in (TRANSIT | TO_US).items():
        policy.flow(IN, carried(flow), Verdict("PROTECT", rule=5, sa_bundle=BUNDLE))
        frame = arriving(ENGINE, udp_to(dst))
        expected = ProbeOutcome(out=[(B.port, routed(frame, TO_B))], rules=hit(IN, 5))
        if dst in TO_US:
            punt = router.packet_in(
                frame,
                ingress_port=ENGINE.port,
                ingress_l3_if=A.id,
                reason="LOCAL",
                stage="LOCAL_DELIVERY",
                origin="DECRYPTED",
                bundle=BUNDLE,
                is_local=1,
                **PASSED,
            )
            expected = ProbeOutcome(punts=[punt], punted={"LOCAL": 1}, rules=hit(IN, 5))
        policy.from_engine(decrypted(BUNDLE, A), udp_to(dst), expected)


@ptf_test
def decrypted_by_another_sa(router: Router) -> None:
    """Drops a decrypted packet if its rule says bypass, discard, or protect by another bundle."""
    policy = with_bundle(router)
    refused = "INBOUND_WRONG_SA"
    for rule, (answer, bundle, reason) in enumerate(
        (
            ("PROTECT", BUNDLE + 1, refused),
            ("PROTECT", 0, refused),
            ("BYPASS", 0, refused),
            ("BYPASS", BUNDLE, refused),
            ("NONE", BUNDLE, refused),
            ("DISCARD", BUNDLE, "INBOUND_DISCARD"),
        ),
        start=1,
    ):
        for flow in (TRANSIT | TO_US).values():
            verdict = Verdict(answer, rule, bundle)
            entry = policy.flow(IN, carried(flow), verdict)
            expected = ProbeOutcome(drops={reason: 1}, rules=hit(IN, rule))
            policy.from_engine(decrypted(BUNDLE, A), udp_to(flow.dst_addr), expected)
            router.delete(entry)


@ptf_test
def decrypted_by_a_bundle_of_no_spd(router: Router) -> None:
    """Drops packets that were decrypted by a bundle without an SPD."""
    policy = with_bundle(router)
    expected = ProbeOutcome(drops={"NO_POLICY_BINDING": 1})
    policy.from_engine(decrypted(BUNDLE + 1, A), udp_to(V4), expected)


@ptf_test
def in_clear_and_decrypted_are_two_flows(router: Router) -> None:
    """A flow of decrypted packets does not match the same packets in clear."""
    policy = with_bundle(router)
    policy.bind(A, IN)
    policy.flow(IN, carried(TRANSIT[V4]), Verdict("PROTECT", rule=5, sa_bundle=BUNDLE))
    router.punts(A, udp_to(V4), "INBOUND_MISS", stage="INBOUND", **ASKED)
    policy.flow(IN, TRANSIT[V4], Verdict("PROTECT", rule=5, sa_bundle=BUNDLE))
    router.drops(A, udp_to(V4), "INBOUND_CLEARTEXT", rules=hit(IN, 5))


@ptf_test
def inbound_then_outbound(router: Router) -> None:
    """A forwarded packet passes the inbound list, then the outbound list.

    A rule of each list counts the packet.
    """
    policy = guarded(router)
    policy.guard(B, OUT)
    for dst, flow in TRANSIT.items():
        policy.flow(IN, flow, Verdict("BYPASS", rule=3))
        policy.flow(OUT, flow, Verdict("BYPASS", rule=7))
        router.forwards(A, udp_to(dst), TO_B, rules=hit(IN, 3) | hit(OUT, 7))


@ptf_test
def ah_to_us_has_no_sa(router: Router) -> None:
    """Drops AH to this router, of each fragment class, where a list applies. AH in transit meets
    the list.
    """
    guarded(router)
    header = Raw(bytes([59, 4, 0, 0]) + (4096).to_bytes(4, "big") + bytes(16))
    for to_us in (
        ip4(OURS4, header, proto=AH),
        ip6(OURS6, header, nh=AH),
        ip4(OURS4, header, proto=AH, flags="MF"),
        ip4(OURS4, header, proto=AH, frag=5),
    ):
        router.drops(A, to_us, "AH_NO_SA")
    for dst in (V4, V6):
        packet = ip4(dst, header, proto=AH) if dst == V4 else ip6(dst, header, nh=AH)
        router.punts(A, packet, "INBOUND_MISS", stage="INBOUND", **ASKED)
