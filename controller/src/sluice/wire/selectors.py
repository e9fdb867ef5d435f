# SPDX-License-Identifier: Apache-2.0
"""Reads the selectors of a frame for policy lookups, exactly as the pipeline's parser does.

Invariant: this module and the pipeline (p4src/parser.p4 and option_states.p4) read the same values,
because lookups in the flow cache use the pipeline's values, and flow entries use this module's
values. The pipeline parses at most PARSED_OPTIONS options and PARSED_EXTENSIONS extension headers.
This module parses all of them, so that policy sees the whole header chain. Packets that exceed the
pipeline's limits are not cacheable. Packets that the pipeline refuses raise WireError here:
inconsistent headers, source routes, routing headers with segments left, and first fragments too
short for their ports.

`quoted_packet` and `too_big` are for ICMP errors (RFC 4301, sections 6 and 8). Depends on
policy.model and packet.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from sluice.policy.model import MOBILITY, SCTP, FlowKey, FragmentClass, Selectors
from sluice.wire.errors import WireError
from sluice.wire.packet import (
    DESTINATION_OPTIONS,
    ESP,
    FRAGMENT,
    HOP_BY_HOP,
    ICMP,
    ICMPV6,
    IPV4_HEADER,
    IPV4_OFFSET_MASK,
    IPV6_HEADER,
    NAT_TRAVERSAL_PORT,
    ROUTING,
    TCP,
    UDP,
    internet_checksum,
    ip_payload,
    pseudo_header,
)

PARSED_OPTIONS = 10
PARSED_EXTENSIONS = 6
# Headers that are skipped (RFC 4301, 4.4.1.1). Any other header, even AH, is the next-layer
# protocol.
_LOOKED_THROUGH = frozenset({HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION_OPTIONS})
_END_OF_OPTIONS, _NO_OPERATION = 0, 1
_SOURCE_ROUTES = frozenset({131, 137})
_ROUTING_TYPE_SOURCE_ROUTE = 0

TRANSPORT_HEADER = 8
"""Size of a transport header that the pipeline requires, in bytes."""

# Errors that are returned to the packet's sender: destination unreachable, time exceeded, parameter
# problem (and packet too big). A redirect never leaves its link.
_ERRORS = {ICMP: frozenset({3, 11, 12}), ICMPV6: frozenset({1, 2, 3, 4})}
# All messages that quote a packet: also source quench, redirect, and unassigned errors of ICMPv6.
_QUOTING = {ICMP: _ERRORS[ICMP] | {4, 5}, ICMPV6: frozenset(range(128))}
_ICMP_ERROR_HEADER = 8
_NEVER_ICMP = frozenset({TCP, UDP, ESP})
_FRAGMENTATION_NEEDED, _PACKET_TOO_BIG = 0x0304, 2
_ND_TYPES = range(133, 138)
_ICMP_PROTOCOLS = frozenset({ICMP, ICMPV6})
_READ_BEHIND_IP = frozenset({ICMP, ICMPV6, TCP, UDP, SCTP, ESP, MOBILITY})
_MOBILITY_TYPE = 2
"""Offset of the message type in a mobility header, in bytes (RFC 6275, 6.1.1)."""
_FRAGMENT_UNIT = 8
_IPV4_MORE = 0x2000

_PORTS = Struct("!HH")
_U16 = Struct("!H")
_U32 = Struct("!I")
_FRAGMENT = Struct("!HI")  # offset, reserved bits and M; identification


class Fragment(NamedTuple):
    """Holds the identification of a fragment's datagram, and the fragment's bytes (`start`, `end`).

    In IPv4, `protocol` is part of the datagram's identity (RFC 791, 3.2). In IPv6, it is not part
    of the identity (RFC 8200, 4.5), so it is 0 here.
    """

    identification: int
    protocol: int
    start: int
    end: int
    more: bool


class SeenPacket(NamedTuple):
    """Holds a packet's selectors, and the fields that the flow cache needs.

    `is_cacheable`: the pipeline can parse all headers, so its key agrees with the selectors.
    `protocol` is the protocol in the key, also for a later IPv6 fragment. `fragment` is None for a
    whole packet.
    """

    selectors: Selectors
    protocol: int
    fragment: Fragment | None
    is_cacheable: bool

    @property
    def fragment_class(self) -> FragmentClass:
        """Class of the packet: whole packet, first fragment or later fragment."""
        if self.fragment is None:
            return FragmentClass.WHOLE
        return FragmentClass.LATER if self.fragment.start else FragmentClass.FIRST

    def key(self, *, bundle: int = 0) -> FlowKey | None:
        """Returns the pipeline's key of this packet, or None if the pipeline cannot read it."""
        if not self.is_cacheable:
            return None
        seen = self.selectors
        return FlowKey(
            seen.source,
            seen.destination,
            self.protocol,
            seen.source_port or 0,
            seen.destination_port or seen.icmp or seen.mobility_type or 0,
            self.fragment_class,
            seen.is_own,
            bundle,
        )

    def as_later_fragment(self) -> Selectors:
        """Returns the selectors that later fragments of this datagram have."""
        protocol = self.protocol if len(self.selectors.source) == 4 else None
        return self.selectors._replace(
            protocol=protocol,
            source_port=None,
            destination_port=None,
            icmp=None,
            mobility_type=None,
        )


class Quoted(NamedTuple):
    """Holds the packet that an ICMP error quotes, with source and destination swapped.

    The selectors are thus those of an answer to the packet. `fragment_class` and `identity`
    (`packet_identity`) are those of the quoted packet itself. `spi` is set if the quoted packet is
    ESP, or ESP in UDP.
    """

    selectors: Selectors
    fragment_class: FragmentClass
    spi: int | None
    identity: bytes | None


class TooBig(NamedTuple):
    """Describes an ICMP error about a packet that was too big for a link.

    `sender` is the sender of the error. `mtu` is the link's MTU as reported, or 0 if it was not
    reported. `length` is the quoted packet's length. `mtu` and `length` are in bytes of an IP
    packet.
    """

    sender: bytes
    mtu: int
    length: int
    quoted: Quoted


class _Upper(NamedTuple):
    """Describes a packet's upper layer. `headers` is the length in bytes of the headers that every
    fragment repeats."""

    protocol: int
    offset: int
    fragment: tuple[int, int, bool] | None  # identification, start, more
    headers: int
    is_cacheable: bool


class _Walk(NamedTuple):
    """Holds a packet's selectors, and the offset of its transport header."""

    seen: SeenPacket
    offset: int


def selectors(frame: bytes, *, is_own: bool = False) -> SeenPacket:
    """Returns the selectors of the IP packet in an Ethernet frame. Raises WireError."""
    return _see(ip_payload(frame), is_own).seen


def is_neighbor_discovery(seen: Selectors) -> bool:
    """Returns whether a packet belongs to neighbour discovery (RFC 4861)."""
    return seen.icmp is not None and seen.protocol == ICMPV6 and seen.icmp >> 8 in _ND_TYPES


def is_icmp_error(seen: Selectors) -> bool:
    """Returns whether a packet is an ICMP error whose quote may decide about it."""
    return seen.icmp is not None and seen.icmp >> 8 in _ERRORS.get(seen.protocol or 0, ())


def quotes_a_packet(seen: Selectors) -> bool:
    """Returns whether a packet is an ICMP error of any type, including those whose quote never
    decides."""
    return seen.icmp is not None and seen.icmp >> 8 in _QUOTING.get(seen.protocol or 0, ())


def may_be_icmp_error(later: Selectors) -> bool:
    """Returns whether a later fragment may belong to an ICMP error."""
    return later.protocol is None or later.protocol in _ICMP_PROTOCOLS


def quoted_packet(frame: bytes, *, is_own: bool = False) -> Quoted | None:
    """Returns the packet that an ICMP error quotes, or None if the frame is not an ICMP error.

    RFC 4301, section 6.2: an error that no rule matches is treated as a packet of the reverse flow
    of the quoted packet. Raises WireError. This includes an error whose destination is not the
    quoted packet's source, because such an error is not an answer to that packet.
    """
    packet = ip_payload(frame)
    (seen, *_), offset = _see(packet, is_own)
    if not is_icmp_error(seen):
        return None
    enclosed = packet[offset + _ICMP_ERROR_HEADER :]
    version, header = (4, IPV4_HEADER) if len(seen.source) == 4 else (6, IPV6_HEADER)
    if len(enclosed) < header or enclosed[0] >> 4 != version:
        raise WireError(
            "icmp_enclosed_truncated", 0, f"no IPv{version} header in {len(enclosed)} bytes"
        )
    about, at = _see(enclosed, is_own)
    if about.selectors.source != seen.destination:
        raise WireError("icmp_enclosed_source", 0, "the quoted packet has another source")
    return Quoted(
        turned(about.selectors),
        about.fragment_class,
        _spi(about, enclosed[at:]),
        _identity(enclosed, about, at),
    )


def too_big(frame: bytes) -> TooBig | None:
    """Decodes an ICMP error about a packet that was too big. Returns None for any other packet.

    See RFC 1191, section 4, and RFC 4443, section 3.2. Raises WireError like `quoted_packet`, and
    for an error that is fragmented or has a wrong checksum.
    """
    packet = ip_payload(frame)
    if packet[9 if packet[0] >> 4 == 4 else 6] in _NEVER_ICMP:
        return None  # fast path for most packets
    (seen, _, fragment, _), offset = _see(packet, True)
    message, is_ipv4 = packet[offset:], len(seen.source) == 4
    if not _is_too_big(seen, is_ipv4):
        return None
    source, destination = seen.source, seen.destination
    pseudo = b"" if is_ipv4 else pseudo_header(source, destination, len(message), ICMPV6)
    if fragment is not None or internet_checksum(pseudo + message):
        raise WireError("icmp_checksum", offset, "the error is fragmented or has a wrong checksum")
    quoted = quoted_packet(frame, is_own=True)
    if quoted is None:
        return None
    enclosed = message[_ICMP_ERROR_HEADER:]
    if is_ipv4:
        (mtu,), (length,) = _U16.unpack_from(message, 6), _U16.unpack_from(enclosed, 2)
    else:
        (mtu,), (length,) = _U32.unpack_from(message, 4), _U16.unpack_from(enclosed, 4)
        length += IPV6_HEADER
    return TooBig(source, mtu, length, quoted)


def _is_too_big(seen: Selectors, is_ipv4: bool) -> bool:
    if seen.icmp is None:
        return False
    if is_ipv4:
        return seen.protocol == ICMP and seen.icmp == _FRAGMENTATION_NEEDED
    return seen.protocol == ICMPV6 and seen.icmp >> 8 == _PACKET_TOO_BIG


def packet_identity(frame: bytes) -> bytes | None:
    """Returns bytes that identify a packet. Returns None for a later fragment.

    These bytes are the same for a packet, its datagram's first fragment, and its quote in an ICMP
    error. They are addresses, protocol, IPv4's identification, and the first eight bytes after all
    IP headers. Later fragments lack these eight bytes. Raises WireError.
    """
    packet = ip_payload(frame)
    return _identity(packet, *_see(packet, False))


def _identity(packet: bytes, seen: SeenPacket, offset: int) -> bytes | None:
    if seen.fragment_class is FragmentClass.LATER:
        return None
    addresses = seen.selectors.source + seen.selectors.destination
    identification = packet[4:6] if len(seen.selectors.source) == 4 else b""
    head = packet[offset : offset + TRANSPORT_HEADER]
    return addresses + bytes((seen.protocol,)) + identification + head


def turned(packet: Selectors) -> Selectors:
    """Returns the selectors of a packet of the reverse flow."""
    return packet._replace(
        source=packet.destination,
        destination=packet.source,
        source_port=packet.destination_port,
        destination_port=packet.source_port,
    )


def _spi(quoted: SeenPacket, transport: bytes) -> int | None:
    """Returns the SPI of ESP, or of ESP in UDP (RFC 3948)."""
    if quoted.fragment_class is FragmentClass.LATER:
        return None
    if quoted.protocol == UDP and NAT_TRAVERSAL_PORT in (
        quoted.selectors.source_port,
        quoted.selectors.destination_port,
    ):
        transport = transport[TRANSPORT_HEADER:]
    elif quoted.protocol != ESP:
        return None
    return _U32.unpack_from(transport)[0] or None if len(transport) >= _U32.size else None


def _see(packet: bytes, is_own: bool) -> _Walk:
    """Reads the selectors of an IP packet.

    `packet` has at least the fixed header and no padding. A packet that an ICMP error quotes may be
    shorter than its length field says.
    """
    if packet[0] >> 4 == 4:
        source, destination = packet[12:16], packet[16:20]
        upper = _ipv4_upper(packet)
    else:
        source, destination = packet[8:24], packet[24:40]
        upper = _ipv6_upper(packet)
    protocol: int | None = upper.protocol
    source_port = destination_port = icmp = mobility_type = None
    is_later = upper.fragment is not None and upper.fragment[1] > 0
    if not is_later and protocol in _READ_BEHIND_IP:
        if upper.offset + TRANSPORT_HEADER > len(packet):
            raise WireError("transport_truncated", upper.offset, f"protocol {protocol} is cut off")
        if protocol in _ICMP_PROTOCOLS:
            (icmp,) = _U16.unpack_from(packet, upper.offset)
        elif protocol == MOBILITY:
            mobility_type = packet[upper.offset + _MOBILITY_TYPE]
        elif protocol != ESP:
            source_port, destination_port = _PORTS.unpack_from(packet, upper.offset)
    elif is_later and len(source) == 16:
        protocol = None
    fragment = None
    if upper.fragment is not None:
        identification, start, more = upper.fragment
        end = start + len(packet) - upper.headers
        if upper.protocol == TCP and start == _FRAGMENT_UNIT and len(source) == 4:
            raise WireError(
                "fragment_overlap", upper.offset, "the fragment starts inside the TCP header"
            )
        fragment_protocol = upper.protocol if len(source) == 4 else 0
        fragment = Fragment(identification, fragment_protocol, start, end, more)
    seen = Selectors(
        source,
        destination,
        protocol,
        source_port,
        destination_port,
        icmp,
        is_own,
        mobility_type,
    )
    return _Walk(SeenPacket(seen, upper.protocol, fragment, upper.is_cacheable), upper.offset)


def _ipv4_upper(packet: bytes) -> _Upper:
    header = (packet[0] & 0xF) * 4
    if not IPV4_HEADER <= header <= len(packet):
        raise WireError("ipv4_header_length", 0, f"header {header}, packet {len(packet)} bytes")
    is_parsed = header == IPV4_HEADER or _walk_options(packet[IPV4_HEADER:header])
    identification, flags = _PORTS.unpack_from(packet, 4)
    start, more = (flags & IPV4_OFFSET_MASK) * _FRAGMENT_UNIT, bool(flags & _IPV4_MORE)
    fragment = (identification, start, more) if start or more else None
    return _Upper(packet[9], header, fragment, header, is_parsed)


def _walk_options(options: bytes) -> bool:
    """Returns whether the pipeline can parse all of these IPv4 options. Raises WireError."""
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
    fragment, headers = None, 0
    while protocol in _LOOKED_THROUGH:
        if offset + 8 > len(packet):
            raise WireError("ipv6_extension_truncated", offset, f"header {protocol} is cut off")
        following, length, routing_type, segments_left = packet[offset : offset + 4]
        walked += 1
        if protocol == FRAGMENT:
            if fragment is not None:
                raise WireError("ipv6_nested_fragment", offset, "a fragment of a fragment")
            field, identification = _FRAGMENT.unpack_from(packet, offset + 2)
            offset += 8
            start, more = field & ~0x7, bool(field & 1)
            if start or more:
                fragment, headers = (identification, start, more), offset
            if start:
                return _Upper(following, offset, fragment, headers, walked <= PARSED_EXTENSIONS)
        else:
            if protocol == ROUTING and segments_left > 0:
                is_source_route = routing_type == _ROUTING_TYPE_SOURCE_ROUTE
                name = "source_route" if is_source_route else "segments_left"
                what = f"routing header of type {routing_type}, {segments_left} segments left"
                raise WireError(name, offset, what)
            offset += (length + 1) * 8
        protocol = following
    if offset > len(packet):
        raise WireError("ipv6_extension_truncated", len(packet), f"the chain ends at {offset}")
    return _Upper(protocol, offset, fragment, headers, walked <= PARSED_EXTENSIONS)
