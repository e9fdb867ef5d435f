# SPDX-License-Identifier: Apache-2.0
"""Orders the routes that are written into a switch that does not hold them: a restarted one, say.

The order is from its end. There stand the routes that drop their packets: written later than
a shorter prefix, they would for a moment let pass what they are there to stop. Then come short
prefixes before long ones, since few of them cover most addresses. They are kept in lists: a
dictionary of a million keys would stop the loop each time that it grows. Depends on entities and
task_slices.
"""

from __future__ import annotations

from collections.abc import Mapping

from sluice.entities import Key, RouteSlot, Target, TargetKind, Value
from sluice.task_slices import in_slices

SLICE = 2000
"""Entities that are looked at before the loop is let go."""
FIRST = -1
FORWARDING = frozenset({TargetKind.NEXTHOP, TargetKind.GROUP})


async def in_order(desired: Mapping[Key, Value], held: Mapping[Key, Value]) -> list[list[Key]]:
    """The keys of `desired` whose values `held` has not, of those that come first the last list.

    In slices, while which `desired` does not change.
    """
    ranks: dict[int, list[Key]] = {}
    async for part in in_slices(desired.items(), SLICE):
        for key, value in part:
            if held.get(key) != value:
                rank = _rank(key, value)
                found = ranks.get(rank)
                if found is None:
                    found = ranks[rank] = []
                found.append(key)
    return [ranks[rank] for rank in sorted(ranks, reverse=True)]


def _rank(key: Key, value: Value) -> int:
    """The smaller, the earlier: the prefix length, or half of it for IPv6 (longer prefixes)."""
    if type(value) is not Target or type(key) is not RouteSlot:
        return FIRST
    if value.kind not in FORWARDING:
        return FIRST
    address, length = key.prefix
    return length if len(address) == 4 else length >> 1
