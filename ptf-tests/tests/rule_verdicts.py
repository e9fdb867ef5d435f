# SPDX-License-Identifier: Apache-2.0
"""Tests what the pipeline does with the verdicts that the rule tables give: at both stages, for
decrypted packets, for packets of this router, and for re-injected packets.
"""

from collections.abc import Mapping
from dataclasses import replace

from scapy.layers.l2 import Ether
from scapy.packet import Packet

from sluice_ptf import policy as lists
from sluice_ptf.case import ptf_test
from sluice_ptf.frames import tagged
from sluice_ptf.packets import hops, ip4, ip6, tcp, udp_to
from sluice_ptf.policy import (
    ENGINE,
    LAST_RULE,
    Policy,
    Verdict,
    claim,
    decrypted,
    hit,
    reinjection,
)
from sluice_ptf.probe import FromPort, ProbeOutcome
from sluice_ptf.protection import BUNDLE, OURS4, OURS6, PROTECT, SA, with_engine
from sluice_ptf.reinjected import again, comes_to, dropped, first, punted, sent
from sluice_ptf.router import Router, arriving, leaving, routed, same
from sluice_ptf.rule_sets import (
    BYPASS,
    DESTINATION,
    DISCARD,
    IN,
    OUT,
    V4,
    V6,
    asked,
    each,
    misses,
    refuses,
)
from sluice_ptf.schema import Value
from sluice_ptf.shim import ENCRYPT, Shim
from sluice_ptf.standard import TO_B, A, B, D

PASSED: Mapping[str, Value] = {"inbound_list_id": IN.id, "inbound_generation": IN.generation}
WAY: Mapping[str, Value] = {"egress_l3_if": B.id, "nexthop_id": TO_B.id}
OURS = {"ipv4": OURS4, "ipv6": OURS6}
OTHER_BUNDLE = BUNDLE + 1


@ptf_test
def rule_ids_have_more_than_16_bits(router: Router) -> None:
    """Rule ids from 0 to LAST_RULE are valid. A punt at a later stage names the whole id."""
    for policy, of in each(router):
        for family, dst in DESTINATION.items():
            for rule in (0, 65535, 65536, LAST_RULE):
                entry = policy.rule(of, family, 10, Verdict("BYPASS", rule))
                router.forwards(A, udp_to(dst), TO_B, rules=hit(of, rule))
                known: dict[str, Value] = dict(PASSED) | dict(WAY)
                if of is OUT:
                    known = {**asked(OUT), "verdict": "BYPASS", "rule": rule}
                packet = udp_to(dst, **hops(dst, 1))
                router.punts(A, packet, "TTL_EXCEEDED", "REWRITE", hit(of, rule), **known)
                router.delete(entry)


@ptf_test
def a_rule_without_a_verdict(router: Router) -> None:
    """A rule without a verdict discards its packets."""
    for policy, of in each(router):
        for family, dst in DESTINATION.items():
            policy.rule(of, family, 10, Verdict("NONE", rule=6))
            refuses(router, of, udp_to(dst), hit(of, 6))


# --- inbound ------------------------------------------------------------------


@ptf_test
def packets_for_this_router(router: Router) -> None:
    """The field is_local distinguishes packets for this router from packets in transit."""
    policy = Policy(router)
    policy.guard(A, IN)
    for family, dst in DESTINATION.items():
        policy.rule(IN, family, 20, BYPASS, is_local=1)
        router.punts(
            A, udp_to(OURS[family]), "LOCAL", "LOCAL_DELIVERY", hit(IN, 2), is_local=1, **PASSED
        )
        misses(router, IN, udp_to(dst))
        policy.rule(IN, family, 30, DISCARD, is_local=0)
        refuses(router, IN, udp_to(dst), hit(IN, 4))
        leave = policy.rule(IN, family, 40, None)
        known = {"is_local": 1, **asked(IN)}
        router.punts(A, udp_to(OURS[family]), "INBOUND_MISS", "INBOUND", **known)
        router.delete(leave)


@ptf_test
def cleartext(router: Router) -> None:
    """Drops a packet in clear that a protect rule matches, for every bundle.

    The copy for the audit log names the rule.
    """
    policy = Policy(router)
    policy.guard(A, IN)
    for family, dst in DESTINATION.items():
        for rule, bundle in enumerate((BUNDLE, 0), start=5):
            entry = policy.rule(IN, family, 10, Verdict("PROTECT", rule, bundle))
            for packet in (udp_to(dst), udp_to(OURS[family])):
                router.drops(A, packet, "INBOUND_CLEARTEXT", rules=hit(IN, rule))
            router.delete(entry)
    key: Mapping[str, Value] = {"drop_reason": "INBOUND_CLEARTEXT"}
    router.insert(router.entry("copied_drop", key, "copy_to_cpu", reason="AUDIT"))
    policy.rule(IN, "ipv4", 10, PROTECT)
    frame = arriving(A, udp_to(V4))
    copy = router.packet_in(
        frame,
        ingress_port=A.port,
        ingress_l3_if=A.id,
        reason="AUDIT",
        drop_reason="INBOUND_CLEARTEXT",
        rule=PROTECT.rule,
        **PASSED,
    )
    expected = ProbeOutcome(
        punts=[copy],
        punted={"AUDIT": 1},
        drops={"INBOUND_CLEARTEXT": 1},
        rules=hit(IN, PROTECT.rule),
    )
    same(router.exchange(FromPort(A.port, frame)), expected, frame)


def with_bundles(router: Router) -> Policy:
    """Configures an engine. IN applies to the packets of two bundles, IN2 to interface A."""
    policy = Policy(router)
    policy.engine()
    policy.guard(A, lists.IN2)
    policy.ready(IN)
    policy.carries(BUNDLE, IN)
    policy.carries(OTHER_BUNDLE, IN)
    return policy


@ptf_test
def decrypted_by_the_right_bundle(router: Router) -> None:
    """A decrypted packet passes if its rule protects by the bundle that carried the packet. It is
    then forwarded, or delivered.
    """
    policy = with_bundles(router)
    for family, dst in DESTINATION.items():
        policy.rule(IN, family, 10, PROTECT)
        expected = ProbeOutcome(
            out=[(B.port, routed(arriving(ENGINE, udp_to(dst)), TO_B))], rules=hit(IN, 5)
        )
        policy.from_engine(decrypted(BUNDLE, A), udp_to(dst), expected)
        ours = udp_to(OURS[family])
        punt = router.packet_in(
            arriving(ENGINE, ours),
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
        policy.from_engine(decrypted(BUNDLE, A), ours, expected)


@ptf_test
def decrypted_by_the_wrong_bundle(router: Router) -> None:
    """Drops a decrypted packet if its rule bypasses, discards, or protects by another bundle."""
    policy = with_bundles(router)
    refused = "INBOUND_WRONG_SA"
    answers = (
        (PROTECT, OTHER_BUNDLE, refused),
        (Verdict("PROTECT", 1, OTHER_BUNDLE), BUNDLE, refused),
        (Verdict("PROTECT", 1, 0), BUNDLE, refused),
        (Verdict("BYPASS", 2, 0), BUNDLE, refused),
        (Verdict("BYPASS", 2, BUNDLE), BUNDLE, refused),
        (Verdict("NONE", 3, BUNDLE), BUNDLE, refused),
        (Verdict("DISCARD", 4, BUNDLE), BUNDLE, "INBOUND_DISCARD"),
    )
    for family, dst in DESTINATION.items():
        for answer, carrier, reason in answers:
            entry = policy.rule(IN, family, 10, answer)
            expected = ProbeOutcome(drops={reason: 1}, rules=hit(IN, answer.rule))
            for packet in (udp_to(dst), udp_to(OURS[family])):
                policy.from_engine(decrypted(carrier, A), packet, expected)
            router.delete(entry)


@ptf_test
def decrypted_and_left_to_the_cpu(router: Router) -> None:
    """The punt of a decrypted packet that no rule decides names the bundle."""
    policy = with_bundles(router)
    for family, dst in DESTINATION.items():
        policy.rule(IN, family, 10, PROTECT)
        policy.rule(IN, family, 20, None)
        punt = router.packet_in(
            arriving(ENGINE, udp_to(dst)),
            ingress_port=ENGINE.port,
            ingress_l3_if=A.id,
            reason="INBOUND_MISS",
            stage="INBOUND",
            origin="DECRYPTED",
            bundle=BUNDLE,
            **asked(IN),
        )
        expected = ProbeOutcome(punts=[punt], punted={"INBOUND_MISS": 1})
        policy.from_engine(decrypted(BUNDLE, A), udp_to(dst), expected)


# --- outbound -----------------------------------------------------------------


@ptf_test
def protection(router: Router) -> None:
    """A packet that a rule protects goes to the engine of its bundle's SA.

    It is dropped as NO_SA if the bundle has no SA, or if the rule names bundle 0.
    """
    policy = with_engine(router)
    policy.guard(B, OUT)
    for family, dst in DESTINATION.items():
        policy.rule(OUT, family, 10, PROTECT)
        policy.encrypts(A, udp_to(dst), SA, rules=hit(OUT, 5))
        policy.rule(OUT, family, 20, Verdict("PROTECT", 6, OTHER_BUNDLE))
        router.drops(A, udp_to(dst), "NO_SA", rules=hit(OUT, 6))
        policy.rule(OUT, family, 30, Verdict("PROTECT", 7, 0))
        router.drops(A, udp_to(dst), "NO_SA", rules=hit(OUT, 7))


@ptf_test
def requests_for_an_sa(router: Router) -> None:
    """The copy of a packet without an SA names the bundle and the rule that asked for it."""
    policy = Policy(router)
    policy.guard(B, OUT)
    key: Mapping[str, Value] = {"drop_reason": "NO_SA"}
    router.insert(router.entry("copied_drop", key, "copy_to_cpu", reason="ACQUIRE"))
    policy.guard(A, IN)
    for family, dst in DESTINATION.items():
        policy.rule(IN, family, 10, BYPASS)
        policy.rule(OUT, family, 10, Verdict("PROTECT", LAST_RULE, BUNDLE))
        frame = arriving(A, udp_to(dst))
        copy = router.packet_in(
            frame,
            ingress_port=A.port,
            ingress_l3_if=A.id,
            reason="ACQUIRE",
            drop_reason="NO_SA",
            verdict="PROTECT",
            sa_bundle=BUNDLE,
            rule=LAST_RULE,
            **asked(OUT),
            **PASSED,
        )
        expected = ProbeOutcome(
            punts=[copy],
            punted={"ACQUIRE": 1},
            drops={"NO_SA": 1},
            rules=hit(IN, 2) | hit(OUT, LAST_RULE),
        )
        same(router.exchange(FromPort(A.port, frame)), expected, frame)


def of_the_host(packet: Packet) -> bytes:
    """Returns the frame that the kernel sends by interface B."""
    return bytes(Ether(src=B.mac, dst="02:cc:00:00:00:01") / packet)


OWN = {
    "ipv4": ip4(V4, tcp(dport=179), src="10.2.0.1"),
    "ipv6": ip6(V6, tcp(dport=179), src="2001:db8:2::1"),
}


@ptf_test
def packets_of_this_router(router: Router) -> None:
    """The field is_local distinguishes packets that this router sends from packets in transit.

    A bypassed packet leaves unchanged by its interface, or is routed.
    """
    policy = Policy(router)
    policy.guard(B, OUT)
    policy.bind(D, OUT)
    for family, packet in OWN.items():
        frame = of_the_host(packet)
        transit = policy.rule(OUT, family, 30, Verdict("DISCARD", 7), is_local=0)
        punt = router.packet_in(
            frame,
            reason="OUTBOUND_MISS",
            stage="OUTBOUND",
            origin="LOCAL",
            egress_l3_if=B.id,
            list_id=OUT.id,
            generation=OUT.generation,
        )
        missed = ProbeOutcome(punts=[punt], punted={"OUTBOUND_MISS": 1})
        router.packet_out(frame, missed, kind="LOCAL_ORIGIN", egress_l3_if=B.id)
        bypass = policy.rule(OUT, family, 20, BYPASS, is_local=1, protocol=6, dst_port=179)
        for interface in (B, D):
            out = [(interface.port, tagged(frame, interface.vlan))]
            expected = ProbeOutcome(out=out, rules=hit(OUT, 2))
            router.packet_out(frame, expected, kind="LOCAL_ORIGIN", egress_l3_if=interface.id)
        expected = ProbeOutcome(out=[(B.port, leaving(frame, TO_B))], rules=hit(OUT, 2))
        router.packet_out(frame, expected, kind="LOCAL_ORIGIN")
        refuses(router, OUT, udp_to(DESTINATION[family]), hit(OUT, 7))
        leave = policy.rule(OUT, family, 40, None)
        router.packet_out(frame, missed, kind="LOCAL_ORIGIN", egress_l3_if=B.id)
        router.delete(transit, bypass, leave)
        policy.rule(OUT, family, 10, DISCARD)
        expected = ProbeOutcome(drops={"OUTBOUND_DISCARD": 1}, rules=hit(OUT, 4))
        router.packet_out(frame, expected, kind="LOCAL_ORIGIN", egress_l3_if=B.id)


@ptf_test
def protected_packets_of_this_router(router: Router) -> None:
    """A packet of this router that a rule protects goes to the engine, or is dropped as NO_SA."""
    policy = with_engine(router)
    policy.guard(B, OUT)
    for family, packet in OWN.items():
        frame = of_the_host(packet)
        policy.rule(OUT, family, 10, PROTECT, is_local=1)
        shim = Shim(ENCRYPT, SA.engine, SA.bundle, SA.sa)
        expected = ProbeOutcome(out=[(ENGINE.port, shim.on(frame))], rules=hit(OUT, 5))
        router.packet_out(frame, expected, kind="LOCAL_ORIGIN", egress_l3_if=B.id)
        for priority, bundle in ((20, OTHER_BUNDLE), (30, 0)):
            policy.rule(OUT, family, priority, Verdict("PROTECT", 6, bundle), is_local=1)
            expected = ProbeOutcome(drops={"NO_SA": 1}, rules=hit(OUT, 6))
            router.packet_out(frame, expected, kind="LOCAL_ORIGIN", egress_l3_if=B.id)


# --- both stages --------------------------------------------------------------


@ptf_test
def inbound_then_outbound(router: Router) -> None:
    """A packet gets a verdict of each list, from a rule or from a flow. Each rule counts it."""
    policy = Policy(router)
    policy.guard(A, IN)
    policy.guard(B, OUT)
    for family, dst in DESTINATION.items():
        policy.rule(IN, family, 10, Verdict("BYPASS", rule=3))
        policy.rule(OUT, family, 10, Verdict("BYPASS", rule=7))
        router.forwards(A, udp_to(dst), TO_B, rules=hit(IN, 3) | hit(OUT, 7))


@ptf_test
def an_inbound_hit_and_an_outbound_miss(router: Router) -> None:
    """A packet that an inbound rule passes and that misses outbound is punted with both lists, and
    without the inbound rule. Re-injected, it keeps its inbound verdict.
    """
    policy = Policy(router)
    policy.guard(A, IN)
    policy.guard(B, OUT)
    for family, dst in DESTINATION.items():
        inbound = policy.rule(IN, family, 10, Verdict("BYPASS", rule=3, sa_bundle=9))
        known = {**asked(OUT), **PASSED}
        router.punts(A, udp_to(dst), "OUTBOUND_MISS", "OUTBOUND", hit(IN, 3), **known)
        frame = arriving(A, udp_to(dst))
        outcome = router.exchange(FromPort(A.port, frame))
        (punt,) = outcome.punts
        router.modify(policy.rule_entry(IN, family, 10, DISCARD))
        comes_to(router, punt, reinjection(punt, BYPASS), sent(punt, TO_B, claim(OUT, 2)))
        router.delete(inbound)


# --- re-injected packets ------------------------------------------------------


@ptf_test
def a_claim_goes_before_the_rules(router: Router) -> None:
    """A re-injected packet gets the verdict that the CPU claims, although a rule matches. Only the
    claim is counted.
    """
    policy = Policy(router)
    policy.guard(A, IN)
    policy.guard(B, OUT)
    for family, dst in DESTINATION.items():
        inbound = first(router, udp_to(dst), "INBOUND_MISS")
        policy.rule(IN, family, 10, Verdict("DISCARD", rule=7))
        comes_to(router, inbound, reinjection(inbound, DISCARD), refused("IN", claim(IN, 4)))
        outbound = again(router, reinjection(inbound, BYPASS), inbound.frame, "OUTBOUND_MISS")
        policy.rule(OUT, family, 10, Verdict("DISCARD", rule=7))
        header = reinjection(outbound, BYPASS)
        comes_to(router, outbound, header, sent(outbound, TO_B, claim(OUT, 2)))
        # The claim at the inbound stage holds for this stage only.
        comes_to(
            router,
            inbound,
            reinjection(inbound, BYPASS),
            refused("OUT", claim(IN, 2) | hit(OUT, 7)),
        )


def refused(way: str, rules: dict[str, int]) -> ProbeOutcome:
    """Returns the outcome of a packet that a list discards."""
    return dropped(f"{way}BOUND_DISCARD", rules)


@ptf_test
def a_stale_claim_does_not_fall_back_to_the_rules(router: Router) -> None:
    """A packet with a stale claim is dropped, although a rule of the new set matches."""
    policy = Policy(router)
    policy.guard(A, IN)
    policy.guard(B, OUT)
    for family, dst in DESTINATION.items():
        inbound = first(router, udp_to(dst), "INBOUND_MISS")
        outbound = again(router, reinjection(inbound, BYPASS), inbound.frame, "OUTBOUND_MISS")
        entries = [policy.rule(of, family, 10, BYPASS) for of in (IN, OUT)]
        policy.commit(OUT.edited())
        comes_to(router, outbound, reinjection(outbound, BYPASS), dropped("STALE_VERDICT"))
        policy.commit(OUT, IN.edited())
        for punt in (inbound, outbound):
            comes_to(router, punt, reinjection(punt, BYPASS), dropped("STALE_VERDICT"))
        policy.commit(IN)
        router.delete(*entries)


@ptf_test
def a_claim_for_another_list(router: Router) -> None:
    """A claim for a list that no longer applies is ignored. The rules of the list that applies now
    decide.
    """
    policy = Policy(router)
    policy.guard(A, replace(lists.IN2, rule_set=0))
    policy.ready(IN)
    for family, dst in DESTINATION.items():
        policy.bind(A, lists.IN2)
        punt = first(router, udp_to(dst), "INBOUND_MISS")
        policy.rule(IN, family, 10, BYPASS)
        policy.bind(A, IN)
        comes_to(router, punt, reinjection(punt, DISCARD), sent(punt, TO_B, hit(IN, 2)))


@ptf_test
def without_a_claim_the_rules_decide(router: Router) -> None:
    """A packet that was punted without a list, and is re-injected, finds its verdict by rule."""
    policy = Policy(router)
    router.modify(router.entry("nexthop", {"nexthop_id": TO_B.id}, "resolve_neighbor", l3_if=B.id))
    held = [first(router, udp_to(dst), "NEIGHBOR_UNRESOLVED") for dst in DESTINATION.values()]
    router.modify(router.neighbor(TO_B))
    policy.guard(B, OUT)
    for family, punt in zip(DESTINATION, held, strict=True):
        policy.rule(OUT, family, 10, BYPASS)
        comes_to(router, punt, reinjection(punt), sent(punt, TO_B, hit(OUT, 2)))
        policy.rule(OUT, family, 20, DISCARD)
        comes_to(router, punt, reinjection(punt), refused("OUT", hit(OUT, 4)))


@ptf_test
def a_decrypted_packet_comes_back(router: Router) -> None:
    """A decrypted packet that the CPU re-injects gets its claim, although a rule with another
    bundle matches.
    """
    policy = with_bundles(router)
    for family, dst in DESTINATION.items():
        frame = decrypted(BUNDLE, A).on(arriving(ENGINE, udp_to(dst)))
        punt = punted(router, "INBOUND_MISS", FromPort(ENGINE.port, frame))
        policy.rule(IN, family, 10, Verdict("PROTECT", 7, OTHER_BUNDLE))
        comes_to(router, punt, reinjection(punt, PROTECT), sent(punt, TO_B, claim(IN, 5)))
        same(
            router.exchange(FromPort(ENGINE.port, frame)),
            dropped("INBOUND_WRONG_SA", hit(IN, 7)),
            frame,
        )
