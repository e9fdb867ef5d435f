# SPDX-License-Identifier: Apache-2.0
"""The socket: one line in, one line out, for its group only, honest about what went wrong."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from sluice.api.client import DaemonAbsentError, RequestError, ask
from sluice.api.server import REQUEST_LIMIT, ApiServer, BadRequestError
from sluice.audit_log import ASKED_BY


async def echo(request: dict[str, Any]) -> Any:
    if request.get("what") == "nothing":
        raise BadRequestError("there is: something")
    if request.get("what") == "bug":
        raise RuntimeError("a bug")
    return request


def with_server(path: Path, story: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        async with ApiServer(path, echo):
            await story()

    asyncio.run(run())


def test_question_and_answer(tmp_path: Path) -> None:
    path = tmp_path / "run" / "r1.sock"

    async def story() -> None:
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        big = {"what": "x" * 200_000}
        assert await asyncio.to_thread(ask, path, big) == big
        with pytest.raises(RequestError, match="there is: something"):
            await asyncio.to_thread(ask, path, {"what": "nothing"})
        with pytest.raises(RequestError, match="internal error: a bug"):
            await asyncio.to_thread(ask, path, {"what": "bug"})

    with_server(path, story)
    assert not path.exists()


@pytest.mark.parametrize("line", [b"[]", b"nonsense", b"\xff\xfe", b"1", b'"show"', b"{", b""])
def test_bad_requests_are_answered_and_the_connection_stays(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "r1.sock"

    async def story() -> None:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(line + b"\n" + b'{"what": 1}\n')
        first = json.loads(await reader.readline())
        second = json.loads(await reader.readline())
        assert not first["ok"]
        assert first["error"]
        assert second == {"ok": True, "data": {"what": 1}}
        writer.close()

    with_server(path, story)


def test_a_request_without_end_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "r1.sock"

    async def story() -> None:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"x" * (3 * REQUEST_LIMIT))
        answer = json.loads(await reader.readline())
        assert "at most" in answer["error"]
        writer.close()

    with_server(path, story)


def test_who_asks_is_known_where_the_answer_is_made(tmp_path: Path) -> None:
    path = tmp_path / "r1.sock"

    async def who(request: dict[str, Any]) -> Any:
        # As a commit does, which goes on if the client leaves.
        return await asyncio.create_task(asked_by())

    async def asked_by() -> Any:
        asker = ASKED_BY.get()
        return None if asker is None else asker._asdict()

    async def run() -> None:
        async with ApiServer(path, who):
            assert await asyncio.to_thread(ask, path, {}) == {
                "uid": os.getuid(),
                "pid": os.getpid(),
            }
        assert ASKED_BY.get() is None

    asyncio.run(run())


def test_nobody_there(tmp_path: Path) -> None:
    path = tmp_path / "r1.sock"
    with pytest.raises(DaemonAbsentError, match="sluice run CONFIG"):
        ask(path, {})
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    with pytest.raises(DaemonAbsentError):
        ask(path, {})


def test_a_dead_daemons_socket_is_replaced_and_a_living_ones_is_not(tmp_path: Path) -> None:
    path = tmp_path / "r1.sock"
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()

    async def story() -> None:
        with pytest.raises(OSError, match="another controller answers here"):
            async with ApiServer(path, echo):
                pass
        assert await asyncio.to_thread(ask, path, {"a": 1}) == {"a": 1}

    with_server(path, story)
