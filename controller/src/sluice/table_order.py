# SPDX-License-Identifier: Apache-2.0
"""Finds the entries of a table that a switch lacks, and orders their writes.

The order is from its end. There stand the routes that drop their packets: written later than
a shorter prefix, they would for a moment let pass what they are there to stop. Then come short
prefixes before long ones, since few of them cover most addresses. They are kept in lists: a
dictionary of a million keys would stop the loop each time that it grows. Depends on entities and
the native table.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeAlias, TypeVar

from sluice._native import RouteTable
from sluice.entities import Key, RouteSlot, Target, TargetKind, Value

SLICE = 2000
"""Entities that are looked at before the loop is let go; of routes, those that differ."""
FIRST = -1
FORWARDING = frozenset({TargetKind.NEXTHOP, TargetKind.GROUP})
T = TypeVar("T")
Entries: TypeAlias = list[tuple[Key, Value]]


def unwritten(desired: Mapping[Key, Value], held: Mapping[Key, Value]) -> Iterator[Entries]:
    """Yields what `held` has not as `desired` has it, slice by slice, while neither changes."""
    rest = iter(desired.items())
    while part := list(islice(rest, SLICE)):
        yield [(key, value) for key, value in part if held.get(key) != value]


def unwanted(desired: Mapping[Key, Value], held: Mapping[Key, Value]) -> Iterator[list[Key]]:
    """Yields likewise the keys of `held` that `desired` has not."""
    rest = iter(held)
    while part := list(islice(rest, SLICE)):
        yield [key for key in part if key not in desired]


def unwritten_routes(table: RouteTable) -> Iterator[Entries]:
    """Yields what the switch does not hold of the routes as it shall."""
    return _stepwise(table.unwritten)


def unwanted_routes(table: RouteTable) -> Iterator[list[Key]]:
    """Yields the routes that the switch holds and shall not."""
    return _stepwise(table.unwanted)


def _stepwise(find: Callable[[int, int], tuple[list[T], int | None]]) -> Iterator[list[T]]:
    start: int | None = 0
    while start is not None:
        found, start = find(start, SLICE)
        yield found


async def in_order(slices: Iterable[Entries]) -> list[list[Key]]:
    """Returns the keys of all slices, of those that come first the last list. The loop gets a turn
    after each slice."""
    ranks: dict[int, list[Key]] = {}
    for part in slices:
        for key, value in part:
            ranks.setdefault(_rank(key, value), []).append(key)
        await asyncio.sleep(0)
    return [ranks[rank] for rank in sorted(ranks, reverse=True)]


def _rank(key: Key, value: Value) -> int:
    """The smaller, the earlier: the prefix length, or half of it for IPv6 (longer prefixes)."""
    if type(value) is not Target or type(key) is not RouteSlot:
        return FIRST
    if value.kind not in FORWARDING:
        return FIRST
    address, length = key.prefix
    return length if len(address) == 4 else length >> 1
