# SPDX-License-Identifier: Apache-2.0
"""Tests the parser of the packet descriptions that users give to `sluice explain`."""

from __future__ import annotations

import pytest

from sluice.model import parse_address
from sluice.packet_text import PacketTextError, parse_packet
from sluice.wire.packet import (
    MOBILITY,
    internet_checksum,
    parse_ipv4,
    parse_ipv6,
    pseudo_header,
)


def test_an_ipv4_packet_with_ports() -> None:
    described = parse_packet("udp 10.1.0.10:5000 > 10.2.0.9:7000 in eth1")
    assert (described.interface, described.vrf) == ("eth1", None)
    header = parse_ipv4(described.packet)
    assert (header.source, header.destination) == (
        parse_address("10.1.0.10"),
        parse_address("10.2.0.9"),
    )
    assert (header.protocol, header.ttl) == (17, 64)
    assert described.packet[20:24] == (5000).to_bytes(2, "big") + (7000).to_bytes(2, "big")


def test_an_ipv6_packet_of_this_router() -> None:
    described = parse_packet("TCP [2001:db8::1]:1 >[2001:db8::2]:443 vrf red ttl 3 label 77")
    assert (described.interface, described.vrf) == (None, "red")
    header = parse_ipv6(described.packet)
    assert (header.next_header, header.hop_limit, header.flow_label) == (6, 3, 77)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("icmp 10.0.0.1 > 10.0.0.2", b"\x08\x00"),
        ("icmp 10.0.0.1 > 10.0.0.2 type 3/4", b"\x03\x04"),
        ("icmpv6 2001:db8::1 > 2001:db8::2 type 1", b"\x01\x00"),
        ("47 10.0.0.1 > 10.0.0.2", b"\x00\x00"),
        ("mobility 2001:db8::1 > 2001:db8::2", b"\x3b\x00\x00"),
        ("mobility 2001:db8::1 > 2001:db8::2 type 5", b"\x3b\x00\x05"),
        ("mobility 10.0.0.1 > 10.0.0.2 type 255", b"\x3b\x00\xff"),
    ],
)
def test_a_packet_without_ports(text: str, first: bytes) -> None:
    packet = parse_packet(text).packet
    assert packet[40 if packet[0] >> 4 == 6 else 20 :][: len(first)] == first


def test_a_mobility_message_is_whole_and_has_a_good_checksum() -> None:
    packet = parse_packet("mobility 2001:db8::1 > 2001:db8::2 type 5").packet
    message = packet[40:]
    assert len(message) == 8
    head = pseudo_header(packet[8:24], packet[24:40], len(message), MOBILITY)
    assert internet_checksum(head + message) == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no packet: write PROTOCOL"),
        ("udp 10.0.0.1:1", "is no packet"),
        ("udp 10.0.0.1:1 10.0.0.2:2 x", "is no packet"),
        ("xdp 10.0.0.1 > 10.0.0.2", "'xdp' is no protocol"),
        ("256 10.0.0.1 > 10.0.0.2", "protocol: '256' is no number from 0 to 255"),
        ("udp 10.0.0.1 > 10.0.0.2", "has ports; write it like 10.1.0.10:443"),
        ("udp 2001:db8::1:4 > [::1]:2", r"has ports; write it like \[2001:db8::1\]:443"),
        ("udp 10.0.0.1:x > 10.0.0.2:2", "port: 'x' is no number"),
        ("udp 10.0.0.1:1 > 10.0.0.2:65536", "port: '65536' is no number from 0 to 65535"),
        ("udp 10.0.0:1 > 10.0.0.2:2", "'10.0.0' is no IPv4 or IPv6 address"),
        ("udp 10.0.0.1:1 > [2001:db8::1]:2", "must be of the same IP version"),
        ("icmp 10.0.0.1:1 > 10.0.0.2", "is no IPv4 or IPv6 address"),
        ("udp 10.0.0.1:1 > 10.0.0.2:2 on eth1", "'on' is no keyword; there is: in, vrf"),
        ("udp 10.0.0.1:1 > 10.0.0.2:2 in", "in: a value is missing"),
        ("udp 10.0.0.1:1 > 10.0.0.2:2 in a in b", "in: is written twice"),
        ("udp 10.0.0.1:1 > 10.0.0.2:2 in a vrf b", "leave out one of `in` and `vrf`"),
        ("udp 10.0.0.1:1 > 10.0.0.2:2 type 8", "only icmp, icmpv6 and mobility have a type"),
        ("icmp 10.0.0.1 > 10.0.0.2 type 8/256", "code: '256' is no number"),
        ("mobility ::1 > ::2 type 5/0", "type: '5/0' is no number from 0 to 255"),
        ("icmp 10.0.0.1 > 10.0.0.2 ttl 256", "ttl: '256' is no number"),
        ("icmp 10.0.0.1 > 10.0.0.2 label 1", "IPv4 has no flow labels"),
    ],
)
def test_descriptions_with_errors_are_refused(text: str, said: str) -> None:
    with pytest.raises(PacketTextError, match=said):
        parse_packet(text)
