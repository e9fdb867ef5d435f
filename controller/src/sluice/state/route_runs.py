# SPDX-License-Identifier: Apache-2.0
"""Many routes of known texts, as one event of the routing daemon.

A `RouteRun` comes from `sluice._native.RouteMemo`. A text is what a route says beside its prefix:
(table, protocol, metric, next hops, next-hop object) of a route, (table,) of one that is gone.
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

Text: TypeAlias = tuple[int, int, int, tuple[NexthopSpec, ...], int | None] | tuple[int]

RoutesEvent: TypeAlias = RouteEvent | RouteRun


def events_of(run: RouteRun) -> Iterator[RouteUpdated | RouteDeleted]:
    """The routes of a run, one by one."""
    for text, address, length in run.messages():
        key = RouteKey(text[0], Prefix(address, length))
        if len(text) == 1:
            yield RouteDeleted(key)
        else:
            yield RouteUpdated(Route(key, *text[1:]))
