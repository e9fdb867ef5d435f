# SPDX-License-Identifier: Apache-2.0
"""Selectors as the pipeline's parser finds them, and the packets that ICMP errors are about."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import packets
from sluice.model import parse_address
from sluice.policy_model import FlowKey, Selectors
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
)
from sluice.wire.selectors import PARSED_EXTENSIONS, enclosed_selectors, selectors
from wire.strategies import damaged

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
    return packet[2:]


@pytest.mark.parametrize(
    ("protocol", "payload", "expected"),
    [
        (TCP, PORTS, (TCP, 4000, 80, None, False)),
        (UDP, PORTS, (UDP, 4000, 80, None, False)),
        (SCTP, PORTS, (SCTP, 4000, 80, None, False)),
        (UDP, NAT_T, (UDP, 4500, 4500, None, False)),  # ESP in UDP is UDP
        (ESP, PORTS, (ESP, None, None, None, False)),
        (GRE, PORTS, (GRE, None, None, None, False)),
        (GRE, b"", (GRE, None, None, None, False)),
        (AUTHENTICATION, PORTS, (AUTHENTICATION, None, None, None, False)),
    ],
)
def test_what_both_families_show(
    protocol: int, payload: bytes, expected: tuple[object, ...]
) -> None:
    assert tail(seen4(protocol, payload)) == expected
    assert tail(seen6(protocol, payload)) == expected


def test_icmp_belongs_to_its_family() -> None:
    assert tail(seen4(ICMP, b"\x03\x04" + bytes(6))) == (ICMP, None, None, 0x304, False)
    assert tail(seen6(ICMPV6, b"\x87\x00" + bytes(6))) == (ICMPV6, None, None, 0x8700, False)
    assert tail(seen4(ICMPV6, b"\x87\x00" + bytes(6))) == (ICMPV6, None, None, None, False)
    assert tail(seen6(ICMP, b"\x03\x04" + bytes(6))) == (ICMP, None, None, None, False)


def test_addresses_and_key() -> None:
    seen = selectors(packets.ethernet(packets.ipv4(A4, B4, ECHO, ICMP), vlan=7))
    source, destination = parse_address(A4), parse_address(B4)
    assert seen.selectors[:2] == (source, destination)
    assert seen.key(is_local=True, bundle=3) == FlowKey(
        source, destination, ICMP, 0, 0x800, False, True, 3
    )


# -- fragments


def test_fragments_of_ipv4() -> None:
    first = seen4(UDP, PORTS, more_fragments=True)
    assert tail(first) == (UDP, 4000, 80, None, False)
    for more in (True, False):
        later = seen4(UDP, PORTS, fragment_offset=8, more_fragments=more)
        assert tail(later) == (UDP, None, None, None, True)


@pytest.mark.parametrize(
    ("fragment", "expected"),
    [
        (b"\0\0\0\0abcd", (UDP, 4000, 80, None, False)),  # atomic (RFC 6946)
        (b"\0\0\0\1abcd", (UDP, 4000, 80, None, False)),
        (b"\0\0\0\x09abcd", (UDP, None, None, None, True)),
        (b"\0\0\0\x08abcd", (UDP, None, None, None, True)),
    ],
)
def test_fragments_of_ipv6(fragment: bytes, expected: tuple[object, ...]) -> None:
    assert tail(seen6(UDP, PORTS, (FRAGMENT, fragment))) == expected


def test_a_later_fragment_has_the_protocol_its_fragment_header_names() -> None:
    chain = [(FRAGMENT, b"\0\0\0\x09abcd"), (DESTINATION_OPTIONS, bytes(8))]
    assert tail(seen6(UDP, PORTS, *chain)) == (DESTINATION_OPTIONS, None, None, None, True)


@pytest.mark.parametrize("protocol", [TCP, UDP, SCTP, ICMP, ESP])
def test_a_first_fragment_too_short_for_its_ports_is_refused(protocol: int) -> None:
    with pytest.raises(WireError, match="transport_truncated"):
        seen4(protocol, PORTS[:7], more_fragments=True)


# -- headers that are looked through, and how far the pipeline follows


@pytest.mark.parametrize("kind", [HOP_BY_HOP, ROUTING, DESTINATION_OPTIONS])
def test_extension_headers_of_rfc_4301_are_looked_through(kind: int) -> None:
    chain = [(kind, bytes(8)), (kind, b"\0\1" + bytes(14))]
    assert tail(seen6(TCP, PORTS, *chain)) == (TCP, 4000, 80, None, False)


@pytest.mark.parametrize("kind", [AUTHENTICATION, MOBILITY])
def test_other_headers_are_next_layer_protocols(kind: int) -> None:
    assert tail(seen6(TCP, PORTS, (kind, bytes(8)))) == (kind, None, None, None, False)


@pytest.mark.parametrize("depth", range(PARSED_EXTENSIONS + 3))
def test_a_chain_deeper_than_the_pipeline_walks_is_not_cacheable(depth: int) -> None:
    chain = [(DESTINATION_OPTIONS, bytes(8))] * depth
    seen = selectors(packets.ethernet(packets.ipv6_chain(chain, TCP, PORTS)))
    assert tail(seen.selectors) == (TCP, 4000, 80, None, False)
    assert seen.is_cacheable is (depth <= PARSED_EXTENSIONS)
    assert (seen.key() is None) is (depth > PARSED_EXTENSIONS)


@pytest.mark.parametrize("behind", [5, 6])
def test_a_fragment_header_counts_as_one_of_them(behind: int) -> None:
    chain = [(DESTINATION_OPTIONS, bytes(8))] * behind + [(FRAGMENT, b"\0\0\0\x09abcd")]
    seen = selectors(packets.ethernet(packets.ipv6_chain(chain, TCP, PORTS)))
    assert seen.selectors.is_later_fragment
    assert seen.is_cacheable is (behind == 5)


@pytest.mark.parametrize(
    ("options", "cacheable"),
    [
        (b"\x94\x04\0\0", True),
        (NO_OPERATION * 8, True),
        (NO_OPERATION * 9 + b"\0\0\0", True),  # ten no-operations or nine and the end
        (NO_OPERATION * 10 + b"\0\0", False),  # the end would be the eleventh
        (NO_OPERATION * 12, False),
        (NO_OPERATION * 8 + b"\x94\x04\0\0", True),
        (NO_OPERATION * 10 + b"\x94\x06" + bytes(4), False),
        (b"\0" + b"\xff" * 3, True),  # what follows the end is padding
    ],
)
def test_options_are_walked_and_ten_are_what_the_pipeline_walks(
    options: bytes, cacheable: bool
) -> None:
    seen = selectors(packets.ethernet(packets.ipv4(A4, B4, PORTS, options=options)))
    assert tail(seen.selectors) == (UDP, 4000, 80, None, False)
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


def test_a_routing_header_that_is_used_up_or_of_another_type_is_none() -> None:
    for header in (b"\0\0\0\0" + bytes(4), b"\0\0\x04\x01" + bytes(4)):
        assert seen6(UDP, PORTS, (ROUTING, header)).source_port == 4000


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
    assert enclosed_selectors(error4(about)) == Selectors(
        parse_address(B4), parse_address(A4), TCP, 80, 4000, None, False
    )
    about = packets.ipv6(A6, B6, PORTS, TCP)
    assert enclosed_selectors(error6(about)) == Selectors(
        parse_address(B6), parse_address(A6), TCP, 80, 4000, None, False
    )


def test_what_is_quoted_may_be_cut_off_behind_its_ports() -> None:
    about = packets.ipv4(A4, B4, PORTS + bytes(1000), UDP)[:28]
    enclosed = enclosed_selectors(error4(about))
    assert enclosed is not None
    assert enclosed.source_port == 80
    with pytest.raises(WireError, match="transport_truncated"):
        enclosed_selectors(error4(about[:27]))
    with pytest.raises(WireError, match="icmp_enclosed_truncated"):
        enclosed_selectors(error4(about[:19]))


def test_icmp_and_fragments_inside_errors() -> None:
    echo = enclosed_selectors(error4(packets.ipv4(A4, B4, ECHO, ICMP), kind=11))
    assert echo is not None
    assert echo.icmp == 0x800
    later = enclosed_selectors(error4(packets.ipv4(A4, B4, PORTS, UDP, fragment_offset=64)))
    assert later is not None
    assert tail(later) == (UDP, None, None, None, True)


def test_an_error_to_another_than_the_sender_is_nobodys_answer() -> None:
    with pytest.raises(WireError, match="icmp_enclosed_source"):
        enclosed_selectors(error4(packets.ipv4(A4, B4, PORTS), to="192.0.2.99"))


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
    assert enclosed_selectors(frame) is None


def test_the_families_do_not_mix() -> None:
    with pytest.raises(WireError, match="icmp_enclosed_truncated"):
        enclosed_selectors(error4(packets.ipv6(A6, B6, PORTS)))


# -- any bytes


FRAMES = [
    packets.ethernet(packets.ipv4(A4, B4, PORTS, options=NO_OPERATION * 3 + b"\x94\x05\0\0\0")),
    packets.ethernet(
        packets.ipv6_chain([(ROUTING, b"\0\1" + bytes(14)), (FRAGMENT, bytes(8))], TCP, PORTS)
    ),
    error4(packets.ipv4(A4, B4, PORTS)),
    error6(packets.ipv6(A6, B6, PORTS)),
]


@given(frame=st.one_of(st.binary(max_size=120), damaged(FRAMES)))
def test_any_frame_has_selectors_or_raises_wire_error(frame: bytes) -> None:
    try:
        seen = selectors(frame)
    except WireError:
        return
    assert seen.selectors.is_later_fragment <= (seen.selectors.source_port is None)
    try:
        enclosed_selectors(frame)
    except WireError:
        return


HEADERS = st.sampled_from([HOP_BY_HOP, ROUTING, DESTINATION_OPTIONS])


@given(
    chain=st.lists(st.tuples(HEADERS, st.integers(0, 3)), max_size=12),
    fragment=st.none() | st.tuples(st.integers(0, 8191), st.booleans()),
    ports=st.tuples(st.integers(0, 65535), st.integers(0, 65535)),
    protocol=st.sampled_from([TCP, UDP, SCTP]),
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
    shown = (None, None) if offset else ports
    assert tail(seen.selectors) == (protocol, *shown, None, bool(offset))
    assert seen.is_cacheable is (len(headers) <= PARSED_EXTENSIONS)
