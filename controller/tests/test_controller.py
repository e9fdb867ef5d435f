# SPDX-License-Identifier: Apache-2.0
"""Tests the paths of docs/ARCHITECTURE.md in the whole event loop, with fake sources and a fake
switch.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fake_client import FakeClient
from fake_switch import PIPELINE, FakeSwitch, load_codec
from scenes import address, gateway, ifindex, link, neighbor, no_route, route, slot
from sluice.api.rows import Rows
from sluice.api.views import Views
from sluice.config import Config, load_config
from sluice.controller import Controller
from sluice.daemons import Daemon
from sluice.entities import NO_POLICY, UNREACHABLE, EntityKind, Nexthop, NexthopGroup
from sluice.inputs import EngineInput, FastPathInput, PuntInput, Sources, XfrmInput
from sluice.model import (
    Address,
    Event,
    FpmSessionOpened,
    HostFrame,
    KernelEvent,
    LinkChanged,
    NeighborState,
    Route,
    RouteEvent,
    RouteKey,
    parse_address,
)
from sluice.native_punts import NativePunts
from sluice.numbers import InterfaceNumbers
from sluice.p4.packets import PACKET_OUT, PacketSchema
from sluice.p4.schema import Schema, load_pipeline
from sluice.p4runtime.election import LARGEST
from sluice.sources.replay import ReplayGate
from sluice.stalls import Stalls
from sluice.state.nexthops import Path as NexthopPath
from test_punts import ipv4, punt

CODEC = load_codec()
SCHEMA = PacketSchema(Schema(load_pipeline(PIPELINE).p4info))
CONFIG = """\
router: r1
interfaces:
  - {name: eth1, port: 1, mac: "02:00:00:00:01:01"}
  - {name: eth2, port: 2, mac: "02:00:00:00:01:02"}
  - {name: eth3, port: 3, mac: "02:00:00:00:01:03"}
limits: {held_seconds: 0.3}
"""


class FakeInput:
    """Fakes a source. `poll` returns the events that `put` added."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self.vrf_devices: dict[int, str | None] = {}
        self.waiting: list[Any] = []
        self._fd = os.eventfd(0, os.EFD_NONBLOCK)
        self.peer: str | None = None
        self.problem: str | None = None
        self.synced = True
        self.asked: list[tuple[int, Address]] = []
        self.delivered: list[tuple[int, bytes]] = []
        self.applied: list[KernelEvent] = []

    def put(self, *events: Any) -> None:
        self.waiting += events
        os.eventfd_write(self._fd, 1)

    def fileno(self) -> int:
        return self._fd

    def poll(self, limit: int) -> list[Any]:
        taken, self.waiting = self.waiting[:limit], self.waiting[limit:]
        if not self.waiting and taken:
            os.eventfd_read(self._fd)
        return taken

    def link_changed(self, event: LinkChanged) -> None:
        pass

    def use_neighbor(self, ifindex: int, address: Address) -> None:
        self.asked.append((ifindex, address))

    def deliver(self, frames: Iterable[tuple[int, bytes]]) -> int:
        self.delivered += frames
        return len(self.delivered)

    def apply(self, event: KernelEvent) -> None:
        self.applied.append(event)

    def publish(self) -> None:
        pass


class FakeDump:
    """Fakes the dump of the kernel's routes. The first poll returns all of them."""

    def __init__(self) -> None:
        self.routes: dict[RouteKey, Route] = {}
        self.give: Callable[[dict[RouteKey, Route]], dict[RouteKey, Route]] = self._in_question
        """Returns the routes for `poll`. The controller takes ownership of the dictionary."""
        self.running = False
        self.asked = 0
        """Number of requested dumps."""
        self._fd = os.eventfd(0, os.EFD_NONBLOCK)

    def fileno(self) -> int:
        return self._fd

    def start(self, wanted: Callable[[RouteKey], bool]) -> None:
        self.running = True
        self.asked += 1
        self._wanted = wanted
        os.eventfd_write(self._fd, 1)

    def poll(self, datagrams: int) -> dict[RouteKey, Route] | None:
        os.eventfd_read(self._fd)
        self.running = False
        return self.give(self.routes)

    def _in_question(self, routes: dict[RouteKey, Route]) -> dict[RouteKey, Route]:
        return {key: one for key, one in routes.items() if self._wanted(key)}


class World:
    make_client: type[FakeClient] = FakeClient
    quiet = 60.0
    """Seconds without a route after which the routing daemon's replay counts as complete."""
    fast_path: FastPathInput | None = None
    xfrm: Mapping[str, XfrmInput] = {}
    engines: Mapping[int, EngineInput] = {}

    @staticmethod
    def make_punts() -> PuntInput:
        """Returns the queue that the daemon uses. `test_first_packets` also uses its
        specification."""
        return NativePunts(SCHEMA, 100)

    def __init__(
        self,
        config: Config,
        switch: FakeSwitch,
        numbers: InterfaceNumbers | None = None,
        stalls: Stalls | None = None,
    ) -> None:
        self.routes, self.kernel, self.host = FakeInput(), FakeInput(), FakeInput()
        self.dump = FakeDump()
        self.switch = switch
        self.clients: list[FakeClient] = []
        self.arbitration: list[Any] | None = None
        self.ready = asyncio.Event()
        sources = Sources(
            routes=self.routes,
            gate=ReplayGate(self.quiet),
            dump=self.dump,
            kernel=self.kernel,
            host=self.host,
            punts=self.make_punts(),
            fast_path=self.fast_path,
            xfrm=self.xfrm,
            engines=self.engines,
        )
        pipeline = load_pipeline(PIPELINE)
        self.controller = Controller(
            config, pipeline, sources, self._connect, self.ready.set, numbers=numbers, stalls=stalls
        )

    def _connect(self, election_id: tuple[int, int]) -> FakeClient:
        self.clients.append(
            self.make_client(self.switch, arbitration=self.arbitration, election_id=election_id)
        )
        return self.clients[-1]

    @property
    def client(self) -> FakeClient:
        return self.clients[-1]

    def close(self) -> None:
        """Closes the descriptors of the fakes. Order: all tasks must have ended."""
        descriptors = [one.fileno() for one in (self.routes, self.kernel, self.host)]
        descriptors += [self.dump.fileno(), *(client.fileno() for client in self.clients)]
        for descriptor in descriptors:
            os.close(descriptor)

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(5):
            while not condition():
                await asyncio.sleep(0.001)

    async def synced(self) -> None:
        await self.until(
            lambda: (
                self.controller.reconciler.synced
                and not self.kernel.waiting
                and not self.routes.waiting
            )
        )

    def links(self) -> None:
        for n in (1, 2, 3):
            self.kernel.put(link(n), address(n, f"10.0.{n}.1/24"))


Scenario = Callable[[World], Awaitable[None]]


@pytest.fixture
def run_scenario(tmp_path: Path) -> Callable[..., None]:
    path = tmp_path / "r1.yaml"
    path.write_text(CONFIG)
    config = load_config(path)

    def run(scenario: Scenario, switch: FakeSwitch | None = None) -> None:
        worlds: list[World] = []

        async def scene() -> None:
            world = World(config, switch or FakeSwitch(CODEC))
            worlds.append(world)
            task = asyncio.create_task(world.controller.run())
            try:
                await asyncio.wait_for(scenario(world), 20)
            finally:
                if task.done():
                    task.result()
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

        try:
            asyncio.run(scene())
        finally:
            for world in worlds:
                world.close()

    return run


def metadata(values: tuple[int, ...]) -> dict[str, int]:
    return dict(zip(PACKET_OUT, values, strict=True))


def test_ready_when_the_interfaces_are_in_the_switch(run_scenario: Callable[..., None]) -> None:
    async def scenario(world: World) -> None:
        world.links()
        await asyncio.wait_for(world.ready.wait(), 5)
        assert len(world.switch.of(EntityKind.L3_INTERFACE)) == 3
        assert slot("10.0.1.1/32") in world.switch.of(EntityKind.LOCAL_PREFIX)
        assert len(world.switch.of(EntityKind.PUNT_METER)) == 19
        for kind in (EntityKind.INBOUND_BINDING, EntityKind.OUTBOUND_BINDING):
            assert world.switch.of(kind) == dict.fromkeys((1, 2, 3), NO_POLICY)
        assert world.client.pushed
        assert world.switch.violations == []

    run_scenario(scenario)


def test_a_route_walks(run_scenario: Callable[..., None]) -> None:
    async def scenario(world: World) -> None:
        world.links()
        world.routes.put(FpmSessionOpened("zebra"), route("20.0.0.0/8", gateway("10.0.1.9", 1)))
        await world.until(lambda: slot("20.0.0.0/8") in world.switch.of(EntityKind.ROUTE))
        await world.until(lambda: world.kernel.asked)
        assert world.kernel.asked[0] == (ifindex(1), parse_address("10.0.1.9"))
        world.kernel.put(neighbor(1, "10.0.1.9", 4))
        await world.synced()
        macs = [
            v.mac for v in world.switch.of(EntityKind.NEXTHOP).values() if isinstance(v, Nexthop)
        ]
        assert bytes([2, 0, 0, 0, 9, 4]) in macs
        world.routes.put(no_route("20.0.0.0/8"))
        await world.until(lambda: slot("20.0.0.0/8") not in world.switch.of(EntityKind.ROUTE))

    run_scenario(scenario)


def test_nobody_is_asked_for_before_the_kernels_neighbours_are_known(
    run_scenario: Callable[..., None],
) -> None:
    async def scenario(world: World) -> None:
        world.kernel.synced = False
        world.links()
        world.routes.put(route("20.0.0.0/8", gateway("10.0.1.9", 1)))
        await world.until(lambda: world.controller.resolution.next_due is not None)
        await world.until(lambda: world.controller.resolution.waiting)
        assert world.kernel.asked == []
        world.kernel.synced = True
        world.kernel.put(neighbor(1, "10.0.1.77", 7))  # the last entry of the neighbour table
        await world.until(lambda: world.kernel.asked)
        assert world.kernel.asked == [(ifindex(1), parse_address("10.0.1.9"))]

    run_scenario(scenario)


def test_a_held_packet_goes_on_when_the_switch_knows_the_neighbor(
    run_scenario: Callable[..., None],
) -> None:
    async def scenario(world: World) -> None:
        world.links()
        await world.ready.wait()
        packet = punt(ipv4(), "NEIGHBOR_UNRESOLVED", egress_l3_if=1)
        world.client.punt((packet.frame, tuple(packet[1:])))
        await world.until(lambda: world.kernel.asked)
        assert world.kernel.asked == [(ifindex(1), parse_address("10.0.1.77"))]
        world.kernel.put(neighbor(1, "10.0.1.77", 4))
        await world.until(lambda: world.client.sent)
        ((frame, values),) = world.client.sent
        assert frame == packet.frame
        nexthop = world.switch.of(EntityKind.NEXTHOP)[metadata(values)["nexthop_id"]]
        assert isinstance(nexthop, Nexthop)
        assert nexthop.mac is not None

    run_scenario(scenario)


def test_nobody_answers(run_scenario: Callable[..., None]) -> None:
    async def scenario(world: World) -> None:
        world.links()
        await world.ready.wait()
        packet = punt(ipv4(), "NEIGHBOR_UNRESOLVED", egress_l3_if=1)
        world.client.punt((packet.frame, tuple(packet[1:])))
        await world.until(lambda: world.client.sent)  # when the holding time ends
        assert metadata(world.client.sent[0][1])["kind"] == 2
        world.client.punt((packet.frame, tuple(packet[1:])))
        await world.until(lambda: len(world.controller.held) == 1)
        world.kernel.put(neighbor(1, "10.0.1.77", None, NeighborState.FAILED))
        await world.until(lambda: len(world.client.sent) == 2)

    run_scenario(scenario)


async def routes_shown(world: World, **more: Any) -> list[dict[str, Any]]:
    request = {"command": "show", "what": "routes"} | more
    rows: Rows = await Views(world.controller).answer(request)
    return await rows.whole()


def group_sizes(world: World) -> list[int]:
    groups = world.switch.of(EntityKind.GROUP).values()
    return [len(group.members) for group in groups if isinstance(group, NexthopGroup)]


@pytest.mark.parametrize("failure", ["the kernel gives up", "packets wait in vain"])
def test_a_silent_leg_leaves_its_group_until_it_answers(
    run_scenario: Callable[..., None], failure: str
) -> None:
    async def scenario(world: World) -> None:
        world.links()
        world.routes.put(
            route("20.0.0.0/8", gateway("10.0.1.9", 1), gateway("10.0.2.9", 2)),
        )
        world.kernel.put(neighbor(1, "10.0.1.9", 4))
        await world.until(lambda: group_sizes(world) == [2])
        path = NexthopPath(2, parse_address("10.0.2.9"))
        if failure == "the kernel gives up":
            world.kernel.put(neighbor(2, "10.0.2.9", None, NeighborState.FAILED))
        else:
            identifier = world.controller.fib.nexthops.id_of(path)
            assert identifier is not None
            frame = ipv4(destination="20.1.1.1")
            packet = punt(frame, "NEIGHBOR_UNRESOLVED", egress_l3_if=2, nexthop_id=identifier)
            world.client.punt((packet.frame, tuple(packet[1:])))
            # The ICMP error is sent at the latest when the packet's holding time ends.
            await world.until(lambda: world.client.sent)
        await world.until(lambda: group_sizes(world) == [1])
        (shown,) = await routes_shown(world, prefix="20.0.0.0/8")
        assert [leg["gateway"] for leg in shown["nexthops"]] == ["10.0.1.9"]
        assert [leg["gateway"] for leg in shown["dead_nexthops"]] == ["10.0.2.9"]
        asked = len(world.kernel.asked)
        await world.until(lambda: (ifindex(2), path.address) in world.kernel.asked[asked:])
        world.kernel.put(neighbor(2, "10.0.2.9", 5))
        await world.until(lambda: group_sizes(world) == [2])

    run_scenario(scenario)


def test_to_the_host_and_from_it(run_scenario: Callable[..., None]) -> None:
    async def scenario(world: World) -> None:
        world.links()
        await world.ready.wait()
        packet = punt(ipv4(), "LOCAL")
        world.client.punt((packet.frame, tuple(packet[1:])))
        await world.until(lambda: world.host.delivered)
        assert world.host.delivered == [(3, packet.frame)]
        arp = bytes(12) + b"\x08\x06" + bytes(28)
        world.host.put(HostFrame(2, arp), HostFrame(1, ipv4()))
        await world.until(lambda: len(world.client.sent) == 2)
        first, second = (metadata(values) for _, values in world.client.sent)
        assert (first["kind"], first["egress_l3_if"]) == (1, 2)
        assert (second["kind"], second["egress_l3_if"], second["origin"]) == (2, 1, 1)

    run_scenario(scenario)


def test_a_full_packet_out_queue_is_counted(run_scenario: Callable[..., None]) -> None:
    async def scenario(world: World) -> None:
        world.links()
        await world.ready.wait()
        world.client.packet_out_room = 0
        world.host.put(HostFrame(1, ipv4()))
        name = "packets out dropped: queue full or no switch"
        await world.until(lambda: world.controller.counters[name] == 1)

    run_scenario(scenario)


def test_the_largest_election_id_is_stood_by_until_the_switch_restarts(
    run_scenario: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Checks that a controller waits in standby while another client has the largest possible
    election id.

    Regression: the controller raised a ValueError again and again.
    """
    monkeypatch.setattr("sluice.primacy.FIRST_RECONNECT", 0.001)
    monkeypatch.setattr("sluice.primacy.LAST_RECONNECT", 0.01)
    caplog.set_level(logging.INFO)

    async def scenario(world: World) -> None:
        world.arbitration = [(False, 5, "", LARGEST)]
        world.links()
        await world.until(lambda: len(world.clients) > 5)
        assert all(client.closed for client in world.clients[:-1])
        connection = world.controller.connection
        assert "restart the switch" in (connection.last_error or "")
        assert len([line for line in caplog.messages if "largest election id" in line]) == 1
        world.arbitration = None
        await asyncio.wait_for(world.ready.wait(), 5)
        assert connection.last_error is None
        assert len([line for line in caplog.messages if "connected again" in line]) == 1

    run_scenario(scenario)


def test_a_switch_that_restarts_is_programmed_again(run_scenario: Callable[..., None]) -> None:
    async def scenario(world: World) -> None:
        world.links()
        world.routes.put(route("20.0.0.0/8", gateway("10.0.1.9", 1)))
        await world.until(lambda: slot("20.0.0.0/8") in world.switch.of(EntityKind.ROUTE))
        world.switch.entities.clear()
        world.switch.raw.clear()
        world.switch._uses.clear()
        world.client.hang_up()
        await world.until(lambda: len(world.clients) == 2)
        await world.until(lambda: slot("20.0.0.0/8") in world.switch.of(EntityKind.ROUTE))
        await world.synced()
        assert world.switch.violations == []

    run_scenario(scenario)


def test_a_new_controller_keeps_what_forwards_until_zebra_has_spoken(
    run_scenario: Callable[..., None],
) -> None:
    switch = FakeSwitch(CODEC)
    kept, gone = "20.0.0.0/8", "21.0.0.0/8"

    async def first(world: World) -> None:
        world.links()
        world.routes.put(route(kept, gateway("10.0.1.9", 1)), route(gone, gateway("10.0.1.9", 1)))
        world.kernel.put(neighbor(1, "10.0.1.9", 4))
        await world.until(lambda: slot(gone) in switch.of(EntityKind.ROUTE))
        await world.synced()

    async def second(world: World) -> None:
        before = dict(switch.entities)
        switch.log.clear()
        world.links()
        await world.ready.wait()
        world.routes.put(FpmSessionOpened("zebra"), route(kept, gateway("10.0.1.9", 1)))
        await world.synced()
        assert {k: v for k, v in switch.entities.items() if k[0] > EntityKind.HASH_SEED} == {
            k: v for k, v in before.items() if k[0] > EntityKind.HASH_SEED
        }
        assert all(kind <= EntityKind.HASH_SEED for _, kind, _ in switch.log)
        assert (ifindex(1), parse_address("10.0.1.9")) in world.kernel.asked

    async def third(world: World) -> None:
        world.links()
        world.controller.sources.gate._quiet = 0.01  # type: ignore[attr-defined]
        world.routes.put(FpmSessionOpened("zebra"), route(kept, gateway("10.0.1.9", 1)))
        await world.until(lambda: slot(gone) not in switch.of(EntityKind.ROUTE))
        await world.synced()
        assert slot(kept) in switch.of(EntityKind.ROUTE)

    run_scenario(first, switch)
    run_scenario(second, switch)
    run_scenario(third, switch)
    assert switch.violations == []


def test_routes_wait_while_the_reconciler_is_behind(
    run_scenario: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice.controller.ROUTES_BEHIND", 300)
    monkeypatch.setattr("sluice.controller.ROUTES_CAUGHT_UP", 100)

    async def scenario(world: World) -> None:
        world.links()
        await world.ready.wait()
        most = 0
        events: list[RouteEvent | Event] = [
            route(f"20.{n >> 8}.{n & 255}.0/24", gateway("10.0.1.9", 1)) for n in range(3000)
        ]
        world.routes.put(*events)
        while world.routes.waiting:
            most = max(most, world.controller.reconciler.pending)
            await asyncio.sleep(0)
        await world.synced()
        assert most <= 300 + 256
        assert len(world.switch.of(EntityKind.ROUTE)) == 3003

    run_scenario(scenario)


async def quiet_passes(controller: Controller) -> None:
    """Waits several times as long as the quiet time after which a replay counts as complete.
    Returns earlier if the replay is complete.
    """
    async with asyncio.timeout(5):
        rounds = controller._timers.slices + 10
        while controller._timers.slices < rounds and not controller.settled:
            await asyncio.sleep(0.001)


def test_a_replay_that_waits_to_be_read_is_not_over(
    run_scenario: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks that a replay does not count as complete while routes of it are still unread.

    While the switch's routes are compared, the controller leaves a full table unread for longer
    than the quiet time.
    """
    switch, kept = FakeSwitch(CODEC), "20.0.0.0/8"
    named = route(kept, gateway("10.0.1.9", 1))

    async def first(world: World) -> None:
        world.links()
        world.routes.put(named)
        await world.until(lambda: slot(kept) in switch.of(EntityKind.ROUTE))

    async def second(world: World) -> None:
        world.links()
        await world.ready.wait()
        controller = world.controller
        world.routes.put(FpmSessionOpened("zebra"))
        await world.until(lambda: controller.fib.sessions)
        with monkeypatch.context() as behind:
            behind.setattr("sluice.controller.ROUTES_BEHIND", -1)
            behind.setattr("sluice.controller.ROUTES_CAUGHT_UP", -1)
            world.routes.put(named)
            gate: Any = controller.sources.gate
            gate._quiet, gate._due = 0.01, asyncio.get_running_loop().time()
            controller._set_timer()
            await quiet_passes(controller)
            assert not controller.settled
            assert slot(kept) in switch.of(EntityKind.ROUTE)
        controller.daemons.enable(True)
        await world.until(lambda: controller.settled)
        assert slot(kept) in switch.of(EntityKind.ROUTE)

    run_scenario(first, switch)
    run_scenario(second, switch)


def test_what_the_kernel_holds_stays_though_zebra_pauses_before_it_names_it(
    run_scenario: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks that after a restart, routes that the kernel has stay in the switch even if zebra
    pauses before it announces them.

    A replay has no end mark. So silence does not prove that the replay is complete.
    """
    switch = FakeSwitch(CODEC)
    early, late, gone = (
        route(text, gateway("10.0.1.9", 1)) for text in ("20.0.0.0/8", "21.0.0.0/8", "22.0.0.0/8")
    )
    late_slot, gone_slot = slot("21.0.0.0/8"), slot("22.0.0.0/8")

    async def first(world: World) -> None:
        world.links()
        world.routes.put(early, late, gone)
        await world.until(lambda: gone_slot in switch.of(EntityKind.ROUTE))
        await world.synced()

    async def second(world: World) -> None:
        controller = world.controller
        world.dump.routes = {one.route.key: one.route for one in (early, late)}
        world.links()
        await world.ready.wait()
        world.routes.put(FpmSessionOpened("zebra"), early)
        await world.until(lambda: controller.settled)
        await world.until(lambda: gone_slot not in switch.of(EntityKind.ROUTE))
        await world.synced()
        assert late_slot in switch.of(EntityKind.ROUTE)
        assert controller.daemons.kept == 1
        assert controller.sources.gate.due is not None  # the kernel's routes will be read again
        world.routes.put(late)
        await world.until(lambda: not controller.daemons.kept)
        await world.synced()
        assert controller.reconciler.orphans == 0
        assert late_slot in switch.of(EntityKind.ROUTE)
        # When the second comparison was due, the daemon had announced all routes. So the kernel's
        # routes were not read again.
        assert world.dump.asked == 1

    async def third(world: World) -> None:
        controller = world.controller
        world.links()
        await world.ready.wait()
        world.routes.put(FpmSessionOpened("zebra"), early)
        await world.until(lambda: late_slot not in switch.of(EntityKind.ROUTE))
        await world.synced()
        assert controller.settled
        assert not controller.daemons.kept

    run_scenario(first, switch)
    monkeypatch.setattr(World, "quiet", 0.01)
    run_scenario(second, switch)
    run_scenario(third, switch)
    assert switch.violations == []


def after_a_restart_of_the_daemon(world: World) -> None:
    """Sets up 2,000 routes of an earlier session of the daemon. The kernel has half of them."""
    routes = [
        route(f"{20 + n // 256}.{n % 256}.0.0/16", gateway("10.0.1.9", 1)) for n in range(2000)
    ]
    world.dump.routes = {one.route.key: one.route for one in routes[::2]}
    world.routes.put(FpmSessionOpened("zebra"), *routes, FpmSessionOpened("zebra, restarted"))


def test_stale_routes_that_the_kernel_lost_as_well_go_in_slices(
    run_scenario: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(World, "quiet", 0.3)

    async def scenario(world: World) -> None:
        world.links()
        await world.ready.wait()
        after_a_restart_of_the_daemon(world)
        controller = world.controller
        await world.until(lambda: controller.settled)
        assert controller.fib.rib.stale == len(controller.fib.rib) == 1000
        assert controller.sources.gate.due is not None  # the kernel's routes will be read again
        assert daemon_of(controller).comparing.slices > 4
        await world.synced()
        routes = [
            target for target in world.switch.of(EntityKind.ROUTE).values() if target != UNREACHABLE
        ]
        assert len(routes) == 1000 + 3

    run_scenario(scenario)


def daemon_of(controller: Controller) -> Daemon:
    """Returns the routing daemon of the default VRF."""
    return controller.daemons._daemons[0]


def test_a_daemon_that_restarts_during_the_comparison_is_compared_anew(
    run_scenario: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks that if the routing daemon restarts during a comparison with the kernel's routes, a
    new comparison follows.

    The first comparison has read the kernel's routes too early: before the new session announced
    its routes.
    """
    monkeypatch.setattr(World, "quiet", 0.3)

    async def scenario(world: World) -> None:
        world.links()
        await world.ready.wait()
        after_a_restart_of_the_daemon(world)
        controller, rib = world.controller, world.controller.fib.rib
        while daemon_of(controller).comparison._sweep is None or len(rib) == 2000:
            await asyncio.sleep(0)
        monkeypatch.setattr(controller.sources.gate, "_quiet", 60.0)
        world.routes.put(FpmSessionOpened("zebra, restarted again"))
        await world.until(lambda: daemon_of(controller).comparison._sweep is None)
        assert 1000 < len(rib) < 2000
        assert rib.stale == len(rib)
        assert not controller.settled
        due = controller.sources.gate.due
        assert due is not None
        assert due > asyncio.get_running_loop().time() + 50

    run_scenario(scenario)


@pytest.mark.parametrize(
    "what",
    ["status", "interfaces", "routes", "nexthops", "neighbors", "punts", "counters", "metrics"],
)
def test_everything_can_be_shown(run_scenario: Callable[..., None], what: str) -> None:
    async def scenario(world: World) -> None:
        world.links()
        legs = (gateway("10.0.1.9", 1, 3), gateway("10.0.2.9", 2, 1))
        world.routes.put(route("169.254.7.0/24", gateway("10.0.1.9", 1)))
        world.routes.put(route("20.0.0.0/8", *legs))
        world.kernel.put(neighbor(1, "10.0.1.9", 4))
        await world.until(lambda: slot("20.0.0.0/8") in world.switch.of(EntityKind.ROUTE))
        await world.synced()
        shown = await Views(world.controller).answer({"command": "show", "what": what})
        if isinstance(shown, Rows):
            shown = await shown.whole()
        if what == "routes":
            (entry,) = [item for item in shown if item["prefix"] == "20.0.0.0/8"]
            assert entry["installed"]
            assert entry["protocol"] == "bgp"
            assert [leg["weight"] for leg in entry["nexthops"]] == [3, 1]
            assert entry["nexthops"][0]["mac"] == "02:00:00:00:09:04"
            assert entry["unrouted"] is None
            (entry,) = [item for item in shown if item["prefix"] == "169.254.7.0/24"]
            assert not entry["installed"]
            assert entry["unrouted"] == "link-local: never forwarded (RFC 3927)"
            assert entry["nexthops"][0]["gateway"] == "10.0.1.9"
        elif what == "status":
            reason = "link-local: never forwarded (RFC 3927)"
            assert shown["fpm"]["not_installed"] == {reason: 1}
            assert shown["synced"]
            assert shown["switch"]["connected"]
        elif what == "metrics":
            assert 'sluice_synced{router="r1"} 1\n' in shown
        else:
            assert shown

    run_scenario(scenario)
