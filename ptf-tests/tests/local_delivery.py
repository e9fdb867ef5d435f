# SPDX-License-Identifier: Apache-2.0
"""Tests the control local_delivery: packets for this router are punted to the CPU with the right
reason.
"""

from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.inet6 import (
    ICMPv6EchoRequest,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6ND_RA,
    ICMPv6ND_Redirect,
    ICMPv6ND_RS,
    IPv6ExtHdrHopByHop,
)
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw

from sluice_ptf.case import ptf_test
from sluice_ptf.packets import arp, echo, hops, ip4, ip6, tcp, udp, udp_to
from sluice_ptf.router import HOST_MAC, Interface, Router
from sluice_ptf.standard import TO_B, A, D, E

OURS4 = "10.1.0.1"
OURS6 = "2001:db8:1::1"
LINK_LOCAL6 = "fe80::99"
SOLICITED_NODE = "ff02::1:ff00:1"

NEIGHBOR_DISCOVERY = (
    ICMPv6ND_RS(),
    ICMPv6ND_RA(),
    ICMPv6ND_NS(tgt=OURS6),
    ICMPv6ND_NA(tgt=OURS6),
    ICMPv6ND_Redirect(tgt=OURS6, dst=OURS6),
)


def delivered(router: Router, source: Interface, packet: Packet | bytes, reason: str) -> None:
    """Expects that local delivery punts the packet."""
    router.punts(source, packet, reason, stage="LOCAL_DELIVERY")


def group_frame(packet: Packet) -> Packet:
    """Returns the frame that carries a multicast packet (RFC 1112, RFC 2464)."""
    address = packet.dst
    if ":" in address:
        low = packet[0].fields["dst"]
        octets = low.split(":")[-1].zfill(4)
        mac = f"33:33:00:00:{octets[:2]}:{octets[2:]}"
    elif address == "255.255.255.255":
        mac = "ff:ff:ff:ff:ff:ff"
    else:
        second, third, fourth = (int(part) for part in address.split(".")[1:])
        mac = f"01:00:5e:{second & 0x7F:02x}:{third:02x}:{fourth:02x}"
    return Ether(src=HOST_MAC, dst=mac) / packet


@ptf_test
def our_addresses(router: Router) -> None:
    """Packets to a local address are delivered, from every interface."""
    for packet in (udp_to(OURS4), ip4(OURS4, echo()), ip4(OURS4, tcp(dport=22)), udp_to(OURS6)):
        delivered(router, A, packet, "LOCAL")
        delivered(router, D, packet, "LOCAL")
    delivered(router, A, udp_to("10.4.0.1"), "LOCAL")
    delivered(router, A, ip6("2001:db8:4::1", ICMPv6EchoRequest()), "LOCAL")


@ptf_test
def a_protocol_nobody_knows(router: Router) -> None:
    """GRE and unassigned protocols to this router are delivered to the host."""
    for protocol in (47, 253):
        delivered(router, A, ip4(OURS4, Raw(bytes(32)), proto=protocol), "LOCAL")
        delivered(router, A, ip6(OURS6, Raw(bytes(32)), nh=protocol), "LOCAL")


@ptf_test
def our_addresses_belong_to_a_vrf(router: Router) -> None:
    """An address of VRF 0 is not local in another VRF."""
    router.punts(E, udp_to(OURS4), "NO_ROUTE", stage="ROUTING")
    router.punts(E, udp_to(OURS6), "NO_ROUTE", stage="ROUTING")
    delivered(router, E, udp_to("10.2.0.1"), "LOCAL")


@ptf_test
def the_last_hop_needs_no_ttl(router: Router) -> None:
    """TTL and hop limit are not checked for packets to this router (RFC 1812, 5.3.1)."""
    for dst in (OURS4, OURS6):
        for left in (0, 1, 255):
            delivered(router, A, udp_to(dst, **hops(dst, left)), "LOCAL")


@ptf_test
def an_address_can_be_taken_away(router: Router) -> None:
    """Once a local address is deleted, packets to the address are routed."""
    router.local("10.2.0.77/32", "2001:db8:2::77/128")
    delivered(router, A, udp_to("10.2.0.77"), "LOCAL")
    delivered(router, A, udp_to("2001:db8:2::77"), "LOCAL")
    for address in ("10.2.0.77/32", "2001:db8:2::77/128"):
        router.delete(router.local_entry(address))
    router.forwards(A, udp_to("10.2.0.77"), TO_B)
    router.forwards(A, udp_to("2001:db8:2::77"), TO_B)


@ptf_test
def address_resolution(router: Router) -> None:
    """ARP requests and replies are delivered: by broadcast, to this router, and in a VLAN."""
    for mac in ("ff:ff:ff:ff:ff:ff", A.mac):
        for operation in (1, 2):
            frame = Ether(src=HOST_MAC, dst=mac) / arp(OURS4, operation) / Raw(bytes(18))
            delivered(router, A, bytes(frame), "ARP")
    tagged = Ether(src=HOST_MAC, dst="ff:ff:ff:ff:ff:ff") / Dot1Q(vlan=100) / arp("10.4.0.1")
    delivered(router, D, bytes(tagged), "ARP")


@ptf_test
def address_resolution_of_others(router: Router) -> None:
    """An ARP reply to another station is not delivered."""
    frame = Ether(src=HOST_MAC, dst="02:de:ad:00:00:01") / arp(OURS4, 2)
    router.drops(A, bytes(frame), "NOT_FOR_ROUTER")


@ptf_test
def link_protocols(router: Router) -> None:
    """LLDP frames are delivered. IS-IS frames to its three group addresses are delivered too."""
    lldp = Ether(src=HOST_MAC, dst="01:80:c2:00:00:0e", type=0x88CC) / Raw(bytes(46))
    delivered(router, A, bytes(lldp), "LINK_PROTOCOL")
    for mac in ("01:80:c2:00:00:14", "01:80:c2:00:00:15", "09:00:2b:00:00:05"):
        for length in (46, 1492):
            isis = Ether(src=HOST_MAC, dst=mac, type=length) / Raw(
                b"\xfe\xfe\x03\x83" * (length // 4)
            )
            delivered(router, A, bytes(isis), "LINK_PROTOCOL")
    spanning_tree = Ether(src=HOST_MAC, dst="01:80:c2:00:00:00", type=38) / Raw(bytes(46))
    router.drops(A, bytes(spanning_tree), "UNLISTED_PROTOCOL")


@ptf_test
def neighbor_discovery(router: Router) -> None:
    """All five ND messages are delivered: to this router's addresses and to its groups."""
    for message in NEIGHBOR_DISCOVERY:
        for dst in (OURS6, "fe80::1"):
            delivered(router, A, ip6(dst, message, src=LINK_LOCAL6, hlim=255), "NEIGHBOR_DISCOVERY")
        for group in ("ff02::1", SOLICITED_NODE):
            packet = group_frame(ip6(group, message, src=LINK_LOCAL6, hlim=255))
            delivered(router, A, packet, "NEIGHBOR_DISCOVERY")


@ptf_test
def duplicate_address_detection(router: Router) -> None:
    """A neighbour solicitation may have the unspecified address as source. Other ND messages may
    not (RFC 4862).
    """
    packet = ip6(SOLICITED_NODE, ICMPv6ND_NS(tgt=OURS6), src="::", hlim=255)
    delivered(router, A, group_frame(packet), "NEIGHBOR_DISCOVERY")


@ptf_test
def neighbor_discovery_from_afar(router: Router) -> None:
    """Drops ND with a hop limit below 255, which shows that it was forwarded (RFC 4861, 7.1.1)."""
    for message in NEIGHBOR_DISCOVERY:
        for left in (254, 64, 1):
            router.drops(A, ip6(OURS6, message, hlim=left), "ND_INVALID")
        packet = group_frame(ip6("ff02::1", message, src=LINK_LOCAL6, hlim=254))
        router.drops(A, packet, "ND_INVALID")


@ptf_test
def neighbor_discovery_is_never_routed(router: Router) -> None:
    """Drops ND in transit, also with hop limit 255."""
    for message in NEIGHBOR_DISCOVERY:
        for left in (255, 64):
            router.drops(A, ip6("2001:db8:2::9", message, hlim=left), "ND_INVALID")


@ptf_test
def neighbor_discovery_behind_extension_headers(router: Router) -> None:
    """ND behind extension headers is delivered to the CPU."""
    packet = ip6(OURS6, IPv6ExtHdrHopByHop() / ICMPv6ND_NS(tgt=OURS6), hlim=255)
    delivered(router, A, packet, "NEIGHBOR_DISCOVERY")
    packet = ip6("2001:db8:2::9", IPv6ExtHdrHopByHop() / ICMPv6ND_NS(tgt=OURS6), hlim=255)
    router.drops(A, packet, "ND_INVALID")


@ptf_test
def other_icmpv6_is_routed(router: Router) -> None:
    """ICMPv6 types next to those of ND are routed."""
    for kind in (132, 138, 128, 1):
        message = Raw(bytes([kind, 0, 0, 0, 0, 0, 0, 0]))
        router.forwards(A, ip6("2001:db8:2::9", message, nh=58), TO_B)
        delivered(router, A, ip6(OURS6, message, nh=58), "LOCAL")


@ptf_test
def icmp_types_mean_nothing_in_ipv4(router: Router) -> None:
    """An IPv4 packet with ICMP type 135 is not taken for a neighbour solicitation."""
    router.forwards(A, ip4("10.2.0.9", ICMP(type=135)), TO_B)
    delivered(router, A, ip4(OURS4, ICMP(type=135)), "LOCAL")


@ptf_test
def routing_protocols(router: Router) -> None:
    """Routing protocols are delivered: BGP and LDP in both directions, BFD, RIP, RIPng and OSPF."""
    for packet in (
        ip4(OURS4, tcp(dport=179)),
        ip4(OURS4, tcp(sport=179)),
        ip6(OURS6, tcp(dport=179)),
        ip6(OURS6, tcp(sport=179)),
        ip4(OURS4, tcp(dport=646)),
        ip4(OURS4, tcp(sport=646)),
        ip4(OURS4, udp(dport=646)),
        ip4(OURS4, udp(dport=3784), ttl=255),
        ip6(OURS6, udp(dport=3784), hlim=255),
        ip4(OURS4, udp(dport=4784)),
        ip4(OURS4, udp(dport=520)),
        ip6(OURS6, udp(dport=521)),
        ip4(OURS4, Raw(bytes(24)), proto=89),
        ip6(OURS6, Raw(bytes(24)), nh=89),
    ):
        delivered(router, A, packet, "ROUTING_PROTOCOL")


@ptf_test
def routing_protocols_in_groups(router: Router) -> None:
    """OSPF, RIP, RIPng and VRRP (RFC 5798) to their multicast groups are delivered."""
    for packet in (
        ip4("224.0.0.5", Raw(bytes(24)), proto=89, ttl=1),
        ip4("224.0.0.6", Raw(bytes(24)), proto=89, ttl=1),
        ip4("224.0.0.9", udp(dport=520, sport=520), ttl=1),
        ip6("ff02::5", Raw(bytes(24)), nh=89, hlim=1, src=LINK_LOCAL6),
        ip6("ff02::9", udp(dport=521, sport=521), hlim=255, src=LINK_LOCAL6),
        ip4("224.0.0.18", Raw(bytes(12)), proto=112, ttl=255),
        ip6("ff02::12", Raw(bytes(24)), nh=112, hlim=255, src=LINK_LOCAL6),
    ):
        delivered(router, A, group_frame(packet), "ROUTING_PROTOCOL")


@ptf_test
def a_port_number_is_of_a_protocol(router: Router) -> None:
    """The ports of BGP, BFD, IKE and RIP have no meaning in the wrong transport protocol."""
    for packet in (
        ip4(OURS4, udp(dport=179)),
        ip4(OURS4, tcp(dport=3784)),
        ip4(OURS4, tcp(dport=500)),
        ip4(OURS4, tcp(dport=520)),
    ):
        delivered(router, A, packet, "LOCAL")


@ptf_test
def ike(router: Router) -> None:
    """IKE is UDP to port 500, and to port 4500 with four zero bytes first.

    NAT keep-alives count as IKE.
    """
    for port, payload in (
        (500, bytes(28)),
        (4500, bytes(4) + bytes(28)),
        (4500, b"\xff"),
    ):
        datagram = UDP(sport=port, dport=port) / Raw(payload)
        delivered(router, A, ip4(OURS4, datagram), "IKE")
        delivered(router, A, ip6(OURS6, datagram), "IKE")


@ptf_test
def later_fragments_have_no_ports(router: Router) -> None:
    """Only the first fragment has ports. A later fragment is not taken for BGP."""
    segment = bytes(tcp(dport=179))
    first = ip4(OURS4, Raw(segment + bytes(4)), proto=6, flags="MF")
    later = ip4(OURS4, Raw(segment + bytes(4)), proto=6, frag=3)
    delivered(router, A, first, "ROUTING_PROTOCOL")
    delivered(router, A, later, "LOCAL")


@ptf_test
def other_groups_are_dropped(router: Router) -> None:
    """Drops multicast to other groups, even if a route matches."""
    router.route("0.0.0.0/0", nexthop_id=TO_B.id)
    router.route("::/0", nexthop_id=TO_B.id)
    for dst in ("224.0.1.1", "239.1.2.3", "ff05::1:3", "ff0e::101"):
        router.drops(A, group_frame(udp_to(dst)), "MULTICAST")
        router.drops(A, udp_to(dst), "MULTICAST")


@ptf_test
def limited_broadcast_is_for_us(router: Router) -> None:
    """Packets to 255.255.255.255 are delivered and never routed."""
    delivered(router, A, group_frame(udp_to("255.255.255.255")), "LOCAL")


@ptf_test
def link_local_packets_stay_on_their_link(router: Router) -> None:
    """Drops packets from or to link-local addresses in transit (RFC 3927, 2.7; RFC 4291, 2.5.6)."""
    router.route("0.0.0.0/0", nexthop_id=TO_B.id)
    for packet in (
        udp_to("169.254.1.1"),
        udp_to("10.2.0.9", src="169.254.1.1"),
        udp_to("2001:db8:2::9", src=LINK_LOCAL6),
    ):
        router.drops(A, packet, "LINK_LOCAL")


@ptf_test
def link_local_destinations_are_ours(router: Router) -> None:
    """All packets to fe80::/10 go to the host, because only the host's kernel knows which of these
    addresses are its own.
    """
    delivered(router, A, udp_to("fe80::1", src=LINK_LOCAL6), "LOCAL")
    delivered(router, A, udp_to(OURS6, src=LINK_LOCAL6), "LOCAL")


@ptf_test
def a_vlan_tag_stays_on_a_punted_frame(router: Router) -> None:
    """The CPU gets the frame as received, with its VLAN tag and trailing padding."""
    frame = bytes(Ether(src=HOST_MAC, dst=D.mac) / Dot1Q(vlan=100, prio=6) / udp_to("10.4.0.1"))
    delivered(router, D, frame + b"\x00trailer", "LOCAL")
    assert IP(frame[18:]).dst == "10.4.0.1"
