# SPDX-License-Identifier: Apache-2.0
"""Tests the control rewrite, which must change only MAC addresses, VLAN tag, TTL and checksum."""

from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

from sluice_ptf.case import ptf_test
from sluice_ptf.frames import internet_checksum
from sluice_ptf.packets import hops, ip4, ip6, tcp, udp, udp_to
from sluice_ptf.router import HOST_MAC, Router, arriving
from sluice_ptf.standard import TO_B, TO_D, A, D

V4 = "10.2.0.9"
V6 = "2001:db8:2::9"


@ptf_test
def every_ttl(router: Router) -> None:
    """TTLs from 2 to 255 are decremented by one, with a correct checksum."""
    for left in (*range(2, 20), 63, 64, 65, 127, 128, 129, 254, 255):
        router.forwards(A, udp_to(V4, ttl=left), TO_B)
        router.forwards(A, udp_to(V6, hlim=left), TO_B)


@ptf_test
def every_kind_of_checksum(router: Router) -> None:
    """The incremental update of a checksum yields the right one of the two representations of zero
    (RFC 1624).
    """
    wanted = {0x0000, 0x0001, 0x00FF, 0x0100, 0xFDFF, 0xFE00, 0xFEFE, 0xFEFF, 0xFF00, 0xFFFE}
    base = bytes(ip4(V4, udp(), id=0))[:20]
    without = internet_checksum(base[:10] + b"\0\0" + base[12:])
    for checksum in sorted(wanted):
        # With this identification, the header has the wanted checksum.
        identification = (without - checksum) % 0xFFFF
        packet = ip4(V4, udp(), id=identification)
        assert IP(bytes(packet)).chksum == checksum, hex(checksum)
        router.forwards(A, packet, TO_B)


@ptf_test
def other_fields_stay(router: Router) -> None:
    """DSCP, ECN, identification, flags, flow label and the transport header stay unchanged."""
    for packet in (
        ip4(V4, tcp(), tos=0xBB, id=0xFFFF, flags="DF"),
        ip4(V4, tcp(), tos=0x01, flags="evil"),
        ip4(V4, UDP(sport=1, dport=2, chksum=0xDEAD) / Raw(b"wrong checksum")),
        ip4(V4, TCP(sport=1, dport=2, flags="FSRPAUEC", options=[("MSS", 1460)], chksum=1)),
        ip4(V4, Raw(bytes(range(256))), proto=200),
        ip4(V4, b"", proto=59),
        ip6(V6, tcp(), tc=0xBB, fl=0xFFFFF),
        ip6(V6, UDP(sport=1, dport=2, chksum=0xDEAD) / Raw(b"wrong checksum")),
        ip6(V6, Raw(bytes(range(256))), nh=200),
        ip6(V6, Raw(b""), nh=59),
    ):
        router.forwards(A, packet, TO_B)


@ptf_test
def padding_stays(router: Router) -> None:
    """A padded frame of 60 bytes with a packet of 28 bytes keeps its padding."""
    for packet in (ip4(V4, udp(size=0)), ip6(V6, udp(size=0))):
        frame = arriving(A, packet)
        router.forwards(A, frame + b"padding" * 5, TO_B)
        router.forwards(A, frame + b"\xff", TO_B)


@ptf_test
def priority_stays_in_a_tag(router: Router) -> None:
    """A packet from one VLAN to another keeps its priority code point."""
    for dst in ("10.4.0.9", "2001:db8:4::9"):
        for priority in range(8):
            ether = Ether(src=HOST_MAC, dst=D.mac) / Dot1Q(vlan=100, prio=priority)
            frame = bytes(ether / udp_to(dst))
            sent = bytearray(bytes(ether / udp_to(dst, **hops(dst, 63))))
            sent[:12] = bytes.fromhex((TO_D.mac + D.mac).replace(":", ""))
            router.forwards(D, frame, TO_D, sent=bytes(sent))


@ptf_test
def the_sources_mac_does_not_matter(router: Router) -> None:
    """Packets are routed from any source MAC address, which the forwarded frame no longer has."""
    for mac in ("02:00:00:00:00:99", A.mac, TO_B.mac, "00:00:00:00:00:00"):
        router.forwards(A, Ether(src=mac, dst=A.mac) / udp_to(V4), TO_B)
