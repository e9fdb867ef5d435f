# SPDX-License-Identifier: Apache-2.0
"""Tests the packets that an engine may return. No other port may send frames with a shim."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scapy.layers.inet6 import IPv6ExtHdrFragment
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw

from sluice_ptf.case import ptf_test
from sluice_ptf.frames import hop_decremented
from sluice_ptf.network import HOST4, HOST6, HOST_MAC, Interface
from sluice_ptf.packets import arp, hops, ip4, ip6, udp, udp_to
from sluice_ptf.policy import (
    ENGINE,
    IN,
    OUT,
    Flow,
    Policy,
    Verdict,
    decrypted,
    encrypted,
    hit,
)
from sluice_ptf.probe import ProbeOutcome
from sluice_ptf.protection import (
    BUNDLE,
    ESP_SOURCES,
    FLOWS,
    OURS4,
    SA,
    V4,
    V6,
    protected,
    with_engine,
)
from sluice_ptf.router import Router, arriving, leaving, routed
from sluice_ptf.schema import Value
from sluice_ptf.shim import DECRYPT, DECRYPTED, ENCRYPT, ENCRYPTED, ESP, Shim, esp
from sluice_ptf.standard import OTHER_VRF, TO_B, TO_E, A, B, C, D, E

# --- the engine's output ------------------------------------------------------


def esp_packets() -> list[Packet]:
    """Returns ESP packets of this router to a peer behind B, for IPv4 and IPv6."""
    return [
        ip4(V4, Raw(esp(0x1001)), proto=ESP, src="10.2.0.1"),
        ip4(V4, Raw(esp(0x1001)), proto=ESP, src="10.2.0.1", ttl=1),
        ip6(V6, Raw(esp(0x1001)), nh=ESP, src="2001:db8:2::1"),
        ip6(V6, Raw(esp(0x1001)), nh=ESP, src="2001:db8:2::1", hlim=1),
    ]


@ptf_test
def encrypted_is_routed(router: Router) -> None:
    """An encrypted packet is routed by its outer address and keeps its TTL.

    No outbound list applies to the packet.
    """
    policy = protected(router)
    policy.guard(A, IN)
    policy.sends_from(BUNDLE, *ESP_SOURCES, vrf=OTHER_VRF)
    for packet in esp_packets():
        sent = leaving(arriving(ENGINE, packet), TO_B)
        policy.from_engine(encrypted(A, BUNDLE), packet, ProbeOutcome(out=[(B.port, sent)]))
        sent = leaving(arriving(ENGINE, packet), TO_E)
        expected = ProbeOutcome(out=[(E.port, sent)])
        policy.from_engine(encrypted(A, BUNDLE, vrf=OTHER_VRF), packet, expected)


@ptf_test
def encrypted_is_esp_of_its_bundle(router: Router) -> None:
    """Of the packets that the engine marks as encrypted, only ESP from an address of the bundle
    passes.

    The check is needed because no SPD list applies to such packets.
    """
    policy = with_engine(router)
    invalid = ProbeOutcome(drops={"SHIM_INVALID": 1})
    whole4, _, whole6, _ = esp_packets()
    nat_t = udp(dport=4500, sport=4500, size=0)
    for packet in (
        udp_to(V4, src="10.2.0.1"),  # cleartext
        udp_to(V6, src="2001:db8:2::1"),
        ip4(V4, Raw(esp(0x1001)), proto=51, src="10.2.0.1"),
        ip4(V4, nat_t / Raw(bytes(40)), src="10.2.0.1"),  # IKE
        ip4(V4, nat_t / Raw(b"\xff"), src="10.2.0.1"),  # a NAT keep-alive
        ip4(V4, udp(dport=4501, sport=31000, size=0) / Raw(esp(1)), src="10.2.0.1"),
        ip4(V4, Raw(esp(0x1001)), proto=ESP, src="10.2.0.2"),  # not the bundle's address
        ip4(V4, Raw(esp(0x1001)), proto=ESP, src="10.2.0.1", flags="MF"),
        ip4(V4, Raw(esp(0x1001)), proto=ESP, src="10.2.0.1", frag=9),
        ip6(V6, Raw(esp(0x1001)), nh=ESP, src="2001:db8:2::2"),
        ip6(V6, IPv6ExtHdrFragment(m=1, nh=ESP) / Raw(esp(1)), src="2001:db8:2::1"),
    ):
        policy.from_engine(encrypted(A, BUNDLE), packet, invalid)
    for packet in (whole4, whole6):
        for bundle, vrf in ((0, 0), (BUNDLE ^ 1, 0), (BUNDLE, OTHER_VRF)):
            policy.from_engine(encrypted(A, bundle, vrf=vrf), packet, invalid)
        sent = leaving(arriving(ENGINE, packet), TO_B)
        policy.from_engine(encrypted(A, BUNDLE), packet, ProbeOutcome(out=[(B.port, sent)]))
    in_udp = ip4(V4, nat_t / Raw(esp(0x1001)), src="10.2.0.1")
    sent = leaving(arriving(ENGINE, in_udp), TO_B)
    policy.from_engine(encrypted(A, BUNDLE), in_udp, ProbeOutcome(out=[(B.port, sent)]))


@ptf_test
def decrypted_is_of_its_bundles_vrf(router: Router) -> None:
    """A bundle's binding to an SPD list holds in one VRF. Packets that the bundle has decrypted in
    another VRF are dropped.
    """
    policy = with_engine(router)
    policy.ready(IN)
    policy.carries(BUNDLE, IN)
    for dst, flow in FLOWS.items():
        policy.flow(IN, replace(flow, bundle=BUNDLE), Verdict("PROTECT", 3, BUNDLE))
        elsewhere = decrypted(BUNDLE, E, vrf=OTHER_VRF)
        policy.from_engine(elsewhere, udp_to(dst), ProbeOutcome(drops={"NO_POLICY_BINDING": 1}))


@ptf_test
def encrypted_needs_no_binding(router: Router) -> None:
    """An encrypted packet needs no SPD binding, neither of its egress nor of its ingress
    interface.
    """
    policy = with_engine(router)
    router.delete(router.unbound(A)[0], router.unbound(B)[1])
    for packet in esp_packets():
        sent = leaving(arriving(ENGINE, packet), TO_B)
        policy.from_engine(encrypted(A, BUNDLE), packet, ProbeOutcome(out=[(B.port, sent)]))


@ptf_test
def encrypted_and_held_up(router: Router) -> None:
    """An encrypted packet is punted if its neighbour is unresolved, if it exceeds the MTU, or if it
    has no route.

    Its punt has origin ENCRYPTED. When the packet is re-injected, no SPD list applies.
    """
    policy = protected(router)
    unresolved = router.entry("nexthop", {"nexthop_id": TO_B.id}, "resolve_neighbor", l3_if=B.id)
    tight = router.egress(Interface(B.id, B.port, B.mac, mtu=40))
    came: Mapping[str, Value] = {
        "ingress_port": ENGINE.port,
        "ingress_l3_if": A.id,
        "origin": "ENCRYPTED",
    }
    way: Mapping[str, Value] = {
        "stage": "REWRITE",
        "egress_l3_if": B.id,
        "nexthop_id": TO_B.id,
    }
    for packet in esp_packets():
        frame = arriving(ENGINE, packet)
        for held, reason, freed in (
            (unresolved, "NEIGHBOR_UNRESOLVED", router.neighbor(TO_B)),
            (tight, "MTU_EXCEEDED", router.egress(B)),
        ):
            router.modify(held)
            punt = router.packet_in(frame, reason=reason, **came, **way)
            expected = ProbeOutcome(punts=[punt], punted={reason: 1})
            policy.from_engine(encrypted(A, BUNDLE), packet, expected)
            router.modify(freed)
            expected = ProbeOutcome(out=[(B.port, leaving(frame, TO_B))])
            router.packet_out(frame, expected, kind="REINJECT", **came, **way)
    nowhere = ip4("192.0.2.9", Raw(esp(0x1001)), proto=ESP, src="10.2.0.1")
    frame = arriving(ENGINE, nowhere)
    punt = router.packet_in(frame, reason="NO_ROUTE", stage="ROUTING", **came)
    policy.from_engine(
        encrypted(A, BUNDLE), nowhere, ProbeOutcome(punts=[punt], punted={"NO_ROUTE": 1})
    )
    router.route("192.0.2.0/24", nexthop_id=TO_B.id)
    expected = ProbeOutcome(out=[(B.port, leaving(frame, TO_B))])
    router.packet_out(frame, expected, kind="REINJECT", stage="ROUTING", **came)


@ptf_test
def decrypted_to_forward(router: Router) -> None:
    """A decrypted packet is forwarded like any other packet.

    Its TTL is decremented, and the outbound list applies.
    """
    policy = with_engine(router)
    policy.ready(IN)
    policy.carries(BUNDLE, IN)
    policy.guard(B, OUT)
    for dst, flow in FLOWS.items():
        policy.flow(IN, replace(flow, bundle=BUNDLE), Verdict("PROTECT", 3, BUNDLE))
        frame = arriving(ENGINE, udp_to(dst))
        punt = router.packet_in(
            frame,
            ingress_port=ENGINE.port,
            ingress_l3_if=A.id,
            reason="OUTBOUND_MISS",
            stage="OUTBOUND",
            origin="DECRYPTED",
            bundle=BUNDLE,
            egress_l3_if=B.id,
            nexthop_id=TO_B.id,
            list_id=OUT.id,
            generation=OUT.generation,
            inbound_list_id=IN.id,
            inbound_generation=IN.generation,
        )
        rules = hit(IN, 3)
        expected = ProbeOutcome(punts=[punt], punted={"OUTBOUND_MISS": 1}, rules=rules)
        policy.from_engine(decrypted(BUNDLE, A), udp_to(dst), expected)
        policy.flow(OUT, flow, Verdict("BYPASS", rule=2))
        expected = ProbeOutcome(out=[(B.port, routed(frame, TO_B))], rules=rules | hit(OUT, 2))
        policy.from_engine(decrypted(BUNDLE, A), udp_to(dst), expected)


@ptf_test
def hub_and_spoke(router: Router) -> None:
    """A packet decrypted from one peer is encrypted for another peer, with its TTL decremented
    once.
    """
    policy = protected(router)
    policy.ready(IN)
    policy.carries(7, IN)
    for dst, flow in FLOWS.items():
        policy.flow(IN, replace(flow, bundle=7), Verdict("PROTECT", 3, sa_bundle=7))
        frame = arriving(ENGINE, udp_to(dst))
        shim = Shim(ENCRYPT, SA.engine, SA.bundle, SA.sa, ingress_l3_if=C.id)
        out = [(ENGINE.port, shim.on(hop_decremented(frame)))]
        expected = ProbeOutcome(out=out, rules=hit(IN, 3) | hit(OUT, 5))
        policy.from_engine(decrypted(7, C), udp_to(dst), expected)


@ptf_test
def decrypted_with_a_last_hop(router: Router) -> None:
    """A decrypted packet with TTL 1 is delivered to this router, or punted as TTL_EXCEEDED."""
    policy = with_engine(router)
    policy.ready(IN)
    policy.carries(BUNDLE, IN)
    verdict = Verdict("PROTECT", 3, BUNDLE)
    common: Mapping[str, Value] = {
        "ingress_port": ENGINE.port,
        "ingress_l3_if": A.id,
        "origin": "DECRYPTED",
        "bundle": BUNDLE,
        "inbound_list_id": IN.id,
        "inbound_generation": IN.generation,
    }
    way: Mapping[str, Value] = {
        "stage": "REWRITE",
        "egress_l3_if": B.id,
        "nexthop_id": TO_B.id,
    }
    here: Mapping[str, Value] = {"stage": "LOCAL_DELIVERY", "is_local": 1}
    for dst, local, reason, where in (
        (OURS4, 1, "LOCAL", here),
        (V4, 0, "TTL_EXCEEDED", way),
        (V6, 0, "TTL_EXCEEDED", way),
    ):
        source = HOST6 if ":" in dst else HOST4
        policy.flow(IN, Flow(source, dst, is_local=local, bundle=BUNDLE), verdict)
        packet = udp_to(dst, **hops(dst, 1))
        punt = router.packet_in(arriving(ENGINE, packet), reason=reason, **where, **common)
        expected = ProbeOutcome(punts=[punt], punted={reason: 1}, rules=hit(IN, 3))
        policy.from_engine(decrypted(BUNDLE, A), packet, expected)


# --- forged shims -------------------------------------------------------------


@ptf_test
def a_forged_shim(router: Router) -> None:
    """Drops a frame with a shim that is received at a front-panel port, with any contents, tag and
    MAC addresses.
    """
    policy = with_engine(router)
    policy.ready(IN)
    policy.carries(BUNDLE, IN)
    policy.flow(IN, replace(FLOWS[V4], bundle=BUNDLE), Verdict("PROTECT", 3, BUNDLE))
    for kind in (0, ENCRYPT, ENCRYPTED, DECRYPT, DECRYPTED, 255):
        shim = Shim(kind, bundle=BUNDLE, sa=1, ingress_l3_if=A.id)
        for dst in FLOWS:
            for source in (A, B, C):
                router.drops(source, shim.on(arriving(source, udp_to(dst))), "FORGED_SHIM")
            frame = shim.on(arriving(D, udp_to(dst)))
            tag = bytes(Dot1Q(vlan=D.vlan, type=0x88B5))
            tagged = frame[:12] + b"\x81\x00" + tag + frame[14:]
            router.drops(D, tagged, "FORGED_SHIM")
            broadcast = b"\xff" * 6 + shim.on(arriving(A, udp_to(dst)))[6:]
            router.drops(A, broadcast, "FORGED_SHIM")


@ptf_test
def a_port_of_no_interface_has_no_shim(router: Router) -> None:
    """Drops an untagged frame with a shim on a port that has only VLAN interfaces."""
    Policy(router)
    frame = encrypted(A).on(arriving(D, udp_to(V4)))
    router.drops(ENGINE, frame, "NO_INTERFACE")


@ptf_test
def an_engine_speaks_in_shims_only(router: Router) -> None:
    """Drops frames from an engine if they have no shim, if the shim's kind is a request or unknown,
    or if it names bundle 0.
    """
    policy = with_engine(router)
    for packet in (udp_to(V4), udp_to(V6), udp_to(OURS4), arp(OURS4)):
        router.drops(ENGINE, packet, "SHIM_INVALID")
    invalid = ProbeOutcome(drops={"SHIM_INVALID": 1})
    for kind in (0, ENCRYPT, DECRYPT, 5, 255):
        for dst in FLOWS:
            policy.from_engine(Shim(kind, bundle=BUNDLE, ingress_l3_if=1), udp_to(dst), invalid)
    for dst in FLOWS:
        policy.from_engine(Shim(DECRYPTED, bundle=0, ingress_l3_if=1), udp_to(dst), invalid)


@ptf_test
def an_engine_returns_well_formed_ip(router: Router) -> None:
    """Packets from an engine pass the same header and address checks as all others."""
    policy = with_engine(router)
    bare = Ether(src=HOST_MAC, dst=A.mac)
    sealed: dict[str, Any] = {"proto": ESP, "src": "10.2.0.1"}
    for packet, reason in (
        (ip4(V4, Raw(esp(1)), chksum=1, **sealed), "BAD_CHECKSUM"),
        (ip4(V4, Raw(esp(1)), len=200, **sealed), "BAD_LENGTH"),
        (ip4("127.0.0.1", Raw(esp(1)), **sealed), "MARTIAN"),
    ):
        policy.from_engine(encrypted(A, BUNDLE), packet, ProbeOutcome(drops={reason: 1}))
    for packet, reason in (
        (udp_to(V4, src="127.0.0.1"), "MARTIAN"),
        (udp_to(V4, src="10.2.0.1"), "MARTIAN"),  # this router's own address as source
        (ip4(V4, udp(), chksum=1), "BAD_CHECKSUM"),
        (ip4(V4, udp(), len=200), "BAD_LENGTH"),
        (ip4(V4, udp(), version=5), "MALFORMED"),
        (bare / arp(OURS4) / Raw(bytes(18)), "MALFORMED"),
        (Ether(src=HOST_MAC, dst=A.mac, type=0x88B5) / Raw(bytes(46)), "MALFORMED"),
    ):
        policy.from_engine(decrypted(BUNDLE, A), packet, ProbeOutcome(drops={reason: 1}))
    truncated = encrypted(A).on(arriving(ENGINE, udp_to(V4)))[:24]
    router.drops(ENGINE, truncated, "SHIM_INVALID")
