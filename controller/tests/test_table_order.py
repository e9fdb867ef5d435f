# SPDX-License-Identifier: Apache-2.0
"""Tests the order in which an empty switch gets its routes, and that no route is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from random import Random
from typing import TypeVar

from scenes import slot
from sluice.entities import BLACKHOLE, EntityKey, EntityValue, RouteTarget, RouteTargetKind
from sluice.state.route_order import new_table
from sluice.table_order import (
    SLICE,
    in_order,
    unwanted,
    unwanted_routes,
    unwritten,
    unwritten_routes,
)

LEG = RouteTarget(RouteTargetKind.NEXTHOP, 4)


T = TypeVar("T")


def flat(parts: Iterable[list[T]]) -> list[T]:
    return [one for part in parts for one in part]


def test_what_drops_comes_first_and_short_prefixes_before_long_ones() -> None:
    texts = [
        "20.0.1.0/24",
        "0.0.0.0/0",
        "20.0.0.0/12",
        "2001:db8::/32",
        "20.0.2.0/24",
        "21.0.0.0/9",
    ]
    desired: dict[EntityKey, EntityValue] = {slot(text): LEG for text in texts}
    desired[slot("22.0.0.0/16")] = BLACKHOLE
    order = ["22.0.0.0/16", "0.0.0.0/0", "21.0.0.0/9", "20.0.0.0/12", "2001:db8::/32"]
    parts = asyncio.run(in_order(unwritten(desired, {})))[::-1]
    assert parts[:5] == [[slot(text)] for text in order]
    assert len(parts) == 6
    assert {*parts[5]} == {slot("20.0.1.0/24"), slot("20.0.2.0/24")}


def test_all_is_there_once_but_what_the_switch_holds() -> None:
    keys: list[EntityKey] = [slot(f"20.{n >> 8}.{n & 255}.0/24") for n in range(3 * SLICE)]
    desired: dict[EntityKey, EntityValue] = dict.fromkeys(keys, LEG)
    held: dict[EntityKey, EntityValue] = dict.fromkeys(keys[:100], LEG)
    held[keys[100]] = BLACKHOLE
    parts = asyncio.run(in_order(unwritten(desired, held)))
    found = [key for part in parts for key in part]
    assert len(found) == len(set(found))
    assert set(found) == set(keys[100:])


def test_of_routes_the_table_says_the_same() -> None:
    chance = Random(7)
    table = new_table()
    values: list[EntityValue | None] = [None, LEG, BLACKHOLE, RouteTarget(RouteTargetKind.GROUP, 4)]
    for n in range(5 * SLICE):
        key = slot(f"20.{n >> 8}.{n & 255}.0/24")
        for column in (table.desired, table.installed):
            value = chance.choice(values)
            if value is not None:
                column[key] = value
    desired, held = dict(table.desired.items()), dict(table.installed.items())
    lacking = list(unwritten_routes(table))
    assert len(lacking[0]) == SLICE
    assert set(flat(lacking)) == set(flat(unwritten(desired, held)))
    assert len(flat(lacking)) == len(flat(unwritten(desired, held)))
    orphans = flat(unwanted_routes(table))
    assert set(orphans) == set(flat(unwanted(desired, held)))
    assert len(orphans) == len(set(orphans))


def test_a_table_without_differences_is_passed_in_few_steps() -> None:
    table = new_table()
    for n in range(40 * SLICE):
        key = slot(f"20.{n >> 8 & 255}.{n & 255}.{n >> 16}/32")
        table.desired[key] = table.installed[key] = LEG
    for found in (unwritten_routes(table), unwanted_routes(table)):
        assert list(found) == [[], []]
