# SPDX-License-Identifier: Apache-2.0
"""Builds IP packets as bytes, and parses them like a receiver that reassembles datagrams.

Pure. `read_piece` parses one packet on the wire: a whole datagram or a fragment. `read_upper`
parses a reassembled payload, behind the IP headers. The Next Header of a later IPv6 fragment is not
trusted, because it may differ from that of the first one (RFC 8200, 4.5).
"""

import struct
from typing import NamedTuple

ICMP, TCP, UDP, GRE, ESP, ICMPV6, SCTP = 1, 6, 17, 47, 50, 58, 132
HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION_OPTIONS = 0, 43, 44, 60
EXTENSIONS = frozenset({HOP_BY_HOP, ROUTING, DESTINATION_OPTIONS})
MORE_FRAGMENTS, DONT_FRAGMENT = 0x2000, 0x4000
ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_SHIM = 0x0800, 0x86DD, 0x88B5
ETHERTYPE_ARP, ETHERTYPE_VLAN = 0x0806, 0x8100
ICMP_ERRORS = {4: frozenset({3, 11, 12}), 6: frozenset({1, 2, 3, 4})}
ICMP_PROTOCOL = {4: ICMP, 6: ICMPV6}
WITH_PORTS = frozenset({TCP, UDP, SCTP})
NAT_TRAVERSAL = 4500
TRANSPORT_HEADER = 8

_U16 = struct.Struct("!H")
_FRAGMENT_HEADER = struct.Struct("!BBHI")


class Piece(NamedTuple):
    """Holds one IP packet: a whole datagram or a fragment. In a whole datagram, `ident` has no
    meaning.

    `payload` is the part that is reassembled. `start` is the protocol with which the payload
    begins, which may be an IPv6 extension header. `broken` names an error in the packet, or is
    empty.
    """

    version: int
    source: bytes
    destination: bytes
    ttl: int
    ident: int
    offset: int
    more: bool
    start: int
    payload: bytes
    broken: str = ""
    source_routed: bool = False
    segments_left: bool = False
    """Whether an IPv6 routing header of a type other than 0 has segments left."""
    unfragmentable: int = 0
    """Number of IPv6 extension headers up to and including the fragment header."""
    options: int = 0
    """Number of IPv4 options."""

    @property
    def is_fragment(self) -> bool:
        """Whether the packet is a fragment."""
        return self.more or self.offset > 0

    @property
    def key(self) -> tuple[bytes, bytes, int, int]:
        """Key that all fragments of a datagram share: addresses, identification and protocol (RFC
        791).

        In IPv6, the protocol is not part of the key (RFC 8200).
        """
        return self.source, self.destination, self.start if self.version == 4 else -1, self.ident


class Upper(NamedTuple):
    """Holds the selectors from the headers behind the IP headers. None: the packet has no such
    selector.
    """

    protocol: int
    source_port: int | None = None
    destination_port: int | None = None
    icmp: int | None = None
    offset: int = 0
    broken: str = ""
    source_routed: bool = False
    segments_left: bool = False
    extensions: int = 0
    fragmented_again: bool = False


def checksum(data: bytes) -> int:
    """Returns the Internet checksum (RFC 1071)."""
    if len(data) % 2:
        data += b"\0"
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ipv4(
    source: bytes,
    destination: bytes,
    protocol: int,
    payload: bytes,
    *,
    ident: int = 0,
    fragment: int = 0,
    ttl: int = 64,
    options: bytes = b"",
    length: int | None = None,
) -> bytes:
    """Returns an IPv4 packet.

    `fragment` is the header field of flags and offset. `length` overrides the total length, to make
    a wrong one.
    """
    words = 5 + len(options) // 4
    total = 4 * words + len(payload) if length is None else length
    fixed = struct.pack("!BBHHHBBH", 0x40 | words, 0, total, ident, fragment, ttl, protocol, 0)
    header = fixed + source + destination + options
    return header[:10] + _U16.pack(checksum(header)) + header[12:] + payload


def ipv6(
    source: bytes,
    destination: bytes,
    following: int,
    payload: bytes,
    *,
    hop_limit: int = 64,
    length: int | None = None,
) -> bytes:
    """Returns an IPv6 packet.

    `following` is the Next Header. If there are extension headers, they are part of `payload`.
    """
    size = len(payload) if length is None else length
    return (
        struct.pack("!IHBB", 6 << 28, size, following, hop_limit) + source + destination + payload
    )


def extension(following: int, words: int = 0) -> bytes:
    """Returns a hop-by-hop or destination options header with 8 + 8 * `words` bytes. It contains
    only padding.
    """
    return bytes((following, words, 1, 4 + 8 * words)) + bytes(4 + 8 * words)


def routing_header(following: int, kind: int, segments_left: int) -> bytes:
    """Returns a routing header with one address."""
    return bytes((following, 2, kind, segments_left)) + bytes(20)


def fragment_header(following: int, offset: int, more: bool, ident: int) -> bytes:
    """Returns an IPv6 fragment header. `offset` is in bytes."""
    return _FRAGMENT_HEADER.pack(following, 0, offset | more, ident)


def with_checksum(source: bytes, destination: bytes, protocol: int, data: bytes, at: int) -> bytes:
    """Returns `data` with its checksum at offset `at`. The checksum includes the pseudo header,
    except for ICMP.
    """
    if len(source) == 4:
        pseudo = source + destination + struct.pack("!BBH", 0, protocol, len(data))
    else:
        pseudo = source + destination + struct.pack("!II", len(data), protocol)
    if protocol == ICMP:
        pseudo = b""
    value = checksum(pseudo + data[:at] + b"\0\0" + data[at + 2 :]) or 0xFFFF
    return data[:at] + _U16.pack(value) + data[at + 2 :]


def read_piece(packet: bytes) -> Piece | None:
    """Parses an IP packet. Bytes behind its end are ignored. Returns None if there is no IP
    header.
    """
    if packet and packet[0] >> 4 == 4 and len(packet) >= 20:
        return _read_ipv4(packet)
    if packet and packet[0] >> 4 == 6 and len(packet) >= 40:
        return _read_ipv6(packet)
    return None


def _read_ipv4(packet: bytes) -> Piece:
    header, (total, ident, field) = (packet[0] & 0xF) * 4, struct.unpack_from("!HHH", packet, 2)
    broken = "length" if not 20 <= header <= total <= len(packet) else ""
    options = packet[20:header]
    return Piece(
        version=4,
        source=packet[12:16],
        destination=packet[16:20],
        ttl=packet[8],
        ident=ident,
        offset=(field & 0x1FFF) * 8,
        more=bool(field & MORE_FRAGMENTS),
        start=packet[9],
        payload=packet[header:total],
        broken=broken or _options_broken(options),
        source_routed=_has_source_route(options),
        options=len(_walk_options(options)),
    )


def _options_broken(options: bytes) -> str:
    return "options" if any(length < 1 for _, length in _walk_options(options)) else ""


def _has_source_route(options: bytes) -> bool:
    return any(kind in (131, 137) for kind, _ in _walk_options(options))


def _walk_options(options: bytes) -> list[tuple[int, int]]:
    """Returns kind and length of each option. At a malformed option, the list ends, with length 0
    for this option.
    """
    found: list[tuple[int, int]] = []
    at = 0
    while at < len(options) and options[at] != 0:
        length = 1
        if options[at] != 1:
            length = options[at + 1] if at + 1 < len(options) else 0
            if not 2 <= length <= len(options) - at:
                found.append((options[at], 0))
                break
        found.append((options[at], length))
        at += length
    return found


def _read_ipv6(packet: bytes) -> Piece:
    (size,) = _U16.unpack_from(packet, 4)
    broken = "length" if 40 + size > len(packet) else ""
    data = packet[: 40 + size]
    start, at, headers = packet[6], 40, 0
    routed = segments = False
    ident, offset, more = 0, 0, False
    first, behind = start, 40
    while start in EXTENSIONS and at + 8 <= len(data):
        routed |= start == ROUTING and data[at + 2] == 0 and data[at + 3] > 0
        segments |= start == ROUTING and data[at + 2] != 0 and data[at + 3] > 0
        start, at, headers = data[at], at + 8 * (data[at + 1] + 1), headers + 1
    if start == FRAGMENT and at + 8 <= len(data):
        first, _, field, ident = _FRAGMENT_HEADER.unpack_from(data, at)
        offset, more, behind = field & 0xFFF8, bool(field & 1), at + 8
        headers += 1
    else:
        headers, routed, segments = 0, False, False  # read_upper counts them again
    return Piece(
        version=6,
        source=packet[8:24],
        destination=packet[24:40],
        ttl=packet[7],
        ident=ident,
        offset=offset,
        more=more,
        start=first,
        payload=data[behind:],
        broken=broken,
        source_routed=routed,
        segments_left=segments,
        unfragmentable=headers,
    )


def read_upper(version: int, start: int, payload: bytes, extensions: int = 0) -> Upper:
    """Returns the selectors of a reassembled payload that begins with the protocol `start`."""
    protocol, at = start, 0
    routed = segments = again = False
    while version == 6 and (protocol in EXTENSIONS or protocol == FRAGMENT):
        if at + 8 > len(payload):
            return Upper(protocol, offset=at, broken="chain", extensions=extensions)
        if protocol == FRAGMENT:
            again = True
            protocol, at = payload[at], at + 8
        else:
            routed |= protocol == ROUTING and payload[at + 2] == 0 and payload[at + 3] > 0
            segments |= protocol == ROUTING and payload[at + 2] != 0 and payload[at + 3] > 0
            protocol, at = payload[at], at + 8 * (payload[at + 1] + 1)
        extensions += 1
    found = Upper(protocol, None, None, None, at, "", routed, segments, extensions, again)
    if at > len(payload):
        return found._replace(broken="chain")
    if protocol in WITH_PORTS or protocol in (ICMP, ICMPV6, ESP):
        if at + TRANSPORT_HEADER > len(payload):
            return found._replace(broken="transport")
        first, second = struct.unpack_from("!HH", payload, at)
        if protocol in WITH_PORTS:
            return found._replace(source_port=first, destination_port=second)
        if protocol != ESP:
            return found._replace(icmp=first)
    return found
