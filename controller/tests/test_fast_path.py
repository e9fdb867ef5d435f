# SPDX-License-Identifier: Apache-2.0
"""Tests that the native fast path treats each frame like the controller's event loop does, or
leaves the frame to the loop.

Random frames are given to both.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import packets
from fake_switch import FakeSwitch
from policy_world import CONFIG, PolicyWorld, filled
from sluice.config import InterfaceConfig, VrfConfig, load_config
from sluice.fast_path import FastPath
from sluice.icmp import IcmpErrorKind, error_for
from sluice.model import (
    AddressAdded,
    HostFrame,
    InterfaceAddress,
    LinkChanged,
    PuntedPacket,
    parse_address,
)
from sluice.p4.packets import PACKET_OUT
from sluice.p4runtime.client import Metadata
from sluice.punts import FOR_THE_HOST, IP_FOR_THE_HOST, PuntActions
from sluice.sources.host import HostInterfaces
from sluice.wire import packet as wire
from sources.test_host import ISIS, FakeAddresses, FakeDevices, FakeTaps, interface
from test_controller import CODEC, World
from test_punts import REASONS, SCHEMA, punt
from wire.strategies import damaged

VRFS = "vrfs: {red: {table: 100}}\n"
RED = VrfConfig("red", 1, 100)
VMAC = bytes.fromhex("00005e000105")
IN_BOTH = "10.9.0.1"
TAP = {1: 11, 2: 12}
"""ifindex by layer-3 interface: eth1 in the default VRF, eth2 in red."""
WORKING, RESTING = 21, 22
"""Macvlan devices on eth1: one is up, the other is held down."""


class KeepingTaps(FakeTaps):
    """Fakes TAPs. Records the frames delivered to the host."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[tuple[int, bytes]] = []

    def add(
        self,
        name: str,
        mtu: int,
        mac: str,
        persist: bool = False,
        base: int = 0,
        queue: int | None = None,
    ) -> int:
        return 10 + int(name[-1])

    def write(self, frames: list[tuple[int, bytes]]) -> int:
        self.given += frames
        return len(frames)


class Probes:
    """Replaces `NeighborProbe` with fixed ports. The real probe uses ports that the kernel
    chooses.
    """

    def is_probe(self, ifindex: int, frame: bytes) -> bool:
        udp = 34 if frame[12:14] == b"\x08\x00" else 54
        return frame[udp : udp + 6] == b"\xab\xcd\x00\x09\x00\x08"


class BothWays:
    """Runs a controller and a fast path side by side.

    The host interfaces are real objects. The kernel and the switch are fakes.
    """

    def __init__(self, text: Path) -> None:
        self.taps = KeepingTaps()
        self.fast_path = FastPath(SCHEMA, remembers=True)
        self.host = HostInterfaces(
            self.taps,
            FakeAddresses(),
            FakeDevices(),
            is_probe=Probes().is_probe,
            on_change=self.fast_path.publish,
        )
        self.host.add(interface(1))
        self.host.add(interface(2, vrf=RED))
        self.host.apply(macvlan(WORKING))
        self.host.apply(macvlan(RESTING, held_down=True))
        addresses = [(11, "10.0.1.1/24"), (11, "2001:db8:1::1/64"), (11, "fe80::1/64")]
        addresses += [(12, "10.0.2.1/24"), (12, "2001:db8:2::1/64"), (12, "fe80::2/64")]
        addresses += [(11, f"{IN_BOTH}/32"), (12, f"{IN_BOTH}/32"), (1, "127.0.0.1/8")]
        addresses += [(21, "10.0.1.250/24"), (22, "10.0.1.251/24")]
        for ifindex, address in addresses:
            self.host.apply(AddressAdded(ifindex, InterfaceAddress.parse(address)))
        self.host.publish()
        config = load_config(text)
        self.world = World(config, FakeSwitch(CODEC))
        self.controller = self.world.controller
        self.controller.sources = replace(self.controller.sources, host=self.host)
        self.sent: list[tuple[bytes, Metadata]] = []
        self.controller.connection.packet_out = self._packet_out  # type: ignore[method-assign]

    def _packet_out(self, batch: list[tuple[bytes, Metadata]]) -> int:
        self.sent += batch
        return len(batch)

    def sends(self, l3_if: int, frame: bytes) -> list[tuple[bytes, Metadata]]:
        """Returns the packet-outs that the event loop sends for a frame from the host."""
        self.sent.clear()
        self.taps.to_read = [(TAP[l3_if], frame)]
        self.controller._drain_host()
        return list(self.sent)

    def gives(self, packet: PuntedPacket) -> list[tuple[int, bytes]]:
        """Returns the frames that the event loop delivers to the host for a punted packet.

        Fails if the loop both delivers frames and sends packet-outs for the packet.
        """
        self.taps.given.clear()
        outcome = PuntActions()
        self.controller.punts.handle(packet, 0.0, outcome)
        assert not (outcome.to_host and outcome.packet_outs)
        self.host.deliver(outcome.to_host)
        return list(self.taps.given)


def macvlan(ifindex: int, *, held_down: bool = False) -> LinkChanged:
    return LinkChanged(ifindex, f"v{ifindex}", True, True, 1500, VMAC, 11, held_down)


@pytest.fixture
def router(tmp_path: Path) -> Callable[[Callable[[BothWays], None]], None]:
    """Returns a function that runs a test on a router with SPDs, in an event loop."""
    path = tmp_path / "r1.yaml"
    path.write_text(filled(CONFIG.replace("port: 2, ", "port: 2, vrf: red, "), tmp_path) + VRFS)

    def run(test: Callable[[BothWays], None]) -> None:
        async def scene() -> None:
            both = BothWays(path)
            test(both)
            both.world.close()

        asyncio.run(scene())

    return run


# --- frames --------------------------------------------------------------------------------------


def udp(source: int, destination: int, payload: bytes = b"") -> bytes:
    ports = source.to_bytes(2, "big") + destination.to_bytes(2, "big")
    return ports + (8 + len(payload)).to_bytes(2, "big") + b"\0\0" + payload


BFD, BGP = udp(49152, 3784, bytes(24)), (179).to_bytes(2, "big") + bytes(18)
ECHO = b"\x08\0" + bytes(6)
SOLICITATION = b"\x87\0" + bytes(22)
OWN = {1: ("10.0.1.1", "2001:db8:1::1"), 2: ("10.0.2.1", "2001:db8:2::1")}
PEER = "10.0.1.9", "2001:db8:1::9"


def of_host(l3_if: int, packet: bytes, mac: bytes = b"") -> bytes:
    frame = packets.ethernet(packet, destination=packets.HOST_MAC)
    return frame[:6] + (mac or interface(l3_if).mac) + frame[12:]


def link_frame(ethertype: int) -> bytes:
    return b"\xff" * 6 + interface(1).mac + ethertype.to_bytes(2, "big") + bytes(46)


ARP, LLDP = link_frame(0x0806), link_frame(0x88CC)


def passing_of(l3_if: int) -> list[bytes]:
    """Returns frames from the host that the fast path must send itself."""
    four, six = OWN[l3_if]
    to_four, to_six = PEER
    return [
        *(ARP, LLDP, ISIS),
        of_host(l3_if, packets.ipv4(four, to_four, BFD)),
        of_host(l3_if, packets.ipv6(six, to_six, BFD)),
        of_host(l3_if, packets.ipv4(four, to_four, BGP, wire.TCP)),
        of_host(l3_if, packets.ipv6(six, to_six, BGP, wire.TCP)),
        of_host(l3_if, packets.ipv4(four, to_four, ECHO, wire.ICMP)),
        of_host(l3_if, packets.ipv6(six, to_six, b"\x81\0" + bytes(6), wire.ICMPV6)),
        of_host(l3_if, packets.ipv6(six, "ff02::1:ff00:9", SOLICITATION, wire.ICMPV6, 255)),
        of_host(l3_if, packets.ipv4(four, "224.0.0.5", bytes(24), 89)),
        of_host(l3_if, packets.ipv6(f"fe80::{l3_if}", "ff02::5", bytes(24), 89)),
    ]


def error(source: str, kind: int) -> bytes:
    quoted = packets.ipv4("10.0.1.9", source, udp(9, 9))
    return packets.ipv4(source, "10.0.1.9", bytes([kind, 3]) + bytes(6) + quoted, wire.ICMP)


def made_error() -> bytes:
    frame = of_host(1, packets.ipv6("2001:db8:1::9", "2001:db8:1::1", udp(9, 9)))
    answer = error_for(
        frame, IcmpErrorKind.NO_ROUTE, parse_address("2001:db8:1::1"), 0, frozenset()
    )
    assert isinstance(answer, bytes)
    return answer


ASKED = [
    *(of_host(1, error("10.0.1.1", kind)) for kind in (3, 5, 11, 12)),
    of_host(1, made_error()),
    of_host(1, packets.ipv4("10.0.1.1", "10.0.1.9", udp(0xABCD, 9))),
    of_host(1, packets.ipv4("10.0.1.9", "10.0.1.1", BFD)),
    of_host(1, packets.ipv4("10.0.1.251", "10.0.1.9", BFD)),
    of_host(1, packets.ipv4(IN_BOTH, "10.0.1.9", BFD)),
    of_host(1, packets.ipv4("0.0.0.0", "255.255.255.255", udp(68, 67))),
    of_host(1, packets.ipv4("10.0.1.1", "10.0.1.9", BFD, options=b"\x94\4\0\0")),
    of_host(1, packets.ipv4("10.0.1.1", "10.0.1.9", BFD, more_fragments=True)),
    of_host(1, packets.ipv4("10.0.1.1", "10.0.1.9", BFD, fragment_offset=16)),
    of_host(1, packets.ipv4("10.0.1.1", "10.0.1.9", bytes(20), 47)),
    of_host(1, packets.ipv6_chain([(60, bytes(8))], wire.UDP, BFD, "2001:db8:1::1")),
    of_host(1, packets.ipv6_chain([(44, bytes(8))], wire.ICMPV6, bytes(48), "2001:db8:1::1")),
    of_host(1, packets.ipv4("10.0.1.1", "10.0.1.9", BFD), packets.HOST_MAC),
    link_frame(0x8847),
    packets.ethernet(packets.ipv4("10.0.1.1", "10.0.1.9", BFD), 7),
]
"""Frames that the fast path has to leave to Python."""
VIRTUAL = of_host(1, packets.ipv4("10.0.1.250", "224.0.0.18", bytes(20), 112), VMAC)
SERVICE = [
    of_host(2, packets.ipv4("10.0.2.1", "10.0.2.9", udp(*ports)))
    for ports in ((53, 40000), (40000, 53), (500, 3784), (500, 500), (3784, 49152), (49151, 3785))
]
SAMPLES = [*passing_of(1), *passing_of(2), *ASKED, VIRTUAL, *SERVICE]


def packet_in(frame: bytes, reason: str, l3_if: int, bundle: int = 0) -> PuntedPacket:
    return punt(frame, reason, ingress_l3_if=l3_if, bundle=bundle, vrf=l3_if - 1)


def as_received(frame: bytes, tagged: bool) -> bytes:
    return frame[:12] + b"\x81\0\0\7" + frame[12:] if tagged else frame


# --- tests ---------------------------------------------------------------------------------------

Router = Callable[[Callable[[BothWays], None]], None]


@pytest.mark.parametrize("l3_if", [1, 2])
def test_routing_protocols_pass_natively(router: Router, l3_if: int) -> None:
    def test(both: BothWays) -> None:
        native = both.fast_path.native
        frames = passing_of(l3_if) + [VIRTUAL] * (l3_if == 1)
        for frame in frames:
            metadata = native.would_send(TAP[l3_if], frame)
            assert metadata is not None, frame.hex()
            assert both.sends(l3_if, frame) == [(frame, metadata)]
            for tagged in (False, True):
                received = as_received(frame, tagged)
                packet = packet_in(received, "ROUTING_PROTOCOL", l3_if)
                assert native.would_give(received, packet[1:]) == (TAP[l3_if], frame)
                assert both.gives(packet) == [(TAP[l3_if], frame)]

    router(test)


def test_what_needs_a_decision_is_asked_of_python(router: Router) -> None:
    def test(both: BothWays) -> None:
        for frame in ASKED:
            assert both.fast_path.native.would_send(TAP[1], frame) is None, frame.hex()
        assert both.fast_path.native.would_send(99, passing_of(1)[3]) is None

    router(test)


def test_only_what_is_for_the_host_is_given_to_it(router: Router) -> None:
    frame = passing_of(1)[3]

    def test(both: BothWays) -> None:
        native = both.fast_path.native
        given = {
            name
            for name in REASONS
            if native.would_give(frame, packet_in(frame, name, 1)[1:]) is not None
        }
        assert given == {reason.value for reason in FOR_THE_HOST}
        unknown = packet_in(frame, "LOCAL", 1)._replace(reason=250)
        for packet in (unknown, packet_in(frame, "LOCAL", 3)):
            assert native.would_give(frame, packet[1:]) is None

    router(test)


def test_an_address_that_goes_takes_its_frames_along(router: Router) -> None:
    def test(both: BothWays) -> None:
        both.host.apply(macvlan(WORKING, held_down=True))
        both.host.publish()
        assert both.fast_path.native.would_send(TAP[1], VIRTUAL) is None
        assert both.sends(1, VIRTUAL) == []

    router(test)


def test_the_host_sends_nothing_that_the_loop_would_not(router: Router) -> None:
    def test(both: BothWays) -> None:
        @settings(max_examples=3000, deadline=None)
        @given(st.sampled_from([1, 2]), damaged(SAMPLES))
        def same(l3_if: int, frame: bytes) -> None:
            metadata = both.fast_path.native.would_send(TAP[l3_if], frame)
            if metadata is not None:
                assert both.sends(l3_if, frame) == [(frame, metadata)]

        same()

    router(test)


def test_the_host_gets_nothing_that_the_loop_would_not_give(router: Router) -> None:
    def test(both: BothWays) -> None:
        @settings(max_examples=3000, deadline=None)
        @given(
            st.sampled_from([1, 2, 3]),
            st.sampled_from(sorted(REASONS)),
            damaged(SAMPLES + [as_received(frame, True) for frame in SAMPLES]),
            st.sampled_from([0, 7]),
        )
        def same(l3_if: int, reason: str, frame: bytes, bundle: int) -> None:
            packet = packet_in(frame, reason, l3_if, bundle)
            given = both.fast_path.native.would_give(frame, packet[1:])
            if given is not None:
                assert both.gives(packet) == [given]

        same()

    router(test)


def test_ports_of_a_vrf_are_those_that_the_loop_lets_pass(router: Router) -> None:
    """Checks for pairs of UDP ports in a VRF that the fast path sends a frame if the loop does. It
    must leave frames with port 9 (probes) or 4500 (IKE) to the loop.

    The ports are all values at which the decision could change, and the values next to them.
    """
    limits = {0, 65535, 49151, 49152, 53, 500, 520, 521, 646, 3784, 3785, 4500, 4784}
    ports = sorted({p + d for p in limits for d in (-1, 0, 1)} & set(range(65536)))

    def test(both: BothWays) -> None:
        for source in ports:
            for destination in ports:
                frame = of_host(2, packets.ipv4("10.0.2.1", "10.0.2.9", udp(source, destination)))
                passes = both.fast_path.native.would_send(TAP[2], frame) is not None
                wanted = bool(both.sends(2, frame)) and not {source, destination} & {9, 4500}
                assert passes == wanted, (source, destination)

    router(test)


def test_metadata_name_the_interface_and_its_vrf(router: Router) -> None:
    def test(both: BothWays) -> None:
        sent = both.fast_path.native.would_send(TAP[2], passing_of(2)[3])
        assert sent is not None
        named = dict(zip(PACKET_OUT, sent, strict=True))
        assert (named["egress_l3_if"], named["vrf"], named["bundle"]) == (2, 1, 0)

    router(test)


def test_ip_is_told_and_nothing_else() -> None:
    assert {reason.value for reason in FOR_THE_HOST - IP_FOR_THE_HOST} == {"ARP", "LINK_PROTOCOL"}


def test_interfaces_are_told_once_a_change() -> None:
    told: list[object] = []
    host = HostInterfaces(KeepingTaps(), FakeAddresses(), FakeDevices(), on_change=told.append)
    configured: InterfaceConfig = interface(1)
    host.add(configured)
    for _ in range(2):
        host.publish()
    assert len(told) == 1
    host.apply(LinkChanged(11, "eth1", True, True, 1500, configured.mac))
    host.publish()
    assert len(told) == 1, "its carrier concerns no frame"
    host.apply(AddressAdded(11, InterfaceAddress.parse("10.0.1.1/24")))
    host.publish()
    assert len(told) == 2


# --- the controller with a fast path -------------------------------------------------------------


class FakeFastPath:
    """Fakes a fast path that has delivered some packets to the host."""

    def __init__(self) -> None:
        self.untold: list[PuntedPacket] = []
        self._fd = os.eventfd(0, os.EFD_NONBLOCK)

    def tell(self, packet: PuntedPacket) -> None:
        self.untold.append(packet)
        os.eventfd_write(self._fd, 1)

    def fileno(self) -> int:
        return self._fd

    def delivered_packets(self) -> list[PuntedPacket]:
        told, self.untold = self.untold, []
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._fd)
        return told

    def handled(self) -> dict[int, int]:
        return {REASONS["ROUTING_PROTOCOL"]: 3}

    def end_stand_ins(self) -> None:
        pass

    def set_passing(self, primary: tuple[int, int] | None) -> None:
        pass

    def counters(self) -> dict[str, dict[str, int]]:
        return {"fast_path": {"to_host": 3}, "host": {"to_host": 3}, "controller": {}}


class FastWorld(PolicyWorld):
    """Runs a router with SPDs and a fast path."""

    def __init__(self, *arguments: Any) -> None:
        self.delivered_packets = FakeFastPath()
        self.fast_path = self.delivered_packets
        super().__init__(*arguments)

    def close(self) -> None:
        super().close()
        os.close(self.delivered_packets.fileno())


ABOUT = packets.ipv4("10.0.3.7", "10.0.1.1", udp(40000, 9))
ERROR = packets.ipv4("10.0.1.1", "10.0.3.7", b"\3\3" + bytes(6) + ABOUT, wire.ICMP)


def run_scenario(folder: Path, scenario: Callable[[FastWorld], Awaitable[None]]) -> None:
    path = folder / "r1.yaml"
    path.write_text(filled(CONFIG, folder))

    async def scene() -> None:
        world = FastWorld(load_config(path), FakeSwitch(CODEC))
        task = asyncio.create_task(world.controller.run())
        try:
            await asyncio.wait_for(scenario(world), 20)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            world.close()

    asyncio.run(scene())


@pytest.mark.parametrize("bundle", [0, 7])
def test_an_error_leaves_as_what_it_quotes_came_by_the_fast_path(
    tmp_path: Path, bundle: int
) -> None:
    """Checks a host's ICMP error about a packet that the fast path has delivered.

    The error must leave as the quoted packet came: by its bundle, or in clear. The controller has
    just started, so it drops errors about unknown packets. Therefore the error leaves only if the
    fast path has reported the delivery.
    """

    async def scenario(world: FastWorld) -> None:
        await world.began()
        frame = packets.ethernet(ABOUT)
        world.delivered_packets.untold.append(
            packet_in(frame, "LOCAL", 1, bundle)
        )  # only the fast path has seen this packet
        world.host.put(HostFrame(1, of_host(1, ERROR)))
        (sent,) = await world.sent()
        assert (sent["bundle"], sent["egress_l3_if"]) == (bundle, 0 if bundle else 1)

    run_scenario(tmp_path, scenario)


def test_an_error_about_what_nobody_told_of_does_not_leave(tmp_path: Path) -> None:
    async def scenario(world: FastWorld) -> None:
        await world.began()
        world.host.put(HostFrame(1, of_host(1, ERROR)))
        await world.until(lambda: world.controller.host_errors.counters.total() == 1)
        assert world.client.sent == []

    run_scenario(tmp_path, scenario)


def test_what_was_told_is_heard_without_any_frame_of_the_hosts(tmp_path: Path) -> None:
    async def scenario(world: FastWorld) -> None:
        await world.began()
        world.delivered_packets.tell(packet_in(packets.ethernet(ABOUT), "LOCAL", 1))
        await world.until(lambda: not world.delivered_packets.untold)
        assert len(world.controller.host_errors._delivered) == 1

    run_scenario(tmp_path, scenario)


def test_what_passed_is_shown_with_what_it_belongs_to(tmp_path: Path) -> None:
    async def scenario(world: FastWorld) -> None:
        await world.began()
        world.host.counters["to_host"] = 4
        punts = await world.ask("show", what="punts")
        assert punts["reasons"]["ROUTING_PROTOCOL"]["handled"] == 3
        shown = (await world.ask("show", what="counters"))["controller"]
        assert (shown["host"]["to_host"], shown["fast_path"]["to_host"]) == (7, 3)
        assert world.host.counters["to_host"] == 4

    run_scenario(tmp_path, scenario)
