# SPDX-License-Identifier: Apache-2.0
"""Tests that the fast code for runs (many routes at once, in the native table) has the same results
as the general code for single routes.

Two routers get the same bytes from a routing daemon and the same events from the kernel. One reads
runs and writes many routes at a time. The other decodes each message and writes each route by the
general code.

After any sequence of events, both routers must forward alike and have the same record of each
route.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake_switch import FakeSwitch, load_codec
from scenes import SPECS, address, ifindex, link, neighbor
from sluice._native import RouteRun
from sluice.entities import EntityKind, RouteSlot, RouteTarget, RouteTargetKind
from sluice.model import Event, Prefix, RouteKey, StaleRoutesGone, parse_address
from sluice.p4runtime.session import P4RuntimeError
from sluice.reconciler import Reconciler
from sluice.sources.fpm import UNUSUAL_HEADS, FpmSource
from sluice.state.fib import UNROUTED_HEADS, Fib
from sluice.state.route_runs import events_of

CODEC = load_codec()
TABLES = {254: 0, 100: 1}
NEW_ROUTE, DEL_ROUTE, NEW_OBJECT, DEL_OBJECT = 24, 25, 104, 105

PREFIXES = [
    *("20.0.0.0/8", "20.1.0.0/16", "20.1.1.0/24", "20.1.2.0/24", "20.1.3.0/24", "0.0.0.0/0"),
    *("10.0.1.0/24", "10.0.1.9/32", "10.0.0.0/8", "169.254.7.0/24", "224.0.0.0/8"),
    *("2001:db8:7::/48", "2001:db8:8::/48", "fe80::/64", "::/0", "::1:0:0:0/80"),
]
GATEWAYS = {4: ["10.0.1.9", "10.0.1.8", "10.0.2.9"], 16: ["2001:db8:1::9", "2001:db8:2::9"]}
OBJECTS = (5, 6)


# -- zebra's messages


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def message(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 0x501, 0, 0) + body


def leg(gateway: str) -> tuple[bytes, int]:
    """Returns the address of a gateway, and the index of the interface to it."""
    octets = parse_address(gateway)
    return octets, ifindex(octets[2] if len(octets) == 4 else octets[5])


def route_message(text: str, table: int, way: Any, protocol: int) -> bytes:
    """Returns a route message as zebra encodes it.

    `way` is None (the message deletes the route), "blackhole", the id of a next-hop object, or
    gateways.
    """
    prefix = Prefix.parse(text)
    family = 2 if len(prefix.address) == 4 else 10
    form = 6 if way == "blackhole" else 1
    header = struct.pack("=BBBBBBBBI", family, prefix.length, 0, 0, table, protocol, 0, form, 0)
    body = header + (attribute(1, prefix.address) if prefix.length else b"")
    if isinstance(way, int):
        body += attribute(30, struct.pack("=I", way))
    elif isinstance(way, list) and len(way) == 1:
        octets, index = leg(way[0])
        body += attribute(5, octets) + attribute(4, struct.pack("=I", index))
    elif isinstance(way, list):
        hops = b""
        for octets, index in map(leg, way):
            inner = attribute(5, octets)
            hops += struct.pack("=HBBi", 8 + len(inner), 0, 0, index) + inner
        body += attribute(9, hops)
    return message(DEL_ROUTE if way is None else NEW_ROUTE, body)


def object_message(identifier: int, gateway: str | None) -> bytes:
    family = 0 if gateway is None else 2
    body = struct.pack("=BBBBI", family, 0, 0, 0, 0) + attribute(1, struct.pack("=I", identifier))
    if gateway is None:
        return message(DEL_OBJECT, body)
    octets, index = leg(gateway)
    return message(NEW_OBJECT, body + attribute(5, struct.pack("=I", index)) + attribute(6, octets))


# -- a router


class Server:
    """Fakes the server from which the FPM source reads."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def fileno(self) -> int:
        return 0

    def poll(self, max_events: int) -> list[Any]:
        taken, self.events = self.events[:max_events], self.events[max_events:]
        return taken

    def disconnect(self, connection: int, reason: str) -> None:
        pass


class Router:
    def __init__(self, runs: bool) -> None:
        self.runs = runs
        self.server = Server()
        self.source = FpmSource(self.server, lambda _: "frr", runs=runs)
        self.fib = Fib(SPECS, TABLES, {1: frozenset({0})})
        self.switch = FakeSwitch(CODEC)
        self.now = 0.0
        routes = self.fib.routes
        self.reconciler = Reconciler(CODEC, self._deleted, lambda: self.now, routes)
        if not runs:
            self.reconciler._may_write_many = lambda: False  # type: ignore[method-assign]
        self.reconciler.submit(self.fib.start())
        self.reconciler.release(EntityKind)
        self.seen_runs = 0
        self.session = 0
        self.frames: list[bytes] = []
        self.task: asyncio.Task[None] | None = None

    def _deleted(self, kind: EntityKind, key: object) -> None:
        if isinstance(key, int):
            self.fib.confirm_deleted(kind, key)

    def open(self) -> None:
        self.hear()
        self.session += 1
        self.server.events.append(("open", self.session, "zebra"))
        self.hear()

    def hear(self) -> None:
        """Handles all frames that zebra has sent."""
        if self.frames:
            self.server.events.append(("frames", self.session, self.frames))
            self.frames = []
        while events := self.source.poll(256):
            self.seen_runs += sum(type(event) is RouteRun for event in events)
            self.reconciler.submit(self.fib.apply(events, self.now))

    def tell(self, *events: Event) -> None:
        self.hear()
        self.reconciler.submit(self.fib.apply(events, self.now))

    def sweep(self) -> None:
        """Ends the replay: deletes the routes that were not announced again."""
        self.hear()
        keys = tuple(key for key in self.fib.rib if self.fib.rib.is_stale(key))
        self.tell(StaleRoutesGone(keys))

    async def connect(self) -> None:
        """Replaces the session with the switch by a new one."""
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
        self.switch.break_after = None
        self.reconciler.disconnect()
        await self.reconciler.read_back(self.switch)
        await self.reconciler.compare()
        self.task = asyncio.create_task(self.reconciler.run(self.switch))

    async def turns(self, count: int) -> None:
        """Lets the reconciler run for at most `count` iterations of the event loop."""
        for _ in range(count):
            await asyncio.sleep(0)
            assert self.task is not None
            if self.task.done():
                assert isinstance(self.task.exception(), P4RuntimeError)
                await self.connect()
            if self.reconciler.synced:
                return

    async def settle(self) -> None:
        self.hear()
        while self.fib.has_moved_routes:
            self.reconciler.submit(self.fib.publish_moved())
        self.switch.refuse = lambda *_: 0
        self.switch.break_after = None
        for _ in range(40):
            self.now += 60  # failed updates are retried
            self.reconciler._work.set()
            await self.turns(2000)
            if self.reconciler.synced:
                break
        assert self.reconciler.synced, f"does not settle: {self.reconciler.pending} pending"
        assert self.task is not None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    # -- its state and its forwarding

    def forwards(self) -> dict[RouteSlot, object]:
        """Returns the switch's routes, each with its next hops. Ids are replaced by the next hops
        themselves.
        """
        found: dict[RouteSlot, object] = {}
        for (kind, key), value in self.switch.entities.items():
            if (
                kind is EntityKind.ROUTE
                and isinstance(key, RouteSlot)
                and isinstance(value, RouteTarget)
            ):
                found[key] = self._legs(value)
        return found

    def _legs(self, target: RouteTarget) -> object:
        entities: dict[Any, Any] = self.switch.entities
        if target.kind is RouteTargetKind.NEXTHOP:
            return entities[EntityKind.NEXTHOP, target.id]
        if target.kind is RouteTargetKind.GROUP:
            members = entities[EntityKind.GROUP, target.id].members
            legs = [(entities[EntityKind.NEXTHOP, member], weight) for member, weight in members]
            return sorted(legs, key=repr)
        return target.kind

    def knows(self) -> dict[str, object]:
        rib = self.fib.rib
        routes: dict[RouteKey, object] = {}
        for key in rib:
            entry = rib.get(key)
            assert entry is not None
            routes[key] = entry.attributes, rib.is_stale(key), entry.paths is None
        reconciler = self.reconciler
        return {
            "routes": routes,
            "stale": rib.stale,
            "count": len(rib),
            "order": [slot for block in self.fib.order.walk() for slot in block],
            "unrouted": dict(self.fib.unrouted),
            "waiting": rib.waiting_objects(),
            "problems": set(self.fib.problems),
            "desired": set(reconciler.desired[EntityKind.ROUTE]),
            "installed": len(reconciler.installed.by_kind[EntityKind.ROUTE]),
            "next hops": len(reconciler.desired[EntityKind.NEXTHOP]),
            "groups": len(reconciler.desired[EntityKind.GROUP]),
        }

    def check(self) -> None:
        """Checks that the switch holds what is desired, and that the table's queues are empty."""
        desired = {
            (kind, key): value
            for kind, entries in self.reconciler.desired.items()
            for key, value in entries.items()
        }
        assert self.switch.entities == desired
        assert not self.switch.violations
        table = self.fib.routes
        assert [len(table.upserts), len(table.deletes), table.in_flight()] == [0, 0, 0]
        entries = {id(entry): entry for key in self.fib.rib if (entry := self.fib.rib.get(key))}
        assert sum(entry.uses for entry in entries.values()) == len(self.fib.rib)
        installed = self.reconciler.installed
        for kind, target_kind in ((EntityKind.NEXTHOP, RouteTargetKind.NEXTHOP),):
            for identifier in installed.by_kind[kind]:
                assert isinstance(identifier, int)
                routes = installed.by_kind[EntityKind.ROUTE].values()
                uses = list(routes).count(RouteTarget(target_kind, identifier))
                member = (EntityKind.GROUP_MEMBER, identifier) in installed
                assert installed.uses((kind, identifier)) == uses + member


# -- random events

WAYS = {
    size: st.one_of(
        st.lists(st.sampled_from(gateways), min_size=1, max_size=3, unique=True),
        st.just("blackhole"),
        *([st.sampled_from(OBJECTS)] if size == 4 else []),
    )
    for size, gateways in GATEWAYS.items()
}


@st.composite
def said(draw: st.DrawFn) -> list[tuple[str, int, Any, int]]:
    """Draws the routes of one frame: prefix, table, way, protocol.

    These routes differ only in their prefix.
    """
    table = draw(st.sampled_from([254, 254, 254, 100, 77]))
    protocol = draw(st.sampled_from([186, 188]))
    size = draw(st.sampled_from([4, 4, 16]))
    way = draw(st.none() | WAYS[size])
    prefixes = [text for text in PREFIXES if (":" in text) == (size == 16)]
    texts = draw(st.lists(st.sampled_from(prefixes), min_size=1, max_size=4))
    return [(text, table, way, protocol) for text in texts]


NEIGHBORS = st.tuples(
    st.just("neighbor"), st.sampled_from(GATEWAYS[4]), st.sampled_from([None, 1, 2])
)
STEPS = st.one_of(
    *([st.tuples(st.just("frame"), said(), st.booleans())] * 6),
    st.tuples(st.just("object"), st.sampled_from(OBJECTS), st.sampled_from([*GATEWAYS[4], None])),
    NEIGHBORS,
    st.tuples(st.just("link"), st.sampled_from([1, 2]), st.booleans()),
    st.tuples(st.just("turns"), st.integers(1, 12), st.none()),
    st.tuples(st.sampled_from(["session", "sweep", "reconnect"]), st.none(), st.none()),
    st.tuples(st.just("refuse"), st.sampled_from(PREFIXES), st.none()),
    st.tuples(st.just("break"), st.integers(0, 3), st.none()),
)


def send(router: Router, said: Sequence[tuple[str, int, Any, int]], replaces: bool) -> None:
    messages = [route_message(*one) for one in said]
    if replaces:  # as zebra does: delete and add in one frame
        gone = [route_message(text, table, None, 0) for text, table, _, _ in said]
        pairs = zip(gone, messages, strict=True)
        router.frames.append(b"".join(part for pair in pairs for part in pair))
    else:
        router.frames += messages


def refuse(router: Router, text: str) -> None:
    refused = EntityKind.ROUTE, RouteSlot(0, Prefix.parse(text))
    router.switch.refuse = lambda _, kind, key: 8 if (kind, key) == refused else 0


async def run_scenario(router: Router, steps: Sequence[Any]) -> None:
    await router.connect()
    for n in (1, 2, 3):
        router.tell(link(n), address(n, f"10.0.{n}.1/24"), address(n, f"2001:db8:{n}::1/64"))
    router.open()
    happens: dict[str, Callable[[Any, Any], object]] = {
        "frame": lambda said, replaces: send(router, said, replaces),
        "object": lambda one, gateway: router.frames.append(object_message(one, gateway)),
        "neighbor": lambda text, mac: router.tell(neighbor(parse_address(text)[2], text, mac)),
        "link": lambda n, up: router.tell(link(n, up)),
        "session": lambda *_: router.open(),
        "sweep": lambda *_: router.sweep(),
        "refuse": lambda text, _: refuse(router, text),
    }
    for what, first, second in steps:
        if what == "turns":
            router.hear()
            await router.turns(first)
        elif what == "reconnect":
            router.hear()
            await router.connect()
        elif what == "break":
            router.switch.break_after = router.switch.writes + first
        else:
            happens[what](first, second)
    await router.settle()


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(STEPS, min_size=5, max_size=60))
def test_runs_are_the_routes_one_by_one(steps: list[Any]) -> None:
    async def scenario() -> None:
        one_by_one, many = Router(runs=False), Router(runs=True)
        for router in (one_by_one, many):
            await run_scenario(router, steps)
            router.check()
        assert many.knows() == one_by_one.knows()
        assert many.forwards() == one_by_one.forwards()

    asyncio.run(scenario())


def table_of(count: int, gateway: str) -> list[bytes]:
    return [route_message(f"20.{n >> 8}.{n & 255}.0/24", 254, [gateway], 186) for n in range(count)]


def test_a_table_comes_in_runs_and_goes_in_runs() -> None:
    async def scenario() -> None:
        router = Router(runs=True)
        await run_scenario(router, [("neighbor", "10.0.1.9", 1)])
        for frames, count in (
            (table_of(5000, "10.0.1.9"), 5000),
            (table_of(5000, "10.0.2.9"), 5000),
            ([route_message(f"20.0.{n}.0/24", 254, None, 0) for n in range(256)], 5000 - 256),
        ):
            before = router.seen_runs
            await router.connect()
            router.frames = frames
            await router.settle()
            router.check()
            assert len(router.fib.rib) == count
            assert 0 < router.seen_runs - before < len(frames) / 40

    asyncio.run(scenario())


def test_a_run_is_the_events_that_it_stands_for() -> None:
    frames = table_of(20, "10.0.1.9")
    sources = [FpmSource(Server(), lambda _: "frr", runs=runs) for runs in (False, True)]
    heard = []
    for source in sources:
        assert isinstance(source._server, Server)
        source._server.events = [("open", 1, "zebra"), ("frames", 1, list(frames))]
        events: list[Any] = []
        while some := source.poll(3):
            for event in some:
                events += events_of(event) if type(event) is RouteRun else [event]
        heard.append(events)
    assert heard[0] == heard[1]
    assert len(heard[0]) == 21


def test_no_run_has_a_prefix_that_is_not_routed_by() -> None:
    assert set(UNUSUAL_HEADS) >= UNROUTED_HEADS


@pytest.mark.parametrize("bulk", [False, True])
def test_a_change_while_a_write_is_under_way_is_written_after_it(bulk: bool) -> None:
    """Checks that changes of a route during its first write are written afterwards, so that the
    last one wins.

    Before the first answer, the route is deleted, added with another gateway, and changed back to
    the first.
    """

    async def scenario() -> None:
        router = Router(runs=bulk)
        await run_scenario(router, [])
        router.frames = table_of(3, "10.0.1.9")
        await router.connect()
        router.hear()
        while not router.fib.routes.in_flight():
            await asyncio.sleep(0)
        for frames in (
            [route_message("20.0.1.0/24", 254, None, 0)],
            table_of(3, "10.0.2.9"),
            table_of(3, "10.0.1.9"),
        ):
            router.frames = frames
            router.hear()
        await router.settle()
        router.check()

    asyncio.run(scenario())


def test_a_run_that_covers_a_neighbor_takes_its_host_route() -> None:
    """Checks that routes of a run that cover a neighbour remove the neighbour's host route.

    A host route exists only if the longest prefix that covers the neighbour is a connected prefix
    of its link.
    """

    async def scenario() -> None:
        router = Router(runs=True)
        await run_scenario(router, [("neighbor", "10.0.1.9", 1)])
        host = RouteSlot(0, Prefix.parse("10.0.1.9/32"))
        desired = router.reconciler.desired[EntityKind.ROUTE]
        assert host in desired
        router.frames = table_of(2, "10.0.2.9")
        router.frames += [route_message("20.0.0.0/24", 254, None, 0)]
        router.hear()
        for way, stands in ((["10.0.2.9"], False), (None, True)):
            before = router.seen_runs
            protocol = 0 if way is None else 186
            router.frames = [route_message("10.0.1.8/29", 254, way, protocol)]
            router.hear()
            assert router.seen_runs == before + 1
            assert (host in desired) is stands

    asyncio.run(scenario())


def test_routes_wait_for_a_next_hop_that_a_new_switch_has_not() -> None:
    async def scenario() -> None:
        router = Router(runs=True)
        await run_scenario(router, [("neighbor", "10.0.1.9", 1)])
        router.frames = table_of(3000, "10.0.1.9")
        await router.connect()
        await router.settle()
        router.switch = FakeSwitch(CODEC)
        router.switch.refuse = lambda _, kind, key: 8 if kind is EntityKind.NEXTHOP else 0
        await router.connect()
        await router.turns(500)
        assert not router.switch.violations
        assert not router.forwards()
        await router.settle()
        router.check()
        assert len(router.forwards()) > 3000

    asyncio.run(scenario())
