# SPDX-License-Identifier: Apache-2.0
"""Routes from zebra over FPM: sessions and their events.

Depends on `sluice._native.FpmServer` (or anything shaped like it) for frames and on wire.fpm to
decode them. There is one session at a time: a newer connection ends the older, so that events of
two sessions never mix. A connection counts only once `admit` has let it in; a refused one neither
ends a session nor changes a route. Bytes that cannot be decoded end the session as well; zebra
connects again and replays everything, and until then the routes stay as they are. Routes of other
network namespaces than the session's, which a zebra with `-n` sends as its own, are left out
(`fpm_senders`).

In a full table nearly all frames differ from earlier ones in the prefix only. With `runs` these
arrive as a `RouteRun`: many routes in one event.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from sluice.model import FpmSessionClosed, FpmSessionOpened, LinkChanged, RouteEvent
from sluice.sources.fpm_senders import SENDER, Senders, SenderVerdict
from sluice.sources.incomplete_groups import IncompleteGroups
from sluice.sources.peer import RefusedPeer
from sluice.wire.errors import WireError
from sluice.wire.fpm import decode_payload
from sluice.wire.route_memo import RouteMemo
from sluice.wire.route_runs import RouteRuns

if TYPE_CHECKING:
    from sluice._native import FpmEvent, RouteRun

log = logging.getLogger(__name__)

# Each holds the bytes of one socket read, 256 KiB at most; the rest waits in the server.
SERVER_EVENTS = 2
RUN = 1024
"""Approximate number of routes per run: some 2 ms until they are queued for the switch."""
UNUSUAL_HEADS = (*range(224, 256), 169)
"""First octets of prefixes that are never in a run: not all of them are routed."""
REFUSALS_AT_ONCE = 8
"""Connections refused per slice, so that constant connects do not delay packets."""
REFUSALS_TOLD_EVERY = 10.0
"""Seconds between logged refusals, so that repeated connects do not fill the log."""

Admit = Callable[[str], str]
"""The user who connected from an address, or Refused (`peer.AllowedUsers.admit`)."""


class FrameServer(Protocol):
    """The methods of `sluice._native.FpmServer` that are used."""

    def fileno(self) -> int:
        """Readable while `poll` has events."""

    def poll(self, max_events: int) -> list[FpmEvent]:
        """Removes at most `max_events` events from the queue and returns them."""

    def disconnect(self, connection: int, reason: str) -> None:
        """Closes a connection; "closed" follows."""


class FpmSource:
    """The route events of the FPM peer."""

    def __init__(
        self,
        server: FrameServer,
        admit: Admit,
        senders: Senders | None = None,
        *,
        runs: bool = False,
    ) -> None:
        self._server = server
        self._senders = senders or Senders()
        self._sender: bytes | None = None
        """Sender of the last accepted frame of this session."""
        self._admit = admit
        self._refusals_told = float("-inf")
        self._session: int | None = None
        # Payloads of the session, at most SERVER_EVENTS of the server. Those from `_next` on wait
        # for decoding.
        self._payloads: list[bytes] = []
        self._next = 0
        self._runs = RouteRuns(UNUSUAL_HEADS) if runs else None
        self._memo = self._runs or RouteMemo()
        self._incomplete = IncompleteGroups()
        self.peer: str | None = None
        self.counters: Counter[str] = Counter()

    def fileno(self) -> int:
        """Readable while the server has events; call `poll` until it gives an empty list."""
        return self._server.fileno()

    @property
    def problem(self) -> str | None:
        """Why routes of the routing daemon are left out, as a sentence; None if none are."""
        left_out = self._senders.left_out
        if not left_out or self.peer is None:
            return None
        return (
            f"zebra at {self.peer} runs with -n, or otherwise sends routes of several network"
            f" namespaces: {left_out:,} messages about others than its own were ignored"
        )

    def link_changed(self, event: LinkChanged) -> None:
        """Must be called for every link event of the host: zebra's replay depends on the links."""
        self._incomplete.note_link(event)

    def poll(self, limit: int) -> list[RouteEvent | RouteRun]:
        """About `limit` events, or fewer and a run, in order; empty when there is nothing more for
        now, or when `REFUSALS_AT_ONCE` connections were refused: then `fileno` stays readable."""
        events: list[RouteEvent | RouteRun] = []
        refused = self.counters["connections_refused"] + REFUSALS_AT_ONCE
        while len(events) < limit and self.counters["connections_refused"] < refused:
            if self._payloads:
                if self._read_run(events):
                    break
                continue
            news = self._server.poll(SERVER_EVENTS)
            if not news:
                break
            for event in news:
                self._handle(event, events)
        return events

    def _read_run(self, events: list[RouteEvent | RouteRun]) -> bool:
        """Reads the next frames as a run, or one as events; returns whether the slice is full."""
        run, read = None, 0
        if self._runs is not None:
            run, read = self._runs.read(self._payloads, self._next, RUN)
        if run is not None and read:
            events.append(run)
        else:
            read = 1
            self._decode(self._payloads[self._next], events)
        self._next += read
        if self._next >= len(self._payloads):
            self._payloads, self._next = [], 0
        return run is not None and len(run) >= RUN

    def _handle(self, event: FpmEvent, events: list[RouteEvent | RouteRun]) -> None:
        match event:
            case ("open", connection, peer):
                self._open(connection, peer, events)
            case ("frames", connection, payloads):
                if connection == self._session:
                    self._payloads += self._of_namespace(payloads, events)
            case ("error", _, message):
                self.counters["framing_errors"] += 1
                log.warning("FPM: %s", message)
            case ("closed", connection, reason):
                if connection == self._session:
                    self._end(reason, events)

    def _open(self, connection: int, peer: str, events: list[RouteEvent | RouteRun]) -> None:
        """Switches to the newest admitted connection: the earlier one may be dead but open."""
        try:
            name = f"{peer} (user {self._admit(peer)})"
        except RefusedPeer as refused:
            self._refuse(connection, str(refused))
            return
        if self._session is not None:
            self._hang_up(f"{name} connected in its place", events)
        self._session, self.peer = connection, name
        self._sender = None
        self._senders.begin()
        self.counters["sessions"] += 1
        events.append(opened := FpmSessionOpened(name))
        self._incomplete.note(opened)

    def _refuse(self, connection: int, reason: str) -> None:
        self.counters["connections_refused"] += 1
        self._server.disconnect(connection, reason)
        now = time.monotonic()
        if now - self._refusals_told >= REFUSALS_TOLD_EVERY:
            self._refusals_told = now
            count = self.counters["connections_refused"]
            log.warning("FPM: connection refused (%d so far): %s", count, reason)

    def _of_namespace(
        self, payloads: list[bytes], events: list[RouteEvent | RouteRun]
    ) -> list[bytes]:
        """Returns the frames of the session's namespace. Ends the session where a frame shows that
        the frames accepted so far were of another namespace."""
        if all(payload[SENDER] == self._sender for payload in payloads):
            return payloads
        taken = []
        for payload in payloads:
            verdict = self._senders.check(payload)
            if verdict is SenderVerdict.TAKEN:
                self._sender = payload[SENDER]
                taken.append(payload)
                continue
            if not self.counters["routes_of_another_namespace"]:
                log.warning(
                    "FPM: %s sends routes of other network namespaces (zebra -n?)", self.peer
                )
            self.counters["routes_of_another_namespace"] += 1
            if verdict is SenderVerdict.MISLED:
                self._hang_up("a new replay is needed: it began with another namespace's", events)
                return []
        return taken

    def _decode(self, payload: bytes, events: list[RouteEvent | RouteRun]) -> None:
        try:
            decoded = decode_payload(payload, self.counters, self._memo)
        except WireError as error:
            self.counters[error.name] += 1
            log.warning("FPM: %s; frame payload %s", error, payload[:256].hex())
            self._hang_up(f"bad bytes from the peer: {error}", events)
            return
        events += decoded
        if any(map(self._incomplete.note, decoded)):
            self.counters["replays_asked_for"] += 1
            self._hang_up("a new replay is needed: next-hop groups may lack a leg", events)

    def _hang_up(self, reason: str, events: list[RouteEvent | RouteRun]) -> None:
        """Ends the session from this side; zebra connects again and replays everything."""
        if self._session is not None:
            self._server.disconnect(self._session, reason)
        self._end(reason, events)

    def _end(self, reason: str, events: list[RouteEvent | RouteRun]) -> None:
        """Ends the session and drops its pending frames, since a replay follows."""
        self._payloads, self._next = [], 0
        self._session, self.peer = None, None
        events.append(FpmSessionClosed(reason))
