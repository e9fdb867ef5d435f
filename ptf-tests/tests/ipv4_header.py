# SPDX-License-Identifier: Apache-2.0
"""Tests valid and invalid IPv4 headers, up to the ports."""

from sluice_ptf import raw
from sluice_ptf.case import ptf_test
from sluice_ptf.router import Router
from sluice_ptf.standard import TO_B, TO_D, A, D

DST = "10.2.0.9"
OURS = "10.1.0.1"
TCP = 6
ICMP = 1
SCTP = 132
MOBILITY = 135

END, NOP = b"\0", b"\1"
ROUTER_ALERT = b"\x94\x04\0\0"
RECORD_ROUTE = b"\x07\x0b\x04" + bytes(8)
TIMESTAMP = b"\x44\x0c\x05\0" + bytes(8)
LOOSE_SOURCE_ROUTE = b"\x83\x07\x04\x0a\x03\0\x09"
STRICT_SOURCE_ROUTE = b"\x89\x07\x04\x0a\x03\0\x09"
UNKNOWN = b"\xde\x06abcd"


def padded(options: bytes) -> bytes:
    """Returns options, padded to 32-bit words."""
    return options + END * (-len(options) % 4)


def forwards(router: Router, packet: bytes) -> None:
    """Expects that the packet is forwarded, from an untagged interface and from a VLAN."""
    router.forwards(A, raw.framed(A, packet), TO_B)
    router.forwards(D, raw.framed(D, packet), TO_B)


def drops(router: Router, packet: bytes, reason: str) -> None:
    """Expects that the packet is dropped, from an untagged interface and from a VLAN."""
    for source in (A, D):
        router.drops(source, raw.framed(source, packet, ipv6_type=False), reason)


@ptf_test
def options_are_carried(router: Router) -> None:
    """Options of all kinds and lengths are forwarded, with a correct checksum."""
    for options in (
        NOP * 4,
        NOP * 8,
        END * 4,
        END * 40,
        ROUTER_ALERT,
        ROUTER_ALERT * 10,
        padded(RECORD_ROUTE),
        padded(TIMESTAMP),
        padded(UNKNOWN),
        NOP + RECORD_ROUTE,
        padded(NOP * 3 + TIMESTAMP + RECORD_ROUTE),
        b"\x07\x27\x04" + bytes(36) + NOP,
        END + b"rubbish behind the end of the list"[:31],
        b"\x07\x02" + NOP * 2,
    ):
        forwards(router, raw.ipv4(DST, raw.datagram(), options=options))


@ptf_test
def ports_are_found_behind_options(router: Router) -> None:
    """BGP to this router is recognized with and without options."""
    segment = bytes.fromhex("c00000b3" + "00" * 16)
    for options in (b"", NOP * 4, ROUTER_ALERT, padded(RECORD_ROUTE), END * 40):
        packet = raw.ipv4(OURS, segment, options=options, protocol=TCP)
        router.punts(A, raw.framed(A, packet), "ROUTING_PROTOCOL", stage="LOCAL_DELIVERY")


@ptf_test
def source_routes_are_dropped(router: Router) -> None:
    """Drops source routes at any position of the options, to any destination (RFC 7126, 4.3 and
    4.4).
    """
    for route in (LOOSE_SOURCE_ROUTE, STRICT_SOURCE_ROUTE):
        for options in (NOP + route, route + END, ROUTER_ALERT + NOP + route, NOP * 5 + route):
            for dst in (DST, OURS, "192.0.2.1"):
                drops(
                    router, raw.ipv4(dst, raw.datagram(), options=padded(options)), "SOURCE_ROUTE"
                )


@ptf_test
def a_source_route_behind_the_end_is_padding(router: Router) -> None:
    """Bytes behind an end-of-list option are not parsed as options."""
    forwards(router, raw.ipv4(DST, raw.datagram(), options=END + LOOSE_SOURCE_ROUTE))


@ptf_test
def malformed_options_are_dropped(router: Router) -> None:
    """Drops options with a length of 0 or 1, with a length beyond the header, or without a
    length.
    """
    for options in (
        b"\x07\x00" + bytes(2),
        b"\x07\x01" + bytes(2),
        b"\x07\x05" + bytes(2),
        b"\x07\xff" + bytes(2),
        NOP * 3 + b"\x07",
        ROUTER_ALERT + b"\x07\x05\0\0",
        b"\x83\x00" + bytes(2),
        b"\x83\x08" + bytes(2),
    ):
        drops(router, raw.ipv4(DST, raw.datagram(), options=options), "MALFORMED")


@ptf_test
def too_many_options(router: Router) -> None:
    """Punts a packet with more options than the parser walks.

    The CPU checks the options for source routes.
    """
    for options in (NOP * 12, NOP * 40, NOP * 33 + LOOSE_SOURCE_ROUTE):
        frame = raw.framed(A, raw.ipv4(DST, raw.datagram(), options=options))
        router.punts(A, frame, "IP_OPTIONS", stage="ROUTING")
        source = {"ingress_port": A.port, "ingress_l3_if": A.id}
        outcome = router.from_cpu(frame, kind="REINJECT", stage="ROUTING", **source)
        assert [port for port, _frame in outcome.out] == [TO_B.interface.port]


@ptf_test
def bad_checksums_are_dropped(router: Router) -> None:
    """Drops a packet whose header checksum is wrong. The checksum covers the options."""
    for options in (b"", ROUTER_ALERT, NOP * 8, padded(RECORD_ROUTE), END * 40):
        good = raw.ipv4(DST, raw.datagram(), options=options)
        checksum = int.from_bytes(good[10:12], "big")
        for wrong in (checksum ^ 1, checksum ^ 0x8000, 0):
            packet = raw.ipv4(DST, raw.datagram(), options=options, checksum=wrong)
            drops(router, packet, "BAD_CHECKSUM")


@ptf_test
def a_wrong_version_is_dropped(router: Router) -> None:
    """Drops a packet with another version than 4."""
    for version in (0, 5, 6, 15):
        drops(router, raw.ipv4(DST, raw.datagram(), version=version), "MALFORMED")


@ptf_test
def a_header_cannot_be_shorter_than_itself(router: Router) -> None:
    """Drops a packet with an IHL below 5."""
    for ihl in range(5):
        drops(router, raw.ipv4(DST, raw.datagram(), ihl=ihl), "MALFORMED")


@ptf_test
def a_header_longer_than_the_frame(router: Router) -> None:
    """Drops a packet whose IHL is longer than the packet."""
    for ihl in (6, 10, 15):
        drops(router, raw.ipv4(DST, b"", ihl=ihl, total_length=20), "MALFORMED")


@ptf_test
def a_truncated_header(router: Router) -> None:
    """Drops a frame that ends within the IPv4 header."""
    whole = raw.ipv4(DST, raw.datagram())
    router.drops(A, raw.framed(A, whole[:1]), "MALFORMED")  # Linux sends this frame only untagged
    for length in (2, 8, 12, 19):
        drops(router, whole[:length], "MALFORMED")


@ptf_test
def truncated_options(router: Router) -> None:
    """Drops a frame that ends within the options."""
    for options in (ROUTER_ALERT * 2, padded(RECORD_ROUTE), NOP * 8, END * 8):
        whole = raw.ipv4(DST, raw.datagram(), options=options)
        for length in (20, 21, 23, 27):
            drops(router, whole[:length], "MALFORMED")


@ptf_test
def a_total_length_beyond_the_frame(router: Router) -> None:
    """Drops a packet whose total length is longer than the frame."""
    payload = raw.datagram()
    for excess in (1, 100, 40000):
        length = 20 + len(payload) + excess
        drops(router, raw.ipv4(DST, payload, total_length=length), "BAD_LENGTH")


@ptf_test
def a_total_length_below_the_header(router: Router) -> None:
    """Drops a packet whose total length is shorter than its header."""
    for length in (0, 1, 19):
        drops(router, raw.ipv4(DST, raw.datagram(), total_length=length), "MALFORMED")
    packet = raw.ipv4(DST, raw.datagram(), options=ROUTER_ALERT, total_length=23)
    drops(router, packet, "MALFORMED")


@ptf_test
def a_packet_without_payload(router: Router) -> None:
    """Forwards a packet that has no payload."""
    forwards(router, raw.ipv4(DST, b"", protocol=253))
    forwards(router, raw.ipv4(DST, b"", protocol=253, options=ROUTER_ALERT))


@ptf_test
def a_truncated_transport_header(router: Router) -> None:
    """Drops a whole packet that ends before the ports that its protocol has."""
    for protocol in (raw.UDP, TCP, SCTP, ICMP):
        for size in (0, 1, 3):
            drops(router, raw.ipv4(DST, bytes(size), protocol=protocol), "MALFORMED")


@ptf_test
def a_truncated_mobility_header(router: Router) -> None:
    """Drops a mobility message of less than 8 bytes, whole or as first fragment, also with
    padding.
    """
    for size in (0, 2, 3, 5, 6, 7):
        whole = raw.ipv4(DST, bytes(size), protocol=MOBILITY)
        first = raw.ipv4(DST, bytes(size), protocol=MOBILITY, fragment=raw.MORE_FRAGMENTS)
        for padding in (b"", bytes(40)):
            drops(router, whole + padding, "MALFORMED")
            drops(router, first + padding, "FRAGMENT_TOO_SHORT")
    forwards(router, raw.ipv4(DST, bytes(8), protocol=MOBILITY))


@ptf_test
def padding_is_no_transport_header(router: Router) -> None:
    """Drops a packet that ends before its ports. The frame's padding is not read as ports."""
    for protocol in (raw.UDP, TCP, SCTP):
        for size in (0, 3):
            packet = raw.ipv4(DST, bytes(size), protocol=protocol)
            drops(router, packet + bytes(46 - len(packet)), "MALFORMED")


@ptf_test
def a_first_fragment_without_ports(router: Router) -> None:
    """Drops a first fragment that is too short for its ports, also with padding (RFC 1858)."""
    for protocol in (raw.UDP, TCP, SCTP):
        for size in (0, 1, 3):
            packet = raw.ipv4(DST, bytes(size), protocol=protocol, fragment=raw.MORE_FRAGMENTS)
            drops(router, packet, "FRAGMENT_TOO_SHORT")
            drops(router, packet + bytes(40), "FRAGMENT_TOO_SHORT")


@ptf_test
def fragments_are_forwarded(router: Router) -> None:
    """Forwards first, middle and last fragments, also short ones."""
    for fragment, payload in (
        (raw.MORE_FRAGMENTS, raw.datagram(16)),
        (raw.MORE_FRAGMENTS | 3, bytes(24)),
        (6, bytes(24)),
        (6, b"\1"),
        (0x1FFF, bytes(8)),
    ):
        for protocol in (raw.UDP, TCP, ICMP, 50, 253):
            forwards(router, raw.ipv4(DST, payload, protocol=protocol, fragment=fragment))


@ptf_test
def esp_passes(router: Router) -> None:
    """Forwards ESP in IP and in UDP to another host."""
    esp = b"\0\0\x10\x01" + bytes(36)
    forwards(router, raw.ipv4(DST, esp, protocol=50))
    encapsulated = raw.datagram(0, 4500, 4500)[:4] + b"\0\x30\0\0" + esp
    forwards(router, raw.ipv4(DST, encapsulated))


@ptf_test
def a_frame_that_ends_with_its_type(router: Router) -> None:
    """Drops a frame that ends with its EtherType."""
    addresses = raw.framed(A, b"\x45")[:12]
    for ether_type in (b"\x08\x00", b"\x86\xdd"):
        router.drops(A, addresses + ether_type, "MALFORMED")


@ptf_test
def the_longest_header(router: Router) -> None:
    """Forwards a packet with a header of 60 bytes into a VLAN."""
    packet = raw.ipv4("10.4.0.9", raw.datagram(), options=ROUTER_ALERT * 10)
    router.forwards(A, raw.framed(A, packet), TO_D)
