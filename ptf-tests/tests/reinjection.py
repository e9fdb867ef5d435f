# SPDX-License-Identifier: Apache-2.0
"""Tests packets that are re-injected at the stage of their punt, with the punt's metadata and a
verdict.

The verdict in a packet-out is called a claim. A claim is counted once for its rule, at the stage
whose list the controller has searched. `policy.reinjection` copies all metadata of a punt, so the
metadata must be correct at every stage.
"""

from collections.abc import Mapping

from scapy.layers.l2 import Ether
from scapy.packet import Raw

from sluice_ptf.case import ptf_test
from sluice_ptf.frames import hop_decremented, tagged, untagged
from sluice_ptf.network import HOST_MAC
from sluice_ptf.packets import hops, ip4, ip6, tcp, too_deep, udp, udp_to
from sluice_ptf.policy import (
    ENGINE,
    IN,
    OUT,
    OUT2,
    Flow,
    Policy,
    Sa,
    Verdict,
    claim,
    decrypted,
    hit,
    reinjection,
)
from sluice_ptf.probe import FromCpu, FromPort, ProbeOutcome
from sluice_ptf.reinjected import (
    BUNDLE,
    BYPASS,
    DISCARD,
    OURS4,
    OURS6,
    PROTECT,
    SA,
    V4,
    V6,
    again,
    comes_to,
    dropped,
    first,
    flow_to,
    guarded,
    punted,
    sent,
)
from sluice_ptf.router import Router, arriving, leaving, routed
from sluice_ptf.schema import Value
from sluice_ptf.shim import ENCRYPT, Shim
from sluice_ptf.standard import OTHER_VRF, TO_B, TO_D, TO_E, A, B, D, E

# --- at the inbound stage -----------------------------------------------------


@ptf_test
def inbound_verdicts(router: Router) -> None:
    """An inbound claim takes effect without a cached flow, and is counted for its rule."""
    policy = guarded(router)
    policy.unbind(B)
    for dst in (V4, V6):
        punt = first(router, udp_to(dst), "INBOUND_MISS")
        rules = claim(IN, 2)
        comes_to(router, punt, reinjection(punt, BYPASS), sent(punt, TO_B, rules))
        rules = claim(IN, 4)
        comes_to(router, punt, reinjection(punt, DISCARD), dropped("INBOUND_DISCARD", rules))
        rules = claim(IN, 5)
        comes_to(router, punt, reinjection(punt, PROTECT), dropped("INBOUND_CLEARTEXT", rules))
        none = Verdict("NONE", rule=0)
        comes_to(router, punt, reinjection(punt, none), dropped("INBOUND_DISCARD", claim(IN, 0)))


@ptf_test
def inbound_verdicts_for_this_router(router: Router) -> None:
    """A packet for this router that is re-injected with a claim is delivered, as it would be with a
    cached verdict.
    """
    guarded(router)
    for dst in (OURS4, OURS6):
        punt = first(router, udp_to(dst), "INBOUND_MISS")
        delivered = router.packet_in(
            punt.frame,
            ingress_port=A.port,
            ingress_l3_if=A.id,
            reason="LOCAL",
            stage="LOCAL_DELIVERY",
            is_local=1,
            inbound_list_id=IN.id,
            inbound_generation=IN.generation,
        )
        expected = ProbeOutcome(punts=[delivered], punted={"LOCAL": 1}, rules=claim(IN, 2))
        comes_to(router, punt, reinjection(punt, BYPASS), expected)
        comes_to(router, punt, reinjection(punt, DISCARD), dropped("INBOUND_DISCARD", claim(IN, 4)))


@ptf_test
def inbound_verdicts_by_vlan_and_vrf(router: Router) -> None:
    """A re-injected frame keeps its VLAN tag, but its interface and VRF are those of the packet-out
    header.
    """
    policy = Policy(router)
    policy.guard(E, IN)
    punt = first(router, udp_to(V4), "INBOUND_MISS", by=E)
    assert punt.metadata["vrf"] == OTHER_VRF
    expected = ProbeOutcome(out=[(E.port, routed(punt.frame, TO_E))], rules=claim(IN, 2))
    comes_to(router, punt, reinjection(punt, BYPASS), expected)


@ptf_test
def decrypted_verdicts(router: Router) -> None:
    """A decrypted packet is admitted only by a claim that protects it by its own bundle."""
    policy = Policy(router)
    policy.engine()
    policy.ready(IN)
    policy.carries(BUNDLE, IN)
    for dst in (V4, V6):
        shim = decrypted(BUNDLE, A)
        frame = shim.on(arriving(ENGINE, udp_to(dst)))
        punt = punted(router, "INBOUND_MISS", FromPort(ENGINE.port, frame))
        expected = sent(punt, TO_B, claim(IN, 5))
        comes_to(router, punt, reinjection(punt, PROTECT), expected)
        for answer in (BYPASS, Verdict("PROTECT", 2, BUNDLE + 1), Verdict("PROTECT", 2, 0)):
            expected = dropped("INBOUND_WRONG_SA", claim(IN, 2))
            comes_to(router, punt, reinjection(punt, answer), expected)
        expected = dropped("INBOUND_DISCARD", claim(IN, 4))
        comes_to(router, punt, reinjection(punt, DISCARD), expected)


@ptf_test
def a_group_frame_stays_one(router: Router) -> None:
    """A broadcast frame with a unicast packet is not forwarded, even if a claim permits the packet
    (RFC 1812, 5.3.4).
    """
    guarded(router)
    for mac in ("ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:05"):
        frame = bytes(Ether(src=HOST_MAC, dst=mac) / udp_to(V4))
        punt = first(router, frame, "INBOUND_MISS")
        expected = dropped("NOT_FOR_ROUTER", claim(IN, 2))
        comes_to(router, punt, reinjection(punt, BYPASS), expected)


# --- at the outbound stage ----------------------------------------------------


@ptf_test
def outbound_verdicts(router: Router) -> None:
    """An outbound claim takes effect. The packet's inbound verdict is not counted a second time."""
    policy = guarded(router)
    for dst in (V4, V6):
        policy.flow(IN, flow_to(dst), Verdict("BYPASS", rule=1))
        punt = first(router, udp_to(dst), "OUTBOUND_MISS")
        comes_to(router, punt, reinjection(punt, BYPASS), sent(punt, TO_B, claim(OUT, 2)))
        expected = dropped("OUTBOUND_DISCARD", claim(OUT, 4))
        comes_to(router, punt, reinjection(punt, DISCARD), expected)
        shim = Shim(ENCRYPT, SA.engine, SA.bundle, SA.sa, ingress_l3_if=A.id)
        out = [(ENGINE.port, shim.on(hop_decremented(punt.frame)))]
        expected = ProbeOutcome(out=out, rules=claim(OUT, 5))
        comes_to(router, punt, reinjection(punt, PROTECT), expected)
        expected = dropped("OUTBOUND_DISCARD", claim(OUT, 0))
        comes_to(router, punt, reinjection(punt, Verdict("NONE", rule=0)), expected)
        expected = dropped("NO_SA", claim(OUT, 6))
        comes_to(router, punt, reinjection(punt, Verdict("PROTECT", 6, BUNDLE + 1)), expected)


@ptf_test
def outbound_verdicts_between_vlans(router: Router) -> None:
    """The ingress tag of the frame is replaced by the egress tag."""
    policy = Policy(router)
    policy.guard(D, OUT)
    for by in (A, D):
        punt = first(router, udp_to("10.4.0.9"), "OUTBOUND_MISS", by=by)
        expected = sent(punt, TO_D, claim(OUT, 2))
        comes_to(router, punt, reinjection(punt, BYPASS), expected)


@ptf_test
def nothing_is_punted_twice(router: Router) -> None:
    """The first packet of a flow is punted once for each list, then forwarded. This needs no cached
    flow.
    """
    guarded(router)
    whole, fragment = ("INBOUND_MISS", "OUTBOUND_MISS"), ("FRAGMENT", "FRAGMENT")
    for packet, (missed_first, missed_then) in (
        (udp_to(V4), whole),
        (udp_to(V6), whole),
        (ip4(V4, Raw(bytes(64)), proto=17, frag=9), fragment),
        (ip4(V4, tcp(), flags="MF"), fragment),
    ):
        inbound = first(router, packet, missed_first)
        outbound = again(router, reinjection(inbound, BYPASS), inbound.frame, missed_then)
        assert outbound.frame == inbound.frame
        header = reinjection(outbound, BYPASS)
        comes_to(router, outbound, header, sent(inbound, TO_B, claim(OUT, 2)))


@ptf_test
def the_whole_walk_to_a_neighbor(router: Router) -> None:
    """For a packet that is punted at three stages (inbound, outbound, neighbour), one claim is
    counted for each list.
    """
    guarded(router)
    unresolved = router.entry("nexthop", {"nexthop_id": TO_B.id}, "resolve_neighbor", l3_if=B.id)
    for dst in (V4, V6):
        router.modify(unresolved)
        inbound = first(router, udp_to(dst), "INBOUND_MISS")
        outbound = again(router, reinjection(inbound, BYPASS), inbound.frame, "OUTBOUND_MISS")
        header = reinjection(outbound, Verdict("BYPASS", rule=3))
        outcome = router.exchange(FromCpu(outbound.frame, header))
        assert outcome.rules == claim(OUT, 3)
        (held,) = outcome.punts
        assert outcome.punted == {"NEIGHBOR_UNRESOLVED": 1}
        router.modify(router.neighbor(TO_B))
        comes_to(router, held, reinjection(held), sent(held, TO_B))


@ptf_test
def local_verdicts_keep_the_frame(router: Router) -> None:
    """A frame that the host sent by an interface leaves there with its own MAC addresses."""
    policy = guarded(router)
    policy.bind(D, OUT)
    for interface in (B, D):
        for packet in (ip4("224.0.0.5", Raw(bytes(24)), proto=89, ttl=1), udp_to(V6, hlim=1)):
            frame = bytes(Ether(src=interface.mac, dst="02:cc:00:00:00:01") / packet)
            origin: Mapping[str, Value] = {
                "kind": "LOCAL_ORIGIN",
                "egress_l3_if": interface.id,
            }
            punt = again(router, origin, frame, "OUTBOUND_MISS")
            out = [(interface.port, tagged(frame, interface.vlan))]
            expected = ProbeOutcome(out=out, rules=claim(OUT, 2))
            comes_to(router, punt, reinjection(punt, BYPASS), expected)
            expected = dropped("OUTBOUND_DISCARD", claim(OUT, 4))
            comes_to(router, punt, reinjection(punt, DISCARD), expected)
            shim = Shim(ENCRYPT, SA.engine, SA.bundle, SA.sa)
            expected = ProbeOutcome(out=[(ENGINE.port, shim.on(frame))], rules=claim(OUT, 5))
            comes_to(router, punt, reinjection(punt, PROTECT), expected)


@ptf_test
def local_verdicts_by_routing(router: Router) -> None:
    """A packet that the controller sends to routing gets its MAC addresses there."""
    guarded(router)
    for dst in (V4, V6):
        frame = bytes(Ether(src="02:00:00:00:00:00", dst="02:00:00:00:00:00") / udp_to(dst))
        punt = again(router, {"kind": "LOCAL_ORIGIN"}, frame, "OUTBOUND_MISS")
        expected = ProbeOutcome(out=[(B.port, leaving(frame, TO_B))], rules=claim(OUT, 2))
        comes_to(router, punt, reinjection(punt, BYPASS), expected)


@ptf_test
def local_frames_that_did_not_fit(router: Router) -> None:
    """A local packet above the MTU is punted at rewrite with its verdict.

    Its re-injected fragments take the same path.
    """
    policy = guarded(router)
    router.modify(policy.sa_entry(Sa(BUNDLE, path_mtu=600, overhead=50)))
    large, small = (ip4(V4, udp(size=size), src="10.2.0.1") for size in (800, 400))
    policy.flow(OUT, Flow("10.2.0.1", V4, is_local=1), PROTECT)
    frame = bytes(Ether(src=B.mac, dst=TO_B.mac) / large)
    outcome = router.exchange(FromCpu(frame, {"kind": "LOCAL_ORIGIN", "egress_l3_if": B.id}))
    assert outcome.rules == hit(OUT, 5)
    (punt,) = outcome.punts
    assert outcome.punted == {"MTU_EXCEEDED": 1}
    fragment = bytes(Ether(src=B.mac, dst=TO_B.mac) / small)
    shim = Shim(ENCRYPT, SA.engine, SA.bundle, SA.sa)
    expected = ProbeOutcome(out=[(ENGINE.port, shim.on(fragment))])
    router.packet_out(fragment, expected, **reinjection(punt))
    policy.unbind(B)
    expected = ProbeOutcome(out=[(B.port, fragment)])
    router.packet_out(fragment, expected, **reinjection(punt))


# --- at routing and rewrite ---------------------------------------------------


@ptf_test
def at_routing(router: Router) -> None:
    """A packet re-injected at routing keeps its inbound verdict. The outbound list then applies."""
    policy = guarded(router)
    policy.flow(IN, flow_to("192.0.2.1"), BYPASS)
    punt = first(router, udp_to("192.0.2.1"), "NO_ROUTE")
    router.route("192.0.2.0/24", nexthop_id=TO_B.id)
    outbound = again(router, reinjection(punt), punt.frame, "OUTBOUND_MISS")
    assert outbound.metadata["inbound_list_id"] == IN.id
    expected = sent(punt, TO_B, claim(OUT, 2))
    comes_to(router, outbound, reinjection(outbound, BYPASS), expected)
    policy.flow(OUT, flow_to("192.0.2.1"), PROTECT)
    shim = Shim(ENCRYPT, SA.engine, SA.bundle, SA.sa, ingress_l3_if=A.id)
    expected = ProbeOutcome(
        out=[(ENGINE.port, shim.on(hop_decremented(punt.frame)))], rules=hit(OUT, 5)
    )
    comes_to(router, punt, reinjection(punt), expected)


@ptf_test
def at_rewrite(router: Router) -> None:
    """Fragments that are re-injected at rewrite carry both verdicts.

    At this stage too, they are dropped if a verdict is stale.
    """
    policy = guarded(router)
    for dst in (V4, V6):
        policy.flow(IN, flow_to(dst), BYPASS)
        policy.flow(OUT, flow_to(dst), PROTECT)
    router.modify(policy.sa_entry(Sa(BUNDLE, path_mtu=1280, overhead=80)))
    for large, small in (
        (ip4(V4, udp(size=1300)), ip4(V4, udp(size=600))),
        (ip6(V6, udp(size=1300)), ip6(V6, udp(size=600))),
    ):
        outcome = router.exchange(FromPort(A.port, arriving(A, large)))
        assert outcome.rules == hit(IN, 2) | hit(OUT, 5)
        (punt,) = outcome.punts
        piece = arriving(A, small)
        shim = Shim(ENCRYPT, SA.engine, SA.bundle, SA.sa, ingress_l3_if=A.id)
        expected = ProbeOutcome(out=[(ENGINE.port, shim.on(hop_decremented(piece)))])
        router.packet_out(piece, expected, **reinjection(punt))
        policy.commit(OUT.edited())
        router.packet_out(piece, dropped("STALE_VERDICT"), **reinjection(punt))
        policy.commit(OUT)
        policy.bind(B, OUT2)
        router.packet_out(piece, dropped("LIST_NOT_READY"), **reinjection(punt))
        policy.bind(B, OUT)


@ptf_test
def a_verdict_of_none_is_no_claim(router: Router) -> None:
    """A packet that was punted without verdicts is looked up, after re-injection, in the lists that
    apply to its path now.
    """
    policy = Policy(router)
    router.modify(router.entry("nexthop", {"nexthop_id": TO_B.id}, "resolve_neighbor", l3_if=B.id))
    held = first(router, udp_to(V4), "NEIGHBOR_UNRESOLVED")
    router.modify(router.neighbor(TO_B))
    policy.guard(B, OUT)
    again(router, reinjection(held), held.frame, "OUTBOUND_MISS")
    policy.guard(A, IN)
    again(router, reinjection(held), held.frame, "INBOUND_MISS")


# --- packets that the parser cannot read completely ---------------------------


@ptf_test
def deep_chains_come_back(router: Router) -> None:
    """A packet with too many headers is punted once at each stage with a list, and then forwarded
    because of its claims.
    """
    guarded(router)
    for dst in (V4, V6):
        inbound = first(router, too_deep(dst), "EXTENSION_HEADERS")
        outbound = again(router, reinjection(inbound, BYPASS), inbound.frame, "EXTENSION_HEADERS")
        assert outbound.metadata["stage"] != inbound.metadata["stage"]
        expected = sent(inbound, TO_B, claim(OUT, 2))
        comes_to(router, outbound, reinjection(outbound, BYPASS), expected)
        expected = dropped("INBOUND_DISCARD", claim(IN, 4))
        comes_to(router, inbound, reinjection(inbound, DISCARD), expected)


@ptf_test
def options_come_back_to_routing(router: Router) -> None:
    """A packet with options re-enters at routing. The outbound list then applies to the packet."""
    policy = guarded(router)
    policy.unbind(A)
    options = first(router, too_deep(V4), "IP_OPTIONS")
    outbound = again(router, reinjection(options), options.frame, "EXTENSION_HEADERS")
    expected = sent(options, TO_B, claim(OUT, 2))
    comes_to(router, outbound, reinjection(outbound, BYPASS), expected)


# --- re-injections that no controller sends -----------------------------------


@ptf_test
def no_stage_is_skipped(router: Router) -> None:
    """A re-injected packet without verdicts is looked up in the list of every stage."""
    guarded(router)
    frame = arriving(A, udp_to(V4))
    header: Mapping[str, Value] = {
        "kind": "REINJECT",
        "ingress_l3_if": A.id,
        "nexthop_id": TO_B.id,
    }
    for stage in ("INBOUND", "ROUTING", "OUTBOUND", "REWRITE"):
        again(router, {**header, "stage": stage}, frame, "INBOUND_MISS")
        inbound = {"inbound_list_id": IN.id, "inbound_generation": IN.generation}
        if stage != "INBOUND":
            again(router, {**header, **inbound, "stage": stage}, frame, "OUTBOUND_MISS")


@ptf_test
def own_packets_have_no_inbound_stage(router: Router) -> None:
    """Packets that this router has made or that its engine has encrypted cannot be re-injected at
    the inbound stage.
    """
    guarded(router)
    frame = arriving(A, udp_to(V4, **hops(V4, 9)))
    for origin in ("LOCAL", "ENCRYPTED"):
        expected = dropped("PACKET_OUT_INVALID")
        router.packet_out(frame, expected, kind="REINJECT", stage="INBOUND", origin=origin)


@ptf_test
def no_other_origins(router: Router) -> None:
    """Drops re-injected packets with an unknown origin. Otherwise they would bypass the TTL check
    and the policy.
    """
    guarded(router)
    frame = arriving(A, udp_to(V4, **hops(V4, 1)))
    header: Mapping[str, Value] = {
        "kind": "REINJECT",
        "ingress_l3_if": A.id,
        "egress_l3_if": B.id,
        "nexthop_id": TO_B.id,
    }
    for stage in ("INBOUND", "ROUTING", "OUTBOUND", "REWRITE"):
        for origin in (4, 5, 8, 0x10, 0x20, 0x40, 0x80, 0xFF):
            for bundle in (0, BUNDLE):
                claim = {"stage": stage, "origin": origin, "bundle": bundle}
                router.packet_out(frame, dropped("PACKET_OUT_INVALID"), **header, **claim)


@ptf_test
def an_unguarded_way_needs_no_claim(router: Router) -> None:
    """A claim for a list is ignored if the interface is not bound to any list."""
    Policy(router)
    frame = arriving(A, udp_to(V4))
    claims: Mapping[str, Value] = {
        "verdict": "DISCARD",
        "list_id": OUT.id,
        "generation": 1,
        "inbound_list_id": IN.id,
        "inbound_generation": 1,
        "ingress_l3_if": A.id,
        "nexthop_id": TO_B.id,
    }
    expected = ProbeOutcome(out=[(B.port, routed(untagged(frame), TO_B))])
    for stage in ("INBOUND", "ROUTING", "OUTBOUND", "REWRITE"):
        router.packet_out(frame, expected, kind="REINJECT", stage=stage, **claims)
