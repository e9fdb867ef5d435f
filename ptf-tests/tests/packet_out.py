# SPDX-License-Identifier: Apache-2.0
"""Tests the control packet_io: the three kinds of packet-out, which contents they may have, and at
which stages they enter the pipeline.
"""

from collections.abc import Mapping

from scapy.layers.inet6 import ICMPv6ND_NS
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw

from sluice_ptf.case import bare_ptf_test, ptf_test
from sluice_ptf.frames import tagged
from sluice_ptf.packets import arp, hops, ip4, ip6, tcp, udp, udp_to
from sluice_ptf.router import (
    HOST_MAC,
    FromCpu,
    FromPort,
    Interface,
    Nexthop,
    ProbeOutcome,
    Router,
    arriving,
    leaving,
    routed,
)
from sluice_ptf.schema import Value
from sluice_ptf.standard import OTHER_VRF, TO_B, TO_D, TO_E, A, B, D

OURS4 = "10.1.0.1"
V4 = "10.2.0.9"
V6 = "2001:db8:2::9"
LISTED = (
    Ether(src=B.mac, dst="ff:ff:ff:ff:ff:ff") / arp(V4) / Raw(bytes(18)),
    Ether(src=B.mac, dst="01:80:c2:00:00:0e", type=0x88CC) / Raw(bytes(46)),
    Ether(src=B.mac, dst="01:80:c2:00:00:14", type=46) / Raw(bytes(46)),
    Ether(src=B.mac, dst="09:00:2b:00:00:05", type=1497) / Raw(b"\xfe\xfe\x03" + bytes(1494)),
)


def made_here(packet: Packet, mac: str = "02:00:00:00:00:00") -> bytes:
    """Returns a frame of the controller. Routing replaces its MAC addresses."""
    return bytes(Ether(src=mac, dst=mac) / packet)


def leaves(port: int, frame: bytes) -> ProbeOutcome:
    """Returns the expected outcome of one frame that leaves by a port."""
    return ProbeOutcome(out=[(port, frame)])


def dropped(reason: str) -> ProbeOutcome:
    """Returns the expected outcome of one drop for this reason."""
    return ProbeOutcome(drops={reason: 1})


def unresolve(router: Router, nexthop: Nexthop) -> None:
    """Sets a neighbour to unresolved."""
    match: Mapping[str, Value] = {"nexthop_id": nexthop.id}
    router.modify(router.entry("nexthop", match, "resolve_neighbor", l3_if=nexthop.interface.id))


# --- TO_PORT ------------------------------------------------------------------


@bare_ptf_test
def to_a_bare_port(router: Router) -> None:
    """TO_PORT sends ARP, LLDP and IS-IS frames unchanged. It needs no table entry."""
    for frame in LISTED:
        for port in (1, 4):
            expected = leaves(port, bytes(frame))
            router.packet_out(frame, expected, kind="TO_PORT", egress_port=port)


@bare_ptf_test
def to_a_bare_port_with_a_tag(router: Router) -> None:
    """TO_PORT keeps the tag that the controller has added."""
    frame = bytes(Ether(src=D.mac, dst="ff:ff:ff:ff:ff:ff") / Dot1Q(vlan=100) / arp(V4))
    router.packet_out(frame, leaves(4, frame), kind="TO_PORT", egress_port=4)


@ptf_test
def to_an_interface(router: Router) -> None:
    """TO_PORT with an interface takes the interface's port and tag, but keeps the MAC addresses."""
    for frame in LISTED:
        router.packet_out(frame, leaves(B.port, bytes(frame)), kind="TO_PORT", egress_l3_if=B.id)
        if frame.type >= 0x600:
            expected = leaves(D.port, tagged(bytes(frame), D.vlan))
            router.packet_out(frame, expected, kind="TO_PORT", egress_l3_if=D.id)


@ptf_test
def to_an_interface_that_is_not(router: Router) -> None:
    """A packet-out to an interface that does not exist is dropped."""
    expected = dropped("NO_EGRESS_INTERFACE")
    router.packet_out(LISTED[0], expected, kind="TO_PORT", egress_l3_if=99, egress_port=1)


@ptf_test
def ip_may_not_step_around_policy(router: Router) -> None:
    """TO_PORT refuses IP and unlisted types, also if tagged, in a shim, truncated or malformed."""
    ether = Ether(src=B.mac, dst=TO_B.mac)
    for frame in (
        ether / udp_to(V4),
        ether / udp_to(V6),
        ether / Dot1Q(vlan=100) / udp_to(V4),
        Ether(src=B.mac, dst=TO_B.mac, type=0x88B5) / Raw(bytes(16)) / udp_to(V4),
        Ether(src=B.mac, dst=TO_B.mac, type=0x8847) / Raw(bytes(46)),
        Ether(src=B.mac, dst=TO_B.mac, type=0x0800) / Raw(b"\x45"),
        Ether(src=B.mac, dst=TO_B.mac, type=0x86DD) / Raw(bytes(8)),
        Ether(src=B.mac, dst=TO_B.mac, type=0x0800) / Raw(b"\x65" + bytes(45)),
        ether / Dot1Q(vlan=1) / Dot1Q(vlan=2) / udp_to(V4),
        Ether(src=B.mac, dst="01:80:c2:00:00:00", type=46) / Raw(bytes(46)),
    ):
        for way in ({"egress_port": 2}, {"egress_l3_if": B.id}):
            router.packet_out(frame, dropped("PACKET_OUT_NOT_ALLOWED"), kind="TO_PORT", **way)


# --- LOCAL_ORIGIN -------------------------------------------------------------


@ptf_test
def local_origin_to_an_interface(router: Router) -> None:
    """The host's frame leaves with its own MAC addresses and TTL; the interface adds its tag."""
    for packet in (
        udp_to(V4, src="10.2.0.1", ttl=1),
        ip4(V4, tcp(dport=179), src="10.2.0.1", ttl=255),
        ip4("224.0.0.5", Raw(bytes(24)), proto=89, src="10.2.0.1", ttl=1),
        udp_to("255.255.255.255", src="0.0.0.0"),
        udp_to(V6, hlim=1),
        ip6("ff02::1:ff00:9", ICMPv6ND_NS(tgt=V6), src="fe80::1", hlim=255),
    ):
        frame = bytes(Ether(src=B.mac, dst="02:cc:00:00:00:01") / packet)
        for interface in (B, D):
            expected = leaves(interface.port, tagged(frame, interface.vlan))
            router.packet_out(frame, expected, kind="LOCAL_ORIGIN", egress_l3_if=interface.id)


@ptf_test
def local_origin_that_does_not_fit(router: Router) -> None:
    """LOCAL_ORIGIN punts a packet above the MTU, with its egress interface and origin."""
    router.modify(router.egress(Interface(B.id, B.port, B.mac, mtu=600)))
    for packet in (ip4(V4, udp(size=573)), ip6(V6, udp(size=553))):
        frame = bytes(Ether(src=B.mac, dst=TO_B.mac) / packet)
        punt = router.packet_in(
            frame, reason="MTU_EXCEEDED", stage="REWRITE", origin="LOCAL", egress_l3_if=B.id
        )
        expected = ProbeOutcome(punts=[punt], punted={"MTU_EXCEEDED": 1})
        router.packet_out(frame, expected, kind="LOCAL_ORIGIN", egress_l3_if=B.id)


@ptf_test
def local_origin_by_routing(router: Router) -> None:
    """LOCAL_ORIGIN with interface 0 routes the packet in the header's VRF and keeps its TTL."""
    for dst in (V4, V6):
        for left in (1, 2, 64):
            frame = made_here(udp_to(dst, **hops(dst, left)))
            expected = leaves(B.port, leaving(frame, TO_B))
            router.packet_out(frame, expected, kind="LOCAL_ORIGIN")
            expected = leaves(TO_E.interface.port, leaving(frame, TO_E))
            router.packet_out(frame, expected, kind="LOCAL_ORIGIN", vrf=OTHER_VRF)


@ptf_test
def local_origin_without_a_way(router: Router) -> None:
    """LOCAL_ORIGIN punts its packet with origin LOCAL if it has no route or no resolved
    neighbour.
    """
    router.route("198.51.100.0/24", "blackhole")
    router.route("203.0.113.0/24", "punt_route", reason="UNREACHABLE")
    unresolve(router, TO_B)
    for dst, reason, way in (
        ("192.0.2.1", "NO_ROUTE", {"stage": "ROUTING"}),
        ("203.0.113.1", "UNREACHABLE", {"stage": "ROUTING"}),
        (
            V4,
            "NEIGHBOR_UNRESOLVED",
            {"stage": "REWRITE", "egress_l3_if": B.id, "nexthop_id": TO_B.id},
        ),
    ):
        frame = made_here(udp_to(dst, ttl=1))
        punt = router.packet_in(frame, reason=reason, origin="LOCAL", **way)
        expected = ProbeOutcome(punts=[punt], punted={reason: 1})
        router.packet_out(frame, expected, kind="LOCAL_ORIGIN")
    frame = made_here(udp_to("198.51.100.1"))
    router.packet_out(frame, dropped("BLACKHOLE"), kind="LOCAL_ORIGIN")


@ptf_test
def local_origin_must_be_ip(router: Router) -> None:
    """LOCAL_ORIGIN refuses frames that are not IP, with and without an interface."""
    frames = [bytes(frame) for frame in LISTED]
    frames.append(bytes(Ether(src=B.mac, dst=TO_B.mac, type=0x88B5) / Raw(bytes(46))))
    frames.append(bytes(Ether(src=B.mac, dst=TO_B.mac, type=0x0800) / Raw(b"\x45\0\0")))
    for frame in frames:
        for interface in (0, B.id):
            expected = dropped("PACKET_OUT_NOT_ALLOWED")
            router.packet_out(frame, expected, kind="LOCAL_ORIGIN", egress_l3_if=interface)


@ptf_test
def local_origin_skips_admission(router: Router) -> None:
    """LOCAL_ORIGIN permits a source address with which a packet from a port would be dropped."""
    frame = made_here(udp_to(V4, src="127.0.0.1"))
    router.packet_out(frame, leaves(B.port, leaving(frame, TO_B)), kind="LOCAL_ORIGIN")


# --- REINJECT -----------------------------------------------------------------


@ptf_test
def reinjected_at_routing(router: Router) -> None:
    """A packet re-injected at routing is routed in the header's VRF, with its TTL decremented."""
    came = {"ingress_port": A.port, "ingress_l3_if": A.id}
    for dst in (V4, V6):
        frame = arriving(A, udp_to(dst))
        expected = leaves(B.port, routed(frame, TO_B))
        router.packet_out(frame, expected, kind="REINJECT", stage="ROUTING", **came)
        expected = leaves(TO_E.interface.port, routed(frame, TO_E))
        router.packet_out(frame, expected, kind="REINJECT", stage="ROUTING", vrf=OTHER_VRF, **came)


@ptf_test
def reinjected_at_routing_it_can_be_punted_again(router: Router) -> None:
    """A packet re-injected at routing is punted again if its TTL is 1."""
    frame = arriving(A, udp_to(V4, ttl=1))
    way: Mapping[str, Value] = {"ingress_port": A.port, "ingress_l3_if": A.id}
    punt = router.packet_in(
        frame,
        reason="TTL_EXCEEDED",
        stage="REWRITE",
        egress_l3_if=B.id,
        nexthop_id=TO_B.id,
        **way,
    )
    expected = ProbeOutcome(punts=[punt], punted={"TTL_EXCEEDED": 1})
    router.packet_out(frame, expected, kind="REINJECT", stage="ROUTING", **way)


@ptf_test
def reinjected_at_rewrite(router: Router) -> None:
    """A packet re-injected at rewrite takes the next hop of its header, not the route."""
    for dst in (V4, V6, "192.0.2.1"):
        frame = arriving(A, udp_to(dst))
        expected = leaves(D.port, routed(frame, TO_D))
        at_rewrite: Mapping[str, Value] = {
            "kind": "REINJECT",
            "stage": "REWRITE",
            "ingress_l3_if": A.id,
        }
        router.packet_out(frame, expected, **at_rewrite, nexthop_id=TO_D.id)
    router.packet_out(frame, dropped("NO_NEXTHOP"), **at_rewrite, nexthop_id=999)


@ptf_test
def reinjected_frames_keep_no_tag(router: Router) -> None:
    """A re-injected frame loses the tag with which it was punted.

    The egress interface adds its own.
    """
    frame = arriving(D, udp_to(V4))
    came: Mapping[str, Value] = {"kind": "REINJECT", "ingress_l3_if": D.id}
    for stage in ("ROUTING", "REWRITE"):
        expected = leaves(B.port, routed(frame, TO_B))
        router.packet_out(frame, expected, **came, stage=stage, nexthop_id=TO_B.id)
    expected = leaves(TO_E.interface.port, routed(frame, TO_E))
    router.packet_out(frame, expected, **came, stage="REWRITE", nexthop_id=TO_E.id)


@ptf_test
def held_for_a_neighbor(router: Router) -> None:
    """A packet punted for an unresolved neighbour is forwarded when re-injected with its
    metadata.
    """
    for source in (A, D):
        unresolve(router, TO_B)
        frame = arriving(source, udp_to(V4))
        (punt,) = router.exchange(FromPort(source.port, frame)).punts
        router.modify(router.neighbor(TO_B))
        carried = ("stage", "origin", "ingress_port", "ingress_l3_if", "vrf", "nexthop_id")
        header: dict[str, Value] = {name: punt.metadata[name] for name in carried}
        expected = leaves(B.port, routed(frame, TO_B))
        router.packet_out(punt.frame, expected, kind="REINJECT", **header)


@ptf_test
def fragmented_by_the_controller(router: Router) -> None:
    """A packet above the MTU is punted. Its fragments, re-injected at rewrite, are forwarded."""
    router.modify(router.egress(Interface(B.id, B.port, B.mac, mtu=600)))
    packet = ip4(V4, udp(size=992))
    (punt,) = router.exchange(FromPort(A.port, arriving(A, packet))).punts
    assert punt.frame == arriving(A, packet)
    datagram = bytes(packet)[20:]
    first = arriving(A, ip4(V4, Raw(datagram[:576]), proto=17, flags="MF"))
    second = arriving(A, ip4(V4, Raw(datagram[576:]), proto=17, frag=72))
    header: Mapping[str, Value] = {
        "kind": "REINJECT",
        "stage": punt.metadata["stage"],
        "ingress_l3_if": punt.metadata["ingress_l3_if"],
        "nexthop_id": punt.metadata["nexthop_id"],
    }
    outcome = router.exchange(FromCpu(first, header), FromCpu(second, header))
    assert outcome == ProbeOutcome(
        out=[(B.port, routed(first, TO_B)), (B.port, routed(second, TO_B))]
    )


@ptf_test
def local_packets_come_back_with_their_ttl(router: Router) -> None:
    """The TTL of a local packet that waited for a neighbour is not decremented."""
    frame = made_here(udp_to(V4, ttl=1))
    expected = leaves(B.port, leaving(frame, TO_B))
    router.packet_out(
        frame, expected, kind="REINJECT", stage="REWRITE", origin="LOCAL", nexthop_id=TO_B.id
    )


@ptf_test
def reinjected_at_no_stage_of_punts(router: Router) -> None:
    """REINJECT is refused for stages at which packets cannot be re-injected, and for unknown
    stages.
    """
    frame = arriving(A, udp_to(V4))
    for stage in ("NONE", "ADMIT", "LOCAL_DELIVERY", 77):
        router.packet_out(frame, dropped("PACKET_OUT_INVALID"), kind="REINJECT", stage=stage)


@ptf_test
def this_router_makes_no_source_routes(router: Router) -> None:
    """LOCAL_ORIGIN refuses source routes: IPv4 loose and strict, IPv6 type 0.

    Otherwise SPD rules would be applied to an intermediate destination instead of the final one.
    """
    refused = ProbeOutcome(drops={"SOURCE_ROUTE": 1})
    for option in (b"\x83\x07\x04", b"\x89\x07\x04"):
        packet = ip4(V4, udp(), src="10.2.0.1", options=option + bytes([10, 9, 0, 9, 0]))
        for egress in (0, B.id):
            router.packet_out(made_here(packet), refused, kind="LOCAL_ORIGIN", egress_l3_if=egress)
    header = bytes([17, 2, 0, 1]) + bytes(4) + bytes(16)
    packet = ip6(V6, Raw(header + bytes(udp())), nh=43, src="2001:db8:2::1")
    router.packet_out(made_here(packet), refused, kind="LOCAL_ORIGIN", egress_l3_if=B.id)


@ptf_test
def reinjected_packets_must_be_ip(router: Router) -> None:
    """REINJECT refuses frames that are not IP."""
    for frame in LISTED:
        for stage in ("ROUTING", "REWRITE"):
            expected = dropped("PACKET_OUT_NOT_ALLOWED")
            router.packet_out(frame, expected, kind="REINJECT", stage=stage, nexthop_id=TO_B.id)


# --- neither ------------------------------------------------------------------


@ptf_test
def an_unknown_kind(router: Router) -> None:
    """Packet-outs of an unknown kind are refused, such as those of a newer controller."""
    for kind in ("NONE", 4, 255):
        for frame in (arriving(A, udp_to(V4)), bytes(LISTED[0])):
            router.packet_out(frame, dropped("PACKET_OUT_INVALID"), kind=kind, egress_port=2)


@ptf_test
def a_frame_from_a_wire_is_no_packet_out(router: Router) -> None:
    """The packet-out header has no effect on a front-panel port."""
    request = router.client.packet_out_request(b"", {"kind": "TO_PORT", "egress_port": 2})
    fields = router.client.schema.packet_fields("packet_out")
    header = b"".join(
        int.from_bytes(item.value, "big").to_bytes(field.bitwidth // 8, "big")
        for field, item in zip(fields, request.packet.metadata, strict=True)
    )
    frame = header + bytes(Ether(src=HOST_MAC, dst="ff:ff:ff:ff:ff:ff") / arp(OURS4))
    router.drops(A, frame, "UNLISTED_PROTOCOL")
