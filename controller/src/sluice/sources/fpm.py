# SPDX-License-Identifier: Apache-2.0
"""Routes from zebra over FPM: sessions and their events.

Depends on `sluice._native.FpmServer` (or anything shaped like it) for frames and on wire.fpm for
what they say. There is one session at a time: a newer connection ends the older, so that events of
two sessions never mix. A connection counts only once `admit` has let it in; a refused one neither
ends a session nor changes a route. Bytes that cannot be decoded end the session as well; zebra
connects again and replays everything, and until then the routes stay as they are. Routes of other
network namespaces than the session's, which a zebra with `-n` sends as its own, are left out
(`fpm_senders`).
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from sluice.model import FpmSessionClosed, FpmSessionOpened, LinkChanged, RouteEvent
from sluice.sources.fpm_senders import SENDER, Senders, Verdict
from sluice.sources.group_doubt import GroupDoubt
from sluice.sources.peer import Refused
from sluice.wire.errors import WireError
from sluice.wire.fpm import decode_payload
from sluice.wire.route_memo import RouteMemo

if TYPE_CHECKING:
    from sluice._native import FpmEvent

log = logging.getLogger(__name__)

# Each holds what one read of the socket gave, 256 KiB at most; the rest waits in the server.
SERVER_EVENTS = 2
REFUSALS_AT_ONCE = 8
"""Connections refused in one slice: a user who connects all the time does not hold up packets."""
REFUSALS_TOLD_EVERY = 10.0
"""Seconds: a user who connects again and again does not fill the log."""

Admit = Callable[[str], str]
"""The user who connected from an address, or Refused (`peer.AllowedUsers.admit`)."""


class FrameServer(Protocol):
    """What is used of `sluice._native.FpmServer`."""

    def fileno(self) -> int:
        """Readable while `poll` has something to give."""

    def poll(self, max_events: int) -> list[FpmEvent]:
        """At most `max_events` events, removed from the queue."""

    def disconnect(self, connection: int, reason: str) -> None:
        """Closes a connection; "closed" follows."""


class FpmSource:
    """The route events of the FPM peer."""

    def __init__(self, server: FrameServer, admit: Admit, senders: Senders | None = None) -> None:
        self._server = server
        self._senders = senders or Senders()
        self._sender: bytes | None = None
        """Who was taken last, of this session."""
        self._admit = admit
        self._refusals_told = float("-inf")
        self._session: int | None = None
        # Payloads of the session that wait for decoding: at most SERVER_EVENTS of the server.
        self._payloads: deque[bytes] = deque()
        self._memo = RouteMemo()
        self._doubt = GroupDoubt()
        self.peer: str | None = None
        self.counters: Counter[str] = Counter()

    def fileno(self) -> int:
        """Readable while the server has events; call `poll` until it gives an empty list."""
        return self._server.fileno()

    @property
    def problem(self) -> str | None:
        """What the routing daemon does that makes routes be left out, as a sentence."""
        left_out = self._senders.left_out
        if not left_out or self.peer is None:
            return None
        return (
            f"zebra at {self.peer} runs with -n, or otherwise sends routes of several network"
            f" namespaces: {left_out:,} messages about others than its own were ignored"
        )

    def link_changed(self, event: LinkChanged) -> None:
        """To be told of every link of the host: what zebra replays depends on them."""
        self._doubt.note_link(event)

    def poll(self, limit: int) -> list[RouteEvent]:
        """About `limit` events, in order; empty when there is nothing more for now, or when
        `REFUSALS_AT_ONCE` connections were refused: then `fileno` stays readable."""
        events: list[RouteEvent] = []
        refused = self.counters["connections_refused"] + REFUSALS_AT_ONCE
        while len(events) < limit and self.counters["connections_refused"] < refused:
            if self._payloads:
                self._decode(self._payloads.popleft(), events)
                continue
            news = self._server.poll(SERVER_EVENTS)
            if not news:
                break
            for event in news:
                self._handle(event, events)
        return events

    def _handle(self, event: FpmEvent, events: list[RouteEvent]) -> None:
        match event:
            case ("open", connection, peer):
                self._open(connection, peer, events)
            case ("frames", connection, payloads):
                if connection == self._session:
                    self._payloads.extend(payloads)
            case ("error", _, message):
                self.counters["framing_errors"] += 1
                log.warning("FPM: %s", message)
            case ("closed", connection, reason):
                if connection == self._session:
                    self._end(reason, events)

    def _open(self, connection: int, peer: str, events: list[RouteEvent]) -> None:
        """Takes the newest admitted connection: zebra's last one may be dead without an end."""
        try:
            name = f"{peer} (user {self._admit(peer)})"
        except Refused as refused:
            self._refuse(connection, str(refused))
            return
        if self._session is not None:
            self._hang_up(f"{name} connected in its place", events)
        self._session, self.peer = connection, name
        self._sender = None
        self._senders.begin()
        self.counters["sessions"] += 1
        events.append(opened := FpmSessionOpened(name))
        self._doubt.note(opened)

    def _refuse(self, connection: int, reason: str) -> None:
        self.counters["connections_refused"] += 1
        self._server.disconnect(connection, reason)
        now = time.monotonic()
        if now - self._refusals_told >= REFUSALS_TOLD_EVERY:
            self._refusals_told = now
            count = self.counters["connections_refused"]
            log.warning("FPM: connection refused (%d so far): %s", count, reason)

    def _is_left_out(self, payload: bytes, events: list[RouteEvent]) -> bool:
        """Whether a payload is not of the session's namespace; its sender was not the last one."""
        verdict = self._senders.judge(payload)
        if verdict is Verdict.TAKEN:
            self._sender = payload[SENDER]
            return False
        if not self.counters["routes_of_another_namespace"]:
            log.warning("FPM: %s sends routes of other network namespaces (zebra -n?)", self.peer)
        self.counters["routes_of_another_namespace"] += 1
        if verdict is Verdict.MISLED:
            self._hang_up("a new replay is needed: it began with another namespace's", events)
        return True

    def _decode(self, payload: bytes, events: list[RouteEvent]) -> None:
        if payload[SENDER] != self._sender and self._is_left_out(payload, events):
            return
        try:
            decoded = decode_payload(payload, self.counters, self._memo)
        except WireError as error:
            self.counters[error.name] += 1
            log.warning("FPM: %s; frame payload %s", error, payload[:256].hex())
            self._hang_up(f"bad bytes from the peer: {error}", events)
            return
        events += decoded
        if any(map(self._doubt.note, decoded)):
            self.counters["replays_asked_for"] += 1
            self._hang_up("a new replay is needed: next-hop groups may lack a leg", events)

    def _hang_up(self, reason: str, events: list[RouteEvent]) -> None:
        """Ends the session from this side; zebra connects again and replays everything."""
        if self._session is not None:
            self._server.disconnect(self._session, reason)
        self._end(reason, events)

    def _end(self, reason: str, events: list[RouteEvent]) -> None:
        """Ends the session; frames of it that wait are dropped, since a replay will come."""
        self._payloads.clear()
        self._session, self.peer = None, None
        events.append(FpmSessionClosed(reason))
