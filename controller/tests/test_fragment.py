# SPDX-License-Identifier: Apache-2.0
"""Tests fragmentation: fragments fit the MTU, reassemble to the original packet, and have the right
options.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import packets
from sluice.fragment import copied_options, fragment_esp_over_ipv6, fragment_ipv4
from sluice.wire.errors import WireError
from sluice.wire.packet import ESP, build_ipv4, internet_checksum, parse_ipv4, parse_ipv6
from wire.strategies import damaged

ROUTER_ALERT = b"\x94\x04\0\0"  # copied to all fragments
RECORD_ROUTE = b"\x07\x07\x04\0\0\0\0"  # only in the first fragment
NOP, END = b"\x01", b"\0"
# (options of the packet, options of its later fragments). Each list is padded to a multiple of 4.
OPTION_LISTS = [
    (b"", b""),
    (ROUTER_ALERT, ROUTER_ALERT),
    (RECORD_ROUTE + END, b""),
    (NOP + RECORD_ROUTE + ROUTER_ALERT, ROUTER_ALERT),
    (NOP * 2 + b"\x82\x06abcd", b"\x82\x06abcd\0\0"),
    (END + b"\x94\x04\0", b""),
]


def sample(
    payload: bytes, options: bytes = b"", *, dont_fragment: bool = False, more: bool = False
) -> bytes:
    return packets.ipv4(
        "192.0.2.1",
        "198.51.100.1",
        payload,
        options=options,
        dont_fragment=dont_fragment,
        more_fragments=more,
    )


def reassemble(fragments: list[bytes]) -> bytes:
    """Reassembles the fragments of one packet (RFC 791). Fails if a byte is missing."""
    headers = [parse_ipv4(fragment) for fragment in fragments]
    payload = b""
    for header, fragment in sorted(
        zip(headers, fragments, strict=True), key=lambda pair: pair[0].fragment_offset
    ):
        assert header.fragment_offset == len(payload)
        payload += fragment[header.header_length :]
    first = min(headers, key=lambda header: header.fragment_offset)
    last = max(headers, key=lambda header: header.fragment_offset)
    assert [h.more_fragments for h in headers].count(False) <= 1
    return build_ipv4(first._replace(more_fragments=last.more_fragments), payload)


@given(
    payload=st.binary(max_size=4000),
    options=st.sampled_from(OPTION_LISTS),
    mtu=st.integers(68, 1600),
    more=st.booleans(),
)
def test_fragments_fit_and_reassemble(
    payload: bytes, options: tuple[bytes, bytes], mtu: int, more: bool
) -> None:
    if more:  # the packet is a fragment itself, so its payload is a multiple of 8
        payload = payload[: len(payload) & ~7]
    whole = sample(payload, options[0], more=more)
    fragments = fragment_ipv4(whole, mtu)
    assert reassemble(fragments) == whole
    for index, fragment in enumerate(fragments):
        header = parse_ipv4(fragment)
        assert header.total_length == len(fragment) <= mtu
        assert header.options == options[1 if index else 0]
        assert internet_checksum(fragment[: header.header_length]) == 0
        assert header.more_fragments or index == len(fragments) - 1


def test_fragments_of_a_fragment_keep_their_place() -> None:
    whole = sample(bytes(range(256)) * 8)
    wide = fragment_ipv4(whole, 1004)
    narrow = [fragment for part in wide for fragment in fragment_ipv4(part, 300)]
    assert len(narrow) > len(wide)
    assert reassemble(narrow) == whole


def test_what_fits_is_left_alone_but_for_padding() -> None:
    whole = sample(b"x" * 100, dont_fragment=True)
    assert fragment_ipv4(whole + bytes(6), 120) == [whole]


@pytest.mark.parametrize(
    ("packet", "mtu", "name"),
    [
        (sample(bytes(200), dont_fragment=True), 100, "dont_fragment"),
        (sample(bytes(200)), 67, "mtu_too_small"),
        (sample(bytes(200), b"\x94\x05\0\0"), 100, "ipv4_option_length"),
        (sample(bytes(200), b"\x94\x01\0\0"), 100, "ipv4_option_length"),
        (sample(bytes(200), b"\x01\x01\x01\x94"), 100, "ipv4_option_length"),
        (sample(bytes(200))[:-1], 100, "ipv4_total_length"),
    ],
)
def test_refusals_are_named(packet: bytes, mtu: int, name: str) -> None:
    with pytest.raises(WireError) as error:
        fragment_ipv4(packet, mtu)
    assert error.value.name == name


@given(
    damaged([sample(bytes(200), o) for o, _ in OPTION_LISTS]),
    st.integers(0, 300),
)
def test_any_bytes_fragment_or_raise_wire_error(packet: bytes, mtu: int) -> None:
    try:
        fragments = fragment_ipv4(packet, mtu)
    except WireError:
        return
    assert all(len(fragment) <= max(mtu, len(packet)) for fragment in fragments)


@given(st.binary(max_size=40))
def test_copied_options_are_aligned(options: bytes) -> None:
    try:
        assert len(copied_options(options)) % 4 == 0
    except WireError:
        return


ENDS = "2001:db8::1", "2001:db8::2"


@given(payload=st.binary(max_size=6000), mtu=st.integers(1280, 1600))
def test_esp_over_ipv6_fits_and_reassembles(payload: bytes, mtu: int) -> None:
    whole = packets.ipv6(*ENDS, payload, ESP)
    fragments = fragment_esp_over_ipv6(whole, mtu, 0xDEADBEEF)
    if len(whole) <= mtu:
        assert fragments == [whole]
        return
    at = 0
    for index, fragment in enumerate(fragments):
        header = parse_ipv6(fragment)
        assert 40 + header.payload_length == len(fragment) <= mtu
        assert (header.next_header, fragment[40], fragment[41]) == (44, ESP, 0)
        place = int.from_bytes(fragment[42:44], "big")
        assert place == at | (index < len(fragments) - 1)
        assert fragment[44:48] == bytes.fromhex("deadbeef")
        assert fragment[48:] == payload[at : at + len(fragment) - 48]
        at += len(fragment) - 48
    assert at == len(payload)


@pytest.mark.parametrize(
    ("packet", "mtu", "name"),
    [
        (packets.ipv6(*ENDS, bytes(1400), ESP), 1279, "mtu_too_small"),
        (packets.ipv6(*ENDS, bytes(1400), 44), 1280, "not_esp"),
        (packets.ipv6(*ENDS, bytes(1400), ESP)[:-1], 1280, "ipv6_payload_length"),
    ],
)
def test_refusals_of_esp_over_ipv6_are_named(packet: bytes, mtu: int, name: str) -> None:
    with pytest.raises(WireError) as error:
        fragment_esp_over_ipv6(packet, mtu, 1)
    assert error.value.name == name
