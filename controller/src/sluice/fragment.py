# SPDX-License-Identifier: Apache-2.0
"""Fragments IPv4 packets as a router does, and IPv6 packets as a source does.

For IPv4 see RFC 791 section 3.2 and RFC 1812 section 4.2.2.7, for IPv6 RFC 8200 section 4.5.

Pure; depends on wire.packet. The fragments have the TTL of the packet, because the pipeline
decrements it when the fragments are re-injected.
"""

from __future__ import annotations

from struct import Struct

from sluice.wire.errors import WireError
from sluice.wire.packet import (
    ESP,
    FRAGMENT,
    IPV4_HEADER,
    IPV6_HEADER,
    UDP,
    build_ipv4,
    build_ipv6,
    parse_ipv4,
    parse_ipv6,
)

OPTION_END, OPTION_NOP = 0, 1
OPTION_COPIED = 0x80
MINIMUM_MTU = 68
"""Smallest MTU of an IPv4 link: the longest header and 8 bytes of data (RFC 791)."""


MINIMUM_MTU_IPV6 = 1280
"""Smallest MTU of an IPv6 link (RFC 8200, section 5)."""
FRAGMENT_HEADER = Struct("!BBHI")


def fragment_ipv4(packet: bytes, mtu: int) -> list[bytes]:
    """Returns the fragments of `packet`, each of at most `mtu` bytes, or `packet` itself if it
    fits.

    `packet` may itself be a fragment. The first fragment has all options. Later fragments have only
    the options with the copied bit. Raises WireError for a malformed packet, for a packet that
    forbids fragmentation (`dont_fragment`), and for an MTU below 68 (`mtu_too_small`).
    """
    header = parse_ipv4(packet)
    if header.total_length <= mtu:
        return [packet[: header.total_length]]
    if header.dont_fragment:
        raise WireError("dont_fragment", 6, f"{header.total_length} bytes, MTU {mtu}")
    if mtu < MINIMUM_MTU:
        raise WireError("mtu_too_small", 0, f"MTU {mtu} is less than {MINIMUM_MTU}")
    payload = packet[header.header_length : header.total_length]
    options = header.options
    later_options = copied_options(options)
    fragments: list[bytes] = []
    start = 0
    while start < len(payload):
        room = mtu - IPV4_HEADER - len(options)
        last = len(payload) - start <= room
        size = len(payload) - start if last else room & ~7
        fragments.append(
            build_ipv4(
                header._replace(
                    options=options,
                    fragment_offset=header.fragment_offset + start,
                    more_fragments=header.more_fragments or not last,
                ),
                payload[start : start + size],
            )
        )
        start += size
        options = later_options
    return fragments


def fragment_esp_over_ipv6(packet: bytes, mtu: int, identification: int) -> list[bytes]:
    """Returns the fragments of an ESP or ESP-in-UDP packet that this router sends over IPv6, each
    of at most `mtu` bytes.

    Returns `packet` itself if it fits. `identification` is the identification field of all
    fragments: 32 unpredictable bits (RFC 7739). Raises WireError for a malformed packet, for a
    packet with extension headers (`not_esp`), and for an MTU below 1,280 (`mtu_too_small`).
    """
    header = parse_ipv6(packet)
    payload = packet[IPV6_HEADER : IPV6_HEADER + header.payload_length]
    if IPV6_HEADER + len(payload) <= mtu:
        return [packet[: IPV6_HEADER + len(payload)]]
    if header.next_header not in (ESP, UDP):
        raise WireError("not_esp", 6, f"next header {header.next_header}")
    if mtu < MINIMUM_MTU_IPV6:
        raise WireError("mtu_too_small", 0, f"MTU {mtu} is less than {MINIMUM_MTU_IPV6}")
    room = mtu - IPV6_HEADER - FRAGMENT_HEADER.size & ~7
    fragments = []
    for start in range(0, len(payload), room):
        part = payload[start : start + room]
        more = start + room < len(payload)
        place = FRAGMENT_HEADER.pack(header.next_header, 0, start | more, identification)
        fragments.append(build_ipv6(header._replace(next_header=FRAGMENT), place + part))
    return fragments


def copied_options(options: bytes) -> bytes:
    """Returns the options with the copied bit, in order. Raises WireError (`ipv4_option_length`).

    The result is padded with End of Options to a multiple of 4 bytes.
    """
    kept = bytearray()
    start = 0
    while start < len(options) and options[start] != OPTION_END:
        if options[start] == OPTION_NOP:
            start += 1
            continue
        length = options[start + 1] if start + 1 < len(options) else 0
        if length < 2 or start + length > len(options):
            raise WireError(
                "ipv4_option_length",
                IPV4_HEADER + start,
                f"option {options[start]} has length {length} of {len(options) - start}",
            )
        if options[start] & OPTION_COPIED:
            kept += options[start : start + length]
        start += length
    return bytes(kept) + bytes(-len(kept) % 4)
