# SPDX-License-Identifier: Apache-2.0
"""Tests that the HTTP server for metrics serves one path, and limits the size of requests and the
number of connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from sluice.api import metrics_server
from sluice.api.metrics_server import CONNECTIONS, HEAD_BYTES, MetricsServer
from sluice.connection_config import HostPort, UnixAddress


@asynccontextmanager
async def serving(text: Callable[[], Awaitable[str]]) -> AsyncIterator[int]:
    async with MetricsServer(HostPort("127.0.0.1", 0), text) as server:
        assert server.port is not None
        yield server.port


async def ask(port: int, request: bytes) -> tuple[str, str]:
    """Sends a request to the port and returns the status line and the body of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = (await asyncio.wait_for(reader.read(), 10)).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return head.splitlines()[0], body


async def up() -> str:
    return "up 1\n"


@pytest.mark.parametrize(
    ("request_", "status", "body"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: r1\r\n\r\n", "200 OK", "up 1\n"),
        (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", "200 OK", "up 1\n"),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", "200 OK", ""),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed", "GET or HEAD\n"),
        (b"GET / HTTP/1.1\r\n\r\n", "404 Not Found", "this server has only /metrics"),
        (b"\x16\x03\x01\r\n\r\n", "400 Bad Request", "not HTTP"),
        (b"GET /" + b"x" * HEAD_BYTES + b" HTTP/1.1\r\n\r\n", "431 ", "too long"),
    ],
)
def test_one_path_is_served(request_: bytes, status: str, body: str) -> None:
    async def scenario() -> None:
        async with serving(up) as port:
            first, found = await ask(port, request_)
            assert first.startswith(f"HTTP/1.1 {status}")
            assert body in found
            assert bool(body) == bool(found)

    asyncio.run(scenario())


def test_a_failure_is_logged_and_told(caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> str:
        raise ValueError("secret")

    async def scenario() -> None:
        async with serving(fails) as port:
            first, body = await ask(port, b"GET /metrics HTTP/1.1\r\n\r\n")
            assert "500" in first
            assert "secret" not in body

    asyncio.run(scenario())
    assert "secret" in caplog.text


def test_connections_are_bounded() -> None:
    async def scenario() -> None:
        async with serving(up) as port:
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS)]
            first = ""
            # The server may not have accepted the last silent connection yet, so try again.
            while "503" not in first:
                first, _ = await ask(port, b"GET /metrics HTTP/1.1\r\n\r\n")
            for _, writer in silent:
                writer.close()
            while "200" not in first:
                first, _ = await ask(port, b"GET /metrics HTTP/1.1\r\n\r\n")

    asyncio.run(scenario())


def test_a_unix_socket_has_permissions(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "metrics.sock"
        async with MetricsServer(UnixAddress(path), up):
            assert path.stat().st_mode & 0o777 == 0o660
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert (await reader.read()).endswith(b"up 1\n")
            writer.close()
        assert not path.exists()

    asyncio.run(scenario())


def test_a_client_that_sends_no_request_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "PATIENCE", 0.05)

    async def scenario() -> None:
        async with serving(up) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /metrics HTTP/1.1\r\n")
            with suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(), 10) == b""
            writer.close()

    asyncio.run(scenario())


def test_an_answer_has_its_length_and_type() -> None:
    async def scenario() -> bytes:
        async with serving(up) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"HEAD /metrics HTTP/1.1\r\n\r\n")
            found = await asyncio.wait_for(reader.read(), 10)
            writer.close()
            return found

    lines = asyncio.run(scenario()).decode().split("\r\n")
    assert "Content-Length: 5" in lines
    assert "Content-Type: text/plain; version=0.0.4; charset=utf-8" in lines
    assert "Connection: close" in lines


def test_an_address_in_use_is_named() -> None:
    async def scenario() -> None:
        async with serving(up) as port:
            with pytest.raises(OSError, match=f"metrics.listen: 127.0.0.1:{port}: "):
                async with MetricsServer(HostPort("127.0.0.1", port), up):
                    pass

    asyncio.run(scenario())
