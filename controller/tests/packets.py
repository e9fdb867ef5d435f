# SPDX-License-Identifier: Apache-2.0
"""Builds packets for tests from addresses in text form."""

from __future__ import annotations

from sluice.model import parse_address
from sluice.wire import packet

ROUTER_MAC = bytes.fromhex("020000000101")
HOST_MAC = bytes.fromhex("0200000000aa")


def ethernet(payload: bytes, vlan: int | None = None, destination: bytes = ROUTER_MAC) -> bytes:
    ethertype = packet.ETHERTYPE_IPV4 if payload[0] >> 4 == 4 else packet.ETHERTYPE_IPV6
    tag = b"" if vlan is None else b"\x81\x00" + vlan.to_bytes(2, "big")
    return destination + HOST_MAC + tag + ethertype.to_bytes(2, "big") + payload


def ipv4(
    source: str,
    destination: str,
    payload: bytes = b"",
    protocol: int = packet.UDP,
    *,
    options: bytes = b"",
    dont_fragment: bool = False,
    more_fragments: bool = False,
    fragment_offset: int = 0,
    ttl: int = 64,
) -> bytes:
    header = packet.IPv4(
        header_length=20 + len(options),
        tos=0,
        total_length=20 + len(options) + len(payload),
        identification=0x1234,
        dont_fragment=dont_fragment,
        more_fragments=more_fragments,
        fragment_offset=fragment_offset,
        ttl=ttl,
        protocol=protocol,
        source=parse_address(source),
        destination=parse_address(destination),
        options=options,
    )
    return packet.build_ipv4(header, payload)


def ipv6(
    source: str,
    destination: str,
    payload: bytes = b"",
    next_header: int = packet.UDP,
    hop_limit: int = 64,
) -> bytes:
    header = packet.IPv6(
        0,
        0,
        len(payload),
        next_header,
        hop_limit,
        parse_address(source),
        parse_address(destination),
    )
    return packet.build_ipv6(header, payload)


def ipv6_chain(
    chain: list[tuple[int, bytes]],
    protocol: int,
    payload: bytes,
    source: str = "2001:db8::1",
    destination: str = "2001:db8:1::1",
) -> bytes:
    """Returns an IPv6 packet with extension headers.

    Fills in the Next Header field (first byte) of each header.
    """
    following = [kind for kind, _ in chain[1:]] + [protocol]
    headers = (
        b"".join(
            bytes([after]) + header[1:] for (_, header), after in zip(chain, following, strict=True)
        )
        if chain
        else b""
    )
    first = chain[0][0] if chain else protocol
    return ipv6(source, destination, headers + payload, first)
