# SPDX-License-Identifier: Apache-2.0
"""Builds IP packets with scapy, with addresses of the standard router.

A caller can set each field under its scapy name. The values of all other fields do not matter to
any test. The source address is always set, because scapy would otherwise read the kernel's routes
to find one.
"""

from __future__ import annotations

from typing import Any

from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt
from scapy.layers.l2 import ARP
from scapy.packet import Packet, Raw

from sluice_ptf.network import HOST4, HOST6, HOST_MAC

SPORT = 49152
DPORT = 7000


def ip4(dst: str, payload: Packet, **header: Any) -> Packet:
    """Returns an IPv4 packet from the host on interface A."""
    return IP(**{"src": HOST4, "dst": dst, "ttl": 64, "id": 0x1234} | header) / payload


def ip6(dst: str, payload: Packet, **header: Any) -> Packet:
    """Returns an IPv6 packet from the host on interface A."""
    return IPv6(**{"src": HOST6, "dst": dst, "hlim": 64} | header) / payload


def udp(dport: int = DPORT, sport: int = SPORT, size: int = 18) -> Packet:
    """Returns a UDP datagram with `size` bytes of payload."""
    return UDP(sport=sport, dport=dport) / Raw(bytes(index & 0xFF for index in range(size)))


def arp(target: str, operation: int = 1) -> Packet:
    """Returns an ARP request or reply from the host on A."""
    return ARP(op=operation, hwsrc=HOST_MAC, psrc=HOST4, hwdst="00:00:00:00:00:00", pdst=target)


def tcp(dport: int = DPORT, sport: int = SPORT) -> Packet:
    """Returns a TCP segment without payload."""
    return TCP(sport=sport, dport=dport, flags="A", seq=1, ack=1)


def echo() -> Packet:
    """Returns an ICMP echo request."""
    return ICMP(type=8, id=1, seq=1) / Raw(b"echo payload")


def udp_to(dst: str, **header: Any) -> Packet:
    """Returns a UDP packet from the host on A, of the IP version of `dst`."""
    return ip6(dst, udp(), **header) if ":" in dst else ip4(dst, udp(), **header)


def too_deep(dst: str) -> Packet:
    """Returns a packet with nine extension headers or twelve options: more than the parser
    walks.
    """
    if ":" not in dst:
        return ip4(dst, udp(), options=b"\1" * 12)
    chain = udp()
    for _ in range(9):
        chain = IPv6ExtHdrDestOpt() / chain
    return ip6(dst, chain)


def hops(dst: str, left: int) -> dict[str, int]:
    """Returns scapy's field for the TTL (IPv4) or hop limit (IPv6), with the value `left`."""
    return {"hlim" if ":" in dst else "ttl": left}
