# SPDX-License-Identifier: Apache-2.0
"""Tests which routes a VRF may use, and which of them is the longest match for an address."""

from __future__ import annotations

from scenes import connected, gateway, route, slot
from sluice.entities import RouteSlot
from sluice.model import MAIN_TABLE, Prefix, parse_address
from sluice.state.usable_routes import RibMatch, UsableRoutes
from state.forwarding import GW1, GW2, Stages, obj

RED_TABLE, RED = 1005, 5
PREFIX = "192.0.2.0/24"
ADDRESS = parse_address("192.0.2.1")


def usable(stages: Stages, **next_hop_vrfs: frozenset[int]) -> UsableRoutes:
    others = {RED: next_hop_vrfs.get("red", frozenset())}
    return UsableRoutes(stages.table, [0, RED], others)


def test_a_route_is_usable_by_the_vrf_of_its_interfaces() -> None:
    stages = Stages()
    [change] = stages.update(route(PREFIX, gateway(GW1, 1)))
    assert usable(stages).paths_of(slot(PREFIX)) is change.paths
    assert usable(stages).paths_of(slot("198.51.100.0/24")) is None


def test_a_route_by_another_vrfs_interface_is_usable_where_configured() -> None:
    stages = Stages({MAIN_TABLE: 0, RED_TABLE: RED})
    [change] = stages.update(route(PREFIX, gateway(GW1, 1)), vrf=RED)
    there = RouteSlot(RED, Prefix.parse(PREFIX))
    assert change.slot == there
    assert usable(stages).paths_of(there) is None
    assert usable(stages, red=frozenset({0})).paths_of(there) is change.paths
    assert usable(stages).longest_match(RED, ADDRESS) is None


def test_a_route_that_waits_for_its_object_is_not_usable() -> None:
    stages = Stages()
    stages.update(route(PREFIX, obj=7))
    assert usable(stages).paths_of(slot(PREFIX)) is None
    list(stages.rib.update_object(obj(7, GW1, 1), stages.changes))
    assert usable(stages).paths_of(slot(PREFIX)) is not None


def test_the_longest_usable_prefix_matches() -> None:
    stages = Stages()
    stages.update(route("0.0.0.0/0", gateway(GW1, 1)))
    stages.update(route("192.0.0.0/16", connected(2)))
    stages.update(route(PREFIX, obj=7))
    routes = usable(stages)
    assert routes.longest_match(0, ADDRESS) == RibMatch(16, frozenset({2}))
    assert routes.longest_match(0, parse_address("20.0.0.1")) == RibMatch(0, frozenset())
    assert routes.longest_match(0, parse_address("2001:db8::1")) is None
    list(stages.rib.update_object(obj(7, GW2, 2), stages.changes))
    assert routes.longest_match(0, ADDRESS) == RibMatch(24, frozenset())
