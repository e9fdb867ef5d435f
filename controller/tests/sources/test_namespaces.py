# SPDX-License-Identifier: Apache-2.0
"""Tests host interfaces and kernel monitors in the network namespaces of VRFs."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import packets
from kernel_namespace import Tap, ip, ip_shows, poll_until
from sluice.config import Isolation, VrfConfig
from sluice.model import (
    AddressAdded,
    HostFrame,
    InterfaceAddress,
    LinkChanged,
    NeighborChanged,
    parse_address,
    parse_mac,
)
from sluice.namespaces import base, local, namespace_of
from sluice.sources.host import FrameFilter, HostInterfaces, TapNamespace
from sluice.sources.kernel import KernelMonitor
from sluice.sources.namespace import NetworkNamespace
from sluice.sources.neighbor_probe import NeighborProbe
from sluice.sources.several_kernels import SeveralKernels
from sluice.wire import packet as wire
from sources.test_host import PEER_MAC, FakeAddresses, FakeDevices, FakeTaps, interface

RED = VrfConfig("red", 1, 100, namespace="red", isolation=Isolation.NAMESPACE)
BLUE = VrfConfig("blue", 2, 200, namespace="blue", isolation=Isolation.NAMESPACE)
TAPS = {1: 11, 2: base(1) + 12, 3: base(2) + 13}
SHARED = "10.0.1.1"
SCTP = 132


class SilentDevices(FakeDevices):
    """Records each configured interface with its namespace."""

    def __init__(self, inside: list[str], did: list[tuple[str, str]]) -> None:
        super().__init__()
        self.inside, self.did = inside, did

    def configure_interface(self, name: str) -> None:
        self.did.append((self.inside[-1], name))


class World:
    """Holds the host interfaces eth1 (default VRF, home namespace), eth2 (red) and eth3 (blue).

    All three have the same address.
    """

    def __init__(self) -> None:
        self.taps = FakeTaps()
        self.inside = ["home"]
        self.did: list[tuple[str, str]] = []
        self.joined: list[str] = []
        self.published: list[FrameFilter] = []
        self.host = HostInterfaces(
            self.taps,
            FakeAddresses(),
            SilentDevices(self.inside, self.did),
            guard=lambda name: self.did.append((self.inside[-1], f"guard {name}")),
            join=lambda name, _: self.joined.append(name),
            tables={254: 0, 100: 1, 200: 2},
            on_change=self.published.append,
            vrf_namespaces={1: self.place("red"), 2: self.place("blue")},
        )
        for number, vrf in ((1, VrfConfig("default", 0, 254)), (2, RED), (3, BLUE)):
            self.host.add(interface(number, "port7" if number == 1 else None, vrf=vrf))
            self.link(TAPS[number], f"eth{number}")
            own = InterfaceAddress.parse(f"{SHARED}/24")
            self.host.apply(AddressAdded(TAPS[number], own))

    def place(self, name: str) -> TapNamespace:
        def inside(act: Callable[[], Any]) -> Any:
            self.inside.append(name)
            try:
                return act()
            finally:
                self.inside.pop()

        return TapNamespace(
            inside,
            SilentDevices(self.inside, self.did),
            lambda device: self.did.append((self.inside[-1], f"guard {device}")),
        )

    def link(self, ifindex: int, name: str, **more: Any) -> None:
        mac = parse_mac(f"02:00:00:00:01:0{name[-1]}")
        self.host.apply(LinkChanged(ifindex, name, True, True, 1500, mac, **more))

    def gets(self, l3_if: int, protocol: int = wire.UDP) -> bool:
        packet = packets.ipv4("10.0.1.9", SHARED, b"\x11\x11\0\x35" + bytes(4), protocol)
        return self.host.deliver([(l3_if, packets.ethernet(packet))]) == 1

    def sends(self, l3_if: int) -> bool:
        packet = packets.ipv4(SHARED, "10.0.1.9", b"\0\x35\x11\x11" + bytes(4), wire.UDP)
        frame = PEER_MAC + interface(l3_if).mac + b"\x08\x00" + packet
        self.taps.to_read = [(TAPS[l3_if], frame)]
        return self.host.poll(10) == [HostFrame(l3_if, frame)]


@pytest.fixture
def world() -> World:
    return World()


def test_each_interface_is_made_in_its_vrfs_namespace(world: World) -> None:
    assert [world.host.ifindex(l3_if) for l3_if in TAPS] == list(TAPS.values())
    assert world.did == [
        (where, what.format(name))
        for where, name in (("home", "eth1"), ("red", "eth2"), ("blue", "eth3"))
        for what in ("guard {}", "{}")
    ]
    assert world.joined == ["eth1"]  # namespaces isolate eth2 and eth3


def test_each_gets_and_sends_everything_with_an_address_of_three_vrfs(world: World) -> None:
    for l3_if in TAPS:
        assert world.gets(l3_if)
        assert world.sends(l3_if)
    # With VRF devices instead of namespaces, SCTP in red would be dropped, because the kernel could
    # answer it by the routes of the default VRF.
    assert world.gets(2, SCTP)


def test_the_fast_path_knows_the_address_in_each_vrf(world: World) -> None:
    world.host.publish()
    own = parse_address(SHARED)
    assert world.published[-1].sources == {vrf: {own} for vrf in (0, 1, 2)}


def test_an_interface_that_joins_a_vrf_device_in_its_namespace_is_closed(world: World) -> None:
    world.link(base(1) + 50, "vrf7", vrf_table=7)
    world.link(TAPS[2], "eth2", master=base(1) + 50)
    assert not world.gets(2)
    assert not world.sends(2)
    assert world.gets(3)


def test_a_macvlan_device_is_configured_in_its_namespace(world: World) -> None:
    world.did.clear()
    world.link(base(1) + 60, "vrrp5", macvlan_on=TAPS[2])
    assert world.did == [("red", "vrrp5")]


def test_a_port_is_at_home_only(world: World) -> None:
    world.link(base(1) + 70, "port7")
    assert not world.taps.carrier[TAPS[1]]
    world.link(70, "port7")
    assert world.taps.carrier[TAPS[1]]


class Kernels:
    """Holds two network namespaces, and a kernel monitor of each. Both have a TAP with the same
    index and name.
    """

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.namespaces = {n: NetworkNamespace(f"n{n}", directory) for n in (1, 2)}
        monitors: dict[int, tuple[KernelMonitor, NeighborProbe]] = {}
        for number, namespace in self.namespaces.items():
            stack.callback(namespace.close)
            stack.callback(namespace.remove)
            tap = namespace.call(Tap, "eth1")
            stack.callback(tap.close)
            namespace.call(ip, "link set eth1 up")
            probe = namespace.call(NeighborProbe)
            monitors[number] = namespace.call(KernelMonitor, probe=probe), probe
            self.index = tap.ifindex
        self.all = SeveralKernels(monitors)
        stack.callback(self.all.close)
        self.all.start()
        poll_until(self.all, lambda _: self.all.synced)

    def addresses(self, number: int) -> str:
        namespace = self.namespaces[number]
        shown = namespace.call(socket.if_nametoindex, "eth1")
        assert shown == self.index
        return str(namespace.call(_shown_addresses))


def _shown_addresses() -> str:
    return ip_shows("-4 address show dev eth1")


@pytest.fixture
def kernels(tmp_path: Path) -> Iterator[Kernels]:
    names = tmp_path / "netns"
    with ExitStack() as stack:
        stack.callback(subprocess.run, ["umount", str(names)], check=True)
        yield Kernels(names, stack)


def test_events_and_requests_are_of_one_namespace(kernels: Kernels) -> None:
    own = InterfaceAddress.parse("10.0.1.1/24")
    kernels.all.add_address(base(2) + kernels.index, own)
    events = poll_until(kernels.all, lambda all_: any(isinstance(e, AddressAdded) for e in all_))
    (added,) = (event for event in events if isinstance(event, AddressAdded))
    assert (namespace_of(added.ifindex), local(added.ifindex)) == (2, kernels.index)
    assert "10.0.1.1/24" in kernels.addresses(2)
    assert "10.0.1.1/24" not in kernels.addresses(1)
    neighbor = parse_address("10.0.1.9")
    kernels.all.use_neighbor(base(2) + kernels.index, neighbor)
    poll_until(
        kernels.all,
        lambda all_: any(
            isinstance(e, NeighborChanged) and (e.ifindex, e.address) == (added.ifindex, neighbor)
            for e in all_
        ),
    )
    kernels.all.remove_address(base(2) + kernels.index, own)
    assert "10.0.1.1/24" not in kernels.addresses(2)
