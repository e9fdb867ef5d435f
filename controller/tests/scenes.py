# SPDX-License-Identifier: Apache-2.0
"""Defines interfaces, addresses and short forms of events for the tests of the state machines."""

from __future__ import annotations

from sluice.entities import (
    MAX_GROUP_WEIGHT,
    EntityChanges,
    EntityKind,
    Nexthop,
    RouteSlot,
    RouteTarget,
    RouteTargetKind,
)
from sluice.model import (
    MAIN_TABLE,
    AddressAdded,
    AddressRemoved,
    Event,
    InterfaceAddress,
    InterfaceSpec,
    LinkChanged,
    NeighborChanged,
    NeighborState,
    NexthopKind,
    NexthopSpec,
    Prefix,
    Route,
    RouteDeleted,
    RouteKey,
    RouteUpdated,
    parse_address,
    parse_mac,
)
from sluice.state.fib import Fib

SPECS = tuple(
    InterfaceSpec(
        name=f"eth{n}",
        l3_if=n,
        port=n,
        vlan=0,
        vrf=0,
        mac=parse_mac(f"02:00:00:00:01:0{n}"),
        mtu=1500,
        device=f"port{n}",
    )
    for n in (1, 2, 3)
)


def ifindex(n: int) -> int:
    """Returns the kernel's interface index of the TAP ethN."""
    return 10 + n


def link(n: int, up: bool = True, *, mtu: int = 1500) -> LinkChanged:
    return LinkChanged(ifindex(n), f"eth{n}", up, up, mtu, SPECS[n - 1].mac)


def device(n: int, carrier: bool) -> LinkChanged:
    return LinkChanged(100 + n, f"port{n}", True, carrier, 1500, SPECS[n - 1].mac)


def address(n: int, text: str) -> AddressAdded:
    return AddressAdded(ifindex(n), InterfaceAddress.parse(text))


def no_address(n: int, text: str) -> AddressRemoved:
    return AddressRemoved(ifindex(n), InterfaceAddress.parse(text))


def mac(n: int) -> bytes:
    return bytes([2, 0, 0, 0, 9, n])


def neighbor(
    n: int,
    text: str,
    mac_number: int | None,
    state: NeighborState = NeighborState.REACHABLE,
) -> NeighborChanged:
    lladdr = None if mac_number is None else mac(mac_number)
    return NeighborChanged(ifindex(n), parse_address(text), lladdr, state)


def gateway(text: str, n: int | None, weight: int = 1) -> NexthopSpec:
    return NexthopSpec(parse_address(text), None if n is None else ifindex(n), weight)


def connected(n: int) -> NexthopSpec:
    return NexthopSpec(None, ifindex(n), 1, NexthopKind.CONNECTED)


def key(text: str) -> RouteKey:
    return RouteKey(MAIN_TABLE, Prefix.parse(text))


def route(text: str, *nexthops: NexthopSpec, obj: int | None = None) -> RouteUpdated:
    return RouteUpdated(Route(key(text), 186, 20, nexthops, obj))


def no_route(text: str) -> RouteDeleted:
    return RouteDeleted(key(text))


def slot(text: str) -> RouteSlot:
    return RouteSlot(0, Prefix.parse(text))


class Desired:
    """Applies events to a Fib, and keeps all desired entities up to date from the changes that the
    Fib returns.
    """

    def __init__(self, group_size: int = MAX_GROUP_WEIGHT) -> None:
        self.fib = Fib(SPECS, group_size=group_size)
        self.entities: dict[tuple[EntityKind, object], object] = {}
        self.take(self.fib.start())

    def take(self, changes: EntityChanges) -> EntityChanges:
        for kind, entries in changes.by_kind.items():
            for entry, value in entries.items():
                if value is None:
                    self.entities.pop((kind, entry), None)
                else:
                    self.entities[kind, entry] = value
        return changes

    def apply(self, *events: Event, now: float = 0.0) -> EntityChanges:
        return self.take(self.fib.apply(events, now))

    def target(self, text: str) -> RouteTarget | None:
        target = self.entities.get((EntityKind.ROUTE, slot(text)))
        assert target is None or isinstance(target, RouteTarget)
        return target

    def nexthop(self, text: str) -> Nexthop:
        target = self.target(text)
        assert target is not None
        assert target.kind is RouteTargetKind.NEXTHOP
        nexthop = self.entities[EntityKind.NEXTHOP, target.id]
        assert isinstance(nexthop, Nexthop)
        return nexthop


def resolved(entities: dict[tuple[EntityKind, object], object]) -> dict[object, object]:
    """Returns the entities with each id of a next hop or group replaced by the next hop or group
    itself.

    If two switches have equal results, they forward alike, even if their ids differ.
    """
    meaning: dict[object, object] = {}
    for (kind, entry), value in entities.items():
        if kind is EntityKind.ROUTE:
            assert isinstance(value, RouteTarget)
            meaning[entry] = _meaning(value, entities)
        elif kind in (
            EntityKind.LOCAL_PREFIX,
            EntityKind.ROUTER_MAC,
            EntityKind.L3_INTERFACE,
            EntityKind.EGRESS_INTERFACE,
        ):
            meaning[kind, entry] = value
    nexthops = sorted(repr(v) for (kind, _), v in entities.items() if kind is EntityKind.NEXTHOP)
    meaning["nexthops"] = nexthops
    return meaning


def _meaning(target: RouteTarget, entities: dict[tuple[EntityKind, object], object]) -> object:
    if target.kind is RouteTargetKind.NEXTHOP:
        return entities[EntityKind.NEXTHOP, target.id]
    if target.kind is RouteTargetKind.GROUP:
        assert (EntityKind.GROUP_ENTRY, target.id) in entities
        group = entities[EntityKind.GROUP, target.id]
        members = group.members  # type: ignore[attr-defined]
        assert all((EntityKind.GROUP_MEMBER, member) in entities for member, _ in members)
        return sorted((repr(entities[EntityKind.NEXTHOP, m]), weight) for m, weight in members)
    return target.kind
