# SPDX-License-Identifier: Apache-2.0
"""Tests a macvlan device on a TAP, as VRRP uses it.

While the device is up, it represents the virtual router. The tests use the real kernel, in their
own network namespace.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import packets
from kernel_namespace import ip, network_namespace, sysctl
from sluice.model import HostFrame, NeighborChanged, NeighborState, parse_address, parse_mac
from sluice.wire import packet as wire
from sources.test_host import PEER_MAC, Host, echo_request, interface, ipv4_of, resolve_peer

VMAC = parse_mac("00:00:5e:00:01:05")
VIRTUAL = "10.0.1.254"


@pytest.fixture
def host() -> Iterator[Host]:
    """Yields a host whose eth1 has the macvlan device `vrrp`.

    The device has the virtual address.
    """
    with network_namespace():
        running = Host()
        running.interfaces.add(interface(1))
        ip(f"link add vrrp link eth1 address {VMAC.hex(':')} type macvlan mode bridge")
        ip(f"addr add {VIRTUAL}/24 dev vrrp")
        ip("link set vrrp up")
        running.until(lambda: is_own(running))
        yield running
        running.close()


def is_own(host: Host) -> bool:
    return host.interfaces.is_own(parse_address(VIRTUAL))


def icmp_from(frame: HostFrame, source: str) -> bool:
    found = ipv4_of(frame)
    return found is not None and found.protocol == 1 and found.source == parse_address(source)


def test_it_neither_forwards_nor_learns_nor_answers_for_others(host: Host) -> None:
    assert sysctl("ipv4/conf/vrrp/forwarding") == "0"
    assert sysctl("ipv4/conf/vrrp/arp_ignore") == "1"
    assert sysctl("ipv4/conf/vrrp/rp_filter") == "0"
    assert sysctl("ipv6/conf/vrrp/accept_ra") == "0"
    assert (
        sysctl("ipv6/conf/vrrp/forwarding") == "1"
    )  # sets the R flag in advertisements, see configure_interface
    assert not host.interfaces.counters["macvlan_not_silenced"]


def test_it_answers_at_its_own_mac_address(host: Host) -> None:
    """Checks that the virtual router answers ARP and ping with its own MAC address."""
    resolve_peer()
    sender = PEER_MAC + parse_address("10.0.1.9")
    question = b"\0\1\x08\0\6\4\0\1" + sender + bytes(6) + parse_address(VIRTUAL)
    host.interfaces.deliver([(1, b"\xff" * 6 + PEER_MAC + b"\x08\x06" + question)])
    answer = host.sent(lambda frame: frame.frame[20:22] == b"\0\2")
    assert answer.frame[6:12] == answer.frame[22:28] == VMAC
    request = packets.ipv4("10.0.1.9", VIRTUAL, echo_request(), wire.ICMP)
    host.interfaces.deliver([(1, packets.ethernet(request, destination=VMAC))])
    answer = host.sent(lambda frame: icmp_from(frame, VIRTUAL))
    assert wire.ip_payload(answer.frame)[28:] == b"ping"


def test_it_does_not_answer_for_the_interface_below(host: Host) -> None:
    sender = PEER_MAC + parse_address("10.0.1.9")
    question = b"\0\1\x08\0\6\4\0\1" + sender + bytes(6) + parse_address("10.0.1.1")
    host.interfaces.deliver([(1, b"\xff" * 6 + PEER_MAC + b"\x08\x06" + question)])
    host.sent(lambda frame: frame.frame[20:22] == b"\0\2")
    request = packets.ipv4("10.0.1.9", VIRTUAL, echo_request(), wire.ICMP)
    host.interfaces.deliver([(1, packets.ethernet(request, destination=VMAC))])
    # Frames are handled in order. So a second ARP answer would have arrived before this answer to
    # the ping.
    host.sent(lambda frame: icmp_from(frame, VIRTUAL))
    answers = [frame.frame[22:28] for frame in host.frames if frame.frame[20:22] == b"\0\2"]
    assert answers == [interface(1).mac]


def test_while_it_is_held_down_nothing_leaves_with_its_address(host: Host) -> None:
    resolve_peer()
    ip("link set vrrp protodown on")
    host.until(lambda: not is_own(host))
    refused = host.interfaces.counters["from_host_foreign_source"]
    request = packets.ipv4("10.0.1.9", VIRTUAL, echo_request(), wire.ICMP)
    host.interfaces.deliver([(1, packets.ethernet(request, destination=interface(1).mac))])
    host.until(lambda: host.interfaces.counters["from_host_foreign_source"] > refused)
    assert not [frame for frame in host.frames if icmp_from(frame, VIRTUAL)]
    ip("link set vrrp protodown off")
    host.until(lambda: is_own(host))


def test_to_a_backup_the_master_is_a_neighbour(host: Host) -> None:
    """Checks that a VRRP backup resolves the virtual address like that of any neighbour, because
    the master has it.

    The backup's kernel has the same address on a device that is held down (protodown).
    """
    ip("link set vrrp protodown on")
    host.until(lambda: not is_own(host))
    ifindex = host.interfaces.ifindex(1)
    assert ifindex is not None
    host.monitor.use_neighbor(ifindex, parse_address(VIRTUAL))
    host.sent(lambda frame: frame.frame[20:22] == b"\0\1")
    there, here = VMAC + parse_address(VIRTUAL), interface(1).mac + parse_address("10.0.1.1")
    answer = b"\0\1\x08\0\6\4\0\2" + there + here
    host.interfaces.deliver([(1, interface(1).mac + VMAC + b"\x08\x06" + answer)])
    known = NeighborChanged(ifindex, parse_address(VIRTUAL), VMAC, NeighborState.REACHABLE)
    host.until(lambda: known in host.events)


def test_the_interface_belows_addresses_stay_own(host: Host) -> None:
    ip("link set vrrp protodown on")
    host.until(lambda: not is_own(host))
    assert host.interfaces.is_own(parse_address("10.0.1.1"))


def test_an_address_that_a_working_interface_has_too_stays_own(host: Host) -> None:
    ip(f"addr add {VIRTUAL}/32 dev lo")
    ip("link set vrrp protodown on")
    ip("addr add 192.0.2.77/32 dev lo")
    host.until(lambda: host.interfaces.is_own(parse_address("192.0.2.77")))
    assert is_own(host)
    ip(f"addr del {VIRTUAL}/32 dev lo")
    host.until(lambda: not is_own(host))


def test_a_device_that_is_removed_leaves_nothing(host: Host) -> None:
    ip("link del vrrp")
    host.until(lambda: not is_own(host))
    ip(f"link add vrrp link eth1 address {VMAC.hex(':')} type macvlan mode bridge")
    ip("link set vrrp up")
    ip(f"addr add {VIRTUAL}/24 dev vrrp")
    host.until(lambda: is_own(host))
    assert sysctl("ipv4/conf/vrrp/arp_ignore") == "1"


def test_a_macvlan_device_on_another_interface_is_none_of_ours(host: Host) -> None:
    ip("link add other type veth peer name far")
    ip("link add above link other type macvlan mode bridge")
    ip("addr add 192.0.2.1/32 dev above")
    # An address counts as the router's own even while its device is down.
    host.until(lambda: host.interfaces.is_own(parse_address("192.0.2.1")))
    assert sysctl("ipv4/conf/above/arp_ignore") == "0"
