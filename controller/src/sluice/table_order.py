# SPDX-License-Identifier: Apache-2.0
"""Finds the entries of a table that a switch lacks, and orders their writes.

`in_order` returns lists, which are written from the last to the first. Routes that drop their
packets are written first. If a shorter prefix that forwards were written before them, the switch
would forward their packets for a moment. Then short prefixes are written before long ones, because
few short prefixes cover most addresses.

The keys are kept in lists, because a dictionary of a million keys blocks the event loop each time
it grows. Depends on entities and the native table.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeAlias, TypeVar

from sluice._native import RouteTable
from sluice.entities import EntityKey, EntityValue, RouteSlot, RouteTarget, RouteTargetKind

SLICE = 2000
"""Number of entities compared between two yields to the event loop. For routes, number of
differences found."""
FIRST = -1
FORWARDING = frozenset({RouteTargetKind.NEXTHOP, RouteTargetKind.GROUP})
T = TypeVar("T")
Entries: TypeAlias = list[tuple[EntityKey, EntityValue]]


def unwritten(
    desired: Mapping[EntityKey, EntityValue], held: Mapping[EntityKey, EntityValue]
) -> Iterator[Entries]:
    """Yields the entries of `desired` that `held` lacks or has with another value, slice by slice.

    `desired` and `held` must not change meanwhile.
    """
    rest = iter(desired.items())
    while part := list(islice(rest, SLICE)):
        yield [(key, value) for key, value in part if held.get(key) != value]


def unwanted(
    desired: Mapping[EntityKey, EntityValue], held: Mapping[EntityKey, EntityValue]
) -> Iterator[list[EntityKey]]:
    """Yields the keys of `held` that `desired` lacks, slice by slice.

    `desired` and `held` must not change meanwhile.
    """
    rest = iter(held)
    while part := list(islice(rest, SLICE)):
        yield [key for key in part if key not in desired]


def unwritten_routes(table: RouteTable) -> Iterator[Entries]:
    """Yields the desired routes that the switch lacks or has with another target."""
    return _stepwise(table.unwritten)


def unwanted_routes(table: RouteTable) -> Iterator[list[EntityKey]]:
    """Yields the routes that the switch holds but that are not desired."""
    return _stepwise(table.unwanted)


def _stepwise(find: Callable[[int, int], tuple[list[T], int | None]]) -> Iterator[list[T]]:
    start: int | None = 0
    while start is not None:
        found, start = find(start, SLICE)
        yield found


async def in_order(slices: Iterable[Entries]) -> list[list[EntityKey]]:
    """Returns the keys of all slices, grouped by rank. The list to write first comes last.

    Yields to the event loop after each slice.
    """
    ranks: dict[int, list[EntityKey]] = {}
    for part in slices:
        for key, value in part:
            ranks.setdefault(_rank(key, value), []).append(key)
        await asyncio.sleep(0)
    return [ranks[rank] for rank in sorted(ranks, reverse=True)]


def _rank(key: EntityKey, value: EntityValue) -> int:
    """Returns the rank of an entry. Entries of smaller rank are written earlier.

    Routes that forward have their prefix length as rank, halved for IPv6. All other entries have
    the rank `FIRST`.
    """
    if type(value) is not RouteTarget or type(key) is not RouteSlot:
        return FIRST
    if value.kind not in FORWARDING:
        return FIRST
    address, length = key.prefix
    return length if len(address) == 4 else length >> 1
