# SPDX-License-Identifier: Apache-2.0
"""Tests that the switch's final state depends only on the last event about each object.

Random events go through Fib, reconciler and the strict fake switch. The switch sometimes refuses an
update or ends its session. At the end:

  - no reference was ever dangling;
  - the installed entities equal the desired ones;
  - a new Fib computes the same entities from the last events.
"""

from __future__ import annotations

import asyncio
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from scenes import (
    SPECS,
    Desired,
    address,
    device,
    gateway,
    ifindex,
    key,
    link,
    neighbor,
    no_address,
    no_route,
    resolved,
    route,
)
from sluice.entities import EntityKind
from sluice.model import (
    AddressAdded,
    AddressRemoved,
    Event,
    FpmSessionOpened,
    LinkChanged,
    NeighborChanged,
    NeighborState,
    NexthopKind,
    NexthopObjectDeleted,
    NexthopObjectUpdated,
    NexthopSpec,
    RouteDeleted,
    RouteUpdated,
)
from sluice.state.stale_sweep import StaleSweep
from test_reconciler import Bench

PREFIXES = ["0.0.0.0/0", "20.0.0.0/8", "20.1.0.0/16", "10.0.1.0/24", "10.0.1.8/29", "10.0.1.9/32"]
HOSTS = {n: [f"10.0.{n}.9", f"10.0.{n}.10", "fe80::9"] for n in (1, 2, 3)}
OBJECTS = [1, 2, 3, 4]

numbers = st.sampled_from([1, 2, 3])
nexthops = st.one_of(
    numbers.flatmap(
        lambda n: st.builds(
            gateway, st.sampled_from(HOSTS[n]), st.just(n), st.sampled_from([1, 2, 5])
        )
    ),
    st.builds(lambda n: NexthopSpec(None, ifindex(n), 1, NexthopKind.CONNECTED), numbers),
    st.sampled_from([NexthopSpec(None, None, 1, kind) for kind in list(NexthopKind)[2:]]),
    st.just(NexthopSpec(b"\x0a\x09\x09\x09", 99)),
)
prefixes = st.sampled_from(PREFIXES)
objects = st.sampled_from(OBJECTS)

events: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        lambda p, legs: route(p, *legs), prefixes, st.lists(nexthops, min_size=1, max_size=3)
    ),
    st.builds(lambda p, o: route(p, obj=o), prefixes, objects),
    st.builds(no_route, prefixes),
    st.builds(NexthopObjectUpdated, objects, nexthops),
    st.builds(
        lambda o, members: NexthopObjectUpdated(o, None, tuple((m, 1) for m in members)),
        objects,
        st.lists(objects, min_size=1, max_size=3, unique=True),
    ),
    st.builds(NexthopObjectDeleted, objects),
    st.builds(link, numbers, st.booleans()),
    st.builds(device, numbers, st.booleans()),
    st.builds(lambda n: address(n, f"10.0.{n}.1/24"), numbers),
    st.builds(lambda n: no_address(n, f"10.0.{n}.1/24"), numbers),
    numbers.flatmap(
        lambda n: st.builds(
            neighbor, st.just(n), st.sampled_from(HOSTS[n]), st.sampled_from([1, 2])
        )
    ),
    numbers.flatmap(
        lambda n: st.builds(
            neighbor,
            st.just(n),
            st.sampled_from(HOSTS[n]),
            st.none(),
            st.sampled_from([NeighborState.NONE, NeighborState.FAILED, NeighborState.INCOMPLETE]),
        )
    ),
)


class PhaseInputs:
    """Holds the last event about each object."""

    def __init__(self) -> None:
        self.last: dict[object, Event] = {}

    def note(self, event: Event) -> None:
        match event:
            case RouteUpdated():
                self.last[event.route.key] = event
            case RouteDeleted():
                self.last.pop(event.key, None)
            case NexthopObjectUpdated() | NexthopObjectDeleted():
                self.last["object", event.id] = event
            case LinkChanged():
                self.last["link", event.name] = event
            case AddressAdded() | AddressRemoved():
                self.last["address", event.ifindex, event.address] = event
            case NeighborChanged():
                self.last["neighbor", event.ifindex, event.address] = event
            case _:
                pass

    def replay(self) -> list[Event]:
        """Returns the last events in a new order: links first, as in the kernel's dump, then the
        others at random.
        """
        found = list(self.last.values())
        links = [event for event in found if isinstance(event, LinkChanged)]
        rest = [event for event in found if not isinstance(event, LinkChanged)]
        random.Random(len(found)).shuffle(rest)
        return links + rest


def from_scratch(facts: PhaseInputs, bench: Bench) -> dict[object, object]:
    """Returns the entities that a new Fib computes from the last events.

    A neighbour that failed counts as failed in both Fibs until it has answered, even if the
    kernel's last event about it says something else.
    """
    fresh = Desired()
    fresh.apply(*(link(spec.l3_if) for spec in SPECS))
    for event in facts.replay():
        fresh.apply(event)
    nexthops = bench.fib.nexthops
    fresh.take(fresh.fib.set_silent(filter(nexthops.is_silent, nexthops.paths())))
    return resolved(fresh.entities)


def installed(bench: Bench) -> dict[object, object]:
    entities: dict[tuple[EntityKind, object], object] = dict(bench.switch.entities.items())
    return resolved(entities)


@settings(max_examples=200, deadline=None)
@given(st.lists(events, max_size=40), st.randoms(use_true_random=False))
def test_the_end_depends_on_the_facts_alone(history: list[Event], chance: random.Random) -> None:
    async def scenario() -> None:
        bench, facts = Bench(), PhaseInputs()
        bench.switch.refuse = lambda *_: 8 if chance.random() < 0.05 else 0
        await bench.connect()
        bench.reconciler.release(EntityKind)
        for spec in SPECS:
            bench.feed(link(spec.l3_if))
        for event in history:
            facts.note(event)
            bench.feed(event)
            step = chance.random()
            if step < 0.3:
                await bench.settle()
            elif step < 0.35:
                bench.reconciler.disconnect()
                await bench.connect()
            bench.now += 0.2
        bench.switch.refuse = lambda *_: 0
        bench.now += 100

        def synced_in_time() -> bool:
            bench.now += 0.01  # refused updates are retried after a pause
            return bench.reconciler.synced

        await bench.settle(until=synced_in_time)
        bench.check()
        assert installed(bench) == from_scratch(facts, bench)

    asyncio.run(scenario())


@settings(max_examples=60, deadline=None)
@given(st.lists(events, max_size=20), st.lists(events, max_size=20))
def test_a_new_session_replaces_the_old(before: list[Event], after: list[Event]) -> None:
    async def scenario() -> None:
        bench, facts = Bench(), PhaseInputs()
        await bench.connect()
        bench.reconciler.release(EntityKind)
        for spec in SPECS:
            bench.feed(link(spec.l3_if))
        bench.feed(FpmSessionOpened("first"))
        for event in before:
            facts.note(event)
            bench.feed(event)
        await bench.settle()
        for prefix in PREFIXES:
            facts.last.pop(key(prefix), None)
        for number in OBJECTS:
            facts.last.pop(("object", number), None)
        bench.feed(FpmSessionOpened("second"))
        for event in after:
            facts.note(event)
            bench.feed(event)
        sweep = StaleSweep(bench.fib, {})
        while (gone := sweep.next()) is not None:
            bench.feed(gone)
        await bench.settle()
        bench.check()
        assert installed(bench) == from_scratch(facts, bench)

    asyncio.run(scenario())
