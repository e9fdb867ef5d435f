# SPDX-License-Identifier: Apache-2.0
"""Serves `GET /metrics` over HTTP/1.1, for Prometheus, on a Unix socket or a loopback address.

The server supports the part of HTTP (RFC 9112) that a scraper needs: one request for each
connection, GET and HEAD of one path. Requests are bounded in size and time, and connections in
number. The server makes only one metrics text at a time. The server does not authenticate clients:
every client that can connect may read the metrics. Use a Unix socket to restrict access by file
permissions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from sluice.api.server import listen
from sluice.connection_config import HostPort, SwitchAddress

log = logging.getLogger(__name__)

PATH = "/metrics"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
HEAD_BYTES = 8192
PATIENCE = 10.0
"""Time for a client to send its request, and again to receive the answer, in seconds."""
LINGERING = 1.0
CONNECTIONS = 8
CHUNK = 1 << 16

Text = Callable[[], Awaitable[str]]


class MetricsServer:
    """Serves the metrics that `text` returns, while the context (``async with``) is active.

    Entering the context raises OSError, with a message for the user, if the server cannot listen.
    """

    def __init__(self, address: SwitchAddress, text: Text) -> None:
        self._address = address
        self._text = text
        self._server: asyncio.Server | None = None
        self.port: int | None = None
        """The server's TCP port, or None on a Unix socket."""
        self._connections: set[asyncio.Task[None]] = set()
        self._making = asyncio.Lock()

    async def __aenter__(self) -> MetricsServer:
        address = self._address
        if isinstance(address, HostPort):
            try:
                self._server = await asyncio.start_server(
                    self._serve, address.host, address.port, limit=HEAD_BYTES
                )
            except OSError as error:
                why = error.strerror or error
                raise OSError(f"metrics.listen: {address}: {why}") from error
            self.port = self._server.sockets[0].getsockname()[1]
        else:
            listener = listen(address.path)
            self._server = await asyncio.start_unix_server(
                self._serve, sock=listener, limit=HEAD_BYTES
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        if not isinstance(self._address, HostPort):
            self._address.path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        try:
            if task is None or len(self._connections) >= CONNECTIONS:
                await self._answer(writer, 503, "too many connections\n")
                await _linger(reader, writer)
                return
            self._connections.add(task)
            async with asyncio.timeout(PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
            await self._respond(head, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            writer.transport.abort()  # the client left or is too slow
        except asyncio.LimitOverrunError:
            await self._answer(writer, 431, "the request is too long\n")
            await _linger(reader, writer)
        finally:
            if task is not None:
                self._connections.discard(task)
            writer.close()

    async def _respond(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            await self._answer(writer, 400, "the request is not HTTP/1.1\n")
            return
        method, target, _ = words
        if target.partition("?")[0] != PATH:
            await self._answer(writer, 404, f"not found: this server has only {PATH}\n")
        elif method not in ("GET", "HEAD"):
            await self._answer(writer, 405, "use GET or HEAD\n", "Allow: GET, HEAD\r\n")
        else:
            async with self._making:
                try:
                    text = await self._text()
                except Exception:
                    log.exception("metrics could not be made")
                    await self._answer(
                        writer, 500, "metrics could not be made; see the controller's log\n"
                    )
                    return
            await self._answer(writer, 200, text, with_body=method == "GET")

    async def _answer(
        self,
        writer: asyncio.StreamWriter,
        status: int,
        text: str,
        more: str = "",
        *,
        with_body: bool = True,
    ) -> None:
        body = text.encode()
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {CONTENT_TYPE}\r\n"
            f"Content-Length: {len(body)}\r\n{more}Connection: close\r\n\r\n"
        )
        writer.write(head.encode())
        for start in range(0, len(body) if with_body else 0, CHUNK):
            writer.write(body[start : start + CHUNK])
            async with asyncio.timeout(PATIENCE):
                await writer.drain()
        async with asyncio.timeout(PATIENCE):
            await writer.drain()


async def _linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reads and drops further input for a short time before the connection is closed.

    Closing a TCP socket with unread input sends a reset, after which the client might lose the
    answer.
    """
    writer.write_eof()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(LINGERING):
            while await reader.read(CHUNK):
                pass


_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
