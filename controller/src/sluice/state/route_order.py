# SPDX-License-Identifier: Apache-2.0
"""Walks over the router's prefixes in order and in slices of bounded size. Prefixes may change
during a walk.

Sorting or copying a million routes would block the event loop, and routes may change during a walk.
So the native table (`sluice._native.RouteTable`) keeps prefixes in order. A walk continues after
the last prefix that it returned. A walk visits a prefix exactly once if the prefix exists
throughout the walk. It visits a prefix at most once if the prefix is added or deleted meanwhile.
The order is by VRF, IPv4 before IPv6, then address and length.

Depends on entities and the native table.
"""

from __future__ import annotations

from collections.abc import Iterator

from sluice._native import RouteTable
from sluice.entities import RouteSlot
from sluice.model import Prefix

BLOCK = 512
"""Prefixes per block of a walk: about 0.2 ms."""


def new_table() -> RouteTable:
    """Returns an empty table of routes."""
    return RouteTable(RouteSlot, Prefix)


class RouteOrder:
    """Walks over all prefixes that have a route of the routing daemon, are connected, or are host
    routes of neighbours."""

    def __init__(self, table: RouteTable) -> None:
        self._table = table

    def walk(self, after: RouteSlot | None = None) -> Iterator[list[RouteSlot]]:
        """Yields all prefixes after `after`, in order, in blocks. The caller may pause between
        blocks."""
        while True:
            slots, after = self._table.walk(after, BLOCK)
            if slots:
                yield slots
            if after is None:
                return
