# SPDX-License-Identifier: Apache-2.0
"""Runs the local API's server: reads requests and sends the handler's answers.

Long answers are encoded and sent in slices. After each slice, the server awaits `turn`, so that
the event loop can serve other work, and waits until the client has received the slice.

`ApiServer` listens while its context (``async with``) is active. If the socket file of a dead
daemon exists, the server replaces the file. If another daemon answers on the socket, the start
fails with an explanation. `limits` bounds the connections, the concurrent requests and their bytes.
A refused client receives the reason.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, aclosing, suppress
from pathlib import Path
from typing import Any, TypeAlias

from sluice.api import request_json
from sluice.api.limits import ServerLimits
from sluice.api.rows import Rows, WaitForTurn, pieces
from sluice.audit_log import REQUESTED_BY, Requester
from sluice.turns import EndedError

log = logging.getLogger(__name__)

MODE = 0o660
_CREDENTIALS = struct.Struct("3i")
SHOWN_BYTES = 200
"""Bytes of a failed request that the log shows."""
CHUNK = 1 << 16
LARGE = 1 << 20
"""Bytes of a request from which on it is decoded in another thread."""

Handler = Callable[[dict[str, Any]], Awaitable[Any]]
MeasuredWork: TypeAlias = Callable[[str, Awaitable[None]], Coroutine[Any, Any, None]]


async def _unmeasured(name: str, work: Awaitable[None]) -> None:
    await work


async def _yield() -> None:
    await asyncio.sleep(0)


class BadRequestError(Exception):
    """Raised for a request that cannot be answered. The text has the reason and alternatives."""


class _TooLongError(Exception):
    """Raised when a request exceeds the size limit. The server then closes the connection."""


class ApiServer:
    """Serves a Unix socket. `handler` answers the requests, with plain data or with `Rows`.

    `turn` is awaited between two slices of an answer. `measured` measures the time of the work on
    each request.
    """

    def __init__(
        self,
        path: Path,
        handler: Handler,
        limits: ServerLimits | None = None,
        *,
        turn: WaitForTurn = _yield,
        measured: MeasuredWork = _unmeasured,
    ) -> None:
        self._path = path
        self._handler = handler
        self._turn = turn
        self._measured = measured
        self._limits = limits or ServerLimits()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._answering = asyncio.Semaphore(self._limits.answered_at_once)
        self._large = asyncio.Semaphore(self._limits.large_at_once)

    async def __aenter__(self) -> ApiServer:
        listener = listen(self._path)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=CHUNK)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        REQUESTED_BY.set(_requester(writer))
        try:
            if len(self._connections) >= self._limits.connections:
                await self._send(
                    writer, _refusal(f"{len(self._connections)} connections are open already")
                )
                return
            task = asyncio.current_task()
            if task is not None:
                self._connections.add(task)
                task.add_done_callback(self._connections.discard)
            await self._answer_requests(_Lines(reader, self._limits, self._large), writer)
        except ConnectionError:
            pass  # the client left
        except TimeoutError:
            log.warning("API: a client stalled for %g s; connection closed", self._limits.patience)
            writer.transport.abort()
        finally:
            writer.close()

    async def _answer_requests(self, lines: _Lines, writer: asyncio.StreamWriter) -> None:
        while True:
            async with AsyncExitStack() as permits:
                try:
                    line = await lines.next(permits)
                except _TooLongError as error:
                    await self._send(writer, _refusal(str(error)))
                    await lines.discard()
                    return
                if not line:
                    return
                async with self._answering:
                    answer = self._answer(line, writer)
                    del line  # frees a large request
                    await self._measured("API", answer)

    async def _send(self, writer: asyncio.StreamWriter, answer: dict[str, Any]) -> None:
        """Sends an answer. Returns when the client has received nearly the whole answer.

        Raises TimeoutError.
        """
        text: list[str] = []
        size = 0
        for piece in pieces(answer):
            text.append(piece)
            size += len(piece)
            if size >= CHUNK:
                await self._write(writer, "".join(text))
                text, size = [], 0
                await self._turn()
        await self._write(writer, "".join(text) + "\n")

    async def _send_rows(self, writer: asyncio.StreamWriter, rows: Rows, line: bytes) -> None:
        """Sends a list slice by slice, as the slices are made. `ok` or an error follows the list.

        An empty slice is sent as a space. So a client does not time out while a search finds
        nothing. The write also fails if the client has left, which ends the search.
        """
        await self._write(writer, '{"data": [')
        before = ""
        end: dict[str, Any] = {"ok": True}
        async with aclosing(_with_failure(rows, line)) as slices:
            async for part in slices:
                if isinstance(part, dict):
                    end = part
                elif part:
                    await self._write(writer, before + json.dumps(part)[1:-1])
                    before = ", "
                else:
                    await self._write(writer, " ")
        await self._write(writer, "], " + json.dumps(rows.more | end)[1:] + "\n")

    async def _write(self, writer: asyncio.StreamWriter, text: str) -> None:
        writer.write(text.encode())
        async with asyncio.timeout(self._limits.patience):
            await writer.drain()

    async def _answer(self, line: bytearray, writer: asyncio.StreamWriter) -> None:
        shown = bytes(line[:SHOWN_BYTES])
        try:
            if len(line) > LARGE:
                request = await asyncio.to_thread(_parse_large, line)
            else:
                request = _parse(line)
            data = await self._handler(request)
        except Exception as error:
            await self._send(writer, _failure(error, shown))
        else:
            if isinstance(data, Rows):
                await self._send_rows(writer, data, shown)
            else:
                await self._send(writer, {"ok": True, "data": data})


async def _with_failure(
    rows: Rows, line: bytes
) -> AsyncGenerator[list[Any] | dict[str, Any], None]:
    """Yields the slices. If a slice cannot be made, yields the answer for the error and ends."""
    async with aclosing(rows.slices) as slices:
        try:
            async for part in slices:
                yield part
        except Exception as error:
            yield _failure(error, line)


def _parse(line: bytearray, decode: Callable[[bytearray], Any] = json.loads) -> dict[str, Any]:
    """Returns a request. Raises BadRequestError, or RecursionError if it is nested too deeply."""
    try:
        request = decode(line)
    except ValueError as error:
        raise BadRequestError(f"not JSON: {error}") from None
    if not isinstance(request, dict):
        raise BadRequestError("a request must be a JSON object")
    return request


def _parse_large(line: bytearray) -> dict[str, Any]:
    """Returns a large request, like `_parse`. Empties `line`, which takes memory.

    Other threads run meanwhile.
    """

    def decode(line: bytearray) -> Any:
        text = line.decode("utf-8", "surrogatepass")
        line.clear()
        return request_json.loads(text)

    return _parse(line, decode)


def _failure(error: Exception, line: bytes) -> dict[str, Any]:
    """Returns the answer for an exception."""
    if isinstance(error, (BadRequestError, EndedError)):
        return _refusal(str(error))
    if isinstance(error, RecursionError):
        return _refusal("lists and objects are nested too deeply; no request needs that")
    log.error("API request failed: %r", line[:SHOWN_BYTES], exc_info=error)
    return _refusal(f"internal error: {error}; see the controller's log")


class _Lines:
    """Reads the requests of one connection, one per line. The last line may lack its line feed."""

    def __init__(
        self, reader: asyncio.StreamReader, limits: ServerLimits, large: asyncio.Semaphore
    ) -> None:
        self._reader = reader
        self._limits = limits
        self._large = large
        self._buffer = bytearray()

    async def next(self, permits: AsyncExitStack) -> bytearray:
        """Returns the next request, or nothing if the client has closed the connection.

        A large request first waits for a permit of the semaphore `large`. Closing `permits` returns
        the permit. Raises _TooLongError, TimeoutError.
        """
        searched, limits = 0, self._limits
        async with AsyncExitStack() as reading:
            deadline = await reading.enter_async_context(asyncio.timeout(None))
            while (end := self._buffer.find(b"\n", searched)) < 0:
                searched = len(self._buffer)
                if searched > limits.request_bytes:
                    break
                if searched > limits.small_bytes and deadline.when() is None:
                    await permits.enter_async_context(self._large)
                    now = asyncio.get_running_loop().time()
                    deadline.reschedule(now + limits.patience)
                chunk = await self._reader.read(CHUNK)
                if not chunk:
                    end = len(self._buffer)
                    break
                self._buffer += chunk
        if end < 0 or end > limits.request_bytes:
            raise _TooLongError(f"the request is longer than {limits.request_bytes} bytes")
        if end + 1 >= len(self._buffer):  # without a copy of a large request
            line, self._buffer = self._buffer, bytearray()
            return line
        line = self._buffer[: end + 1]
        del self._buffer[: end + 1]
        return line

    async def discard(self) -> None:
        """Reads and drops further input before the connection is closed.

        After a close with unread input, the client might lose the refusal.
        """
        self._buffer.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.patience):
                while await self._reader.read(CHUNK):
                    pass


def _refusal(error: str) -> dict[str, Any]:
    return {"ok": False, "error": error}


def _requester(writer: asyncio.StreamWriter) -> Requester:
    """Returns the user and process that connected (SO_PEERCRED)."""
    connection = writer.get_extra_info("socket")
    size = _CREDENTIALS.size
    pid, uid, _ = _CREDENTIALS.unpack(
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    )
    return Requester(uid, pid)


def listen(path: Path) -> socket.socket:
    """Returns a listening socket of mode 0660. Raises OSError with a message for the user."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_socket() and _answers(path):
        raise OSError(f"{path}: another controller answers here; stop it or set api.socket")
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    before = os.umask(0o777 & ~MODE)
    try:
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        raise OSError(f"{path}: cannot listen: {error.strerror or error}") from error
    finally:
        os.umask(before)
    listener.listen(16)
    return listener


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True
