# SPDX-License-Identifier: Apache-2.0
"""The local API's server: requests in, answers out, no policy of its own.

`ApiServer` listens while it is entered (``async with``). A socket file that a dead daemon left is
replaced; one on which somebody answers is not, and starting fails with a sentence.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from sluice.audit_log import ASKED_BY, Asker

log = logging.getLogger(__name__)

REQUEST_LIMIT = 1 << 22  # an SPD of some ten thousand rules
MODE = 0o660
_CREDENTIALS = struct.Struct("3i")

Handler = Callable[[dict[str, Any]], Awaitable[Any]]


class BadRequestError(Exception):
    """What the request asks for is not to be had; the text says why and what is."""


class ApiServer:
    """A Unix socket on which `handler` answers."""

    def __init__(self, path: Path, handler: Handler) -> None:
        self._path = path
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> ApiServer:
        listener = listen(self._path)
        self._server = await asyncio.start_unix_server(
            self._serve, sock=listener, limit=REQUEST_LIMIT
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ASKED_BY.set(_asker(writer))
        task = asyncio.current_task()
        if task is not None:
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
        try:
            while line := await reader.readline():
                writer.write(json.dumps(await self._answer(line)).encode() + b"\n")
                await writer.drain()
        except ConnectionError:
            pass  # the client left
        except ValueError:
            too_long = {"ok": False, "error": f"a request is at most {REQUEST_LIMIT} bytes"}
            writer.write(json.dumps(too_long).encode() + b"\n")
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise BadRequestError("a request is a JSON object")
            return {"ok": True, "data": await self._handler(request)}
        except BadRequestError as error:
            return {"ok": False, "error": str(error)}
        except ValueError as error:
            return {"ok": False, "error": f"not JSON: {error}"}
        except Exception as error:
            log.exception("API request failed: %r", line[:200])
            return {
                "ok": False,
                "error": f"internal error: {error}; the controller's log says more",
            }


def _asker(writer: asyncio.StreamWriter) -> Asker:
    """Returns the process that connected, as the kernel knows it (SO_PEERCRED)."""
    connection = writer.get_extra_info("socket")
    size = _CREDENTIALS.size
    pid, uid, _ = _CREDENTIALS.unpack(
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    )
    return Asker(uid, pid)


def listen(path: Path) -> socket.socket:
    """A listening socket of mode 0660. Raises OSError in a sentence."""
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
