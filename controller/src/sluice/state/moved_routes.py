# SPDX-License-Identifier: Apache-2.0
"""Finds moved routes. A route moves when its path set or next-hop object, which it shares with
other routes, gets a new target.

A million routes may move at once. So a walk over all routes yields the moved routes in slices of
bounded size. Until a route is yielded, its earlier target and the target's next hops stay in the
switch. Depends on entities, paths, rib and route_order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sluice._native import RouteTable
from sluice.entities import RouteSlot
from sluice.state.paths import PathSet
from sluice.state.rib import Rib, RouteChange, moved_routes
from sluice.state.route_order import RouteOrder

ROUTES_PER_SLICE = 1024
"""Routes visited per slice (rounded up to a block): some milliseconds."""


class MovedRoutes:
    """Walks over all routes and yields those that moved. If more routes move during a walk, another
    walk follows."""

    def __init__(self, table: RouteTable, order: RouteOrder, ribs: Iterable[Rib]) -> None:
        self._table = table
        self._order = order
        self._ribs = tuple(ribs)
        self._path_sets: set[PathSet] = set()
        self._walk: Iterator[list[RouteSlot]] | None = None
        self._walk_again = False

    @property
    def unfinished(self) -> bool:
        """Whether a walk is under way."""
        return self._walk is not None

    def begin(self, path_sets: Iterable[PathSet] = ()) -> None:
        """Starts a walk for these path sets and for the RIBs' moved objects. If a walk is already
        running, schedules another one, because the running walk may have passed some of these
        routes."""
        self._path_sets.update(path_sets)
        if self._walk is None:
            self._walk = self._order.walk()
        else:
            self._walk_again = True

    def next_slice(self) -> Iterator[RouteChange]:
        """Walks over the next blocks of routes, and yields those that moved. The caller must
        exhaust the iterator."""
        visited = 0
        while visited < ROUTES_PER_SLICE:
            slots = None if self._walk is None else next(self._walk, None)
            if slots is not None:
                yield from moved_routes(self._table, slots, self._path_sets)
                visited += len(slots)
            elif self._walk_again:
                self._walk, self._walk_again = self._order.walk(), False
            else:
                self._walk = None
                self._path_sets.clear()
                for rib in self._ribs:
                    rib.moved_objects.clear()
                return
