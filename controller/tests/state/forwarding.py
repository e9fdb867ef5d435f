# SPDX-License-Identifier: Apache-2.0
"""Provides gateways, next-hop objects and lookups of groups for the tests of the forwarding
state.
"""

from __future__ import annotations

from collections.abc import Mapping

from scenes import SPECS, Desired, address, gateway, link
from sluice.entities import (
    MAX_GROUP_WEIGHT,
    EntityChanges,
    EntityKind,
    Nexthop,
    NexthopGroup,
    RouteSlot,
    RouteTargetKind,
)
from sluice.model import MAIN_TABLE, NexthopObjectUpdated, RouteUpdated
from sluice.state.interfaces import InterfaceTable
from sluice.state.neighbors import NeighborTable
from sluice.state.nexthops import NexthopTable
from sluice.state.paths import PathSets
from sluice.state.rib import Rib, RouteChange
from sluice.state.route_order import new_table

GW1, GW2, GW3 = "10.0.1.9", "10.0.2.9", "10.0.3.9"


def group_of(wanted: Desired, text: str) -> NexthopGroup:
    target = wanted.target(text)
    assert target is not None
    assert target.kind is RouteTargetKind.GROUP
    group = wanted.entities[EntityKind.GROUP, target.id]
    assert isinstance(group, NexthopGroup)
    return group


def nexthop_ids(wanted: Desired) -> dict[int, Nexthop]:
    found = {}
    for (kind, entry), value in wanted.entities.items():
        if kind is EntityKind.NEXTHOP:
            assert isinstance(entry, int)
            assert isinstance(value, Nexthop)
            found[entry] = value
    return found


def obj(identifier: int, text: str, n: int) -> NexthopObjectUpdated:
    return NexthopObjectUpdated(identifier, gateway(text, n))


def group(identifier: int, *members: int) -> NexthopObjectUpdated:
    return NexthopObjectUpdated(identifier, None, tuple((member, 1) for member in members))


class Stages:
    """Joins the first stages of the forwarding state, from interfaces to RIB, without `Fib`."""

    def __init__(self, vrfs: Mapping[int, int] | None = None) -> None:
        self.changes = EntityChanges()
        self.interfaces = InterfaceTable(SPECS)
        self.neighbors = NeighborTable()
        self.nexthops = NexthopTable(self.neighbors.has_failed)
        self.paths = PathSets(self.interfaces, self.neighbors, self.nexthops, MAX_GROUP_WEIGHT)
        self.table = new_table()
        self.rib = self.another_rib({MAIN_TABLE: 0} if vrfs is None else vrfs)
        for n in (1, 2, 3):
            self.interfaces.link_changed(link(n), self.changes)
            self.interfaces.address_added(address(n, f"10.0.{n}.1/24"), self.changes)

    def another_rib(self, vrfs: Mapping[int, int]) -> Rib:
        return Rib(self.paths, self.table, vrfs)

    def update(
        self, event: RouteUpdated, rib: Rib | None = None, vrf: int = 0
    ) -> list[RouteChange]:
        slot = RouteSlot(vrf, event.route.key.prefix)
        return list((rib or self.rib).update(slot, event.route, self.changes))
