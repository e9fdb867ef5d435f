# SPDX-License-Identifier: Apache-2.0
"""Tests that a frame is parsed up to the first invalid header, and never refused."""

import struct
from ipaddress import ip_address

from sluice_testkit import packet

MACS = bytes.fromhex("020000000002 020000000001")


def ipv4(protocol: int, payload: bytes, fragment: int = 0) -> bytes:
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), 1, fragment, 64, protocol, 0)
    addresses = ip_address("10.0.0.1").packed + ip_address("10.0.0.2").packed
    return header + addresses + payload


def ipv6(following: int, payload: bytes) -> bytes:
    header = struct.pack("!IHBB", 6 << 28, len(payload), following, 63)
    return header + ip_address("2001:db8::1").packed + ip_address("2001:db8::2").packed + payload


def test_a_flow_of_udp_over_ipv4() -> None:
    frame = packet.parse(MACS + b"\x08\x00" + ipv4(17, struct.pack("!HHHH", 1000, 53, 8, 0)))
    assert frame.flow == ("10.0.0.1", "10.0.0.2", 17, 1000, 53)
    assert (frame.ttl, frame.vlan, frame.is_fragment) == (64, None, False)


def test_the_tag_of_a_vlan() -> None:
    frame = packet.parse(MACS + b"\x81\x00\x00\x64\x08\x00" + ipv4(1, b"\x08\x00" + bytes(6)))
    assert (frame.vlan, frame.icmp_type, frame.icmp_code) == (100, 8, 0)


def test_a_later_fragment_has_no_ports() -> None:
    frame = packet.parse(MACS + b"\x08\x00" + ipv4(17, bytes(8), fragment=185))
    assert (frame.fragment_offset, frame.source_port, frame.is_fragment) == (1480, None, True)


def test_the_protocol_behind_ipv6_extension_headers() -> None:
    hop_by_hop = struct.pack("!BB6x", 44, 0)
    fragment = struct.pack("!BBHI", 58, 0, 1, 7)
    frame = packet.parse(MACS + b"\x86\xdd" + ipv6(0, hop_by_hop + fragment + b"\x80\x00"))
    assert (frame.protocol, frame.icmp_type, frame.more_fragments) == (58, 128, True)


def test_a_frame_cut_anywhere_is_still_a_frame() -> None:
    whole = MACS + b"\x86\xdd" + ipv6(0, struct.pack("!BB6x", 17, 0) + bytes(8))
    for length in range(len(whole)):
        assert packet.parse(whole[:length]).data == whole[:length]
