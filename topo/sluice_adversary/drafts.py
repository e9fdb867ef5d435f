# SPDX-License-Identifier: Apache-2.0
"""Builds a datagram from addresses, headers and payload, and fragments it. Pure."""

import struct
from dataclasses import dataclass
from itertools import pairwise

from . import marks
from .wire import (
    DESTINATION_OPTIONS,
    ESP,
    FRAGMENT,
    GRE,
    ICMP,
    ICMPV6,
    MORE_FRAGMENTS,
    ROUTING,
    SCTP,
    TCP,
    UDP,
    extension,
    fragment_header,
    ipv4,
    ipv6,
    routing_header,
    with_checksum,
)

CHECKSUMS = {UDP: 6, TCP: 16, ICMP: 2, ICMPV6: 2}


@dataclass
class Draft:
    """Holds a datagram before it is fragmented. `start` is the protocol at the start of the
    payload.

    `before` lists IPv6 extension headers that precede the payload, or the fragment header if there
    is one.
    """

    version: int
    source: bytes
    destination: bytes
    start: int
    payload: bytes
    ident: int
    ttl: int = 64
    options: bytes = b""
    before: tuple[int, ...] = ()

    def whole(self, fragment: int = 0) -> bytes:
        """Returns the datagram as one packet. `fragment` is IPv4's field of flags and offset."""
        if self.version == 4:
            return self._ipv4(self.payload, fragment)
        first, headers = chain(self.before, self.start)
        return self._ipv6(first, headers + self.payload)

    def piece(self, offset: int, end: int, more: bool | None = None) -> bytes:
        """Returns the fragment with the bytes from `offset` to `end` of the payload. `more`
        overrides the More Fragments flag.
        """
        more = end < len(self.payload) if more is None else more
        return self.made_up(offset, self.payload[offset:end], more)

    def made_up(self, offset: int, data: bytes, more: bool, following: int | None = None) -> bytes:
        """Returns a fragment with `data` instead of bytes of the payload.

        `following` overrides the Next Header in an IPv6 fragment header.
        """
        if self.version == 4:
            return self._ipv4(data, offset // 8 | (MORE_FRAGMENTS if more else 0))
        start = self.start if following is None else following
        first, headers = chain(self.before, FRAGMENT)
        return self._ipv6(first, headers + fragment_header(start, offset, more, self.ident) + data)

    def cut(self, *cuts: int) -> list[bytes]:
        """Returns all fragments in order. `cuts` are the offsets at which they begin, multiples of
        eight.
        """
        bounds = [0, *cuts, len(self.payload)]
        return [self.piece(low, high) for low, high in pairwise(bounds)]

    def _ipv4(self, data: bytes, fragment: int) -> bytes:
        return ipv4(
            *(self.source, self.destination, self.start, data),
            ident=self.ident & 0xFFFF,
            fragment=fragment,
            ttl=self.ttl,
            options=self.options,
        )

    def _ipv6(self, following: int, data: bytes) -> bytes:
        return ipv6(self.source, self.destination, following, data, hop_limit=self.ttl)


def chain(kinds: tuple[int, ...], following: int) -> tuple[int, bytes]:
    """Builds a chain of IPv6 extension headers before the protocol `following`. Returns the
    protocol of the first header, and the bytes of the chain.
    """
    headers = b""
    for kind in reversed(kinds):
        headers = (
            routing_header(following, 2, 0) if kind == ROUTING else extension(following)
        ) + headers
        following = kind
    return following, headers


def in_chain(kinds: tuple[int, ...], draft: Draft) -> Draft:
    """Inserts these extension headers before the draft's payload. Returns the draft."""
    draft.start, headers = chain(kinds, draft.start)
    draft.payload = headers + draft.payload
    return draft


def options_chain(count: int) -> tuple[int, ...]:
    """Returns the header types of a chain of `count` destination options headers."""
    return (DESTINATION_OPTIONS,) * count


def transport(
    addresses: tuple[bytes, bytes],
    protocol: int,
    numbers: tuple[int, int],
    number: int,
    size: int,
) -> bytes:
    """Returns a transport header and a payload of marks, with a correct checksum.

    `numbers` holds the two ports. For ICMP, it is (type << 8 | code, 0); for ESP, (SPI, 0).
    """
    one, two = numbers
    header = {
        UDP: struct.pack("!HHHH", one & 0xFFFF, two & 0xFFFF, 8 + size, 0),
        TCP: struct.pack("!HHIIBBHHH", one & 0xFFFF, two & 0xFFFF, 1, 0, 0x50, 2, 8192, 0, 0),
        SCTP: struct.pack("!HHII", one & 0xFFFF, two & 0xFFFF, 7, 0),
        ICMP: struct.pack("!HHI", one & 0xFFFF, 0, 1),
        ICMPV6: struct.pack("!HHI", one & 0xFFFF, 0, 1),
        GRE: struct.pack("!HH", 0, 0x0800),
        ESP: struct.pack("!II", one, 1),
    }.get(protocol, b"")
    data = header + marks.fill(number, size, len(header))
    at = CHECKSUMS.get(protocol)
    return data if at is None else with_checksum(*addresses, protocol, data, at)
