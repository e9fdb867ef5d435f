# SPDX-License-Identifier: Apache-2.0
"""Remembers what route messages say beside their prefix.

A full table has a million prefixes and some hundred distinct texts around them: interface,
gateway, metric. `RouteMemo` cuts a message at RTA_DST and looks the rest up, so that only the
prefix is decoded, and routes that lead alike share one tuple of next hops. It changes no result:
what it has not learnt, and what is unusual in any way, is left to `routes`.
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
"""Texts that are kept; then all are learnt anew."""

_LENGTH_AND_TYPE = Struct("=IH")
_made = tuple.__new__
"""Makes a named tuple of a tuple, in half of the time that its own constructor takes."""
_TABLE = ATTRIBUTE.pack(8, RTA_TABLE)
_DST = {family: ATTRIBUTE.pack(4 + size, RTA_DST) for family, size in ADDRESS_SIZE.items()}
_DST_SIZE = {family: 4 + size for family, size in ADDRESS_SIZE.items()}
_HOST_BITS = {
    family: tuple((1 << size * 8 - length) - 1 for length in range(size * 8 + 1))
    for family, size in ADDRESS_SIZE.items()
}
_LEAST = NETLINK_HEADER.size + RTMSG.size + 8
"""The shortest message with an RTA_DST."""


class RouteMemo:
    """The texts of one source of routes, by message type and family."""

    def __init__(self) -> None:
        self._said: dict[int, dict[bytes, tuple[Any, ...]]] = {}
        self._count = 0

    def events(self, data: bytes) -> list[RouteEvent] | None:
        """The events in these messages; None where one of them is not known."""
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
        """The event in the message of this whole length and type at `offset`, if it is known."""
        found = cut(data, offset, length, kind)
        if found is None:
            return None
        family, at, end = found
        said = self._said.get(kind << 8 | family)
        text = said and said.get(data[offset + 18 : at] + data[end : offset + length])
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
        """That this message has this event, and that nothing else is to be said of it."""
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
        if RTA_DST in attributes(rest, 0):  # of two the last counts, which is not where we cut
            return
        if self._count >= LIMIT:
            self._said, self._count = {}, 0
        self._said.setdefault(kind << 8 | family, {})[data[offset + 18 : at] + rest] = text
        self._count += 1


def cut(data: bytes, offset: int, length: int, kind: int) -> tuple[int, int, int] | None:
    """Family, and where RTA_DST begins and ends; None unless it stands first, or behind RTA_TABLE
    as the kernel writes it."""
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
