# SPDX-License-Identifier: Apache-2.0
"""Tests valid and invalid IPv6 headers and chains of extension headers."""

from sluice_ptf import raw
from sluice_ptf.case import ptf_test
from sluice_ptf.raw import NO_NEXT_HEADER, extension, fragment_header
from sluice_ptf.router import Router
from sluice_ptf.standard import TO_B, TO_D, A, D

DST = "2001:db8:2::9"
OURS = "2001:db8:1::1"
HOP_BY_HOP, TCP, ROUTING, FRAGMENT, ESP, AH, ICMPV6, OPTIONS, SCTP, MOBILITY = (
    0,
    6,
    43,
    44,
    50,
    51,
    58,
    60,
    132,
    135,
)
MOST_EXTENSIONS = 6
BGP = bytes.fromhex("c00000b3" + "00" * 16)


def chain(*headers: int, last: int = raw.UDP, payload: bytes | None = None) -> tuple[int, bytes]:
    """Returns the first Next Header value, and a chain of extension headers with its payload."""
    packet = raw.datagram() if payload is None else payload
    following = last
    for header in reversed(headers):
        fragment = header == FRAGMENT
        packet = (fragment_header(following) if fragment else extension(following)) + packet
        following = header
    return following, packet


def forwards(router: Router, packet: bytes) -> None:
    """Expects that the packet is forwarded, from an untagged interface and from a VLAN."""
    router.forwards(A, raw.framed(A, packet), TO_B)
    router.forwards(D, raw.framed(D, packet), TO_B)


def drops(router: Router, packet: bytes, reason: str) -> None:
    """Expects that the packet is dropped, from an untagged interface and from a VLAN."""
    for source in (A, D):
        router.drops(source, raw.framed(source, packet, ipv6_type=True), reason)


@ptf_test
def extension_headers_are_carried(router: Router) -> None:
    """Forwards each kind of extension header, alone and in the order that RFC 8200 recommends."""
    for headers in (
        (HOP_BY_HOP,),
        (OPTIONS,),
        (ROUTING,),
        (FRAGMENT,),
        (HOP_BY_HOP, OPTIONS, ROUTING, FRAGMENT, OPTIONS),
        (OPTIONS,) * MOST_EXTENSIONS,
    ):
        for last in (raw.UDP, TCP, ICMPV6, ESP, 253):
            first, payload = chain(*headers, last=last, payload=bytes(24))
            forwards(router, raw.ipv6(DST, payload, next_header=first))


@ptf_test
def long_extension_headers(router: Router) -> None:
    """Forwards extension headers of up to 1,024 bytes."""
    for size in (14, 62, 254, 1022):
        payload = extension(raw.UDP, bytes(size)) + raw.datagram()
        forwards(router, raw.ipv6(DST, payload, next_header=OPTIONS))


@ptf_test
def ports_are_found_behind_extension_headers(router: Router) -> None:
    """BGP to this router is recognized behind extension headers."""
    for headers in (
        (),
        (HOP_BY_HOP,),
        (OPTIONS, ROUTING),
        (FRAGMENT,),
        (OPTIONS,) * MOST_EXTENSIONS,
    ):
        first, payload = chain(*headers, last=TCP, payload=BGP)
        frame = raw.framed(A, raw.ipv6(OURS, payload, next_header=first))
        router.punts(A, frame, "ROUTING_PROTOCOL", stage="LOCAL_DELIVERY")


@ptf_test
def ah_and_esp_end_the_chain(router: Router) -> None:
    """AH and ESP end the chain (RFC 4301). The bytes behind them are not parsed."""
    for header in (AH, NO_NEXT_HEADER):
        frame = raw.framed(A, raw.ipv6(OURS, bytes([TCP, 4]) + BGP, next_header=header))
        router.punts(A, frame, "LOCAL", stage="LOCAL_DELIVERY")
    frame = raw.framed(A, raw.ipv6(OURS, bytes([TCP, 4]) + BGP, next_header=ESP))
    router.drops(A, frame, "UNKNOWN_SPI")


@ptf_test
def a_chain_too_deep_is_routed_by_its_addresses(router: Router) -> None:
    """A packet with more headers than the parser walks is routed by its addresses if no SPD
    applies.
    """
    for depth in (MOST_EXTENSIONS + 1, MOST_EXTENSIONS + 5):
        for header in (OPTIONS, HOP_BY_HOP):
            first, payload = chain(*[header] * depth)
            forwards(router, raw.ipv6(DST, payload, next_header=first))
            frame = raw.framed(A, raw.ipv6(OURS, payload, next_header=first))
            router.punts(A, frame, "LOCAL", stage="LOCAL_DELIVERY")


@ptf_test
def source_routes_are_dropped(router: Router) -> None:
    """Drops a type 0 routing header with segments left (RFC 5095).

    Other routing headers pass if no SPD applies.
    """
    for kind, left, passes in ((0, 0, True), (0, 1, False), (0, 255, False), (4, 1, True)):
        payload = extension(raw.UDP, bytes([kind, left]) + bytes(20)) + raw.datagram()
        for packet in (
            raw.ipv6(DST, payload, next_header=ROUTING),
            raw.ipv6(DST, extension(ROUTING) + payload, next_header=HOP_BY_HOP),
        ):
            if passes:
                forwards(router, packet)
            else:
                drops(router, packet, "SOURCE_ROUTE")


@ptf_test
def a_wrong_version_is_dropped(router: Router) -> None:
    """Drops a packet with another version than 6."""
    for version in (0, 4, 5, 7, 15):
        drops(router, raw.ipv6(DST, raw.datagram(), version=version), "MALFORMED")


@ptf_test
def a_truncated_header(router: Router) -> None:
    """Drops a frame that ends within the IPv6 header."""
    whole = raw.ipv6(DST, raw.datagram())
    router.drops(A, raw.framed(A, whole[:1]), "MALFORMED")  # Linux sends this frame only untagged
    for length in (2, 8, 20, 39):
        drops(router, whole[:length], "MALFORMED")


@ptf_test
def a_truncated_extension_header(router: Router) -> None:
    """Drops a frame that ends within an extension header, or before the header's claimed end."""
    for header in (HOP_BY_HOP, OPTIONS, ROUTING, FRAGMENT):
        for payload in (b"", b"\x11", b"\x11\x00", b"\x11\x00" + bytes(5)):
            drops(router, raw.ipv6(DST, payload, next_header=header), "MALFORMED")
    payload = extension(raw.UDP, length=200) + raw.datagram()
    drops(router, raw.ipv6(DST, payload, next_header=OPTIONS), "MALFORMED")


@ptf_test
def a_payload_length_beyond_the_frame(router: Router) -> None:
    """Drops a packet whose payload length is longer than the frame."""
    payload = raw.datagram()
    for excess in (1, 100, 60000):
        packet = raw.ipv6(DST, payload, payload_length=len(payload) + excess)
        drops(router, packet, "BAD_LENGTH")


@ptf_test
def extension_headers_beyond_the_payload(router: Router) -> None:
    """Drops a packet whose header chain ends behind the packet, in the frame's padding."""
    first, payload = chain(OPTIONS, OPTIONS)
    for length in (0, 8, 15):
        packet = raw.ipv6(DST, payload, next_header=first, payload_length=length)
        drops(router, packet, "MALFORMED")


@ptf_test
def a_truncated_transport_header(router: Router) -> None:
    """Drops a whole packet that ends before the ports that its protocol has."""
    for protocol in (raw.UDP, TCP, SCTP, ICMPV6):
        for size in (0, 1, 3):
            drops(router, raw.ipv6(DST, bytes(size), next_header=protocol), "MALFORMED")


@ptf_test
def a_truncated_mobility_header(router: Router) -> None:
    """Drops a mobility message of less than 8 bytes, whole or as first fragment, also with
    padding.
    """
    for size in (0, 2, 3, 5, 6, 7):
        whole = raw.ipv6(DST, bytes(size), next_header=MOBILITY)
        payload = fragment_header(MOBILITY, more=True) + bytes(size)
        first = raw.ipv6(DST, payload, next_header=FRAGMENT)
        for padding in (b"", bytes(40)):
            drops(router, whole + padding, "MALFORMED")
            drops(router, first + padding, "FRAGMENT_TOO_SHORT")
    forwards(router, raw.ipv6(DST, bytes(8), next_header=MOBILITY))
    payload = fragment_header(MOBILITY, more=True) + bytes(8)
    forwards(router, raw.ipv6(DST, payload, next_header=FRAGMENT))


@ptf_test
def padding_is_no_transport_header(router: Router) -> None:
    """Drops a packet that ends before its ports. The frame's padding is not read as ports."""
    for protocol in (raw.UDP, TCP, SCTP):
        for size in (0, 3):
            packet = raw.ipv6(DST, bytes(size), next_header=protocol)
            drops(router, packet + bytes(40), "MALFORMED")


@ptf_test
def a_first_fragment_without_ports(router: Router) -> None:
    """Drops a first fragment that is too short for its ports, also with padding."""
    for protocol in (raw.UDP, TCP, SCTP):
        for size in (0, 1, 3):
            payload = fragment_header(protocol, more=True) + bytes(size)
            packet = raw.ipv6(DST, payload, next_header=FRAGMENT)
            drops(router, packet, "FRAGMENT_TOO_SHORT")
            drops(router, packet + bytes(40), "FRAGMENT_TOO_SHORT")


@ptf_test
def fragments_are_forwarded(router: Router) -> None:
    """Forwards first, middle and last fragments.

    Data of later fragments are not read as headers.
    """
    for offset, more, payload in (
        (0, True, raw.datagram(16)),
        (3, True, bytes(24)),
        (6, False, bytes(24)),
        (6, False, b"\1"),
    ):
        for protocol in (raw.UDP, TCP, OPTIONS, FRAGMENT, ESP, 253):
            if offset == 0 and protocol in (OPTIONS, FRAGMENT):
                continue
            body = fragment_header(protocol, offset, more) + payload
            forwards(router, raw.ipv6(DST, body, next_header=FRAGMENT))


@ptf_test
def later_fragments_have_no_ports(router: Router) -> None:
    """A later fragment to this router is not taken for BGP: it has no ports."""
    for offset, more, reason in ((0, True, "ROUTING_PROTOCOL"), (5, False, "LOCAL")):
        body = fragment_header(TCP, offset, more) + BGP
        frame = raw.framed(A, raw.ipv6(OURS, body, next_header=FRAGMENT))
        router.punts(A, frame, reason, stage="LOCAL_DELIVERY")


@ptf_test
def a_packet_without_payload(router: Router) -> None:
    """Forwards a packet that has no payload."""
    forwards(router, raw.ipv6(DST, b"", next_header=NO_NEXT_HEADER))
    payload = extension(NO_NEXT_HEADER)
    forwards(router, raw.ipv6(DST, payload, next_header=HOP_BY_HOP))


@ptf_test
def extension_headers_into_a_vlan(router: Router) -> None:
    """Forwards a packet with extension headers into a VLAN."""
    first, payload = chain(HOP_BY_HOP, ROUTING, OPTIONS)
    packet = raw.ipv6("2001:db8:4::9", payload, next_header=first)
    router.forwards(A, raw.framed(A, packet), TO_D)
