# SPDX-License-Identifier: Apache-2.0
"""Tests ICMP errors (RFC 792, 1191, 1812, 4443): their content, their rate limit, and which packets
cause no error.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packets import ethernet, ipv4, ipv6, ipv6_chain
from sluice.icmp import IcmpErrorKind, IcmpErrorRefusal, RateLimiter, error_for
from sluice.model import parse_address
from sluice.wire import packet as wire
from wire.strategies import damaged

ROUTER_V4 = parse_address("10.0.0.1")
ROUTER_V6 = parse_address("2001:db8:ffff::1")
HOST_V4, FAR_V4 = "192.0.2.1", "198.51.100.1"
HOST_V6, FAR_V6 = "2001:db8:1::1", "2001:db8:2::1"


def answer_v4(
    frame: bytes, kind: IcmpErrorKind = IcmpErrorKind.TTL_EXCEEDED, mtu: int = 0
) -> bytes:
    answer = error_for(frame, kind, ROUTER_V4, mtu)
    assert isinstance(answer, bytes)
    return answer


def answer_v6(
    frame: bytes, kind: IcmpErrorKind = IcmpErrorKind.TTL_EXCEEDED, mtu: int = 0
) -> bytes:
    answer = error_for(frame, kind, ROUTER_V6, mtu)
    assert isinstance(answer, bytes)
    return answer


def refusal(
    frame: bytes, kind: IcmpErrorKind = IcmpErrorKind.TTL_EXCEEDED, **known: object
) -> object:
    source = ROUTER_V4 if frame[12:14] == b"\x08\x00" else ROUTER_V6
    return error_for(frame, kind, source, **known)  # type: ignore[arg-type]


# --- content of an error -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "type_code_rest"),
    [
        (IcmpErrorKind.NO_ROUTE, (3, 0, 0)),
        (IcmpErrorKind.ROUTE_UNREACHABLE, (3, 1, 0)),
        (IcmpErrorKind.NEIGHBOR_UNREACHABLE, (3, 1, 0)),
        (IcmpErrorKind.PROHIBITED, (3, 13, 0)),
        (IcmpErrorKind.TOO_BIG, (3, 4, 1400)),
        (IcmpErrorKind.TTL_EXCEEDED, (11, 0, 0)),
    ],
)
def test_icmp_error(kind: IcmpErrorKind, type_code_rest: tuple[int, int, int]) -> None:
    original = ipv4(HOST_V4, FAR_V4, b"some data")
    error = answer_v4(ethernet(original + bytes(17)), kind, 1400)
    header = wire.parse_ipv4(error)
    message = error[header.header_length :]
    assert (header.source, header.destination) == (ROUTER_V4, parse_address(HOST_V4))
    assert (header.protocol, header.tos, header.ttl) == (wire.ICMP, 0xC0, 64)
    assert (message[0], message[1], int.from_bytes(message[4:8], "big")) == type_code_rest
    assert message[8:] == original  # padding is not quoted
    assert wire.internet_checksum(error[:20]) == 0
    assert wire.internet_checksum(message) == 0


@pytest.mark.parametrize(
    ("kind", "type_code_rest"),
    [
        (IcmpErrorKind.NO_ROUTE, (1, 0, 0)),
        (IcmpErrorKind.ROUTE_UNREACHABLE, (1, 0, 0)),
        (IcmpErrorKind.NEIGHBOR_UNREACHABLE, (1, 3, 0)),
        (IcmpErrorKind.PROHIBITED, (1, 1, 0)),
        (IcmpErrorKind.TOO_BIG, (2, 0, 1400)),
        (IcmpErrorKind.TTL_EXCEEDED, (3, 0, 0)),
    ],
)
def test_icmpv6_error(kind: IcmpErrorKind, type_code_rest: tuple[int, int, int]) -> None:
    original = ipv6(HOST_V6, FAR_V6, b"some data")
    error = answer_v6(ethernet(original, vlan=5), kind, 1400)
    header = wire.parse_ipv6(error)
    message = error[40:]
    assert (header.source, header.destination) == (ROUTER_V6, parse_address(HOST_V6))
    assert (header.next_header, header.hop_limit) == (wire.ICMPV6, 64)
    assert (message[0], message[1], int.from_bytes(message[4:8], "big")) == type_code_rest
    assert message[8:] == original
    pseudo = wire.pseudo_header(header.source, header.destination, len(message), wire.ICMPV6)
    assert wire.internet_checksum(pseudo + message) == 0


def test_an_error_quotes_as_much_as_fits() -> None:
    v4 = answer_v4(ethernet(ipv4(HOST_V4, FAR_V4, bytes(1400))))
    v6 = answer_v6(ethernet(ipv6(HOST_V6, FAR_V6, bytes(1400))))
    assert (len(v4), len(v6)) == (576, 1280)


def test_a_first_fragment_is_answered() -> None:
    answer_v4(ethernet(ipv4(HOST_V4, FAR_V4, bytes(8), more_fragments=True)))


def test_echo_and_its_reply_are_answered() -> None:
    for kind in (8, 0):
        answer_v4(ethernet(ipv4(HOST_V4, FAR_V4, bytes([kind]) + bytes(7), wire.ICMP)))
    for kind in (128, 129):
        answer_v6(ethernet(ipv6(HOST_V6, FAR_V6, bytes([kind]) + bytes(7), wire.ICMPV6)))


# --- cases without an error ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", [3, 4, 5, 11, 12])
def test_no_error_about_an_icmp_error(kind: int) -> None:
    frame = ethernet(ipv4(HOST_V4, FAR_V4, bytes([kind]) + bytes(7), wire.ICMP))
    assert refusal(frame) is IcmpErrorRefusal.ABOUT_AN_ERROR


@pytest.mark.parametrize("kind", [1, 2, 3, 4, 127, 137])
@pytest.mark.parametrize("chain", [[], [(wire.DESTINATION_OPTIONS, bytes(8))]])
def test_no_error_about_an_icmpv6_error_or_redirect(
    kind: int, chain: list[tuple[int, bytes]]
) -> None:
    frame = ethernet(ipv6_chain(chain, wire.ICMPV6, bytes([kind]) + bytes(7), HOST_V6))
    assert refusal(frame) is IcmpErrorRefusal.ABOUT_AN_ERROR


def test_no_error_about_icmp_without_its_type() -> None:
    assert (
        refusal(ethernet(ipv4(HOST_V4, FAR_V4, b"", wire.ICMP))) is IcmpErrorRefusal.ABOUT_AN_ERROR
    )
    later = [(wire.FRAGMENT, b"\0\0\0\x08abcd")]
    frame = ethernet(ipv6_chain(later, wire.ICMPV6, b"\x80" + bytes(7), HOST_V6))
    assert refusal(frame) is IcmpErrorRefusal.ABOUT_AN_ERROR


@pytest.mark.parametrize(
    "source", ["0.0.0.0", "0.0.0.9", "127.0.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"]
)
def test_no_error_to_an_impossible_source(source: str) -> None:
    assert refusal(ethernet(ipv4(source, FAR_V4))) is IcmpErrorRefusal.SOURCE


@pytest.mark.parametrize("source", ["::", "::1", "ff02::1", "::ffff:192.0.2.1"])
def test_no_error_to_an_impossible_ipv6_source(source: str) -> None:
    assert refusal(ethernet(ipv6(source, FAR_V6))) is IcmpErrorRefusal.SOURCE


def test_no_error_about_multicast_and_broadcast() -> None:
    assert refusal(ethernet(ipv4(HOST_V4, "239.1.1.1"))) is IcmpErrorRefusal.DESTINATION_MULTICAST
    assert refusal(ethernet(ipv6(HOST_V6, "ff0e::1"))) is IcmpErrorRefusal.DESTINATION_MULTICAST
    assert (
        refusal(ethernet(ipv4(HOST_V4, "255.255.255.255")))
        is IcmpErrorRefusal.DESTINATION_BROADCAST
    )
    known = {parse_address("198.51.100.255")}
    directed = ethernet(ipv4(HOST_V4, "198.51.100.255"))
    assert refusal(directed, broadcasts=known) is IcmpErrorRefusal.DESTINATION_BROADCAST


def test_no_error_about_a_link_layer_multicast() -> None:
    group = bytes.fromhex("01005e000001")
    assert (
        refusal(ethernet(ipv4(HOST_V4, FAR_V4), destination=group))
        is IcmpErrorRefusal.LINK_MULTICAST
    )
    assert (
        refusal(ethernet(ipv6(HOST_V6, FAR_V6), destination=group))
        is IcmpErrorRefusal.LINK_MULTICAST
    )


def test_packet_too_big_is_sent_about_ipv6_multicast() -> None:
    frame = ethernet(ipv6(HOST_V6, "ff0e::1", bytes(1400)), destination=b"\x33\x33" + bytes(4))
    assert isinstance(refusal(frame, IcmpErrorKind.TOO_BIG), bytes)


def test_no_error_about_a_later_fragment() -> None:
    frame = ethernet(ipv4(HOST_V4, FAR_V4, bytes(8), fragment_offset=8))
    assert refusal(frame) is IcmpErrorRefusal.LATER_FRAGMENT


def test_no_error_about_what_is_not_ip() -> None:
    assert error_for(bytes(12) + b"\x08\x06" + bytes(28), IcmpErrorKind.NO_ROUTE, ROUTER_V4) is (
        IcmpErrorRefusal.MALFORMED
    )


@given(
    st.one_of(
        st.binary(max_size=100),
        damaged([
            ethernet(ipv4(HOST_V4, FAR_V4, b"\x08" + bytes(7), wire.ICMP)),
            ethernet(ipv6_chain([(wire.ROUTING, bytes(8))], wire.ICMPV6, bytes(8), HOST_V6)),
        ]),
    ),
    st.sampled_from(IcmpErrorKind),
    st.integers(0, 1 << 32 - 1),
)  # fmt: skip
def test_any_frame_is_answered_or_refused(frame: bytes, kind: IcmpErrorKind, mtu: int) -> None:
    version = 4 if frame[12:14] == b"\x08\x00" or frame[16:18] == b"\x08\x00" else 6
    answer = error_for(frame, kind, ROUTER_V4 if version == 4 else ROUTER_V6, mtu)
    assert isinstance(answer, IcmpErrorRefusal) or len(answer) <= 1280


# --- rate ----------------------------------------------------------------------------------------

A, B = parse_address("192.0.2.1"), parse_address("192.0.2.2")


def test_all_errors_together_are_bounded() -> None:
    limiter = RateLimiter(rate=10, burst=5, host_rate=100, host_burst=100)
    assert [limiter.refuse(A, 0.0) for _ in range(6)] == [None] * 5 + [
        IcmpErrorRefusal.RATE_LIMITED
    ]
    assert limiter.refuse(B, 0.05) is IcmpErrorRefusal.RATE_LIMITED
    assert limiter.refuse(B, 0.1) is None


def test_one_host_does_not_use_up_the_errors_of_others() -> None:
    limiter = RateLimiter(rate=100, burst=100, host_rate=1, host_burst=2)
    assert [limiter.refuse(A, 0.0) for _ in range(3)] == [None] * 2 + [
        IcmpErrorRefusal.RATE_LIMITED_SOURCE
    ]
    assert limiter.refuse(B, 0.0) is None
    assert limiter.refuse(A, 1.0) is None


def test_hosts_of_one_ipv6_subnet_share_a_bucket() -> None:
    limiter = RateLimiter(rate=100, burst=100, host_rate=1, host_burst=1)
    assert limiter.refuse(parse_address("2001:db8::1"), 0.0) is None
    assert limiter.refuse(parse_address("2001:db8::2"), 0.0) is IcmpErrorRefusal.RATE_LIMITED_SOURCE
    assert limiter.refuse(parse_address("2001:db8:0:1::1"), 0.0) is None


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(0, 3)), max_size=200))
def test_no_more_than_the_rate_ever_go_out(requests: list[tuple[float, int]]) -> None:
    limiter = RateLimiter(rate=10, burst=5, host_rate=5, host_burst=3, max_hosts=2)
    sent = [
        when
        for when, host in sorted(requests)
        if limiter.refuse(bytes([10, 0, 0, host]), when) is None
    ]
    for first, start in enumerate(sent):
        for count, end in enumerate(sent[first:], 1):
            assert count <= 5 + (end - start) * 10 + 1e-6


def test_memory_of_hosts_is_bounded() -> None:
    limiter = RateLimiter(rate=1e9, burst=1e9, host_rate=1, host_burst=1, max_hosts=3)
    for host in range(10):
        assert limiter.refuse(bytes([10, 0, 0, host]), 0.0) is None
    assert len(limiter._hosts) == 3
