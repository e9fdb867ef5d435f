# SPDX-License-Identifier: Apache-2.0
"""Tests the fields of packet views, and that input bytes never raise an error other than
WireError."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import packets
from sluice.model import parse_address
from sluice.wire import packet
from sluice.wire.errors import WireError
from wire.strategies import damaged

V4 = packets.ipv4("192.0.2.1", "198.51.100.1", b"payload", options=b"\x94\x04\0\0")
V6 = packets.ipv6("2001:db8::1", "2001:db8::2", b"payload")
FRAMES = [
    packets.ethernet(V4),
    packets.ethernet(V6, vlan=7),
    packets.ethernet(V4 + bytes(20)),
]


def test_a_tag_is_looked_through_and_taken_off() -> None:
    tagged = packets.ethernet(V6, vlan=7)
    header = packet.parse_ethernet(tagged)
    assert (header.vlan, header.ethertype) == (7, packet.ETHERTYPE_IPV6)
    assert packet.without_vlan(tagged) == packets.ethernet(V6)
    assert packet.without_vlan(packets.ethernet(V6)) == packets.ethernet(V6)


def test_padding_is_no_part_of_the_ip_packet() -> None:
    assert packet.ip_payload(packets.ethernet(V4) + bytes(30)) == V4
    assert packet.ip_payload(packets.ethernet(V6) + bytes(30)) == V6


def test_ipv4_is_built_as_it_was_parsed() -> None:
    header = packet.parse_ipv4(V4)
    assert packet.build_ipv4(header, V4[header.header_length :]) == V4


def test_ipv6_is_built_as_it_was_parsed() -> None:
    assert packet.build_ipv6(packet.parse_ipv6(V6), V6[40:]) == V6


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        ([], packet.UpperLayer(packet.UDP, 40, 0)),
        ([(packet.HOP_BY_HOP, bytes(8))], packet.UpperLayer(packet.UDP, 48, 0)),
        (
            [(packet.ROUTING, b"\0\1" + bytes(14)), (packet.DESTINATION_OPTIONS, bytes(8))],
            packet.UpperLayer(packet.UDP, 64, 0),
        ),
        ([(packet.AUTHENTICATION, b"\0\2" + bytes(14))], packet.UpperLayer(packet.UDP, 56, 0)),
        ([(packet.FRAGMENT, b"\0\0\0\1abcd")], packet.UpperLayer(packet.UDP, 48, 0)),
        ([(packet.FRAGMENT, b"\0\0\0\x09abcd")], packet.UpperLayer(packet.UDP, 48, 8)),
    ],
)
def test_extension_headers_are_walked(
    chain: list[tuple[int, bytes]], expected: packet.UpperLayer
) -> None:
    assert packet.ipv6_upper_layer(packets.ipv6_chain(chain, packet.UDP, b"12345678")) == expected


def test_a_chain_that_is_cut_off_is_an_error() -> None:
    whole = packets.ipv6_chain([(packet.ROUTING, b"\0\1" + bytes(14))], packet.UDP, b"")
    for length in range(1, 16):
        with pytest.raises(WireError):
            packet.ipv6_upper_layer(packets.ipv6("::1", "::2", whole[40 : 40 + length], 43))


def naive_checksum(data: bytes) -> int:
    """Computes the checksum of RFC 1071 word by word."""
    padded = data + bytes(len(data) % 2)
    total = sum(int.from_bytes(padded[i : i + 2], "big") for i in range(0, len(padded), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


@given(st.one_of(st.binary(max_size=100), st.binary(max_size=4).map(lambda b: b * 20)))
def test_checksum_is_rfc_1071s(data: bytes) -> None:
    assert packet.internet_checksum(data) == naive_checksum(data)


@pytest.mark.parametrize(
    ("address", "valid"),
    [
        ("192.0.2.1", True),
        ("0.0.0.0", False),
        ("0.1.2.3", False),
        ("127.0.0.1", False),
        ("224.0.0.5", False),
        ("240.0.0.1", False),
        ("255.255.255.255", False),
        ("2001:db8::1", True),
        ("fe80::1", True),
        ("::", False),
        ("::1", False),
        ("ff02::1", False),
        ("::ffff:192.0.2.1", False),
    ],
)
def test_who_can_be_answered(address: str, valid: bool) -> None:
    assert packet.is_valid_source(parse_address(address)) is valid


@pytest.mark.parametrize(
    "parse",
    [packet.parse_ethernet, packet.ip_payload, packet.without_vlan],
)
@given(frame=st.one_of(st.binary(max_size=80), damaged(FRAMES)))
def test_any_frame_parses_or_raises_wire_error(
    parse: Callable[[bytes], object], frame: bytes
) -> None:
    try:
        parse(frame)
    except WireError:
        return


@pytest.mark.parametrize("parse", [packet.parse_ipv4, packet.parse_ipv6, packet.ipv6_upper_layer])
@given(data=st.one_of(st.binary(max_size=80), damaged([V4, V6])))
def test_any_packet_parses_or_raises_wire_error(
    parse: Callable[[bytes], object], data: bytes
) -> None:
    try:
        parse(data)
    except WireError:
        return


# --- ESP (RFC 3948) ------------------------------------------------------------------------------


def udp(source: int, destination: int, payload: bytes) -> bytes:
    ports = source.to_bytes(2, "big") + destination.to_bytes(2, "big")
    return ports + (8 + len(payload)).to_bytes(2, "big") + bytes(2) + payload


@pytest.mark.parametrize(
    ("protocol", "payload", "is_esp"),
    [
        (50, bytes(16), True),
        (17, udp(4500, 4500, b"\1\2\3\4 and more"), True),
        (17, udp(4500, 61000, b"\1\2\3\4 and more"), True),
        (17, udp(61000, 4500, b"\1\2\3\4 and more"), True),
        (17, udp(4500, 4500, bytes(4) + b" IKE"), False),
        (17, udp(4500, 4500, b"\xff"), False),
        (17, udp(500, 500, b"\1\2\3\4"), False),
        (6, udp(4500, 4500, b"\1\2\3\4"), False),
        (17, b"", False),
    ],
)
def test_esp_is_told_from_ike_beside_it(protocol: int, payload: bytes, is_esp: bool) -> None:
    ends4, ends6 = ("10.0.1.1", "10.0.1.9"), ("2001:db8::1", "2001:db8::2")
    assert packet.is_esp(packets.ipv4(*ends4, payload, protocol)) is is_esp
    assert packet.is_esp(packets.ipv6(*ends6, payload, protocol)) is is_esp


@given(st.binary(max_size=80))
def test_whether_any_bytes_are_esp_is_told_or_a_wire_error(data: bytes) -> None:
    with contextlib.suppress(WireError):
        assert packet.is_esp(data) in (True, False)


@pytest.mark.parametrize(
    ("source", "destination", "is_ike"),
    [(500, 500, True), (500, 40000, True), (40000, 4500, True), (40000, 501, False)],
)
def test_ike_has_a_port_of_ike_at_either_end(source: int, destination: int, is_ike: bool) -> None:
    payload = source.to_bytes(2, "big") + destination.to_bytes(2, "big") + bytes(12)
    ends4, ends6 = ("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "2001:db8::2")
    assert packet.is_ike(packets.ipv4(*ends4, payload, packet.UDP)) is is_ike
    assert packet.is_ike(packets.ipv6(*ends6, payload, packet.UDP)) is is_ike
    assert not packet.is_ike(packets.ipv4(*ends4, payload, packet.TCP))
