# SPDX-License-Identifier: Apache-2.0
"""Tests FpmServer over loopback: it yields whole frames in order, reports framing errors, and slows
a fast sender down (backpressure).
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest
from sluice_testkit.wait import wait_until

import recordings
from native.drain import DEADLINE, Drain, readable
from sluice._native import FpmServer


@pytest.fixture
def server() -> Iterator[FpmServer]:
    with closing(FpmServer("127.0.0.1:0")) as server:
        yield server


@pytest.fixture
def events(server: FpmServer) -> Drain[Any]:
    return Drain(server)


def connect(server: FpmServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port()), timeout=DEADLINE)


def frame(payload: bytes) -> bytes:
    return bytes([1, 1]) + (4 + len(payload)).to_bytes(2, "big") + payload


def payloads(events: Drain[Any], count: int) -> list[bytes]:
    got: list[bytes] = []
    while len(got) < count:
        got.extend(events.until(lambda event: event[0] == "frames")[2])
    return got


def closing_events(events: Drain[Any]) -> tuple[list[Any], Any]:
    """Returns the list of the events before "closed", and the event "closed"."""
    before: list[Any] = []
    while (event := events.until(lambda _: True))[0] != "closed":
        before.append(event)
    return before, event


def test_a_connection_from_start_to_end(server: FpmServer, events: Drain[Any]) -> None:
    with connect(server) as peer:
        host, port = peer.getsockname()
        assert events.until(lambda _: True) == ("open", 1, f"{host}:{port}")
        sent = [bytes([number]) * (16 + number) for number in range(200)]
        peer.sendall(b"".join(frame(payload) for payload in sent))
        assert payloads(events, 200) == sent
    assert events.until(lambda _: True) == ("closed", 1, "the peer closed the connection")
    assert not readable(server.fileno())
    stats = server.stats()
    assert (stats["connections"], stats["frames"], stats["framing_errors"]) == (1, 200, 0)


@pytest.mark.parametrize("recording", recordings.FPM, ids=lambda path: path.stem)
def test_what_zebra_sends_is_framed_byte_by_byte(
    server: FpmServer, events: Drain[Any], recording: Path
) -> None:
    frames = [frame for _, frames in recordings.steps(recording) for frame in frames][:100]
    with connect(server) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"".join(frames):
            peer.send(bytes([byte]))
        assert payloads(events, len(frames)) == [recorded[4:] for recorded in frames]


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (b"\x02", "FPM frame at byte 20: version 2, expected 1"),
        (b"\x01\x02", "FPM frame at byte 20: message type 2, expected 1 (netlink)"),
        (b"\x01\x01\x00\x03", "FPM frame at byte 20: length 3, expected at least 20"),
        (b"GET / HTTP/1.1\r\n", "version 71"),
    ],
)
def test_bad_framing_is_named_after_the_good_frames(
    server: FpmServer, events: Drain[Any], bad: bytes, problem: str
) -> None:
    with connect(server) as peer:
        peer.sendall(frame(bytes(16)) + bad)
        before, closed = closing_events(events)
        assert [event[0] for event in before] == ["open", "frames", "error"]
        assert before[1][2] == [bytes(16)]
        assert problem in before[2][2]
        assert closed == ("closed", 1, "bad framing")
        peer.settimeout(DEADLINE)
        with suppress(ConnectionResetError):
            assert peer.recv(1) == b"", "the server has closed its side"
    assert server.stats()["framing_errors"] == 1


def test_an_end_inside_a_frame_is_named(server: FpmServer, events: Drain[Any]) -> None:
    with connect(server) as peer:
        peer.sendall(frame(bytes(16)) + frame(bytes(30))[:-1])
    before, closed = closing_events(events)
    assert "FPM frame at byte 20: the connection ended after 33" in before[-1][2]
    assert closed == ("closed", 1, "bad framing")


def test_a_full_queue_slows_the_peer_down_and_loses_nothing() -> None:
    with closing(FpmServer("127.0.0.1:0", queue_bytes=10_000)) as server, connect(server) as peer:
        peer.setblocking(False)
        stream = b"".join(frame(number.to_bytes(4, "big") * 250) for number in range(20_000))
        position = 0

        def stuck() -> bool:
            nonlocal position
            try:
                position += peer.send(stream[position : position + 1_000_000])
            except BlockingIOError:
                return server.stats()["reads_paused"] > 0
            return False

        wait_until(stuck, DEADLINE, "the peer to be slowed down", interval=0.001)
        assert position < len(stream)
        events = Drain(server)
        got: list[bytes] = []
        while len(got) < 20_000:
            with suppress(BlockingIOError):
                position += peer.send(stream[position : position + 1_000_000])
            got.extend(payloads(events, 1))
        assert b"".join(map(frame, got)) == stream


def test_connections_are_kept_apart(server: FpmServer, events: Drain[Any]) -> None:
    with connect(server) as one, connect(server) as two:
        for number in range(20):
            one.sendall(frame(bytes([number]) * 16))
            two.sendall(frame(bytes([100 + number]) * 16))
        got: dict[int, list[int]] = {1: [], 2: []}
        while sum(map(len, got.values())) < 40:
            event = events.until(lambda event: event[0] == "frames")
            got[event[1]].extend(payload[0] for payload in event[2])
    starts = sorted(got.values())
    assert starts == [list(range(20)), list(range(100, 120))]


def test_disconnect_closes_one_with_the_reason(server: FpmServer, events: Drain[Any]) -> None:
    with connect(server) as one:
        events.until(lambda event: event[0] == "open")
        with connect(server) as two:
            events.until(lambda event: event[0] == "open")
            server.disconnect(1, "replaced by a newer session")
            assert one.recv(1) == b""
            closed = events.until(lambda event: event[0] == "closed")
            assert closed == ("closed", 1, "replaced by a newer session")
            server.disconnect(1, "again")
            server.disconnect(77, "never was")
            two.sendall(frame(bytes(16)))
            assert payloads(events, 1) == [bytes(16)]


def test_too_many_connections_are_refused_and_counted(server: FpmServer) -> None:
    with ExitStack() as peers:
        for _ in range(17):
            peers.enter_context(connect(server))
        wait_until(lambda: server.stats()["connections_refused"] == 1, DEADLINE)
        assert server.stats()["connections"] == 16


def test_close_ends_everything(server: FpmServer, events: Drain[Any]) -> None:
    with connect(server) as peer:
        events.until(lambda event: event[0] == "open")
        server.close()
        server.close()
        assert peer.recv(1) == b""
        assert events.until(lambda _: True) == ("closed", 1, "the server was closed")

    def refused() -> bool:
        try:
            connect(server).close()
        except ConnectionRefusedError:
            return True
        return False

    wait_until(refused, DEADLINE)


def test_a_port_in_use_is_an_os_error_with_the_address(server: FpmServer) -> None:
    address = f"127.0.0.1:{server.port()}"
    with pytest.raises(OSError, match=f"listening for FPM on {address}") as caught:
        FpmServer(address)
    assert caught.value.errno == errno.EADDRINUSE


@pytest.mark.parametrize("address", ["", "localhost", "127.0.0.1", "127.0.0.1:99999", ":2620"])
def test_addresses_are_checked(address: str) -> None:
    with pytest.raises(ValueError, match="no listen address"):
        FpmServer(address)
