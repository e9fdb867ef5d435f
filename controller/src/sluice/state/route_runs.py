# SPDX-License-Identifier: Apache-2.0
"""Describes `RouteRun`: a batch of the routing daemon's routes as one event.

A run comes from `sluice._native.RouteMemo`. It has the prefixes of its routes, and the distinct
texts of these routes. A text has all fields of a route except its prefix: (table, protocol, metric,
next hops, next-hop object), or (table,) for a deleted route. Depends on model.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from sluice._native import RouteRun
from sluice.model import (
    NexthopSpec,
    Prefix,
    Route,
    RouteDeleted,
    RouteEvent,
    RouteKey,
    RouteUpdated,
)

RouteText: TypeAlias = tuple[int, int, int, tuple[NexthopSpec, ...], int | None] | tuple[int]

RoutesEvent: TypeAlias = RouteEvent | RouteRun


def events_of(run: RouteRun) -> Iterator[RouteUpdated | RouteDeleted]:
    """Yields one event for each route of a run."""
    for text, address, length in run.messages():
        key = RouteKey(text[0], Prefix(address, length))
        if len(text) == 1:
            yield RouteDeleted(key)
        else:
            yield RouteUpdated(Route(key, *text[1:]))
