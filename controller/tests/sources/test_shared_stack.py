# SPDX-License-Identifier: Apache-2.0
"""Tests a host stack without VRFs: an answer to a packet of one VRF must not leave in another
VRF.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from hypothesis import given

import packets
from kernel_namespace import ip, network_namespace
from sluice.config import VrfConfig
from sluice.model import HostFrame, parse_address
from sluice.sources.shared_stack import (
    answers_from_its_destination,
    is_of_its_vrf,
    stays_on_link,
)
from sluice.wire import packet as wire
from sources.test_host import PEER_MAC, Host, echo_request, interface, ipv4_of, resolve_peer
from wire.strategies import damaged

RED = VrfConfig("red", 1, 100)
SERVICE = 7000
OPEN_PORT = SERVICE.to_bytes(2, "big")


@pytest.fixture
def host() -> Iterator[Host]:
    """Yields a host with eth1 in the default VRF (10.0.1.0/24) and eth2 in red (10.0.2.0/24)."""
    with network_namespace():
        running = Host()
        running.interfaces.add(interface(1))
        running.interfaces.add(interface(2, vrf=RED))
        running.until(lambda: running.interfaces.is_own(parse_address("10.0.2.1")))
        resolve_peer(1)
        resolve_peer(2)
        yield running
        running.close()


def ask(host: Host, l3_if: int, destination: str, payload: bytes, protocol: int) -> None:
    """Delivers a packet from 10.0.1.9, which the host routes to eth1."""
    packet = packets.ipv4("10.0.1.9", destination, payload, protocol)
    frame = packets.ethernet(packet, destination=interface(l3_if).mac)
    host.interfaces.deliver([(l3_if, frame)])


def settle(host: Host) -> list[HostFrame]:
    """Waits until the host has processed all frames delivered before. Returns the IPv4 frames that
    it has sent.
    """
    ask(host, 1, "10.0.1.1", echo_request(b"the last"), wire.ICMP)
    host.sent(lambda frame: b"the last" in frame.frame)
    return [f for f in host.frames if ipv4_of(f) is not None and b"the last" not in f.frame]


def test_a_ping_of_a_vrf_is_not_answered_in_another(host: Host) -> None:
    ask(host, 1, "10.0.1.1", echo_request(b"default"), wire.ICMP)
    ask(host, 2, "10.0.2.1", echo_request(b"red"), wire.ICMP)
    assert [b"default" in frame.frame for frame in settle(host)] == [True]
    assert host.interfaces.counters["from_host_source_of_another_vrf"] == 1


def test_a_ping_of_a_vrf_is_answered_in_it(host: Host) -> None:
    request = packets.ipv4("10.0.2.9", "10.0.2.1", echo_request(b"red"), wire.ICMP)
    host.interfaces.deliver([(2, packets.ethernet(request, destination=interface(2).mac))])
    answer = host.sent(lambda frame: b"red" in frame.frame)
    assert (answer.l3_if, answer.frame[:6]) == (2, PEER_MAC)


def test_a_server_that_answers_from_any_address_is_not_asked_in_a_vrf(host: Host) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("", SERVICE))
        server.settimeout(10)
        question = b"\x11\x11" + OPEN_PORT + (8 + 6).to_bytes(2, "big") + bytes(2)
        ask(host, 2, "10.0.2.1", question + b"secret", wire.UDP)
        assert host.interfaces.counters["to_host_of_a_service_without_vrfs"] == 1
        ask(host, 1, "10.0.1.1", question + b"public", wire.UDP)
        asked, peer = server.recvfrom(100)
        server.sendto(asked, peer)
    sent = settle(host)
    assert [b"public" in frame.frame for frame in sent] == [True]


def test_a_server_that_is_asked_in_the_default_vrf_answers_in_no_other(host: Host) -> None:
    """Checks that a server's answer to a request in the default VRF never leaves in another VRF.

    The host routes the request's source address, which may be spoofed, to eth2.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("", SERVICE))
        server.settimeout(10)
        question = b"\x11\x11" + OPEN_PORT + (8 + 6).to_bytes(2, "big") + bytes(2) + b"public"
        packet = packets.ipv4("10.0.2.9", "10.0.1.1", question, wire.UDP)
        frame = packets.ethernet(packet, destination=interface(1).mac)
        host.interfaces.deliver([(1, frame)])
        asked, peer = server.recvfrom(100)
        server.sendto(asked, peer)
    sent = settle(host)
    assert not [frame for frame in sent if b"public" in frame.frame]
    assert host.interfaces.counters["from_host_of_a_service_without_vrfs"] == 1


def test_an_address_of_two_vrfs_answers_on_its_link_only(host: Host) -> None:
    """If one own address is in two VRFs, checks that the host answers ARP on each link and pings on
    none.

    The host cannot tell the two VRFs apart, so it must not answer pings. ARP is needed because the
    switch forwards in both VRFs.
    """
    ip("addr add 10.0.1.1/24 dev eth2")
    host.until(lambda: len(host.interfaces._own[parse_address("10.0.1.1")]) == 2)
    for l3_if in (1, 2):
        ask(host, l3_if, "10.0.1.1", echo_request(b"which"), wire.ICMP)
    host.until(lambda: host.interfaces.counters["from_host_source_of_several_vrfs"] == 2)
    assert not [frame for frame in host.frames if b"which" in frame.frame]
    arp = bytes.fromhex("0001080006040001") + PEER_MAC + parse_address("10.0.1.9")
    arp += bytes(6) + parse_address("10.0.1.1")
    host.interfaces.deliver([(2, b"\xff" * 6 + PEER_MAC + b"\x08\x06" + arp)])
    answer = host.sent(lambda frame: frame.frame[12:14] == b"\x08\x06" and frame.frame[21] == 2)
    assert (answer.l3_if, answer.frame[22:28]) == (2, interface(2).mac)


# --- without a kernel ----------------------------------------------------------------------------


def udp(port: int) -> bytes:
    return b"\x11\x11" + port.to_bytes(2, "big") + bytes(4)


TO_DAEMONS = [packets.ipv4("10.0.1.9", "10.0.1.1", udp(port)) for port in (500, 520, 3784, 4500)]
TCP, OSPF, SCTP, GRE = 6, 89, 132, 47


@pytest.mark.parametrize(
    ("packet", "expected"),
    [
        *[(packet, True) for packet in TO_DAEMONS],
        (packets.ipv4("10.0.1.9", "10.0.1.1", udp(53)), False),
        (packets.ipv6("2001:db8::9", "2001:db8::1", udp(53)), False),
        (packets.ipv6("2001:db8::9", "2001:db8::1", udp(3784)), True),
        (packets.ipv6_chain([(60, bytes(8))], wire.UDP, udp(53)), False),
        (packets.ipv6_chain([(60, bytes(8))], TCP, bytes(20)), True),
        (packets.ipv4("10.0.1.9", "10.0.1.1", bytes(20), TCP), True),
        (packets.ipv4("10.0.1.9", "224.0.0.5", bytes(20), OSPF), True),
        (packets.ipv4("10.0.1.9", "10.0.1.1", bytes(20), SCTP), False),
        (packets.ipv4("10.0.1.9", "10.0.1.1", bytes(20), GRE), False),
        (packets.ipv4("10.0.1.9", "10.0.1.1", udp(53), more_fragments=True), False),
        (packets.ipv4("10.0.1.9", "10.0.1.1", udp(53), fragment_offset=16), True),
        (packets.ipv4("10.0.1.9", "10.0.1.1", b"\0\0"), False),
    ],
)
def test_what_is_answered_from_its_destination(packet: bytes, expected: bool) -> None:
    assert answers_from_its_destination(packets.ethernet(packet)) is expected
    assert answers_from_its_destination(packets.ethernet(packet, vlan=7)) is expected


@pytest.mark.parametrize(
    ("source", "port", "expected"),
    [
        (53, 40000, False),  # could be a server's answer
        (53, 500, False),
        (53, 3784, False),
        (40000, 53, False),
        (500, 40000, True),  # IKE through a NAT
        (4500, 4500, True),
        (520, 520, True),
        (646, 646, True),
        (49152, 3784, True),
        (49151, 3784, False),
        (3785, 3785, True),
    ],
)
def test_what_the_host_may_send_by_an_interface_of_a_vrf(
    source: int, port: int, expected: bool
) -> None:
    datagram = source.to_bytes(2, "big") + port.to_bytes(2, "big") + bytes(4)
    for packet in (
        packets.ipv4("10.0.1.1", "10.0.1.9", datagram),
        packets.ipv6("2001:db8::1", "2001:db8::9", datagram),
    ):
        assert is_of_its_vrf(packets.ethernet(packet)) is expected


def test_connections_and_answers_in_place_may_leave_by_an_interface_of_a_vrf() -> None:
    for protocol in (TCP, OSPF, wire.ICMP):
        assert is_of_its_vrf(
            packets.ethernet(packets.ipv4("10.0.1.1", "10.0.1.9", bytes(20), protocol))
        )
    assert not is_of_its_vrf(
        packets.ethernet(packets.ipv4("10.0.1.1", "10.0.1.9", bytes(20), SCTP))
    )


ND = b"\x87\0" + bytes(22)
ON_LINK = [
    packets.ipv4("10.0.1.1", "224.0.0.5", bytes(20), OSPF),
    packets.ipv4("10.0.1.1", "255.255.255.255"),
    packets.ipv4("10.0.1.1", "169.254.0.1"),
    packets.ipv6("2001:db8::1", "ff02::1"),
    packets.ipv6("2001:db8::1", "fe80::9"),
    packets.ipv6("2001:db8::1", "2001:db8::9", ND, wire.ICMPV6, 255),
]
ROUTED = [
    packets.ipv4("10.0.1.1", "10.0.1.9"),
    packets.ipv6("2001:db8::1", "2001:db8::9"),
    packets.ipv6("2001:db8::1", "2001:db8::9", ND, wire.ICMPV6, 64),
    packets.ipv6("2001:db8::1", "2001:db8::9", b"\x80\0" + bytes(22), wire.ICMPV6, 255),
    packets.ipv6("2001:db8::1", "2001:db8::9", b"\x87", wire.ICMPV6, 255),
]


def destination(packet: bytes) -> bytes:
    return packet[16:20] if packet[0] >> 4 == 4 else packet[24:40]


def test_what_stays_on_the_link() -> None:
    def stay(packet: bytes) -> bool:
        return stays_on_link(packets.ethernet(packet), destination(packet))

    assert all(map(stay, ON_LINK))
    assert not any(map(stay, ROUTED))


@given(damaged([packets.ethernet(packet) for packet in TO_DAEMONS + ON_LINK + ROUTED]))
def test_damaged_frames_raise_nothing(frame: bytes) -> None:
    answers_from_its_destination(frame)
    is_of_its_vrf(frame)
    if len(frame) >= 54:
        stays_on_link(frame, frame[38:54])
