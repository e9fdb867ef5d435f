# SPDX-License-Identifier: Apache-2.0
"""Tests host interfaces that belong to VRF devices, by which the kernel separates the VRFs.

The tests simulate the kernel's events. test_vrf_devices uses the kernel itself.
"""

from __future__ import annotations

import pytest

import packets
from sluice.config import VrfConfig
from sluice.model import (
    AddressAdded,
    HostFrame,
    InterfaceAddress,
    LinkChanged,
    LinkRemoved,
    parse_mac,
)
from sluice.sources.host import HostInterfaces
from sluice.wire import packet as wire
from sources.test_host import PEER_MAC, FakeAddresses, FakeDevices, FakeTaps, interface

RED = VrfConfig("red", 1, 100, device="red")
BLUE = VrfConfig("blue", 2, 200, device="blue")
TABLES = {254: 0, 100: 1, 200: 2}
TAP, RED_TAP, BLUE_TAP = 11, 12, 13
RED_DEVICE, BLUE_DEVICE, MACVLAN = 50, 51, 60
SHARED = "10.0.1.1"
QUESTION = packets.ethernet(packets.ipv4("10.0.1.9", SHARED, b"\x11\x11\0\x35" + bytes(4)))
"""Request to a UDP server.

The source of the server's answer may differ from the request's destination.
"""


class World:
    """Holds the host interfaces eth1 (default VRF), eth2 (red) and eth3 (blue), all with the same
    address.

    Also simulates the VRF devices, which are not TAPs.
    """

    def __init__(self) -> None:
        self.taps = FakeTaps()
        self.joined: list[tuple[str, int]] = []
        self.host = HostInterfaces(
            self.taps,
            FakeAddresses(),
            FakeDevices(),
            join=lambda name, vrf: self.joined.append((name, vrf)),
            tables=TABLES,
        )
        self.host.add(interface(1))
        self.host.add(interface(2, vrf=RED))
        self.host.add(interface(3, vrf=BLUE))
        for tap in (TAP, RED_TAP, BLUE_TAP):
            self.own(tap, SHARED)
        for device, name, table in ((RED_DEVICE, "red", 100), (BLUE_DEVICE, "blue", 200)):
            self.host.apply(LinkChanged(device, name, True, True, 1500, bytes(6), vrf_table=table))

    def own(self, ifindex: int, address: str) -> None:
        self.host.apply(AddressAdded(ifindex, InterfaceAddress.parse(f"{address}/24")))

    def place(self, tap: int, master: int | None) -> None:
        mac = interface(tap - 10).mac
        name = f"eth{tap - 10}"
        self.host.apply(LinkChanged(tap, name, True, True, 1500, mac, master=master))

    def place_macvlan(self, master: int | None) -> None:
        mac = parse_mac("00:00:5e:00:01:05")
        self.host.apply(
            LinkChanged(MACVLAN, "vrrp", True, True, 1500, mac, macvlan_on=RED_TAP, master=master)
        )

    def gets(self, l3_if: int, frame: bytes = QUESTION) -> bool:
        return self.host.deliver([(l3_if, frame)]) == 1

    def sends(self, l3_if: int, source: str = SHARED) -> bool:
        """Returns whether a UDP server's answer with this source address may leave through an
        interface.
        """
        packet = packets.ipv4(source, "10.0.1.9", b"\0\x35\x11\x11" + bytes(4), wire.UDP)
        frame = PEER_MAC + interface(l3_if).mac + b"\x08\x00" + packet
        self.taps.to_read = [(10 + l3_if, frame)]
        return self.host.poll(10) == [HostFrame(l3_if, frame)]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def separated(world: World) -> World:
    world.place(TAP, None)
    world.place(RED_TAP, RED_DEVICE)
    world.place(BLUE_TAP, BLUE_DEVICE)
    return world


def test_each_interface_joins_its_vrf(world: World) -> None:
    assert world.joined == [("eth1", 0), ("eth2", 1), ("eth3", 2)]


def test_until_the_kernel_has_told_the_vrfs_share_a_stack(world: World) -> None:
    assert [world.gets(l3_if) for l3_if in (1, 2, 3)] == [True, False, False]
    assert [world.sends(l3_if) for l3_if in (1, 2, 3)] == [False, False, False]
    assert world.host.vrf_devices == {1: None, 2: None}


def test_then_each_gets_and_sends_everything_with_an_address_of_three_vrfs(
    separated: World,
) -> None:
    for l3_if in (1, 2, 3):
        assert separated.gets(l3_if)
        assert separated.sends(l3_if)
    assert separated.host.vrf_devices == {1: "red", 2: "blue"}


@pytest.mark.parametrize("protocol", [4, 41, 47, 132])
def test_protocols_that_the_kernel_may_answer_elsewhere_are_the_default_vrfs(
    separated: World, protocol: int
) -> None:
    """Checks that packets of some protocols are delivered to the host only in the default VRF.

    For example, the kernel answers an SCTP packet without an association with an ABORT, and uses
    the routes of the default VRF for it.
    """
    packet = packets.ipv4("10.0.1.9", SHARED, bytes(20), protocol)
    frame = packets.ethernet(packet, destination=interface(1).mac)
    assert [separated.gets(l3_if, frame) for l3_if in (1, 2, 3)] == [True, False, False]
    assert separated.host.counters["to_host_of_a_protocol_without_vrfs"] == 2


def test_an_address_of_the_vrf_device_is_of_its_vrf(separated: World) -> None:
    """Checks that packets with an address of a VRF device leave only in its VRF.

    Such an address is the VRF's loopback address. The same holds for an address of another
    interface in the VRF (here interface 70, a dummy).
    """
    separated.own(RED_DEVICE, "192.0.2.5")
    separated.host.apply(
        LinkChanged(70, "dummy", True, True, 1500, bytes(6), master=RED_DEVICE),
    )
    separated.own(70, "192.0.2.6")
    for source in ("192.0.2.5", "192.0.2.6"):
        assert [separated.sends(l3_if, source) for l3_if in (1, 2, 3)] == [False, True, False]
    assert separated.host.counters["from_host_source_of_another_vrf"] == 4


@pytest.mark.parametrize("master", [None, BLUE_DEVICE, 99])
def test_one_that_is_in_another_vrf_is_closed(separated: World, master: int | None) -> None:
    separated.place(RED_TAP, master)
    assert [separated.gets(l3_if) for l3_if in (1, 2, 3)] == [True, False, True]
    assert not separated.sends(2)
    assert separated.sends(3)
    # red's TAP is now in the default VRF's stack, with the same address.
    assert not separated.sends(1)
    assert separated.host.vrf_devices == {1: None, 2: "blue"}


def test_a_device_that_is_gone_or_has_another_table_separates_nothing(separated: World) -> None:
    separated.host.apply(LinkRemoved(RED_DEVICE))
    assert [separated.gets(l3_if) for l3_if in (2, 3)] == [False, True]
    other = LinkChanged(BLUE_DEVICE, "blue", True, True, 1500, bytes(6), vrf_table=300)
    separated.host.apply(other)
    assert not separated.gets(3)


def test_a_macvlan_device_outside_of_the_vrf_closes_the_interface(separated: World) -> None:
    """Checks that an interface is closed if its macvlan device is outside the VRF.

    Otherwise frames to the macvlan device's MAC would enter the default VRF's stack.
    """
    separated.place_macvlan(None)
    assert not separated.gets(2)
    separated.place_macvlan(RED_DEVICE)
    assert separated.gets(2)
    separated.place_macvlan(BLUE_DEVICE)
    assert not separated.gets(2)
    separated.host.apply(LinkRemoved(MACVLAN))
    assert separated.gets(2)


def test_a_vrf_with_one_interface_outside_is_said_to_share(separated: World) -> None:
    separated.host.add(interface(4, vrf=RED))
    assert separated.host.vrf_devices == {1: None, 2: "blue"}
    separated.place(14, RED_DEVICE)
    assert separated.host.vrf_devices == {1: "red", 2: "blue"}
