# SPDX-License-Identifier: Apache-2.0
"""Tests packets of the host that are too big after ESP is added: the kernel must learn the path
MTU.

The tests use the real kernel, so they show how it reacts to the controller's ICMP errors.
"""

from __future__ import annotations

import errno
import socket

import pytest

from kernel_namespace import ip
from sluice.model import HostFrame, parse_address
from sluice.wire.packet import ip_payload, is_multicast
from sources.test_host import Host, connected, host, resolve_peer
from test_punts import ORIGINS, PuntHarness, punt

__all__ = ["host"]

IP_MTU_DISCOVER, IP_PMTUDISC_DO, IP_MTU = 10, 2, 14
IPV6_MTU_DISCOVER, IPV6_MTU = 23, 24
PROTECTED = {"origin": ORIGINS["LOCAL"], "egress_l3_if": 1, "verdict": 3, "sa_bundle": 7}
TOLD = "own packet too big: the host stack is told"


def datagram_socket(family: int) -> socket.socket:
    udp = socket.socket(family, socket.SOCK_DGRAM)
    if family == socket.AF_INET:
        udp.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
    else:
        udp.setsockopt(socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER, IP_PMTUDISC_DO)
    return udp


def path_mtu(udp: socket.socket) -> int:
    if udp.family == socket.AF_INET:
        return udp.getsockopt(socket.IPPROTO_IP, IP_MTU)
    return udp.getsockopt(socket.IPPROTO_IPV6, IPV6_MTU)


@pytest.mark.parametrize(
    ("family", "target", "via"),
    [
        (socket.AF_INET, "198.51.100.1", "10.0.1.9"),
        (socket.AF_INET6, "2001:db8:99::1", "2001:db8:1::9"),
    ],
)
def test_the_kernel_learns_what_protection_leaves(
    host: Host, family: int, target: str, via: str
) -> None:
    desk = PuntHarness()
    resolve_peer()
    ip(f"{'-6 ' if ':' in target else ''}route add {target} via {via}")
    host.until(lambda: connected(family, host))
    with datagram_socket(family) as udp:
        udp.connect((target, 33434))
        assert path_mtu(udp) == 1500
        udp.send(bytes(1400))
        big = host.sent(lambda frame: parse_address(target) in frame.frame)
        outcome = desk.handle(punt(big.frame, "MTU_EXCEEDED", ingress_l3_if=0, **PROTECTED))
        assert outcome.packet_outs == []
        assert desk.handler.counters[TOLD] == 1
        host.interfaces.deliver(outcome.to_host)
        # 1300: the path MTU of 1400 minus the bundle's overhead of 100. The MTU of the interface is
        # 1500.
        host.until(lambda: path_mtu(udp) == 1300)
        assert udp.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.EMSGSIZE
        with pytest.raises(OSError, match=r"Message too long") as refused:
            udp.send(bytes(1400))
        assert refused.value.errno == errno.EMSGSIZE
        host.frames.clear()
        udp.send(bytes(1200))
        host.sent(lambda frame: parse_address(target) in frame.frame)


def test_without_dont_fragment_it_is_fragmented(host: Host) -> None:
    desk = PuntHarness()
    resolve_peer()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, 0)
        udp.sendto(bytes(1400), ("10.0.1.9", 33434))
        big = host.sent(is_datagram)
        outcome = desk.handle(punt(big.frame, "MTU_EXCEEDED", ingress_l3_if=0, **PROTECTED))
    assert outcome.to_host == []
    assert [len(ip_payload(frame)) <= 1300 for frame, _ in outcome.packet_outs] == [True, True]


def is_datagram(frame: HostFrame) -> bool:
    return frame.frame[12:14] == b"\x08\x00" and frame.frame[23] == socket.IPPROTO_UDP


def test_a_group_has_no_path_to_learn(host: Host) -> None:
    desk = PuntHarness()
    group = "ff02::5"
    host.until(lambda: connected(socket.AF_INET6, host))
    with datagram_socket(socket.AF_INET6) as udp:
        udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, socket.if_nametoindex("eth1"))
        udp.sendto(bytes(1400), (group, 33434))
        big = host.sent(lambda frame: parse_address(group) in frame.frame)
        assert is_multicast(ip_payload(big.frame)[24:40])
        outcome = desk.handle(punt(big.frame, "MTU_EXCEEDED", ingress_l3_if=0, **PROTECTED))
    assert (outcome.to_host, outcome.packet_outs) == ([], [])
    assert desk.handler.counters["dropped: own packet, TOO_BIG"] == 1
