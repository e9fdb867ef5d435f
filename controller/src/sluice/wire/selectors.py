# SPDX-License-Identifier: Apache-2.0
"""What policy can see of a frame: its selectors, read exactly as the pipeline's parser reads them.

The flow cache is keyed by what the pipeline parsed and filled with what was found here, so the two
must never differ (p4src/parser.p4 and option_states.p4). Where the pipeline's walk ends, at
PARSED_OPTIONS or PARSED_EXTENSIONS, this one goes on, so that policy is decided by the whole
chain; such a packet is not cacheable. What the pipeline refuses (headers that contradict
themselves, source routes, first fragments too short for their ports) is a WireError here too.

`enclosed_selectors` is for ICMP errors (RFC 4301, section 6). Depends on policy_model and packet.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from sluice.policy_model import SCTP, FlowKey, Selectors
from sluice.wire.errors import WireError
from sluice.wire.packet import (
    DESTINATION_OPTIONS,
    FRAGMENT,
    HOP_BY_HOP,
    ICMP,
    ICMPV6,
    IPV4_HEADER,
    IPV4_OFFSET_MASK,
    IPV6_HEADER,
    ROUTING,
    TCP,
    UDP,
    ip_payload,
)

ESP = 50
PARSED_OPTIONS = 10
PARSED_EXTENSIONS = 6
# RFC 4301, 4.4.1.1. AH is a next-layer protocol, and so is everything not listed here.
_LOOKED_THROUGH = frozenset({HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION_OPTIONS})
_END_OF_OPTIONS, _NO_OPERATION = 0, 1
_SOURCE_ROUTES = frozenset({131, 137})
_ROUTING_TYPE_SOURCE_ROUTE = 0

TRANSPORT_HEADER = 8
"""Bytes without which the pipeline takes a transport header for cut off."""

# Errors that come back to who sent the packet: destination unreachable, time exceeded, parameter
# problem (and packet too big). A redirect never leaves its link.
_ICMPV4_ERRORS = frozenset({3, 11, 12})
_ICMPV6_ERRORS = frozenset({1, 2, 3, 4})
_ICMP_ERROR_HEADER = 8

_PORTS = Struct("!HH")
_U16 = Struct("!H")


class SeenPacket(NamedTuple):
    """`is_cacheable`: the pipeline can walk all headers, so that its key says what these say."""

    selectors: Selectors
    is_cacheable: bool

    def key(self, *, is_local: bool = False, bundle: int = 0) -> FlowKey | None:
        """The key that the pipeline looks this packet up by; None if it cannot."""
        if not self.is_cacheable:
            return None
        return FlowKey.of(self.selectors, is_local=is_local, bundle=bundle)


class _Upper(NamedTuple):
    """What is behind the IP headers."""

    protocol: int
    offset: int
    is_later_fragment: bool
    is_cacheable: bool


def selectors(frame: bytes) -> SeenPacket:
    """The selectors of the IP packet in an Ethernet frame. Raises WireError."""
    return _see(ip_payload(frame))[0]


def enclosed_selectors(frame: bytes) -> Selectors | None:
    """Of an ICMP error, the selectors of the packet it is about, turned round.

    RFC 4301, section 6.2: an error that no rule matches is treated as a packet of the flow that
    answers the one it is about. None for anything but an error. Raises WireError also where the
    error does not go to the sender of that packet, for then it is nobody's answer.
    """
    packet = ip_payload(frame)
    seen, offset = _see(packet)
    if seen.selectors.icmp is None:
        return None
    errors = _ICMPV4_ERRORS if len(seen.selectors.source) == 4 else _ICMPV6_ERRORS
    if seen.selectors.icmp >> 8 not in errors:
        return None
    enclosed = packet[offset + _ICMP_ERROR_HEADER :]
    about = _see_quoted(enclosed, len(seen.selectors.source))
    if about.source != seen.selectors.destination:
        raise WireError("icmp_enclosed_source", 0, "the error goes to another than the sender")
    return about._replace(
        source=about.destination,
        destination=about.source,
        source_port=about.destination_port,
        destination_port=about.source_port,
    )


def _see_quoted(packet: bytes, address_length: int) -> Selectors:
    """The selectors of a quoted packet, which may be cut off behind its transport header."""
    version, header = (4, IPV4_HEADER) if address_length == 4 else (6, IPV6_HEADER)
    if len(packet) < header or packet[0] >> 4 != version:
        raise WireError("icmp_enclosed_truncated", 0, f"no IPv{version} header in {len(packet)}")
    return _see(packet)[0].selectors


def _see(packet: bytes) -> tuple[SeenPacket, int]:
    """What an IP packet shows, and where its transport header starts.

    `packet` holds its fixed header and nothing behind its end; it may be shorter than it says.
    """
    if packet[0] >> 4 == 4:
        source, destination, icmp_protocol = packet[12:16], packet[16:20], ICMP
        upper = _ipv4_upper(packet)
    else:
        source, destination, icmp_protocol = packet[8:24], packet[24:40], ICMPV6
        upper = _ipv6_upper(packet)
    protocol = upper.protocol
    source_port = destination_port = icmp = None
    if not upper.is_later_fragment and protocol in (icmp_protocol, TCP, UDP, SCTP, ESP):
        if upper.offset + TRANSPORT_HEADER > len(packet):
            raise WireError("transport_truncated", upper.offset, f"protocol {protocol} is cut off")
        if protocol == icmp_protocol:
            (icmp,) = _U16.unpack_from(packet, upper.offset)
        elif protocol != ESP:
            source_port, destination_port = _PORTS.unpack_from(packet, upper.offset)
    seen = Selectors(
        source, destination, protocol, source_port, destination_port, icmp, upper.is_later_fragment
    )
    return SeenPacket(seen, upper.is_cacheable), upper.offset


def _ipv4_upper(packet: bytes) -> _Upper:
    header = (packet[0] & 0xF) * 4
    if not IPV4_HEADER <= header <= len(packet):
        raise WireError("ipv4_header_length", 0, f"header {header}, here are {len(packet)} bytes")
    is_parsed = header == IPV4_HEADER or _walk_options(packet[IPV4_HEADER:header])
    (fragment,) = _U16.unpack_from(packet, 6)
    return _Upper(packet[9], header, bool(fragment & IPV4_OFFSET_MASK), is_parsed)


def _walk_options(options: bytes) -> bool:
    """Whether the pipeline walks all of these IPv4 options. Raises WireError."""
    at = walked = 0
    is_parsed = True
    while at < len(options):
        if walked >= PARSED_OPTIONS:
            is_parsed = False
        kind = options[at]
        if kind == _END_OF_OPTIONS:
            break
        length = 1
        if kind != _NO_OPERATION:
            length = options[at + 1] if at + 1 < len(options) else 0
            if not 2 <= length <= len(options) - at:
                raise WireError("ipv4_option_length", IPV4_HEADER + at, f"option {kind}: {length}")
            if kind in _SOURCE_ROUTES:
                raise WireError("source_route", IPV4_HEADER + at, f"option {kind}")
        at += length
        walked += 1
    return is_parsed


def _ipv6_upper(packet: bytes) -> _Upper:
    protocol, offset, walked = packet[6], IPV6_HEADER, 0
    while protocol in _LOOKED_THROUGH:
        if offset + 8 > len(packet):
            raise WireError("ipv6_extension_truncated", offset, f"header {protocol} is cut off")
        following, length, routing_type, segments_left = packet[offset : offset + 4]
        walked += 1
        if protocol == FRAGMENT:
            (fragment,) = _U16.unpack_from(packet, offset + 2)
            offset += 8
            if fragment >> 3:
                return _Upper(following, offset, True, walked <= PARSED_EXTENSIONS)
        else:
            is_source_route = routing_type == _ROUTING_TYPE_SOURCE_ROUTE and segments_left > 0
            if protocol == ROUTING and is_source_route:
                raise WireError("source_route", offset, f"{segments_left} segments left")
            offset += (length + 1) * 8
        protocol = following
    if offset > len(packet):
        raise WireError("ipv6_extension_truncated", len(packet), f"the chain ends at {offset}")
    return _Upper(protocol, offset, False, walked <= PARSED_EXTENSIONS)
