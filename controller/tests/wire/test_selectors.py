# SPDX-License-Identifier: Apache-2.0
"""Tests the selectors that are read from packets, and from the packets that ICMP errors quote.

The selectors must equal those that the pipeline's parser finds.
"""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

import packets
from sluice.model import parse_address
from sluice.policy.model import FlowKey, FragmentClass, Selectors
from sluice.wire.errors import WireError
from sluice.wire.packet import (
    AUTHENTICATION,
    DESTINATION_OPTIONS,
    FRAGMENT,
    HOP_BY_HOP,
    ICMP,
    ICMPV6,
    MOBILITY,
    ROUTING,
    TCP,
    UDP,
    internet_checksum,
    pseudo_header,
)
from sluice.wire.selectors import (
    PARSED_EXTENSIONS,
    Fragment,
    Quoted,
    TooBig,
    is_neighbor_discovery,
    packet_identity,
    quoted_packet,
    selectors,
    too_big,
)
from wire.strategies import damaged

MOBILITY_HEADER = bytes([59, 0, 5, 0, 0xAB, 0xCD, 0, 1])  # a binding update (RFC 6275, 6.1.7)
A4, B4 = "192.0.2.1", "198.51.100.1"
A6, B6 = "2001:db8::1", "2001:db8:1::1"
ESP, SCTP, GRE = 50, 132, 47
PORTS = (4000).to_bytes(2, "big") + (80).to_bytes(2, "big") + bytes(4)
NAT_T = (4500).to_bytes(2, "big") * 2 + bytes.fromhex("00200000deadbeef") + bytes(20)
ECHO = bytes([8, 0]) + bytes(6)
NO_OPERATION = b"\x01"


def seen4(protocol: int, payload: bytes, **header: object) -> Selectors:
    return selectors(packets.ethernet(packets.ipv4(A4, B4, payload, protocol, **header))).selectors  # type: ignore[arg-type]


def seen6(protocol: int, payload: bytes, *chain: tuple[int, bytes]) -> Selectors:
    return selectors(
        packets.ethernet(packets.ipv6_chain(list(chain), protocol, payload, A6, B6))
    ).selectors


def tail(packet: Selectors) -> tuple[object, ...]:
    return packet[2:6]


@pytest.mark.parametrize(
    ("protocol", "payload", "expected"),
    [
        (TCP, PORTS, (TCP, 4000, 80, None)),
        (UDP, PORTS, (UDP, 4000, 80, None)),
        (SCTP, PORTS, (SCTP, 4000, 80, None)),
        (UDP, NAT_T, (UDP, 4500, 4500, None)),  # ESP in UDP counts as UDP
        (ESP, PORTS, (ESP, None, None, None)),
        (GRE, PORTS, (GRE, None, None, None)),
        (GRE, b"", (GRE, None, None, None)),
        (AUTHENTICATION, PORTS, (AUTHENTICATION, None, None, None)),
        (ICMP, b"\x03\x04" + bytes(6), (ICMP, None, None, 0x304)),
        (ICMPV6, b"\x87\x00" + bytes(6), (ICMPV6, None, None, 0x8700)),
    ],
)
def test_what_both_families_show(
    protocol: int, payload: bytes, expected: tuple[object, ...]
) -> None:
    assert tail(seen4(protocol, payload)) == expected
    assert tail(seen6(protocol, payload)) == expected


def test_addresses_and_key() -> None:
    frame = packets.ethernet(packets.ipv4(A4, B4, ECHO, ICMP), vlan=7)
    source, destination = parse_address(A4), parse_address(B4)
    whole = FragmentClass.WHOLE
    key = FlowKey(source, destination, ICMP, 0, 0x800, whole, False, 3)
    assert selectors(frame).key(bundle=3) == key
    assert selectors(frame, is_own=True).key() == key._replace(is_local=True, bundle=0)


@pytest.mark.parametrize("kind", range(131, 140))
def test_neighbour_discovery_is_133_to_137_of_icmpv6(kind: int) -> None:
    is_nd = 133 <= kind <= 137
    assert is_neighbor_discovery(seen6(ICMPV6, bytes([kind]) + bytes(7))) is is_nd
    assert not is_neighbor_discovery(seen6(ICMP, bytes([kind]) + bytes(7)))


# -- fragments


def test_fragments_of_ipv4() -> None:
    whole = packets.ethernet(packets.ipv4(A4, B4, PORTS * 2, UDP))
    assert selectors(whole).fragment is None
    first = packets.ethernet(packets.ipv4(A4, B4, PORTS * 2, UDP, more_fragments=True))
    assert tail(selectors(first).selectors) == (UDP, 4000, 80, None)
    assert selectors(first).fragment_class is FragmentClass.FIRST
    fragment = selectors(first).fragment
    assert fragment is not None
    assert fragment == Fragment(fragment.identification, UDP, 0, 16, True)
    for more in (True, False):
        header = {"fragment_offset": 24, "more_fragments": more}
        later = selectors(packets.ethernet(packets.ipv4(A4, B4, PORTS, UDP, **header)))  # type: ignore[arg-type]
        assert tail(later.selectors) == (UDP, None, None, None)
        assert later.fragment_class is FragmentClass.LATER
        assert later.fragment == Fragment(fragment.identification, UDP, 24, 32, more)


@pytest.mark.parametrize(
    ("field", "expected", "fragment"),
    [
        (b"\0\0", (UDP, 4000, 80, None), None),  # an atomic fragment (RFC 6946)
        (b"\0\1", (UDP, 4000, 80, None), Fragment(0x61626364, 0, 0, 8, True)),
        (b"\0\x09", (None, None, None, None), Fragment(0x61626364, 0, 8, 16, True)),
        (b"\0\x08", (None, None, None, None), Fragment(0x61626364, 0, 8, 16, False)),
    ],
)
def test_fragments_of_ipv6(
    field: bytes, expected: tuple[object, ...], fragment: Fragment | None
) -> None:
    frame = packets.ethernet(
        packets.ipv6_chain([(FRAGMENT, b"\0\0" + field + b"abcd")], UDP, PORTS, A6, B6)
    )
    assert tail(selectors(frame).selectors) == expected
    assert selectors(frame).fragment == fragment


def test_the_protocol_of_a_later_ipv6_fragment_is_in_the_key_and_not_believed() -> None:
    chain = [(FRAGMENT, b"\0\0\0\x09abcd"), (DESTINATION_OPTIONS, bytes(8))]
    seen = selectors(packets.ethernet(packets.ipv6_chain(chain, UDP, PORTS, A6, B6)))
    assert tail(seen.selectors) == (None, None, None, None)
    key = seen.key()
    assert key is not None
    assert (key.protocol, key.fragment) == (DESTINATION_OPTIONS, FragmentClass.LATER)


def test_what_is_in_front_of_a_fragment_header_is_not_of_its_datagram() -> None:
    chain = [(DESTINATION_OPTIONS, bytes(8)), (FRAGMENT, b"\0\0\0\x01abcd")]
    seen = selectors(packets.ethernet(packets.ipv6_chain(chain, UDP, PORTS * 3, A6, B6)))
    assert seen.fragment == Fragment(0x61626364, 0, 0, 24, True)
    chain.append((DESTINATION_OPTIONS, bytes(8)))
    seen = selectors(packets.ethernet(packets.ipv6_chain(chain, UDP, PORTS * 3, A6, B6)))
    assert seen.fragment == Fragment(0x61626364, 0, 0, 32, True)


def test_what_later_fragments_of_a_first_one_show() -> None:
    first4 = selectors(packets.ethernet(packets.ipv4(A4, B4, PORTS, UDP, more_fragments=True)))
    assert tail(first4.as_later_fragment()) == (UDP, None, None, None)
    chain = [(FRAGMENT, b"\0\0\0\x01abcd")]
    first6 = selectors(packets.ethernet(packets.ipv6_chain(chain, UDP, PORTS, A6, B6)))
    assert tail(first6.as_later_fragment()) == (None, None, None, None)


def test_the_type_of_a_mobility_message() -> None:
    for seen in (seen4(MOBILITY, MOBILITY_HEADER), seen6(MOBILITY, MOBILITY_HEADER)):
        assert tail(seen) == (MOBILITY, None, None, None)
        assert seen.mobility_type == 5
    assert seen6(MOBILITY, MOBILITY_HEADER, (HOP_BY_HOP, bytes(8))).mobility_type == 5
    assert seen6(UDP, MOBILITY_HEADER).mobility_type is None
    for size in range(8):
        with pytest.raises(WireError, match="transport_truncated"):
            seen4(MOBILITY, MOBILITY_HEADER[:size])
        with pytest.raises(WireError, match="transport_truncated"):
            seen6(MOBILITY, MOBILITY_HEADER[:size])


def test_only_the_first_fragment_of_a_mobility_message_shows_its_type() -> None:
    header = MOBILITY_HEADER
    first4 = selectors(
        packets.ethernet(packets.ipv4(A4, B4, header, MOBILITY, more_fragments=True))
    )
    chain = [(FRAGMENT, b"\0\0\0\x01abcd")]
    first6 = selectors(packets.ethernet(packets.ipv6_chain(chain, MOBILITY, header, A6, B6)))
    for first, protocol in ((first4, MOBILITY), (first6, None)):
        assert first.selectors.mobility_type == 5
        later = first.as_later_fragment()
        assert (later.protocol, later.mobility_type) == (protocol, None)
    assert seen4(MOBILITY, header, fragment_offset=8).mobility_type is None
    assert seen6(MOBILITY, header, (FRAGMENT, b"\0\0\0\x08abcd")).mobility_type is None


def test_a_quoted_mobility_message_keeps_its_type() -> None:
    quoted = quoted_packet(error6(packets.ipv6(A6, B6, MOBILITY_HEADER, MOBILITY)))
    assert quoted is not None
    assert (quoted.selectors.protocol, quoted.selectors.mobility_type) == (MOBILITY, 5)


def test_the_key_of_a_mobility_message_has_its_type_as_destination_port() -> None:
    for kind in (0, 5, 255):
        message = MOBILITY_HEADER[:2] + bytes([kind]) + MOBILITY_HEADER[3:]
        key = selectors(packets.ethernet(packets.ipv6(A6, B6, message, MOBILITY))).key()
        assert key is not None
        assert (key.protocol, key.source_port, key.destination_port) == (MOBILITY, 0, kind)


def test_a_fragment_of_a_fragment_is_refused() -> None:
    first, later = b"\0\0\0\x01abcd", b"\0\0\0\x09abcd"
    for inner in (first, later, bytes(8)):
        with pytest.raises(WireError, match="ipv6_nested_fragment"):
            seen6(UDP, PORTS, (FRAGMENT, first), (FRAGMENT, inner))
    assert seen6(UDP, PORTS, (FRAGMENT, bytes(8)), (FRAGMENT, first)).source_port == 4000


def test_a_fragment_that_starts_inside_the_tcp_header_is_refused() -> None:
    with pytest.raises(WireError, match="fragment_overlap"):
        seen4(TCP, PORTS, fragment_offset=8)
    assert tail(seen4(TCP, PORTS, fragment_offset=16)) == (TCP, None, None, None)
    assert tail(seen4(UDP, PORTS, fragment_offset=8)) == (UDP, None, None, None)


@pytest.mark.parametrize("protocol", [TCP, UDP, SCTP, ICMP, ESP, MOBILITY])
def test_a_first_fragment_too_short_for_its_ports_is_refused(protocol: int) -> None:
    with pytest.raises(WireError, match="transport_truncated"):
        seen4(protocol, PORTS[:7], more_fragments=True)


# -- headers that are skipped, and the pipeline's limit


@pytest.mark.parametrize("kind", [HOP_BY_HOP, ROUTING, DESTINATION_OPTIONS])
def test_extension_headers_of_rfc_4301_are_looked_through(kind: int) -> None:
    chain = [(kind, bytes(8)), (kind, b"\0\1" + bytes(14))]
    assert tail(seen6(TCP, PORTS, *chain)) == (TCP, 4000, 80, None)


@pytest.mark.parametrize("kind", [AUTHENTICATION, MOBILITY])
def test_other_headers_are_next_layer_protocols(kind: int) -> None:
    assert tail(seen6(TCP, PORTS, (kind, bytes(8)))) == (kind, None, None, None)


@pytest.mark.parametrize("depth", range(PARSED_EXTENSIONS + 3))
def test_a_chain_deeper_than_the_pipeline_walks_is_not_cacheable(depth: int) -> None:
    chain = [(DESTINATION_OPTIONS, bytes(8))] * depth
    seen = selectors(packets.ethernet(packets.ipv6_chain(chain, TCP, PORTS)))
    assert tail(seen.selectors) == (TCP, 4000, 80, None)
    assert seen.is_cacheable is (depth <= PARSED_EXTENSIONS)
    assert (seen.key() is None) is (depth > PARSED_EXTENSIONS)


@pytest.mark.parametrize("behind", [5, 6])
def test_a_fragment_header_counts_as_one_of_them(behind: int) -> None:
    chain = [(DESTINATION_OPTIONS, bytes(8))] * behind + [(FRAGMENT, b"\0\0\0\x09abcd")]
    seen = selectors(packets.ethernet(packets.ipv6_chain(chain, TCP, PORTS)))
    assert seen.fragment_class is FragmentClass.LATER
    assert seen.is_cacheable is (behind == 5)


@pytest.mark.parametrize(
    ("options", "cacheable"),
    [
        (b"\x94\x04\0\0", True),
        (NO_OPERATION * 8, True),
        (NO_OPERATION * 9 + b"\0\0\0", True),  # nine options, then the end
        (NO_OPERATION * 10 + b"\0\0", False),  # ten options, then the end
        (NO_OPERATION * 12, False),
        (NO_OPERATION * 8 + b"\x94\x04\0\0", True),
        (NO_OPERATION * 10 + b"\x94\x06" + bytes(4), False),
        (b"\0" + b"\xff" * 3, True),  # bytes after the end are padding
    ],
)
def test_options_are_walked_and_ten_are_what_the_pipeline_walks(
    options: bytes, cacheable: bool
) -> None:
    seen = selectors(packets.ethernet(packets.ipv4(A4, B4, PORTS, options=options)))
    assert tail(seen.selectors) == (UDP, 4000, 80, None)
    assert seen.is_cacheable is cacheable


@pytest.mark.parametrize(
    "options", [b"\x94\x05\0\0", b"\x94\x01\0\0", b"\1\1\1\x94", b"\x94\0\0\0"]
)
def test_options_that_contradict_themselves_are_refused(options: bytes) -> None:
    with pytest.raises(WireError, match="ipv4_option_length"):
        seen4(UDP, PORTS, options=options)


@pytest.mark.parametrize("before", [0, 12])
def test_source_routes_are_refused_however_deep_they_hide(before: int) -> None:
    with pytest.raises(WireError, match="source_route"):
        seen4(UDP, PORTS, options=NO_OPERATION * before + b"\x83\x04\x04\0")
    chain = [(DESTINATION_OPTIONS, bytes(8))] * before
    route = (ROUTING, b"\0\0\0\x01" + bytes(4))
    with pytest.raises(WireError, match="source_route"):
        seen6(UDP, PORTS, *chain, route)


@pytest.mark.parametrize("before", [0, 12])
@pytest.mark.parametrize("kind", [1, 2, 3, 4, 255])
def test_a_destination_on_the_way_is_not_searched(kind: int, before: int) -> None:
    chain = [(DESTINATION_OPTIONS, bytes(8))] * before
    for left in (1, 255):
        with pytest.raises(WireError, match="segments_left"):
            seen6(UDP, PORTS, *chain, (ROUTING, bytes([0, 0, kind, left]) + bytes(4)))


@pytest.mark.parametrize("kind", [0, 2, 3, 4, 255])
def test_a_routing_header_that_is_used_up_is_looked_through(kind: int) -> None:
    assert seen6(UDP, PORTS, (ROUTING, bytes([0, 0, kind, 0]) + bytes(4))).source_port == 4000


@pytest.mark.parametrize("cut", [1, 7, 9, 15])
def test_a_chain_that_is_cut_off_is_refused(cut: int) -> None:
    whole = packets.ipv6_chain([(ROUTING, b"\0\1" + bytes(14))], UDP, b"")
    with pytest.raises(WireError):
        selectors(packets.ethernet(packets.ipv6(A6, B6, whole[40 : 40 + cut], ROUTING)))


# -- ICMP errors (RFC 4301, section 6)


def error4(about: bytes, kind: int = 3, code: int = 1, to: str = A4) -> bytes:
    message = bytes([kind, code]) + bytes(6) + about
    return packets.ethernet(packets.ipv4("203.0.113.1", to, message, ICMP))


def error6(about: bytes, kind: int = 2, to: str = A6) -> bytes:
    message = bytes([kind, 0]) + bytes(6) + about
    return packets.ethernet(packets.ipv6("2001:db8:9::1", to, message, ICMPV6))


def test_an_error_is_looked_up_as_an_answer_to_the_packet_it_is_about() -> None:
    about = packets.ipv4(A4, B4, PORTS, TCP)
    turned = Selectors(parse_address(B4), parse_address(A4), TCP, 80, 4000, None)
    whole = FragmentClass.WHOLE
    identity = packet_identity(packets.ethernet(about))
    assert quoted_packet(error4(about)) == Quoted(turned, whole, None, identity)
    own = turned._replace(is_own=True)
    assert quoted_packet(error4(about), is_own=True) == Quoted(own, whole, None, identity)
    about = packets.ipv6(A6, B6, PORTS, TCP)
    turned = Selectors(parse_address(B6), parse_address(A6), TCP, 80, 4000, None)
    identity = packet_identity(packets.ethernet(about))
    assert quoted_packet(error6(about)) == Quoted(turned, whole, None, identity)


def test_what_is_quoted_may_be_cut_off_behind_its_ports() -> None:
    about = packets.ipv4(A4, B4, PORTS + bytes(1000), UDP)[:28]
    quoted = quoted_packet(error4(about))
    assert quoted is not None
    assert quoted.selectors.source_port == 80
    with pytest.raises(WireError, match="transport_truncated"):
        quoted_packet(error4(about[:27]))
    with pytest.raises(WireError, match="icmp_enclosed_truncated"):
        quoted_packet(error4(about[:19]))


def test_icmp_and_fragments_inside_errors() -> None:
    echo = quoted_packet(error4(packets.ipv4(A4, B4, ECHO, ICMP), kind=11))
    assert echo is not None
    assert echo.selectors.icmp == 0x800
    later = quoted_packet(error4(packets.ipv4(A4, B4, PORTS, UDP, fragment_offset=64)))
    assert later is not None
    assert tail(later.selectors) == (UDP, None, None, None)
    assert later.fragment_class is FragmentClass.LATER


@pytest.mark.parametrize(
    ("protocol", "payload", "spi"),
    [
        (ESP, bytes.fromhex("deadbeef00000001"), 0xDEADBEEF),
        (UDP, NAT_T, 0xDEADBEEF),
        (UDP, (4500).to_bytes(2, "big") * 2 + bytes.fromhex("00200000") + bytes(8), None),  # IKE
        (UDP, PORTS, None),
    ],
)
def test_the_spi_inside_errors(protocol: int, payload: bytes, spi: int | None) -> None:
    quoted = quoted_packet(error4(packets.ipv4(A4, B4, payload, protocol)))
    assert quoted is not None
    assert quoted.spi == spi


def test_an_error_to_another_than_the_sender_is_nobodys_answer() -> None:
    with pytest.raises(WireError, match="icmp_enclosed_source"):
        quoted_packet(error4(packets.ipv4(A4, B4, PORTS), to="192.0.2.99"))


@pytest.mark.parametrize(
    "frame",
    [
        packets.ethernet(packets.ipv4(A4, B4, PORTS)),
        packets.ethernet(packets.ipv4(A4, B4, ECHO, ICMP)),
        error4(packets.ipv4(A4, B4, PORTS), kind=5),  # a redirect never leaves its link
        packets.ethernet(packets.ipv4(A4, B4, bytes(40), ICMP, fragment_offset=8)),
        error6(packets.ipv6(A6, B6, PORTS), kind=135),
    ],
)
def test_what_is_no_error_encloses_nothing(frame: bytes) -> None:
    assert quoted_packet(frame) is None


def test_a_datagram_its_first_fragment_and_their_quotes_have_one_identity() -> None:
    whole4, whole6 = packets.ipv4(A4, B4, PORTS * 3, UDP), packets.ipv6(A6, B6, PORTS * 3, UDP)
    first4 = packets.ipv4(A4, B4, PORTS, UDP, more_fragments=True, options=NO_OPERATION * 4)
    first6 = packets.ipv6_chain([(FRAGMENT, b"\0\0\0\x01abcd")], UDP, PORTS, A6, B6)
    for error, whole, first in ((error4, whole4, first4), (error6, whole6, first6)):
        identity = packet_identity(packets.ethernet(whole))
        assert identity == packet_identity(packets.ethernet(first))
        for quoted in (quoted_packet(error(whole[:60])), quoted_packet(error(first))):
            assert quoted is not None
            assert quoted.identity == identity
    later = packets.ethernet(packets.ipv4(A4, B4, PORTS, UDP, fragment_offset=8))
    assert packet_identity(later) is None
    other = packets.ethernet(packets.ipv4(A4, B4, PORTS[::-1], UDP))
    assert packet_identity(other) != packet_identity(packets.ethernet(whole4))


def test_the_families_do_not_mix() -> None:
    with pytest.raises(WireError, match="icmp_enclosed_truncated"):
        quoted_packet(error4(packets.ipv6(A6, B6, PORTS)))


# -- any bytes


FRAMES = [
    packets.ethernet(packets.ipv4(A4, B4, PORTS, options=NO_OPERATION * 3 + b"\x94\x05\0\0\0")),
    packets.ethernet(
        packets.ipv6_chain([(ROUTING, b"\0\1" + bytes(14)), (FRAGMENT, bytes(8))], TCP, PORTS)
    ),
    error4(packets.ipv4(A4, B4, PORTS)),
    error6(packets.ipv6(A6, B6, PORTS)),
    packets.ethernet(packets.ipv6(A6, B6, MOBILITY_HEADER, MOBILITY)),
]


@given(frame=st.one_of(st.binary(max_size=120), damaged(FRAMES)))
def test_any_frame_has_selectors_or_raises_wire_error(frame: bytes) -> None:
    try:
        seen = selectors(frame)
    except WireError:
        return
    is_later = seen.fragment_class is FragmentClass.LATER
    assert is_later <= (seen.selectors.source_port is None)
    assert is_later <= (seen.selectors.mobility_type is None)
    try:
        quoted_packet(frame)
    except WireError:
        return


HEADERS = st.sampled_from([HOP_BY_HOP, ROUTING, DESTINATION_OPTIONS])


@given(
    chain=st.lists(st.tuples(HEADERS, st.integers(0, 3)), max_size=12),
    fragment=st.none() | st.tuples(st.integers(0, 8191), st.booleans()),
    ports=st.tuples(st.integers(0, 65535), st.integers(0, 65535)),
    protocol=st.sampled_from([TCP, UDP, SCTP, MOBILITY]),
)
def test_a_packet_shows_what_it_was_built_with(
    chain: list[tuple[int, int]],
    fragment: tuple[int, bool] | None,
    ports: tuple[int, int],
    protocol: int,
) -> None:
    headers = [(kind, bytes([0, size]) + bytes(6 + 8 * size)) for kind, size in chain]
    offset, more = fragment or (0, False)
    if fragment is not None:
        headers.append((FRAGMENT, b"\0\0" + (offset << 3 | more).to_bytes(2, "big") + b"abcd"))
    payload = b"".join(port.to_bytes(2, "big") for port in ports) + bytes(4)
    seen = selectors(packets.ethernet(packets.ipv6_chain(headers, protocol, payload)))
    shows_type = protocol == MOBILITY and not offset
    shown = (None, None) if offset or shows_type else ports
    assert tail(seen.selectors) == (None if offset else protocol, *shown, None)
    assert seen.selectors.mobility_type == (ports[1] >> 8 if shows_type else None)
    assert (seen.protocol, seen.fragment_class is FragmentClass.LATER) == (protocol, bool(offset))
    assert seen.is_cacheable is (len(headers) <= PARSED_EXTENSIONS)
    key = seen.key()
    if key is not None:
        assert key.selectors() == (seen.selectors if seen.fragment is None else None)


@pytest.mark.parametrize("is_own", [False, True])
@pytest.mark.parametrize("protocol", [ICMP, ICMPV6, 50, 89, MOBILITY])
def test_a_key_says_all_that_rules_look_at(protocol: int, is_own: bool) -> None:
    frame = packets.ethernet(packets.ipv6_chain([], protocol, bytes([3, 1]) + bytes(62)))
    seen = selectors(frame, is_own=is_own)
    key = seen.key(bundle=3)
    assert key is not None
    assert key.selectors() == seen.selectors


# --- packets that are too big


ESP_HEADER = (0x1234).to_bytes(4, "big") + (7).to_bytes(4, "big") + bytes(1400)
ESP4 = packets.ipv4(A4, B4, ESP_HEADER, ESP)
ESP6 = packets.ipv6(A6, B6, ESP_HEADER, ESP)
ROUTER4, ROUTER6 = "203.0.113.9", "2001:db8:9::9"


def too_big4(mtu: int, about: bytes = ESP4, kind: int = 3, code: int = 4) -> bytes:
    message = bytes([kind, code]) + bytes(4) + mtu.to_bytes(2, "big") + about[:200]
    message = message[:2] + internet_checksum(message).to_bytes(2, "big") + message[4:]
    return packets.ethernet(packets.ipv4(ROUTER4, A4, message, ICMP))


def too_big6(mtu: int, about: bytes = ESP6) -> bytes:
    message = bytes([2, 0]) + bytes(2) + mtu.to_bytes(4, "big") + about[:400]
    pseudo = pseudo_header(parse_address(ROUTER6), parse_address(A6), len(message), ICMPV6)
    message = message[:2] + internet_checksum(pseudo + message).to_bytes(2, "big") + message[4:]
    return packets.ethernet(packets.ipv6(ROUTER6, A6, message, ICMPV6))


@pytest.mark.parametrize(
    ("error", "sender", "ends"),
    [(too_big4(1400), ROUTER4, (A4, B4)), (too_big6(1400), ROUTER6, (A6, B6))],
    ids=["ipv4", "ipv6"],
)
def test_an_error_about_esp_that_is_too_big(
    error: bytes, sender: str, ends: tuple[str, str]
) -> None:
    found = too_big(error)
    assert isinstance(found, TooBig)
    assert (found.sender, found.mtu) == (parse_address(sender), 1400)
    assert found.length == len(ESP4 if len(found.sender) == 4 else ESP6)
    assert found.quoted.spi == 0x1234
    quoted = found.quoted.selectors
    assert (quoted.destination, quoted.source) == tuple(map(parse_address, ends))


def test_other_errors_and_other_packets_tell_no_mtu() -> None:
    assert too_big(too_big4(1400, code=1)) is None
    assert too_big(too_big4(1400, kind=11, code=0)) is None
    assert too_big(packets.ethernet(packets.ipv4(A4, B4, PORTS, UDP))) is None
    assert too_big(packets.ethernet(packets.ipv4(A4, B4, ECHO, ICMP))) is None


@pytest.mark.parametrize("error", [too_big4(1400), too_big6(1400)], ids=["ipv4", "ipv6"])
def test_an_error_with_a_wrong_checksum_is_none(error: bytes) -> None:
    with pytest.raises(WireError, match="icmp_checksum"):
        too_big(error[:-1] + bytes([error[-1] ^ 1]))


@given(damaged([too_big4(1400), too_big6(1400)]))
def test_a_damaged_error_is_refused_or_read(frame: bytes) -> None:
    with contextlib.suppress(WireError):
        too_big(frame)
