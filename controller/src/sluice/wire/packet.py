# SPDX-License-Identifier: Apache-2.0
"""Parses Ethernet, IPv4, IPv6 and ICMP into checked views, and builds packets.

Depends only on `struct`. The `parse` functions raise WireError if a packet is shorter than its
length fields say. The views that they return need no further length checks. Offsets and lengths are
in bytes. Addresses are bytes in network order.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from sluice.wire.errors import WireError

ETHERTYPE_IPV4 = 0x0800
ETHERTYPE_ARP = 0x0806
ETHERTYPE_VLAN = 0x8100
ETHERTYPE_IPV6 = 0x86DD
ETHERTYPE_LLDP = 0x88CC
# Below this value, the field is a length (IEEE 802.3). IS-IS is the only supported protocol with
# such frames.
ETHERTYPE_MINIMUM = 0x0600
ISIS_LLC = b"\xfe\xfe\x03"

ETHERNET_HEADER = 14
VLAN_TAG = 4
IPV4_HEADER = 20
IPV6_HEADER = 40

ICMP, TCP, UDP, ICMPV6 = 1, 6, 17, 58
HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION = 0, 43, 44, 51
DESTINATION_OPTIONS, MOBILITY, HIP, SHIM6 = 60, 135, 139, 140
ESP = 50
IKE_PORT = 500
NAT_TRAVERSAL_PORT = 4500
_NAT_TRAVERSAL = NAT_TRAVERSAL_PORT.to_bytes(2, "big")
_IKE_PORTS = frozenset({IKE_PORT.to_bytes(2, "big"), _NAT_TRAVERSAL})
_UDP_HEADER, _MARKER = 8, 4
_SKIPPED_HEADERS = frozenset({HOP_BY_HOP, ROUTING, DESTINATION_OPTIONS, MOBILITY, HIP, SHIM6})
_MAY_HIDE_ESP = _SKIPPED_HEADERS | {FRAGMENT, AUTHENTICATION}

_U16 = Struct("!H")
_IPV4 = Struct("!BBHHHBBH4s4s")
_IPV6 = Struct("!IHBB16s16s")

IPV4_DF, IPV4_MF, IPV4_OFFSET_MASK = 0x4000, 0x2000, 0x1FFF
IPV4_LOOSE_SOURCE_ROUTE, IPV4_STRICT_SOURCE_ROUTE = 131, 137
_SINGLE_OCTET_OPTIONS = (0, 1)


# --- Ethernet ------------------------------------------------------------------------------------


class Ethernet(NamedTuple):
    """Holds a frame's header. `vlan` is the first tag's 802.1Q VLAN id, or None without a tag."""

    destination: bytes
    source: bytes
    vlan: int | None
    ethertype: int
    payload_offset: int


def parse_ethernet(frame: bytes) -> Ethernet:
    """Parses the header of `frame`, with at most one 802.1Q tag."""
    if len(frame) < ETHERNET_HEADER:
        raise WireError("ethernet_truncated", 0, f"{len(frame)} bytes of {ETHERNET_HEADER}")
    (ethertype,) = _U16.unpack_from(frame, 12)
    if ethertype != ETHERTYPE_VLAN:
        return Ethernet(frame[:6], frame[6:12], None, ethertype, ETHERNET_HEADER)
    if len(frame) < ETHERNET_HEADER + VLAN_TAG:
        raise WireError("vlan_truncated", ETHERNET_HEADER, f"{len(frame)} bytes of 18")
    (tag,) = _U16.unpack_from(frame, 14)
    (ethertype,) = _U16.unpack_from(frame, 16)
    return Ethernet(frame[:6], frame[6:12], tag & 0xFFF, ethertype, ETHERNET_HEADER + VLAN_TAG)


def without_vlan(frame: bytes) -> bytes:
    """Returns `frame` without its first 802.1Q tag, if any."""
    if frame[12:14] == b"\x81\x00" and len(frame) >= ETHERNET_HEADER + VLAN_TAG:
        return frame[:12] + frame[16:]
    return frame


def ip_payload(frame: bytes) -> bytes:
    """Returns the IP packet in `frame`, without Ethernet's padding. Raises WireError if the frame
    has no IP packet."""
    header = parse_ethernet(frame)
    packet = frame[header.payload_offset :]
    if header.ethertype == ETHERTYPE_IPV4:
        return packet[: parse_ipv4(packet).total_length]
    if header.ethertype == ETHERTYPE_IPV6:
        return packet[: IPV6_HEADER + parse_ipv6(packet).payload_length]
    raise WireError("not_ip", 12, f"EtherType {header.ethertype:#06x}")


def local_frame(packet: bytes) -> bytes:
    """Puts an IP packet into a frame with zero MACs, which the pipeline routes as locally
    originated."""
    ethertype = ETHERTYPE_IPV4 if packet[0] >> 4 == 4 else ETHERTYPE_IPV6
    return bytes(12) + _U16.pack(ethertype) + packet


# --- IPv4 (RFC 791) ------------------------------------------------------------------------------


class IPv4(NamedTuple):
    """Holds an IPv4 header with valid lengths. `fragment_offset` is in bytes."""

    header_length: int
    tos: int
    total_length: int
    identification: int
    dont_fragment: bool
    more_fragments: bool
    fragment_offset: int
    ttl: int
    protocol: int
    source: bytes
    destination: bytes
    options: bytes


def parse_ipv4(packet: bytes) -> IPv4:
    """Parses the header of `packet`, which may be longer than the total length (padding)."""
    if len(packet) < IPV4_HEADER:
        raise WireError("ipv4_truncated", 0, f"{len(packet)} bytes of {IPV4_HEADER}")
    first, tos, total, ident, fragment, ttl, protocol, _, source, destination = _IPV4.unpack_from(
        packet
    )
    if first >> 4 != 4:
        raise WireError("ipv4_version", 0, f"version {first >> 4}")
    header = (first & 0xF) * 4
    if header < IPV4_HEADER or header > total:
        raise WireError("ipv4_header_length", 0, f"header {header}, total {total} bytes")
    if total > len(packet):
        raise WireError("ipv4_total_length", 2, f"total length {total}, only {len(packet)} present")
    return IPv4(
        header,
        tos,
        total,
        ident,
        bool(fragment & IPV4_DF),
        bool(fragment & IPV4_MF),
        (fragment & IPV4_OFFSET_MASK) * 8,
        ttl,
        protocol,
        source,
        destination,
        packet[IPV4_HEADER:header],
    )


def has_source_route(options: bytes) -> bool:
    """Returns whether IPv4 options hold a loose or strict source route. Raises WireError."""
    start = 0
    while start < len(options) and options[start] != 0:
        kind = options[start]
        if kind in (IPV4_LOOSE_SOURCE_ROUTE, IPV4_STRICT_SOURCE_ROUTE):
            return True
        if kind in _SINGLE_OCTET_OPTIONS:
            start += 1
            continue
        length = options[start + 1] if start + 1 < len(options) else 0
        if length < 2 or start + length > len(options):
            raise WireError("ipv4_option_length", start, f"option {kind} has length {length}")
        start += length
    return False


def build_ipv4(header: IPv4, payload: bytes) -> bytes:
    """Builds a packet of `header` and `payload`; recomputes lengths and checksum.

    The length of `header.options` is a multiple of 4, and `header.fragment_offset` is a multiple of
    8.
    """
    length = IPV4_HEADER + len(header.options)
    fragment = header.fragment_offset // 8
    fragment |= IPV4_DF if header.dont_fragment else 0
    fragment |= IPV4_MF if header.more_fragments else 0
    fixed = _IPV4.pack(
        0x40 | length // 4,
        header.tos,
        length + len(payload),
        header.identification,
        fragment,
        header.ttl,
        header.protocol,
        0,
        header.source,
        header.destination,
    )
    checksum = internet_checksum(fixed + header.options)
    return fixed[:10] + _U16.pack(checksum) + fixed[12:] + header.options + payload


# --- IPv6 (RFC 8200) -----------------------------------------------------------------------------


class IPv6(NamedTuple):
    """Holds an IPv6 header with a valid payload length."""

    traffic_class: int
    flow_label: int
    payload_length: int
    next_header: int
    hop_limit: int
    source: bytes
    destination: bytes


class UpperLayer(NamedTuple):
    """Describes an IPv6 packet's upper layer: protocol, offset of its header, fragment offset.

    `fragment_offset` is in bytes, 0 for a whole packet or a first fragment.
    """

    protocol: int
    offset: int
    fragment_offset: int


def parse_ipv6(packet: bytes) -> IPv6:
    """Parses the fixed header of `packet`, which may have padding after its payload."""
    if len(packet) < IPV6_HEADER:
        raise WireError("ipv6_truncated", 0, f"{len(packet)} bytes of {IPV6_HEADER}")
    first, payload, next_header, hop_limit, source, destination = _IPV6.unpack_from(packet)
    if first >> 28 != 6:
        raise WireError("ipv6_version", 0, f"version {first >> 28}")
    if IPV6_HEADER + payload > len(packet):
        raise WireError(
            "ipv6_payload_length", 4, f"payload length {payload}, only {len(packet)} present"
        )
    return IPv6(
        first >> 20 & 0xFF, first & 0xFFFFF, payload, next_header, hop_limit, source, destination
    )


def build_ipv6(header: IPv6, payload: bytes) -> bytes:
    """Builds a packet of `header` and `payload`; recomputes the payload length."""
    first = 6 << 28 | header.traffic_class << 20 | header.flow_label
    return (
        _IPV6.pack(
            first,
            len(payload),
            header.next_header,
            header.hop_limit,
            header.source,
            header.destination,
        )
        + payload
    )


def ipv6_upper_layer(packet: bytes, *, skip_mobility: bool = True) -> UpperLayer:
    """Walks the extension headers of an IPv6 packet.

    The walk ends at the first header that is not an extension header. In a later fragment, it ends
    after the fragment header. Without `skip_mobility`, it also ends at a mobility header. Raises
    WireError for a truncated chain.
    """
    header = parse_ipv6(packet)
    end = IPV6_HEADER + header.payload_length
    protocol, offset = header.next_header, IPV6_HEADER
    while protocol in _SKIPPED_HEADERS or protocol in (FRAGMENT, AUTHENTICATION):
        if protocol == MOBILITY and not skip_mobility:
            break
        if offset + 8 > end:
            raise WireError("ipv6_extension_truncated", offset, f"header {protocol} is cut off")
        following, length = packet[offset], packet[offset + 1]
        if protocol == FRAGMENT:
            fragment = _U16.unpack_from(packet, offset + 2)[0] & 0xFFF8
            offset += 8
            if fragment:
                return UpperLayer(following, offset, fragment)
        elif protocol == AUTHENTICATION:
            offset += (length + 2) * 4
        else:
            offset += (length + 1) * 8
        protocol = following
    if offset > end:
        raise WireError(
            "ipv6_extension_truncated", end, f"the chain is {offset - end} bytes too long"
        )
    return UpperLayer(protocol, offset, 0)


def ipv6_fragment_id(packet: bytes) -> bytes | None:
    """Returns the addresses and identification that all fragments of an IPv6 packet share.

    See RFC 8200, section 4.5. Returns None if the packet is not fragmented. Raises WireError.
    """
    header = parse_ipv6(packet)
    end = IPV6_HEADER + header.payload_length
    protocol, offset = header.next_header, IPV6_HEADER
    while protocol in _SKIPPED_HEADERS or protocol == FRAGMENT:
        if offset + 8 > end:
            raise WireError("ipv6_extension_truncated", offset, f"header {protocol} is cut off")
        if protocol == FRAGMENT:
            return header.source + header.destination + packet[offset + 4 : offset + 8]
        protocol, offset = packet[offset], offset + (packet[offset + 1] + 1) * 8
    return None


# --- checksums and addresses ---------------------------------------------------------------------


def internet_checksum(data: bytes) -> int:
    """Returns the checksum of `data` (RFC 1071)."""
    if len(data) % 2:
        data += b"\0"
    # 2^16 is 1 modulo 65535, so the one's complement sum is the remainder modulo 65535 of all data
    # read as one number.
    total = int.from_bytes(data, "big") % 0xFFFF
    if total == 0 and any(data):
        total = 0xFFFF
    return 0xFFFF - total


def pseudo_header(source: bytes, destination: bytes, length: int, protocol: int) -> bytes:
    """Builds the IPv6 pseudo-header of RFC 8200 section 8.1."""
    return source + destination + length.to_bytes(4, "big") + bytes(3) + bytes([protocol])


def is_multicast(address: bytes) -> bool:
    """Returns whether an address is in 224.0.0.0/4 or ff00::/8."""
    return address[0] >> 4 == 0xE if len(address) == 4 else address[0] == 0xFF


def is_unspecified(address: bytes) -> bool:
    """Returns whether an address is 0.0.0.0 or ::."""
    return not any(address)


def is_loopback(address: bytes) -> bool:
    """Returns whether an address is in 127.0.0.0/8 or is ::1."""
    return address[0] == 127 if len(address) == 4 else address == LOOPBACK_V6


LOOPBACK_V6 = bytes(15) + b"\x01"


def is_valid_source(address: bytes) -> bool:
    """Returns whether `address` can be the source of a packet that may be answered.

    An IPv4 source must not be in 0/8, 127/8, class D or E (RFC 1812, section 5.3.7). An IPv6 source
    must not be unspecified, multicast, loopback or IPv4-mapped (RFC 4443, section 2.4 (e.6)).
    """
    if len(address) == 4:
        return address[0] not in (0, 127) and address[0] < 224
    return not (
        is_unspecified(address)
        or is_multicast(address)
        or is_loopback(address)
        or address[:12] == bytes(10) + b"\xff\xff"
    )


def is_esp(packet: bytes) -> bool:
    """Returns whether an IP packet is ESP, or ESP in UDP (RFC 3948). Raises WireError.

    Returns False for IKE and keepalives on the same port, and for later fragments of UDP (see
    `ipv6_fragment_id`). Returns True for a later IPv6 fragment that begins with an extension
    header, because ESP may follow this header.
    """
    protocol, at, is_later = _transport(packet)
    if protocol == ESP or (is_later and protocol in _MAY_HIDE_ESP):
        return True
    ports = packet[at : at + 4]
    if protocol != UDP or is_later or _NAT_TRAVERSAL not in (ports[:2], ports[2:]):
        return False
    # IKE starts with four zero bytes. A keepalive is shorter than four bytes.
    marker = packet[at + _UDP_HEADER : at + _UDP_HEADER + _MARKER]
    return len(marker) == _MARKER and any(marker)


def is_ike(packet: bytes) -> bool:
    """Returns whether an IP packet has a port of IKE (RFC 7296, section 2). Raises WireError.

    Must not be called for ESP.
    """
    protocol, at, is_later = _transport(packet)
    ports = packet[at : at + 4]
    has_port = not _IKE_PORTS.isdisjoint((ports[:2], ports[2:]))
    return protocol == UDP and not is_later and has_port


def _transport(packet: bytes) -> tuple[int, int, bool]:
    """Returns (protocol, offset, is_later) of an IP packet. Raises WireError.

    `protocol` is the protocol after all extension headers, and `offset` the position of its header.
    `is_later`: the packet is a later fragment.
    """
    if packet[:1] and packet[0] >> 4 == 4:
        ipv4 = parse_ipv4(packet)
        return ipv4.protocol, ipv4.header_length, ipv4.fragment_offset > 0
    upper = ipv6_upper_layer(packet)
    return upper.protocol, upper.offset, upper.fragment_offset > 0
