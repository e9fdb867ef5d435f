# SPDX-License-Identifier: Apache-2.0
"""The routes that are written into a switch that does not hold them: a restarted one, say.

First come the routes that drop their packets: written later than a shorter prefix, they would for a
moment let pass what they are there to stop. Then come short prefixes before long ones, since few of
them cover most addresses. They are kept in lists: a dictionary of a million keys would stop the
loop each time that it grows. Depends on entities and task_slices.
"""

from __future__ import annotations

from collections.abc import Mapping

from sluice.entities import Key, RouteSlot, Target, TargetKind, Value
from sluice.task_slices import in_slices

SLICE = 2000
"""Entities that are looked at before the loop is let go."""
FIRST = -1
FORWARDING = frozenset({TargetKind.NEXTHOP, TargetKind.GROUP})


class TableQueue:
    """Keys whose entities are to be written, in their order. A key may be there although it needs
    no write any more: whoever takes it looks."""

    def __init__(self) -> None:
        self._blocks: list[list[Key]] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, block: list[Key]) -> None:
        """Puts keys in front of all others; the list becomes this object's own."""
        if block:
            self._blocks.append(block)
            self._size += len(block)

    def take(self, count: int) -> list[Key]:
        """Removes the first keys, `count` at most, and returns them; none only at the end."""
        if not self._blocks:
            return []
        block = self._blocks[-1]
        taken = block[-count:]
        del block[-count:]
        if not block:
            self._blocks.pop()
        self._size -= len(taken)
        return taken


async def in_order(desired: Mapping[Key, Value], held: Mapping[Key, Value]) -> TableQueue:
    """The keys of `desired` whose values `held` has not. In slices, while which `desired` does not
    change."""
    ranks: dict[int, list[Key]] = {}
    get = held.get
    async for part in in_slices(desired.items(), SLICE):
        for key, value in part:
            if get(key) != value:
                rank = FIRST
                if type(value) is Target and type(key) is RouteSlot and value.kind in FORWARDING:
                    address, length = key.prefix
                    rank = length if len(address) == 4 else length >> 1
                found = ranks.get(rank)
                if found is None:
                    found = ranks[rank] = []
                found.append(key)
    queue = TableQueue()
    for rank in sorted(ranks, reverse=True):
        queue.put(ranks.pop(rank))
    return queue
