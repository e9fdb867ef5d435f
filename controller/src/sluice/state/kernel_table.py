# SPDX-License-Identifier: Apache-2.0
"""Chooses among the kernel's routes of one prefix, as the kernel does.

The kernel can have several routes for a prefix of a table, with different metrics. It uses the one
with the lowest metric. A routing daemon sends only this route over FPM. `KernelTable` keeps all of
them, and returns an event only when the best route changes. So its events are like those of FPM.
Pure. Depends on model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sluice.model import Route, RouteDeleted, RouteKey, RouteUpdated


class KernelTable:
    """Holds the kernel's routes."""

    def __init__(self) -> None:
        # Most prefixes have only one route. Storing that in a dictionary would double the memory.
        self._single: dict[RouteKey, Route] = {}
        self._several: dict[RouteKey, dict[int, Route]] = {}

    def __len__(self) -> int:
        return len(self._single) + len(self._several)

    def best(self, key: RouteKey) -> Route | None:
        """Returns the route that the kernel uses for a prefix, or None."""
        several = self._several.get(key)
        return self._single.get(key) if several is None else several[min(several)]

    def find(self, key: RouteKey, metric: int) -> Route | None:
        """Returns the route of a prefix with this metric, or None."""
        return self._all(key).get(metric)

    def routes(self) -> Iterator[Route]:
        """Yields all routes."""
        yield from self._single.values()
        for several in self._several.values():
            yield from several.values()

    def update(self, route: Route) -> RouteUpdated | None:
        """Adds or replaces a route. Returns the event if the best route changed."""
        before = self.best(route.key)
        self._set(route.key, self._all(route.key) | {route.metric: route})
        after = self.best(route.key)
        return None if after is None or after == before else RouteUpdated(after)

    def delete(self, key: RouteKey, metric: int) -> RouteUpdated | RouteDeleted | None:
        """Deletes a route. Returns the event if the best route changed."""
        before, left = self.best(key), self._all(key)
        left.pop(metric, None)
        self._set(key, left)
        after = self.best(key)
        if after == before:
            return None
        return RouteDeleted(key) if after is None else RouteUpdated(after)

    def keep_only(self, shown: Iterable[tuple[RouteKey, int]]) -> list[RouteUpdated | RouteDeleted]:
        """Deletes all routes that are not in `shown`. Returns the events.

        `shown` has the keys and metrics of routes to keep, all of which must be in the table. So if
        `shown` is as long as the table, nothing has to be deleted. This is the case after most
        comparisons.
        """
        kept = shown if isinstance(shown, set) else set(shown)
        if len(kept) == len(self._single) + sum(map(len, self._several.values())):
            return []
        gone = [
            (route.key, route.metric)
            for route in self.routes()
            if (route.key, route.metric) not in kept
        ]
        return [event for key, metric in gone if (event := self.delete(key, metric)) is not None]

    def _all(self, key: RouteKey) -> dict[int, Route]:
        several = self._several.get(key)
        if several is not None:
            return dict(several)
        single = self._single.get(key)
        return {} if single is None else {single.metric: single}

    def _set(self, key: RouteKey, routes: dict[int, Route]) -> None:
        self._single.pop(key, None)
        self._several.pop(key, None)
        if len(routes) == 1:
            (self._single[key],) = routes.values()
        elif routes:
            self._several[key] = routes
