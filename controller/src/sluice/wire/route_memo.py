# SPDX-License-Identifier: Apache-2.0
"""Caches the decoded contents of route messages, without their prefixes.

The **text** of a route message is the message without its prefix: interface, gateway, metric. A
full table has a million prefixes, but only some hundred distinct texts. `RouteMemo` cuts RTA_DST
out of a message and looks up the rest. On a hit it decodes only the prefix, and routes with equal
next hops share one tuple. The results are the same as without the cache: messages that miss, or are
unusual in any way, are left to `routes`.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from sluice.model import Prefix, Route, RouteDeleted, RouteEvent, RouteKey, RouteUpdated
from sluice.wire.netlink import ATTRIBUTE, attributes
from sluice.wire.netlink import HEADER as NETLINK_HEADER
from sluice.wire.routes import (
    ADDRESS_SIZE,
    RTA_DST,
    RTA_TABLE,
    RTM_DELROUTE,
    RTM_NEWROUTE,
    RTMSG,
)

LIMIT = 16384
"""Limit of cached texts. A full cache is cleared."""

_LENGTH_AND_TYPE = Struct("=IH")
_made = tuple.__new__
"""Makes a named tuple from a tuple. Takes half the time of the named tuple's constructor."""
_TABLE = ATTRIBUTE.pack(8, RTA_TABLE)
_DST = {family: ATTRIBUTE.pack(4 + size, RTA_DST) for family, size in ADDRESS_SIZE.items()}
_DST_SIZE = {family: 4 + size for family, size in ADDRESS_SIZE.items()}
_HOST_BITS = {
    family: tuple((1 << size * 8 - length) - 1 for length in range(size * 8 + 1))
    for family, size in ADDRESS_SIZE.items()
}
_LEAST = NETLINK_HEADER.size + RTMSG.size + 8
"""Size of the shortest message with an RTA_DST, in bytes."""


class RouteMemo:
    """Caches the texts of one source of routes, by message type and family."""

    def __init__(self) -> None:
        self._texts: dict[int, dict[bytes, tuple[Any, ...]]] = {}
        self._count = 0

    def events(self, data: bytes) -> list[RouteEvent] | None:
        """Returns the events in these messages, or None if one of them is not in the cache."""
        events: list[RouteEvent] = []
        offset, end = 0, len(data)
        while offset < end:
            if end - offset < _LEAST:
                return None
            length, kind = _LENGTH_AND_TYPE.unpack_from(data, offset)
            event = self.event(data, offset, length, kind)
            if event is None:
                return None
            events.append(event)
            offset += (length + 3) & ~3
        return events

    def event(self, data: bytes, offset: int, length: int, kind: int) -> RouteEvent | None:
        """Returns the event of the message at `offset`, or None on a miss.

        `length` is the message's total length, `kind` its type.
        """
        found = cut(data, offset, length, kind)
        if found is None:
            return None
        family, at, end = found
        known = self._texts.get(kind << 8 | family)
        text = known and known.get(data[offset + 18 : at] + data[end : offset + length])
        if not text:
            return None
        bits, address = data[offset + 17], data[at + 4 : end]
        masks = _HOST_BITS[family]
        if bits >= len(masks) or int.from_bytes(address, "big") & masks[bits]:
            return None
        key = _made(RouteKey, (text[0], _made(Prefix, (address, bits))))
        if kind == RTM_DELROUTE:
            return _made(RouteDeleted, (key,))
        return _made(RouteUpdated, (_made(Route, (key, *text[1:])),))

    def learn(self, data: bytes, offset: int, length: int, event: RouteEvent) -> None:
        """Caches the event of a message. Must be called only if decoding had no other effect."""
        if isinstance(event, RouteUpdated):
            kind, route = RTM_NEWROUTE, event.route
            text: tuple[Any, ...] = (route.key.table, *route[1:])
        elif isinstance(event, RouteDeleted):
            kind, text = RTM_DELROUTE, (event.key.table,)
        else:
            return
        found = cut(data, offset, length, kind)
        if found is None:
            return
        family, at, end = found
        rest = data[end : offset + length]
        if RTA_DST in attributes(rest, 0):  # RTA_DST twice: the last one counts
            return
        if self._count >= LIMIT:
            self._texts, self._count = {}, 0
        self._texts.setdefault(kind << 8 | family, {})[data[offset + 18 : at] + rest] = text
        self._count += 1


def cut(data: bytes, offset: int, length: int, kind: int) -> tuple[int, int, int] | None:
    """Returns the family, and the start and end of RTA_DST.

    RTA_DST must be the first attribute, or follow RTA_TABLE as in the kernel's messages. Returns
    None otherwise.
    """
    if length < _LEAST or offset + length > len(data):
        return None
    if kind not in (RTM_NEWROUTE, RTM_DELROUTE):
        return None
    family = data[offset + 16]
    at = offset + 28
    head = data[at : at + 4]
    if head == _TABLE:
        at += 8
        head = data[at : at + 4]
    if head != _DST.get(family):
        return None
    end = at + _DST_SIZE[family]
    return None if end > offset + length else (family, at, end)
