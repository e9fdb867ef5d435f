# SPDX-License-Identifier: Apache-2.0
"""Caches the decoded contents of route messages, and decodes further messages with the same
contents in native code.

`RouteRuns` replaces `RouteMemo` in `wire.fpm`. If the cache has the texts of all messages in a
frame, `read` puts the frame's routes into a run (`sluice._native.RouteRun`), without a Python
object for each route. All other frames are left to `decode_payload`, which fills the cache.
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
    """Caches the texts of one source of routes. A text is a message without its prefix.

    Prefixes whose first octet is in `unusual_heads` always miss.
    """

    def __init__(self, unusual_heads: Iterable[int]) -> None:
        self._memo = NativeMemo(bytes(unusual_heads))

    def read(self, payloads: list[bytes], start: int, limit: int) -> tuple[RouteRun, int]:
        """Reads payloads from `start` on. Returns their routes and the number of payloads read.

        Stops after the payload that reaches `limit` routes, or before a payload with a miss.
        """
        return self._memo.read(payloads, start, limit)

    def events(self, data: bytes) -> list[RouteEvent] | None:
        """Returns None: all messages that are in the cache were already consumed by `read`."""
        return None

    def learn(self, data: bytes, offset: int, length: int, event: RouteEvent) -> None:
        """Caches the event of a message. Must be called only if decoding had no other effect."""
        if isinstance(event, RouteUpdated):
            kind = RTM_NEWROUTE
            text: tuple[object, ...] = (event.route.key.table, *event.route[1:])
        elif isinstance(event, RouteDeleted):
            kind, text = RTM_DELROUTE, (event.key.table,)
        else:
            return
        at = cut(data, offset, length, kind)
        if at is None or RTA_DST in attributes(data[at[2] : offset + length], 0):
            return  # RTA_DST is repeated: the last one counts, but the first one was cut out
        self._memo.learn(data, offset, length, text)
