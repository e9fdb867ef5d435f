# SPDX-License-Identifier: Apache-2.0
"""Tests the client with daemons that answer badly, answer late or do not answer."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from sluice.api import client
from sluice.api.client import DaemonAbsentError, RequestError, answer, ask


@contextmanager
def daemon(path: Path, *chunks: bytes) -> Iterator[list[bytes]]:
    """Answers one request with these pieces of bytes, then closes the socket.

    Yields a list, to which each received request is added.
    """
    received: list[bytes] = []
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as file:
            received.append(file.readline())
            for chunk in chunks:
                connection.sendall(chunk)

    thread = Thread(target=serve)
    thread.start()
    try:
        yield received
    finally:
        thread.join(10)
        listener.close()
        path.unlink()


def test_one_line_each_way(tmp_path: Path) -> None:
    path = tmp_path / "r1.sock"
    with daemon(path, b'{"ok": true, "data": [1, 2]}\n') as received:
        assert ask(path, {"command": "show", "what": "spd"}) == [1, 2]
    assert received[0].endswith(b"\n")
    assert json.loads(received[0]) == {"command": "show", "what": "spd"}


def test_an_answer_in_pieces_with_another_page(tmp_path: Path) -> None:
    path = tmp_path / "r1.sock"
    text = json.dumps({"ok": True, "data": ["x" * 200_000], "next": {"after": "1.0.0.0/8"}})
    octets = text.encode()
    with daemon(path, octets[:10], octets[10:], b"\n"):
        found = answer(path, {})
    assert found["data"] == ["x" * 200_000]
    assert found["next"] == {"after": "1.0.0.0/8"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"ok": false, "error": "there is no VRF red"}\n', "^there is no VRF red$"),
        (b'{"ok": false}\n', "the answer is invalid"),
        (b"[1]\n", r"the answer is invalid: \[1\]"),
        (b"{\n", "r1.sock: "),
        (b"", "closed the connection without an answer"),
        (b'{"ok": true', "closed the connection without an answer"),
    ],
)
def test_an_answer_that_is_an_error_or_none(tmp_path: Path, line: bytes, said: str) -> None:
    path = tmp_path / "r1.sock"
    with daemon(path, line), pytest.raises(RequestError, match=said):
        ask(path, {})


def test_no_daemon(tmp_path: Path) -> None:
    path = tmp_path / "r1.sock"
    with pytest.raises(DaemonAbsentError, match="sluice run CONFIG"):
        ask(path, {})
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    with pytest.raises(DaemonAbsentError, match="--socket"):
        ask(path, {})


def test_a_daemon_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "TIMEOUT", 0.05)
    path = tmp_path / "r1.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with pytest.raises(RequestError, match="no answer within"):
            ask(path, {})


def test_a_path_that_is_no_socket(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="too long"):
        ask(tmp_path / ("x" * 200), {})


def test_a_request_over_the_limit_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "REQUEST_BYTES", 20)
    path = tmp_path / "r1.sock"
    with pytest.raises(DaemonAbsentError):
        ask(path, {"rules": "x" * 7})  # the request has 20 bytes
    with pytest.raises(RequestError, match=r"21 bytes is over the .* limit of 20"):
        ask(path, {"rules": "x" * 8})
