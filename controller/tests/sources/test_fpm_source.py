# SPDX-License-Identifier: Apache-2.0
"""Tests FPM sessions: only one session exists at a time, malformed bytes end it, and frames are
read in bounded slices.
"""

from __future__ import annotations

import os
import socket
import sys
from collections import Counter, deque
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import recordings
from kernel_namespace import poll_until
from sluice._native import FpmServer, RouteRun
from sluice.model import FpmSessionClosed, FpmSessionOpened, LinkChanged, RouteEvent
from sluice.sources.fpm import REFUSALS_AT_ONCE, FpmSource, FrameServer
from sluice.sources.fpm_senders import Senders, is_port_here
from sluice.sources.peer import AllowedUsers, RefusedPeer
from sluice.wire import fpm
from wire.strategies import damaged

if TYPE_CHECKING:
    from sluice._native import FpmEvent


class FakeServer:
    """Returns the events that a test gives, and records disconnects."""

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


def admit(peer: str) -> str:
    if "stranger" in peer:
        raise RefusedPeer(f"{peer}: user eve may not connect")
    return "frr"


def source_of(server: FrameServer) -> FpmSource:
    return FpmSource(server, admit)


def payloads(name: str) -> list[bytes]:
    return fpm.FrameSplitter().feed(recordings.stream(recordings.fpm(name)))


def everything(source: FpmSource, limit: int = 1000) -> list[RouteEvent | RouteRun]:
    events: list[RouteEvent | RouteRun] = []
    while batch := source.poll(limit):
        events += batch
    return events


ROUTES = payloads("static_without_groups")


def test_a_session_opens_speaks_and_closes() -> None:
    server = FakeServer(("open", 1, "peer"), ("frames", 1, ROUTES), ("closed", 1, "gone"))
    source = source_of(server)
    events = everything(source)
    assert events[0] == FpmSessionOpened("peer (user frr)")
    assert events[-1] == FpmSessionClosed("gone")
    assert len(events) == 2 + len(ROUTES)
    assert source.peer is None


def test_events_come_in_slices() -> None:
    source = source_of(FakeServer(("open", 1, "peer"), ("frames", 1, ROUTES)))
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
    events = everything(source_of(server))
    assert [type(event).__name__ for event in events] == [
        "FpmSessionOpened",
        "RouteUpdated",
        "FpmSessionClosed",
        "FpmSessionOpened",
        "RouteUpdated",
    ]
    assert server.disconnected == [1]


def test_a_stranger_displaces_nobody_and_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    server = FakeServer(
        ("open", 1, "zebra"),
        ("open", 2, "stranger"),
        ("frames", 2, ROUTES[:2]),
        ("frames", 1, ROUTES[2:3]),
        ("open", 3, "stranger"),
        ("frames", 1, ROUTES[3:4]),
    )
    source = source_of(server)
    events = everything(source)
    assert [type(event).__name__ for event in events] == ["FpmSessionOpened"] + 2 * ["RouteUpdated"]
    assert source.peer == "zebra (user frr)"
    assert server.disconnected == [2, 3]
    assert source.counters["connections_refused"] == 2
    assert caplog.messages == [
        "FPM: connection refused (1 so far): stranger: user eve may not connect"
    ]


class Flood(FakeServer):
    """Simulates a client that connects again before each poll."""

    def __init__(self) -> None:
        super().__init__()
        self.connections = 0

    def poll(self, max_events: int) -> list[FpmEvent]:
        self.connections += 1
        return [("open", self.connections, "stranger"), ("closed", self.connections, "refused")]


def test_a_flood_of_connections_ends_the_slice() -> None:
    server = Flood()
    source = source_of(server)
    assert source.poll(1000) == []
    assert server.connections <= 2 * REFUSALS_AT_ONCE
    assert source.counters["connections_refused"] == server.connections


def test_bad_bytes_end_the_session_and_nothing_of_their_frame_is_applied() -> None:
    replace = next(payload for payload in ROUTES if len(fpm.frame(payload)) > 100)
    server = FakeServer(
        ("open", 1, "peer"),
        ("frames", 1, [ROUTES[0], replace[:-4], ROUTES[1]]),
        ("frames", 1, [ROUTES[2]]),
        ("open", 2, "peer again"),
    )
    source = source_of(server)
    opened, route, closed, again = everything(source)
    assert opened == FpmSessionOpened("peer (user frr)")
    assert type(route).__name__ == "RouteUpdated"
    assert isinstance(closed, FpmSessionClosed)
    assert "netlink_length at byte" in closed.reason
    assert again == FpmSessionOpened("peer again (user frr)")
    assert server.disconnected == [1]
    assert source.counters["netlink_length"] == 1


def test_a_framing_error_is_counted_and_closes() -> None:
    server = FakeServer(
        ("open", 1, "peer"), ("error", 1, "version 2 at byte 0"), ("closed", 1, "framing error")
    )
    source = source_of(server)
    assert everything(source) == [
        FpmSessionOpened("peer (user frr)"),
        FpmSessionClosed("framing error"),
    ]
    assert source.counters["framing_errors"] == 1


# --- groups that zebra replays without one of their next hops -------------------------------------

E2 = 12
LEG_IS_DOWN = LinkChanged(E2, "e2", True, False, 1500, bytes(6))
LEG_IS_UP = LinkChanged(E2, "e2", True, True, 1500, bytes(6))
WHILE_DOWN = "FPM peer disconnects while e2 is down"
AFTERWARDS = "ip addr add 2001:db8:2::1/64 dev e2 nodad"


def step_payloads(step: str) -> list[bytes]:
    frames = dict(recordings.steps(recordings.fpm("link")))[step]
    return fpm.FrameSplitter().feed(b"".join(frames))


def replayed(at_open: LinkChanged) -> tuple[FakeServer, FpmSource]:
    """Returns a server, and a source that has read zebra's replay while interface e2 was in the
    given state.

    On return e2 is up, and the server holds further frames that the source has not read yet.
    """
    server = FakeServer(("open", 1, "peer"), ("frames", 1, step_payloads(WHILE_DOWN)))
    source = source_of(server)
    source.link_changed(at_open)
    everything(source)
    source.link_changed(LEG_IS_UP)
    server.events.append(("frames", 1, step_payloads(AFTERWARDS)))
    return server, source


def test_a_replay_while_a_leg_was_down_is_asked_for_again() -> None:
    server, source = replayed(LEG_IS_DOWN)
    closed = everything(source)[-1]
    assert isinstance(closed, FpmSessionClosed)
    assert "may lack a next hop" in closed.reason
    assert server.disconnected == [1]
    assert source.counters["replays_asked_for"] == 1


def test_a_replay_with_all_links_up_is_trusted() -> None:
    server, source = replayed(LEG_IS_UP)
    assert not isinstance(everything(source)[-1], FpmSessionClosed)
    assert server.disconnected == []


def test_a_link_that_fails_and_comes_back_within_a_session_raises_no_doubt() -> None:
    steps = ["start", "ip route 10.9.0.0/16 10.0.1.2 | ip route 10.9.0.0/16 10.0.2.2"]
    failure = ["ip link set p2 down (neighbour)", "ip link set p2 up (neighbour)"]
    server = FakeServer(("open", 1, "peer"))
    source = source_of(server)
    source.link_changed(LEG_IS_UP)
    for step in steps + failure:
        server.events.append(("frames", 1, step_payloads(step)))
        source.link_changed(LEG_IS_DOWN if step == failure[0] else LEG_IS_UP)
        everything(source)
    assert server.disconnected == []


@given(st.lists(damaged(ROUTES), max_size=5))
def test_any_frames_leave_the_source_usable(frames: list[bytes]) -> None:
    server = FakeServer(("open", 1, "peer"), ("frames", 1, frames))
    source = source_of(server)
    everything(source)
    server.events += [("open", 2, "peer again"), ("frames", 2, ROUTES[:1])]
    assert type(everything(source)[-1]).__name__ == "RouteUpdated"


def test_the_native_server_brings_the_same_events_however_the_stream_is_cut() -> None:
    stream = recordings.stream(recordings.fpm("kernel"))
    expected = [
        event for payload in payloads("kernel") for event in fpm.decode_payload(payload, Counter())
    ]
    server = FpmServer("127.0.0.1:0")
    here = f"127.0.0.1:{server.port()}"
    source = FpmSource(server, AllowedUsers(here, [str(os.getuid())]).admit)
    with socket.create_connection(("127.0.0.1", server.port())) as zebra:
        zebra.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(stream), 7):
            zebra.sendall(stream[start : start + 7])
        zebra.sendall(b"\x02\x01\x00\x08abcd")
        events = poll_until(source, closed)
    assert events[1:-1] == expected
    assert source.counters["framing_errors"] == 1
    server.close()


def closed(events: list[RouteEvent | RouteRun]) -> bool:
    return bool(events) and isinstance(events[-1], FpmSessionClosed)


def sent_by(sender: int, *frames: bytes) -> list[bytes]:
    """Returns the frames as sent from this netlink port (nlmsg_pid)."""
    return [frame[:12] + sender.to_bytes(4, sys.byteorder) + frame[16:] for frame in frames]


HOME, RED = 4030153402, 3503969248


def test_routes_of_another_network_namespace_are_left_out_and_named() -> None:
    """Checks that routes of another network namespace are dropped and reported.

    zebra sends such routes if it runs with option -n. The sender ports are recorded from zebra
    8.4.4.
    """
    frames = sent_by(HOME, *ROUTES[:2]) + sent_by(RED, *ROUTES[2:4]) + sent_by(HOME, ROUTES[4])
    server = FakeServer(("open", 1, "peer"), ("frames", 1, frames))
    source = FpmSource(server, admit, Senders(HOME.__eq__))
    events = everything(source)
    own = FakeServer(("open", 1, "peer"), ("frames", 1, [*ROUTES[:2], ROUTES[4]]))
    assert events == everything(source_of(own))
    assert source.counters["routes_of_another_namespace"] == 2
    assert source.problem is not None
    assert "-n" in source.problem
    assert source_of(own).problem is None


def test_what_a_session_began_with_is_forgotten_if_it_was_another_namespaces() -> None:
    frames = sent_by(RED, ROUTES[0]) + sent_by(HOME, ROUTES[1])
    server = FakeServer(("open", 1, "peer"), ("frames", 1, frames))
    source = FpmSource(server, admit, Senders(HOME.__eq__))
    first = everything(source)
    assert [type(event).__name__ for event in first] == ["FpmSessionOpened", "FpmSessionClosed"]
    assert server.disconnected == [1]
    server.events += [("open", 2, "peer"), ("frames", 2, frames)]
    second = everything(source)
    assert [type(event).__name__ for event in second] == ["FpmSessionOpened", "RouteUpdated"]
    assert second[1] == fpm.decode_payload(frames[1], Counter())[0]


def test_sockets_of_the_same_namespace_are_believed() -> None:
    """Checks that routes from several sockets of this namespace are accepted.

    A peer other than zebra is accepted too, if it uses one sender port.
    """
    frames = sent_by(HOME, ROUTES[0]) + sent_by(RED, ROUTES[1]) + sent_by(HOME, ROUTES[2])
    server = FakeServer(("open", 1, "peer"), ("frames", 1, frames))
    source = FpmSource(server, admit, Senders({HOME, RED}.__contains__))
    assert len(everything(source)) == 4
    assert source.problem is None
    server = FakeServer(("open", 1, "peer"), ("frames", 1, sent_by(0, *ROUTES[:3])))
    assert len(everything(FpmSource(server, admit, Senders(lambda _: False)))) == 4


def test_the_kernel_tells_the_ports_of_this_namespaces_sockets() -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        netlink.bind((0, 0))
        port = netlink.getsockname()[0]
        assert is_port_here(port)
    assert not is_port_here(port ^ 0x5A5A5A5A)
    assert not is_port_here(0)  # port of the kernel's own socket
