# SPDX-License-Identifier: Apache-2.0
"""Builds IP packets with options, in fragments, and with ICMP errors. Depends on frames."""

import ipaddress
import struct

from sluice_testkit.packet import ICMP, UDP

from .frames import checksum

MORE_FRAGMENTS = 0x2000
NO_OPERATION = b"\x01"
ECHO_REQUEST = 8
DESTINATION_OPTIONS, PAD_N = 60, 1


def ipv4(
    source: str,
    destination: str,
    protocol: int,
    payload: bytes,
    *,
    ttl: int = 64,
    options: bytes = b"",
    identification: int = 1,
    fragment: int = 0,
) -> bytes:
    """Returns an IPv4 packet. The length of `options` must be a multiple of 4. `fragment` is the
    header field of flags and offset.
    """
    words = 5 + len(options) // 4
    lengths = 0x40 | words, 0, 4 * words + len(payload)
    fixed = struct.pack("!BBHHHBBH", *lengths, identification, fragment, ttl, protocol, 0)
    addresses = b"".join(ipaddress.ip_address(one).packed for one in (source, destination))
    header = fixed + addresses + options
    return header[:10] + struct.pack("!H", checksum(header)) + header[12:] + payload


def udp(source_port: int, destination_port: int, payload: bytes) -> bytes:
    """Returns a UDP datagram without checksum, as IPv4 allows."""
    return struct.pack("!HHHH", source_port, destination_port, 8 + len(payload), 0) + payload


def icmp(kind: int, code: int, rest: int, payload: bytes) -> bytes:
    """Returns an ICMP message. `rest` is the second 32-bit word of the header."""
    body = payload + bytes(len(payload) % 2)
    message = struct.pack("!BBHI", kind, code, 0, rest) + body
    return message[:2] + struct.pack("!H", checksum(message)) + message[4 : 8 + len(payload)]


def echo_request(
    source: str,
    destination: str,
    payload: bytes = bytes(32),
    *,
    ttl: int = 64,
    options: bytes = b"",
) -> bytes:
    """Returns an ICMP echo request in an IPv4 packet."""
    echo = icmp(ECHO_REQUEST, 0, 1, payload)
    return ipv4(source, destination, ICMP, echo, ttl=ttl, options=options)


def in_fragments(packet: bytes, size: int) -> list[bytes]:
    """Splits an IPv4 packet without options into fragments with `size` bytes of payload, a multiple
    of 8. The last payload may be shorter.
    """
    payload = packet[20:]
    source, destination = (str(ipaddress.ip_address(packet[at : at + 4])) for at in (12, 16))
    (identification,) = struct.unpack_from("!H", packet, 4)
    return [
        ipv4(
            source,
            destination,
            packet[9],
            payload[start : start + size],
            identification=identification,
            fragment=start // 8 | (MORE_FRAGMENTS if start + size < len(payload) else 0),
        )
        for start in range(0, len(payload), size)
    ]


def ipv6_with_options(
    source: str, destination: str, options: int, protocol: int, payload: bytes
) -> bytes:
    """Returns an IPv6 packet with destination options headers. `options` is their number. They
    contain only padding.
    """
    chain = b""
    for left in range(options, 0, -1):
        following = DESTINATION_OPTIONS if left > 1 else protocol
        chain += bytes((following, 0, PAD_N, 4, 0, 0, 0, 0))
    first = DESTINATION_OPTIONS if options else protocol
    fixed = struct.pack("!IHBB", 6 << 28, len(chain) + len(payload), first, 64)
    addresses = b"".join(ipaddress.ip_address(one).packed for one in (source, destination))
    return fixed + addresses + chain + payload


def udp_over_ipv6(source: str, destination: str, ports: tuple[int, int], payload: bytes) -> bytes:
    """Returns a UDP datagram with a checksum, because IPv6 requires one."""
    datagram = udp(*ports, payload)
    addresses = b"".join(ipaddress.ip_address(one).packed for one in (source, destination))
    pseudo = addresses + struct.pack("!II", len(datagram), UDP)
    padded = datagram + bytes(len(datagram) % 2)
    return datagram[:6] + struct.pack("!H", checksum(pseudo + padded) or 0xFFFF) + datagram[8:]
