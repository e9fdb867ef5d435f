# SPDX-License-Identifier: Apache-2.0
"""A batch of the routing daemon's routes with known texts, as one event.

A `RouteRun` comes from `sluice._native.RouteMemo`. A text holds the fields of a route without its
prefix: (table, protocol, metric, next hops, next-hop object), or (table,) for a deleted route.
Depends on model.
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
    """Yields the routes of a run as single events."""
    for text, address, length in run.messages():
        key = RouteKey(text[0], Prefix(address, length))
        if len(text) == 1:
            yield RouteDeleted(key)
        else:
            yield RouteUpdated(Route(key, *text[1:]))
