# SPDX-License-Identifier: Apache-2.0
"""Builds IP packets byte by byte, also with headers that libraries refuse to build.

Lengths and checksums are correct unless the caller sets them.
"""

from __future__ import annotations

import ipaddress
import struct

from sluice_ptf.frames import ETHERTYPE_IPV4, ETHERTYPE_IPV6, internet_checksum, mac_bytes, tagged
from sluice_ptf.network import HOST4, HOST6, HOST_MAC, Interface

UDP = 17
MOBILITY = 135
MORE_FRAGMENTS = 0x2000
NO_NEXT_HEADER = 59


def datagram(size: int = 18, sport: int = 49152, dport: int = 7000) -> bytes:
    """Returns a UDP datagram without a checksum."""
    return struct.pack("!HHHH", sport, dport, 8 + size, 0) + bytes(size)


def ipv4(
    dst: str,
    payload: bytes,
    *,
    src: str = HOST4,
    options: bytes = b"",
    protocol: int = UDP,
    ttl: int = 64,
    fragment: int = 0,
    version: int = 4,
    ihl: int | None = None,
    total_length: int | None = None,
    checksum: int | None = None,
) -> bytes:
    """Returns an IPv4 packet.

    `options` must fill 32-bit words; `fragment` holds flags and offset.
    """
    first = version << 4 | (5 + len(options) // 4 if ihl is None else ihl)
    length = 20 + len(options) + len(payload) if total_length is None else total_length
    start = struct.pack("!BBHHHBB", first, 0, length, 0x1234, fragment, ttl, protocol)
    end = ipaddress.IPv4Address(src).packed + ipaddress.IPv4Address(dst).packed + options
    right = internet_checksum(start + b"\0\0" + end)
    return start + struct.pack("!H", right if checksum is None else checksum) + end + payload


def ipv6(
    dst: str,
    payload: bytes,
    *,
    src: str = HOST6,
    next_header: int = UDP,
    hop_limit: int = 64,
    version: int = 6,
    payload_length: int | None = None,
) -> bytes:
    """Returns an IPv6 packet."""
    length = len(payload) if payload_length is None else payload_length
    start = struct.pack("!IHBB", version << 28, length, next_header, hop_limit)
    return start + ipaddress.IPv6Address(src).packed + ipaddress.IPv6Address(dst).packed + payload


def extension(next_header: int, body: bytes = bytes(6), length: int | None = None) -> bytes:
    """Returns an IPv6 extension header: 2 bytes and a body of 8n + 6 bytes."""
    return bytes([next_header, len(body) // 8 if length is None else length]) + body


def fragment_header(next_header: int, offset: int = 0, more: bool = False) -> bytes:
    """Returns a fragment header (RFC 8200, 4.5). `offset` is in units of 8 bytes."""
    return struct.pack("!BBHI", next_header, 0, offset << 3 | more, 0x01020304)


def framed(interface: Interface, packet: bytes, ipv6_type: bool | None = None) -> bytes:
    """Returns the frame that carries a packet to an interface.

    The EtherType follows from the packet's version, unless `ipv6_type` is given.
    """
    is_ipv6 = packet[0] >> 4 == 6 if ipv6_type is None else ipv6_type
    addresses = mac_bytes(interface.mac) + mac_bytes(HOST_MAC)
    return tagged(
        addresses + (ETHERTYPE_IPV6 if is_ipv6 else ETHERTYPE_IPV4) + packet, interface.vlan
    )
