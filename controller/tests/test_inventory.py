# SPDX-License-Identifier: Apache-2.0
"""Tests the reference counts that keep a next hop in the switch while a route uses it."""

from __future__ import annotations

from scenes import slot
from sluice.entities import MEMBER, EntityKind, NexthopGroup, RouteTarget, RouteTargetKind
from sluice.inventory import Inventory


def nexthop(identifier: int) -> RouteTarget:
    return RouteTarget(RouteTargetKind.NEXTHOP, identifier)


def test_references_are_counted_as_entities_come_change_and_go() -> None:
    inventory = Inventory()
    inventory.put(
        EntityKind.ROUTE, [(slot("10.0.0.0/8"), nexthop(1)), (slot("11.0.0.0/8"), nexthop(1))]
    )
    assert inventory.uses((EntityKind.NEXTHOP, 1)) == 2
    inventory.put(EntityKind.ROUTE, [(slot("10.0.0.0/8"), nexthop(2))])
    assert inventory.uses((EntityKind.NEXTHOP, 1)) == inventory.uses((EntityKind.NEXTHOP, 2)) == 1
    inventory.remove(EntityKind.ROUTE, [slot("10.0.0.0/8"), slot("11.0.0.0/8"), slot("12.0.0.0/8")])
    assert inventory.uses((EntityKind.NEXTHOP, 1)) == inventory.uses((EntityKind.NEXTHOP, 2)) == 0
    inventory.put(EntityKind.GROUP, [(1, NexthopGroup(((7, 1), (8, 3))))])
    assert inventory.uses((EntityKind.GROUP_MEMBER, 8)) == 1


def test_an_entity_told_twice_counts_once() -> None:
    inventory = Inventory()
    inventory.put(EntityKind.GROUP_MEMBER, [(1, MEMBER), (1, MEMBER)])
    inventory.put(EntityKind.GROUP_MEMBER, [(1, MEMBER)])
    assert inventory.uses((EntityKind.NEXTHOP, 1)) == 1
