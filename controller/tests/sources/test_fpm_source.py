# SPDX-License-Identifier: Apache-2.0
"""FPM sessions: one at a time, ended by bad bytes, in bounded slices."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

import recordings
from sluice.model import FpmSessionClosed, FpmSessionOpened, RouteEvent
from sluice.sources.fpm import FpmSource
from sluice.wire import fpm
from wire.strategies import damaged

if TYPE_CHECKING:
    from sluice._native import FpmEvent


class FakeServer:
    """Gives what it was told to; records what it is asked to disconnect."""

    def __init__(self, *events: FpmEvent) -> None:
        self.events: deque[FpmEvent] = deque(events)
        self.disconnected: list[int] = []

    def fileno(self) -> int:
        return -1

    def poll(self, max_events: int) -> list[FpmEvent]:
        return [self.events.popleft() for _ in range(min(max_events, len(self.events)))]

    def disconnect(self, connection: int, reason: str) -> None:
        self.disconnected.append(connection)
        self.events.append(("closed", connection, reason))


def payloads(name: str) -> list[bytes]:
    return fpm.FrameSplitter().feed(recordings.stream(recordings.fpm(name)))


def everything(source: FpmSource, limit: int = 1000) -> list[RouteEvent]:
    events: list[RouteEvent] = []
    while batch := source.poll(limit):
        events += batch
    return events


ROUTES = payloads("static_without_groups")


def test_a_session_opens_speaks_and_closes() -> None:
    server = FakeServer(("open", 1, "peer"), ("frames", 1, ROUTES), ("closed", 1, "gone"))
    source = FpmSource(server)
    events = everything(source)
    assert events[0] == FpmSessionOpened("peer")
    assert events[-1] == FpmSessionClosed("gone")
    assert len(events) == 2 + len(ROUTES)
    assert source.peer is None


def test_events_come_in_slices() -> None:
    source = FpmSource(FakeServer(("open", 1, "peer"), ("frames", 1, ROUTES)))
    sizes = []
    while batch := source.poll(5):
        sizes.append(len(batch))
    assert max(sizes) <= 5
    assert sum(sizes) == 1 + len(ROUTES)


def test_a_newer_connection_ends_the_older() -> None:
    server = FakeServer(
        ("open", 1, "old"),
        ("frames", 1, ROUTES[:1]),
        ("open", 2, "new"),
        ("frames", 1, ROUTES[1:2]),
        ("frames", 2, ROUTES[2:3]),
    )
    events = everything(FpmSource(server))
    assert [type(event).__name__ for event in events] == [
        "FpmSessionOpened",
        "RouteUpdated",
        "FpmSessionClosed",
        "FpmSessionOpened",
        "RouteUpdated",
    ]
    assert server.disconnected == [1]


def test_bad_bytes_end_the_session_and_nothing_of_their_frame_is_applied() -> None:
    replace = next(payload for payload in ROUTES if len(fpm.frame(payload)) > 100)
    server = FakeServer(
        ("open", 1, "peer"),
        ("frames", 1, [ROUTES[0], replace[:-4], ROUTES[1]]),
        ("frames", 1, [ROUTES[2]]),
        ("open", 2, "peer again"),
    )
    source = FpmSource(server)
    opened, route, closed, again = everything(source)
    assert opened == FpmSessionOpened("peer")
    assert type(route).__name__ == "RouteUpdated"
    assert isinstance(closed, FpmSessionClosed)
    assert "netlink_length at byte" in closed.reason
    assert again == FpmSessionOpened("peer again")
    assert server.disconnected == [1]
    assert source.counters["netlink_length"] == 1


def test_a_framing_error_is_counted_and_closes() -> None:
    server = FakeServer(
        ("open", 1, "peer"), ("error", 1, "version 2 at byte 0"), ("closed", 1, "framing error")
    )
    source = FpmSource(server)
    assert everything(source) == [FpmSessionOpened("peer"), FpmSessionClosed("framing error")]
    assert source.counters["framing_errors"] == 1


@given(st.lists(damaged(ROUTES), max_size=5))
def test_any_frames_leave_the_source_usable(frames: list[bytes]) -> None:
    server = FakeServer(("open", 1, "peer"), ("frames", 1, frames))
    source = FpmSource(server)
    everything(source)
    server.events += [("open", 2, "peer again"), ("frames", 2, ROUTES[:1])]
    assert type(everything(source)[-1]).__name__ == "RouteUpdated"
