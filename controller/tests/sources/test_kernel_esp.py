# SPDX-License-Identifier: Apache-2.0
"""Tests that the kernel's ESP is recognized behind IPv6 extension headers and in every fragment."""

from __future__ import annotations

import contextlib
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

import packets
from sluice.sources.kernel_esp import REMEMBERED, KernelEsp
from sluice.wire.errors import WireError
from sluice.wire.packet import (
    AUTHENTICATION,
    DESTINATION_OPTIONS,
    ESP,
    FRAGMENT,
    HOP_BY_HOP,
    ROUTING,
    TCP,
    UDP,
)

OPTIONS = bytes(8)
ESP_PAYLOAD = b"\0\0\x10\1" + bytes(20)
IN_UDP = pack("!HHHH", 4500, 61000, 32, 0) + ESP_PAYLOAD
IKE = pack("!HHHH", 4500, 4500, 32, 0) + bytes(24)


def fragment(protocol: int, payload: bytes, offset: int, *, more: bool, number: int = 1) -> bytes:
    """Returns an IPv6 fragment. `offset` is in units of 8 bytes."""
    header = b"\0\0" + pack("!HI", offset << 3 | more, number)
    return packets.ipv6_chain([(FRAGMENT, header)], protocol, payload)


@pytest.mark.parametrize("kind", [HOP_BY_HOP, ROUTING, DESTINATION_OPTIONS])
@pytest.mark.parametrize(("protocol", "payload"), [(ESP, ESP_PAYLOAD), (UDP, IN_UDP)])
def test_esp_behind_an_extension_header(kind: int, protocol: int, payload: bytes) -> None:
    assert KernelEsp().covers(packets.ipv6_chain([(kind, OPTIONS)], protocol, payload))


def test_each_fragment_of_esp() -> None:
    esp = KernelEsp()
    assert esp.covers(fragment(ESP, ESP_PAYLOAD, 0, more=True))
    assert KernelEsp().covers(fragment(ESP, bytes(16), 3, more=False))


def test_later_fragments_of_esp_in_udp_are_refused_by_the_first() -> None:
    esp = KernelEsp()
    later = fragment(UDP, bytes(16), 3, more=False)
    assert not esp.covers(later)
    assert esp.covers(fragment(UDP, IN_UDP, 0, more=True))
    assert esp.covers(later)
    assert not esp.covers(fragment(UDP, bytes(16), 3, more=False, number=2))


@pytest.mark.parametrize("kind", [DESTINATION_OPTIONS, ROUTING, AUTHENTICATION])
def test_a_later_fragment_that_may_hide_esp(kind: int) -> None:
    assert KernelEsp().covers(fragment(kind, bytes(16), 3, more=False))


@pytest.mark.parametrize(
    "packet",
    [
        fragment(UDP, IKE, 0, more=True),
        fragment(TCP, bytes(24), 0, more=True),
        packets.ipv6_chain([(HOP_BY_HOP, OPTIONS)], UDP, IKE),
        packets.ipv4("10.0.1.1", "10.0.1.9", IKE),
    ],
)
def test_other_packets_leave(packet: bytes) -> None:
    assert not KernelEsp().covers(packet)


def test_what_is_remembered_is_bounded() -> None:
    esp = KernelEsp()
    for number in range(REMEMBERED + 1):
        assert esp.covers(fragment(UDP, IN_UDP, 0, more=True, number=number))
    assert not esp.covers(fragment(UDP, bytes(16), 3, more=False, number=0))
    assert esp.covers(fragment(UDP, bytes(16), 3, more=False, number=1))


@given(st.binary(max_size=100))
def test_any_bytes_are_decided_or_a_wire_error(data: bytes) -> None:
    with contextlib.suppress(WireError):
        assert KernelEsp().covers(data) in (True, False)
