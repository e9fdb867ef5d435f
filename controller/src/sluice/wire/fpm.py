# SPDX-License-Identifier: Apache-2.0
"""Decodes FPM, the stream in which zebra's `dplane_fpm_nl` sends its routes to a forwarding plane.

A frame consists of a header and netlink messages. The 4-byte header has a version (1), a type (1:
netlink), and the frame's length with the header, in network order. zebra 8.4.4 replaces a route by
DELROUTE and NEWROUTE in one frame. `decode_payload` merges the two into one update, because packets
would be lost between the deletion and the addition.

In the daemon, `sluice._native.FpmServer` splits the stream into frames. `FrameSplitter` does so for
recordings and tests.
"""

from __future__ import annotations

from collections import Counter
from struct import Struct

from sluice.model import RouteDeleted, RouteEvent, RouteKey, RouteUpdated
from sluice.wire.errors import WireError
from sluice.wire.netlink import HEADER as NETLINK_HEADER
from sluice.wire.netlink import messages
from sluice.wire.route_memo import RouteMemo
from sluice.wire.route_runs import RouteRuns
from sluice.wire.routes import ROUTE_MESSAGES, decode_route_message

HEADER = Struct("!BBH")
VERSION = 1
TYPE_NETLINK = 1


class FrameSplitter:
    """Splits a byte stream, which arrives in pieces of any size, into the payloads of FPM
    frames."""

    def __init__(self) -> None:
        self._pending = b""
        self._consumed = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Returns the payloads of the frames that end in `data`. After a WireError the stream is
        unusable."""
        self._pending += data
        payloads: list[bytes] = []
        start = 0
        while len(self._pending) - start >= HEADER.size:
            length = self._frame_length(start)
            if len(self._pending) - start < length:
                break
            payloads.append(self._pending[start + HEADER.size : start + length])
            start += length
        self._pending = self._pending[start:]
        self._consumed += start
        return payloads

    def _frame_length(self, start: int) -> int:
        version, kind, length = HEADER.unpack_from(self._pending, start)
        offset = self._consumed + start
        if version != VERSION:
            raise WireError("fpm_version", offset, f"version {version} instead of {VERSION}")
        if kind != TYPE_NETLINK:
            raise WireError("fpm_type", offset + 1, f"type {kind} instead of {TYPE_NETLINK}")
        if length < HEADER.size:
            raise WireError("fpm_length", offset + 2, f"length {length} is less than a header")
        return int(length)


def frame(payload: bytes) -> bytes:
    """Returns `payload` with FPM's header."""
    return HEADER.pack(VERSION, TYPE_NETLINK, HEADER.size + len(payload)) + payload


def decode_payload(
    payload: bytes, ignored: Counter[str], memo: RouteMemo | RouteRuns | None = None
) -> list[RouteEvent]:
    """Returns the events in one frame's payload, in order, at most one for each route.

    Raises WireError, and then returns none of the frame's events. Messages that are irrelevant to a
    FIB are counted by name in `ignored`. `memo` caches decoded messages.
    """
    known = None if memo is None else memo.events(payload)
    if known is not None:
        return coalesce(known) if len(known) > 1 else known
    events: list[RouteEvent] = []
    for item in messages(payload):
        if item.type not in ROUTE_MESSAGES:
            ignored[f"message_type_{item.type}"] += 1
            continue
        base = item.offset + NETLINK_HEADER.size
        counted = ignored.total()
        event = decode_route_message(item.type, item.body, base, ignored)
        if event is None:
            continue
        events.append(event)
        if memo is not None and ignored.total() == counted:
            memo.learn(payload, item.offset, NETLINK_HEADER.size + len(item.body), event)
    return coalesce(events) if len(events) > 1 else events


def coalesce(events: list[RouteEvent]) -> list[RouteEvent]:
    """Returns `events` without those that a later event about the same route supersedes."""
    decided: set[RouteKey] = set()
    kept: list[RouteEvent] = []
    for event in reversed(events):
        if isinstance(event, RouteUpdated | RouteDeleted):
            key = event.route.key if isinstance(event, RouteUpdated) else event.key
            if key in decided:
                continue
            decided.add(key)
        kept.append(event)
    kept.reverse()
    return kept
