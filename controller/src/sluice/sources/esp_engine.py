# SPDX-License-Identifier: Apache-2.0
"""Sends requests to an ESP engine's admin socket. A request and its answer are one line each
(`wire.esp_admin`).

Only one request is under way at a time. The engine's process must run as this user or as root,
because it receives keys. A line with keys is sent from a buffer of its own, which is overwritten
afterwards. The size of an answer and the time to wait for it are bounded. Depends on wire.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from pathlib import Path
from typing import Any

from sluice.sa_model import (
    EngineRefusalError,
    EngineUnreachableError,
    HeldSa,
    KeyMaterial,
    SaSettings,
)
from sluice.wire.esp_admin import (
    STATUS,
    EngineAnswerError,
    add_request,
    delete_request,
    held_sas,
    parse_answer,
)

PATIENCE = 5.0
"""Longest wait for an answer, in seconds."""
LONGEST_ANSWER = 64 << 20
"""Longest answer, in bytes. An SA takes about 600 bytes."""
CHUNK = 1 << 16
CREDENTIALS = struct.Struct("3i")


class EspEngine:
    """Holds a connection to one engine, which is opened when it is needed.

    Every method except `close` raises EngineUnreachableError if the engine does not answer.
    """

    def __init__(self, path: Path, patience: float = PATIENCE) -> None:
        self.path = path
        self._patience = patience
        self._socket: socket.socket | None = None

    def close(self) -> None:
        """Closes the connection. The next request opens another one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def status(self) -> list[HeldSa]:
        """Returns the SAs that the engine holds."""
        answer = await self._ask(STATUS)
        try:
            return held_sas(answer.get("status"))
        except EngineAnswerError as error:
            raise self._lost(str(error)) from error

    async def add(
        self, settings: SaSettings, number: int, keys: KeyMaterial, *, resume: bool
    ) -> None:
        """Adds an SA to the engine. Raises EngineRefusalError."""
        line = add_request(settings, number, keys, resume=resume)
        try:
            await self._ask(line)
        finally:
            line[:] = bytes(len(line))

    async def delete(self, settings: SaSettings, number: int) -> None:
        """Deletes an SA from the engine. Raises EngineRefusalError."""
        await self._ask(delete_request(settings, number))

    async def _ask(self, line: bytes | bytearray) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._patience):
                connection = self._socket = self._socket or await self._connect()
                await loop.sock_sendall(connection, line)
                answer = await self._receive(connection)
            found = parse_answer(answer)
        except TimeoutError:
            raise self._lost(f"no answer for {self._patience:g} s") from None
        except OSError as error:
            raise self._lost(error.strerror or str(error)) from error
        except EngineAnswerError as error:
            raise self._lost(str(error)) from error
        except asyncio.CancelledError:
            self.close()  # Otherwise a late answer could count as the answer to the next request.
            raise
        if "error" in found:
            raise EngineRefusalError(str(found["error"]))
        return found

    async def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            await asyncio.get_running_loop().sock_connect(connection, str(self.path))
            told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
            _, user, _ = CREDENTIALS.unpack(told)
            if user not in (0, os.geteuid()):
                raise self._lost(
                    f"user {user} owns the engine, but only root or the controller's user may"
                    " receive keys"
                )
        except BaseException:
            connection.close()
            raise
        return connection

    async def _receive(self, connection: socket.socket) -> bytes:
        loop, answer = asyncio.get_running_loop(), bytearray()
        while not answer.endswith(b"\n"):
            part = await loop.sock_recv(connection, CHUNK)
            if not part:
                raise EngineAnswerError("the engine closed the connection")
            answer += part
            if len(answer) > LONGEST_ANSWER:
                raise EngineAnswerError(f"its answer has more than {LONGEST_ANSWER} bytes")
        return bytes(answer)

    def _lost(self, why: str) -> EngineUnreachableError:
        self.close()
        return EngineUnreachableError(f"{self.path}: {why}")
