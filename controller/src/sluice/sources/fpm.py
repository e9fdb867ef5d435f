# SPDX-License-Identifier: Apache-2.0
"""Receives routes from zebra over FPM, and returns them as events.

Depends on `sluice._native.FpmServer` (or an object with its methods) for frames, and on wire.fpm to
decode them.

There is one session at a time. A connection becomes the session only when `admit` has accepted it.
The new session ends the earlier one, so events of two sessions never mix. A refused connection ends
no session and changes no route. Bytes that cannot be decoded end the session. zebra then connects
again and replays everything, and until then the routes stay as they are.

A zebra with `-n` sends routes of other network namespaces like routes of its own namespace. These
routes are left out (`fpm_senders`).

In a full table, nearly all frames differ from earlier ones only in the prefix. With `runs`, these
frames arrive as a `RouteRun`: many routes in one event.
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

# Maximum number of server events read at a time. Each event holds the bytes of one socket read, at
# most 256 KiB. Further events wait in the server.
SERVER_EVENTS = 2
RUN = 1024
"""Approximate number of routes per run. Queuing a run for the switch takes some 2 ms."""
UNUSUAL_HEADS = (*range(224, 256), 169)
"""First octets of prefixes that are never in a run: some of these prefixes are not routed."""
REFUSALS_AT_ONCE = 8
"""Connections refused per slice, so that continual connects do not delay packets."""
REFUSALS_TOLD_EVERY = 10.0
"""Seconds between logged refusals, so that repeated connects do not fill the log."""

Admit = Callable[[str], str]
"""Returns the user who connected from an address, or raises RefusedPeer."""


class FrameServer(Protocol):
    """Describes the methods of `sluice._native.FpmServer` that are used."""

    def fileno(self) -> int:
        """Returns a descriptor that is readable while `poll` has events."""

    def poll(self, max_events: int) -> list[FpmEvent]:
        """Removes at most `max_events` events from the queue and returns them."""

    def disconnect(self, connection: int, reason: str) -> None:
        """Closes a connection. The event "closed" follows."""


class FpmSource:
    """Provides the route events of the FPM peer."""

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
        # Frame payloads of the session, of at most SERVER_EVENTS server events. Those from index
        # `_next` on are not decoded yet.
        self._payloads: list[bytes] = []
        self._next = 0
        self._runs = RouteRuns(UNUSUAL_HEADS) if runs else None
        self._memo = self._runs or RouteMemo()
        self._incomplete = IncompleteGroups()
        self.peer: str | None = None
        self.counters: Counter[str] = Counter()

    def fileno(self) -> int:
        """Returns a descriptor that is readable while the server has events.

        Then call `poll` until it returns an empty list.
        """
        return self._server.fileno()

    @property
    def problem(self) -> str | None:
        """Explains why some routes of the routing daemon are left out, as a sentence. None if all
        are used."""
        left_out = self._senders.left_out
        if not left_out or self.peer is None:
            return None
        return (
            f"zebra at {self.peer} runs with -n, or otherwise sends routes of several network"
            f" namespaces: {left_out:,} messages of other namespaces were ignored"
        )

    def link_changed(self, event: LinkChanged) -> None:
        """Handles a link event of the host. Must be called for every link event, because zebra's
        replay omits next hops on links that are down."""
        self._incomplete.note_link(event)

    def poll(self, limit: int) -> list[RouteEvent | RouteRun]:
        """Returns about `limit` events in order. Returns fewer if one of them is a full `RouteRun`,
        which is then the last event.

        Returns an empty list if no event waits, or if `REFUSALS_AT_ONCE` connections were refused.
        In the second case `fileno` stays readable.
        """
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
        """Reads the next frames as one run, or the next frame as events. Returns whether `poll`
        must stop because the run is full."""
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
        """Makes an admitted connection the session. Ends an earlier session, whose peer may be dead
        although its connection is still open."""
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
        """Returns the frames of the session's namespace.

        If a frame shows that all earlier frames of the session belong to another namespace, ends
        the session.
        """
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
                self._hang_up("a new replay is needed: it began with another namespace", events)
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
            self._hang_up("a new replay is needed: groups may lack a next hop", events)

    def _hang_up(self, reason: str, events: list[RouteEvent | RouteRun]) -> None:
        """Closes the session's connection and ends the session. zebra connects again and replays
        everything."""
        if self._session is not None:
            self._server.disconnect(self._session, reason)
        self._end(reason, events)

    def _end(self, reason: str, events: list[RouteEvent | RouteRun]) -> None:
        """Ends the session and drops its frames that are not decoded yet, because a replay
        follows."""
        self._payloads, self._next = [], 0
        self._session, self.peer = None, None
        events.append(FpmSessionClosed(reason))
