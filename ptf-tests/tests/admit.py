# SPDX-License-Identifier: Apache-2.0
"""Tests which received frames the control l3_admit of the pipeline admits."""

from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

from sluice_ptf.case import bare_ptf_test, ptf_test
from sluice_ptf.packets import arp, udp_to
from sluice_ptf.router import HOST_MAC, Interface, Nexthop, Router
from sluice_ptf.standard import OTHER_VRF, TO_B, TO_C, TO_D, TO_E, A, B, D, E

V4 = "10.2.0.9"
V6 = "2001:db8:2::9"
BROADCAST = "ff:ff:ff:ff:ff:ff"


@bare_ptf_test
def nothing_comes_in_without_an_interface(router: Router) -> None:
    """A switch with empty tables drops everything as NO_INTERFACE, also frames that an interface
    would punt.
    """
    for packet in (udp_to(V4), udp_to(V6)):
        router.drops(A, packet, "NO_INTERFACE")
    router.drops(A, Ether(src=HOST_MAC, dst=BROADCAST) / arp("10.1.0.1"), "NO_INTERFACE")


@ptf_test
def a_port_is_no_interface_of_its_own(router: Router) -> None:
    """Untagged frames on a port with only VLAN interfaces belong to no interface."""
    ether = Ether(src=HOST_MAC, dst=D.mac)
    router.drops(D, ether / udp_to(V4), "NO_INTERFACE")


@ptf_test
def an_unknown_vlan_is_dropped(router: Router) -> None:
    """A frame of a VLAN without an interface is dropped, on ports with and without other VLANs."""
    for interface in (A, D):
        for vlan in (1, 101, 4095):
            frame = Ether(src=HOST_MAC, dst=interface.mac) / Dot1Q(vlan=vlan) / udp_to(V4)
            router.drops(interface, frame, "NO_INTERFACE")


@ptf_test
def a_priority_tag_is_no_vlan(router: Router) -> None:
    """A priority-tagged frame (VLAN 0, IEEE 802.1Q) belongs to the untagged interface and leaves
    untagged.
    """
    for packet in (udp_to(V4), udp_to(V6)):
        router.forwards(A, Ether(src=HOST_MAC, dst=A.mac) / Dot1Q(vlan=0, prio=5) / packet, TO_B)


@ptf_test
def a_vlan_tag_is_pushed(router: Router) -> None:
    """A packet from an untagged interface leaves with the tag of the VLAN."""
    router.forwards(A, udp_to("10.4.0.9"), TO_D)
    router.forwards(A, udp_to("2001:db8:4::9"), TO_D)


@ptf_test
def a_vlan_tag_is_popped(router: Router) -> None:
    """A packet from a VLAN leaves by an untagged interface without a tag."""
    router.forwards(D, udp_to(V4), TO_B)
    router.forwards(D, udp_to(V6), TO_B)


@ptf_test
def a_vlan_tag_is_replaced(router: Router) -> None:
    """A packet moves from one VLAN to another on the same port."""
    other = Interface(id=9, port=D.port, mac="02:00:00:00:01:09", vlan=300)
    to_other = Nexthop(id=19, interface=other, mac="02:bb:00:00:00:09")
    router.interface(other)
    router.nexthop(to_other)
    router.route("10.9.0.0/16", nexthop_id=to_other.id)
    router.forwards(D, udp_to("10.9.0.1"), to_other)


@ptf_test
def vlans_of_a_port_are_interfaces_of_their_own(router: Router) -> None:
    """The same packet in two VLANs of one port is routed in the VRF of its VLAN."""
    router.forwards(D, udp_to(V4), TO_B)
    router.forwards(E, udp_to(V4), TO_E)
    assert D.port == E.port


@ptf_test
def another_stations_mac_is_not_ours(router: Router) -> None:
    """A frame is dropped if its destination is the MAC address of another station or of another
    interface of the router.
    """
    for mac in ("02:de:ad:00:00:01", B.mac):
        for packet in (udp_to(V4), udp_to(V6), udp_to("10.1.0.1")):
            router.drops(A, Ether(src=HOST_MAC, dst=mac) / packet, "NOT_FOR_ROUTER")


@ptf_test
def an_interface_may_have_several_macs(router: Router) -> None:
    """An interface also admits frames to a second MAC address (as for VRRP), until its entry is
    deleted.
    """
    mac = "00:00:5e:00:01:07"
    entry = router.entry("router_mac", {"l3_if": A.id, "dst_mac": mac}, "admit_unicast")
    frame = Ether(src=HOST_MAC, dst=mac) / udp_to(V4)
    router.insert(entry)
    router.forwards(A, frame, TO_B)
    router.delete(entry)
    router.drops(A, frame, "NOT_FOR_ROUTER")


@ptf_test
def a_group_frame_with_a_unicast_packet_is_dropped(router: Router) -> None:
    """Drops a unicast packet in a link-layer broadcast or multicast frame (RFC 1812, 5.3.4)."""
    for mac in (BROADCAST, "01:00:5e:01:02:03", "33:33:00:00:00:01"):
        for dst in (V4, V6, "10.1.0.1"):
            router.drops(A, Ether(src=HOST_MAC, dst=mac) / udp_to(dst), "NOT_FOR_ROUTER")


@ptf_test
def an_interface_can_be_moved(router: Router) -> None:
    """A MODIFY of an interface's VRF applies to the next packet."""
    router.forwards(A, udp_to(V4), TO_B)
    match = {"ingress_port": A.port, "vlan_id": 0}
    router.modify(
        router.entry(
            "l3_interface", match, "set_l3_interface", l3_if=A.id, vrf=OTHER_VRF, role="ROUTER"
        )
    )
    router.forwards(A, udp_to(V4), TO_E)


@ptf_test
def ipv4_martian_sources(router: Router) -> None:
    """Drops IPv4 packets from addresses that cannot be a source, also to this router (RFC 1812,
    5.3.7).
    """
    for src in ("0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "239.255.0.1", "240.0.0.1"):
        for dst in (V4, "10.1.0.1"):
            router.drops(A, udp_to(dst, src=src), "MARTIAN")
    router.drops(A, udp_to(V4, src="255.255.255.255"), "MARTIAN")


@ptf_test
def ipv4_martian_destinations(router: Router) -> None:
    """Drops IPv4 packets to addresses that cannot be a destination on a link."""
    router.route("0.0.0.0/0", nexthop_id=TO_C.id)
    for dst in ("0.0.0.0", "0.1.2.3", "127.0.0.1", "127.255.255.254", "240.0.0.1"):
        router.drops(A, udp_to(dst), "MARTIAN")


@ptf_test
def ipv4_addresses_next_to_martians_pass(router: Router) -> None:
    """Forwards packets from and to the addresses just before and after each martian range."""
    router.route("0.0.0.0/0", nexthop_id=TO_C.id)
    for address in ("1.0.0.0", "126.255.255.255", "128.0.0.0", "223.255.255.255"):
        router.forwards(A, udp_to(address), TO_C)
        router.forwards(A, udp_to(V4, src=address), TO_B)


@ptf_test
def ipv6_martian_sources(router: Router) -> None:
    """Drops packets from unspecified, loopback, multicast and IPv4-mapped addresses."""
    for src in ("::", "::1", "ff02::1", "ff0e::1", "::ffff:10.0.0.1"):
        for dst in (V6, "2001:db8:1::1"):
            router.drops(A, udp_to(dst, src=src), "MARTIAN")


@ptf_test
def ipv6_martian_destinations(router: Router) -> None:
    """Drops packets to unspecified, loopback, IPv4-mapped and interface-local addresses."""
    router.route("::/0", nexthop_id=TO_C.id)
    for dst in ("::", "::1", "::ffff:10.0.0.1", "ff00::1", "ff01::1"):
        group = "33:33:00:00:00:01" if dst.startswith("ff") else A.mac
        router.drops(A, Ether(src=HOST_MAC, dst=group) / udp_to(dst), "MARTIAN")


@ptf_test
def other_protocols_are_dropped(router: Router) -> None:
    """Drops frames of protocols that are neither IP nor listed: MPLS, PPPoE, 802.3, 802.1ad, two
    tags.
    """
    for mac in (A.mac, BROADCAST):
        for ether_type in (0x8847, 0x8863, 0x0026, 0x88A8, 0x1234):
            frame = Ether(src=HOST_MAC, dst=mac, type=ether_type) / Raw(bytes(46))
            router.drops(A, frame, "UNLISTED_PROTOCOL")
    twice = Ether(src=HOST_MAC, dst=D.mac) / Dot1Q(vlan=100) / Dot1Q(vlan=7) / udp_to(V4)
    router.drops(D, twice, "UNLISTED_PROTOCOL")


@ptf_test
def a_forged_shim_is_dropped(router: Router) -> None:
    """Drops a frame with a shim on a port without an engine."""
    payload = Raw(bytes(16)) / udp_to(V4)
    for mac in (A.mac, BROADCAST):
        router.drops(A, Ether(src=HOST_MAC, dst=mac, type=0x88B5) / payload, "FORGED_SHIM")
    tag = Dot1Q(vlan=100, type=0x88B5)
    router.drops(D, Ether(src=HOST_MAC, dst=D.mac) / tag / payload, "FORGED_SHIM")
