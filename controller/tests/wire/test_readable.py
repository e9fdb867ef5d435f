# SPDX-License-Identifier: Apache-2.0
"""Tests descriptions of frames for people.

A description must contain all fields that can be read, and no input bytes may raise an error.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import packets
from sluice.wire.packet import FRAGMENT, HOP_BY_HOP, ICMP, ICMPV6, MOBILITY, TCP, UDP
from sluice.wire.readable import readable
from wire.strategies import damaged

A4, B4 = "192.0.2.1", "198.51.100.1"
A6, B6 = "2001:db8::1", "2001:db8:1::1"
ESP, SCTP, GRE = 50, 132, 47
MAC = {"source_mac": "02:00:00:00:00:aa"}
BOTH4 = MAC | {"source": A4, "destination": B4}
BOTH6 = MAC | {"source": A6, "destination": B6}
PORTS = (4000).to_bytes(2, "big") + (80).to_bytes(2, "big") + bytes(4)
SPI = bytes.fromhex("00001000")
NAT_T = (4500).to_bytes(2, "big") * 2 + bytes(4)
# A decrypted packet of bundle 7; an IPv4 packet follows.
SHIM = bytes.fromhex("0401000700000064000200000800")


def ip4(protocol: int, payload: bytes, **header: object) -> bytes:
    return packets.ethernet(packets.ipv4(A4, B4, payload, protocol, **header))  # type: ignore[arg-type]


def ip6(protocol: int, payload: bytes, *chain: tuple[int, bytes]) -> bytes:
    return packets.ethernet(packets.ipv6_chain(list(chain), protocol, payload, A6, B6))


@pytest.mark.parametrize(
    ("frame", "fields"),
    [
        (ip4(TCP, PORTS), BOTH4 | {"protocol": 6, "source_port": 4000, "destination_port": 80}),
        (ip4(SCTP, PORTS), BOTH4 | {"protocol": 132, "source_port": 4000, "destination_port": 80}),
        (ip4(UDP, PORTS[:3]), BOTH4 | {"protocol": 17}),
        (ip4(ICMP, b"\x03\x04\x00\x00"), BOTH4 | {"protocol": 1, "icmp": "3/4"}),
        (ip4(ESP, SPI + bytes(4)), BOTH4 | {"protocol": 50, "spi": 4096}),
        (ip4(ESP, SPI[:3]), BOTH4 | {"protocol": 50}),
        (
            ip4(UDP, NAT_T + SPI),
            BOTH4 | {"protocol": 17, "source_port": 4500, "destination_port": 4500, "spi": 4096},
        ),
        (
            ip4(UDP, NAT_T + bytes(4)),  # IKE
            BOTH4 | {"protocol": 17, "source_port": 4500, "destination_port": 4500},
        ),
        (ip4(UDP, PORTS, fragment_offset=80), BOTH4 | {"protocol": 17, "fragment_offset": 80}),
        (ip4(GRE, PORTS), BOTH4 | {"protocol": 47}),
        (
            ip4(MOBILITY, b"\x3b\x00\x05\x00" + bytes(4)),
            BOTH4 | {"protocol": 135, "mobility_type": 5},
        ),
        (
            ip6(MOBILITY, b"\x3b\x00\x05\x00" + bytes(4)),
            BOTH6 | {"protocol": 135, "mobility_type": 5},
        ),
        (ip6(ICMPV6, b"\x80\x00\x00\x00"), BOTH6 | {"protocol": 58, "icmp": "128/0"}),
        (
            ip6(TCP, PORTS, (HOP_BY_HOP, bytes(8))),
            BOTH6 | {"protocol": 6, "source_port": 4000, "destination_port": 80},
        ),
        (
            ip6(UDP, PORTS, (FRAGMENT, bytes.fromhex("0000005100000001"))),
            BOTH6 | {"protocol": 17, "fragment_offset": 80},
        ),
        (packets.ROUTER_MAC + packets.HOST_MAC + b"\x08\x06", MAC | {"ethertype": "0x0806"}),
        (
            packets.ROUTER_MAC + packets.HOST_MAC + b"\x88\xb5" + SHIM + ip4(GRE, b"")[14:],
            BOTH4 | {"protocol": 47},
        ),
        (
            packets.ROUTER_MAC + packets.HOST_MAC + b"\x88\xb5" + SHIM[:13],
            MAC | {"unreadable": "shim_truncated"},
        ),
        (
            ip4(TCP, PORTS)[:38],
            BOTH4 | {"protocol": 6, "unreadable": "ipv4_total_length"},
        ),
        (ip6(TCP, PORTS)[:56], BOTH6 | {"unreadable": "ipv6_payload_length"}),
        (b"", {"unreadable": "ethernet_truncated"}),
    ],
)
def test_what_can_be_read_is_told(frame: bytes, fields: dict[str, object]) -> None:
    assert readable(frame) == fields


ANY_FRAME = (
    st.binary(max_size=120)
    | st.binary(max_size=100).map(lambda rest: packets.ROUTER_MAC * 2 + b"\x08\x00\x45" + rest)
    | st.binary(max_size=100).map(lambda rest: packets.ROUTER_MAC * 2 + b"\x86\xdd\x60" + rest)
    | st.binary(max_size=60).map(lambda rest: packets.ROUTER_MAC * 2 + b"\x88\xb5" + rest)
    | damaged([ip4(UDP, NAT_T + SPI), ip6(TCP, PORTS, (HOP_BY_HOP, bytes(8)))])
)


@given(ANY_FRAME)
def test_no_bytes_raise(frame: bytes) -> None:
    json.dumps(readable(frame))
