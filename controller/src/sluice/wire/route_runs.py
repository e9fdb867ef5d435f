# SPDX-License-Identifier: Apache-2.0
"""Remembers what route messages say beside their prefix, and reads many of them natively.

`RouteRuns` is to `wire.fpm` what `RouteMemo` is, but for frames of which every message is known: of
these `read` makes runs (`sluice._native.RouteRun`) without a Python object for each route. All
other frames are left to `decode_payload`, from which it learns.
"""

from __future__ import annotations

from collections.abc import Iterable

from sluice._native import RouteMemo as NativeMemo
from sluice._native import RouteRun
from sluice.model import RouteDeleted, RouteEvent, RouteUpdated
from sluice.wire.netlink import attributes
from sluice.wire.route_memo import cut
from sluice.wire.routes import RTA_DST, RTM_DELROUTE, RTM_NEWROUTE


class RouteRuns:
    """The texts of one source of routes. `unusual_heads` are first octets of prefixes that are
    never read here."""

    def __init__(self, unusual_heads: Iterable[int]) -> None:
        self._memo = NativeMemo(bytes(unusual_heads))

    def read(self, payloads: list[bytes], start: int, limit: int) -> tuple[RouteRun, int]:
        """The routes of the payloads from `start` on, and how many payloads these are. Ends with
        the payload that reaches `limit` routes, or before one of which a message is not known."""
        return self._memo.read(payloads, start, limit)

    def events(self, data: bytes) -> list[RouteEvent] | None:
        """None: what is known has been read."""
        return None

    def learn(self, data: bytes, offset: int, length: int, event: RouteEvent) -> None:
        """That this message has this event, and that nothing else is to be said of it."""
        if isinstance(event, RouteUpdated):
            kind = RTM_NEWROUTE
            text: tuple[object, ...] = (event.route.key.table, *event.route[1:])
        elif isinstance(event, RouteDeleted):
            kind, text = RTM_DELROUTE, (event.key.table,)
        else:
            return
        at = cut(data, offset, length, kind)
        if at is None or RTA_DST in attributes(data[at[2] : offset + length], 0):
            return  # of two the last counts, which is not where we cut
        self._memo.learn(data, offset, length, text)
