# SPDX-License-Identifier: Apache-2.0
"""Tests the API's socket: its line protocol, its access rights for one group, and its error
messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import socket
import stat
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.api import client, request_json
from sluice.api.client import RequestError, ask
from sluice.api.limits import ServerLimits
from sluice.api.rows import Rows
from sluice.api.server import LARGE, ApiServer, BadRequestError, Handler
from sluice.audit_log import REQUESTED_BY


async def echo(request: dict[str, Any]) -> Any:
    if request.get("what") == "nothing":
        raise BadRequestError("there is: something")
    if request.get("what") == "bug":
        raise RuntimeError("a bug")
    if request.get("what") == "bad value":
        raise ValueError("a bad value")
    return request


def with_server(
    path: Path,
    scenario: Callable[[], Awaitable[None]],
    limits: ServerLimits | None = None,
    handler: Handler = echo,
) -> None:
    async def run() -> None:
        async with ApiServer(path, handler, limits):
            await scenario()

    asyncio.run(run())


def test_question_and_answer(tmp_path: Path) -> None:
    path = tmp_path / "run" / "r1.sock"

    async def scenario() -> None:
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        big = {"what": "x" * 200_000}
        assert await asyncio.to_thread(ask, path, big) == big
        with pytest.raises(RequestError, match="there is: something"):
            await asyncio.to_thread(ask, path, {"what": "nothing"})
        with pytest.raises(RequestError, match="internal error: a bug"):
            await asyncio.to_thread(ask, path, {"what": "bug"})
        with pytest.raises(RequestError, match="internal error: a bad value"):
            await asyncio.to_thread(ask, path, {"what": "bad value"})

    with_server(path, scenario)
    assert not path.exists()


def test_a_large_request_is_decoded_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r1.sock"
    threads: list[int] = []
    real = request_json.loads

    def traced(text: str) -> Any:
        threads.append(threading.get_ident())
        return real(text)

    async def length(request: dict[str, Any]) -> Any:
        return len(request["files"][0]["text"])

    async def scenario() -> None:
        text = 'a line with "quotes", an é and a \U0001f600\n' * 40_000
        for number in (1, 40_000):
            some = text[: len(text) // 40_000 * number]
            request = {"files": [{"name": "a", "text": some}]}
            assert await asyncio.to_thread(ask, path, request) == len(some)
        assert len(threads) == 1
        assert threads[0] != threading.get_ident()
        with pytest.raises(RequestError, match="not JSON: Invalid control character"):
            await asyncio.to_thread(_send, path, b'{"x": "' + b"a" * LARGE + b'\x01"}\n')
        with pytest.raises(RequestError, match="not JSON: 'utf-8' codec can't decode byte 0xff"):
            await asyncio.to_thread(_send, path, b'{"x": "' + b"a" * LARGE + b'\xff"}\n')

    monkeypatch.setattr(request_json, "loads", traced)
    with_server(path, scenario, handler=length)


def _send(path: Path, line: bytes) -> None:
    """Sends a line. Raises RequestError, since no test expects another answer."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        connection.sendall(line)
        raise RequestError(json.loads(connection.makefile().readline())["error"])


@pytest.mark.parametrize("line", [b"[]", b"nonsense", b"\xff\xfe", b"1", b'"show"', b"{", b""])
def test_bad_requests_are_answered_and_the_connection_stays(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "r1.sock"

    async def scenario() -> None:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(line + b"\n" + b'{"what": 1}\n')
        first = json.loads(await reader.readline())
        second = json.loads(await reader.readline())
        assert not first["ok"]
        assert first["error"]
        assert second == {"ok": True, "data": {"what": 1}}
        writer.close()

    with_server(path, scenario)


async def answer_to(path: Path, *chunks: bytes) -> dict[str, Any]:
    """Sends raw bytes to the server and returns its answer."""
    reader, writer = await asyncio.open_unix_connection(path, limit=1 << 20)
    for chunk in chunks:
        writer.write(chunk)
    answer: dict[str, Any] = json.loads(await reader.readline())
    writer.close()
    return answer


def test_a_request_without_end_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "r1.sock"

    async def scenario() -> None:
        answer = await answer_to(path, b"x" * (3 << 20))
        assert answer["error"] == f"the request is longer than {2 << 20} bytes"

    with_server(path, scenario, ServerLimits(request_bytes=2 << 20))


def test_the_client_says_how_much_too_large_a_request_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r1.sock"
    request = {"what": "x" * 1000}
    size = len(json.dumps(request))
    with monkeypatch.context() as patched:
        patched.setattr(client, "REQUEST_BYTES", 1000)
        with pytest.raises(RequestError, match=rf"of {size} bytes is over .* limit of 1000"):
            ask(path, request)

    # The server has a lower limit than the client. It closes the connection, so the client's write
    # fails with a broken pipe. The error must still state the server's limit.
    async def scenario() -> None:
        with pytest.raises(RequestError, match="the request is longer than 2000000 bytes"):
            await asyncio.to_thread(ask, path, {"what": "x" * 8_000_000})

    with_server(path, scenario, ServerLimits(request_bytes=2_000_000))


@pytest.mark.parametrize("deep", [b"[", b'{"a":'])
def test_a_request_nested_too_deeply_is_refused(tmp_path: Path, deep: bytes) -> None:
    path = tmp_path / "r1.sock"

    async def scenario() -> None:
        answer = await answer_to(path, deep * 100_000, b"\n")
        assert "nested too deeply" in answer["error"]
        assert await asyncio.to_thread(ask, path, {"what": 1}) == {"what": 1}

    with_server(path, scenario)


def test_who_asks_is_known_where_the_answer_is_made(tmp_path: Path) -> None:
    path = tmp_path / "r1.sock"

    async def who(request: dict[str, Any]) -> Any:
        # Like a commit, the handler runs in a task of its own, which must continue when the client
        # disconnects.
        return await asyncio.create_task(asked_by())

    async def asked_by() -> Any:
        asker = REQUESTED_BY.get()
        return None if asker is None else asker._asdict()

    async def run() -> None:
        async with ApiServer(path, who):
            assert await asyncio.to_thread(ask, path, {}) == {
                "uid": os.getuid(),
                "pid": os.getpid(),
            }
        assert REQUESTED_BY.get() is None

    asyncio.run(run())


def test_connections_are_bounded_and_a_freed_place_is_given_again(tmp_path: Path) -> None:
    path = tmp_path / "r1.sock"

    async def scenario() -> None:
        open_ones = [await asyncio.open_unix_connection(path) for _ in range(2)]
        for reader, writer in open_ones:
            writer.write(b"{}\n")
            assert await reader.readline()
        assert (await answer_to(path, b"{}\n"))["error"] == "2 connections are open already"
        open_ones[0][1].close()

        async def served() -> None:
            while not (await answer_to(path, b"{}\n"))["ok"]:
                pass

        await asyncio.wait_for(served(), 10)
        open_ones[1][1].close()

    with_server(path, scenario, ServerLimits(connections=2))


def test_requests_are_answered_so_many_at_once(tmp_path: Path) -> None:
    path = tmp_path / "r1.sock"
    under_way: list[int] = []
    go_on = asyncio.Event()

    async def wait(request: dict[str, Any]) -> Any:
        under_way.append(request["number"])
        await go_on.wait()
        return None

    async def scenario() -> None:
        asked = [
            asyncio.create_task(asyncio.to_thread(ask, path, {"number": number}))
            for number in range(4)
        ]

        async def two() -> None:
            while len(under_way) < 2:
                await asyncio.sleep(0.01)

        await asyncio.wait_for(two(), 10)
        for _ in range(50):  # enough iterations for a third request to start
            await asyncio.sleep(0)
        assert len(under_way) == 2
        go_on.set()
        await asyncio.gather(*asked)
        assert sorted(under_way) == [0, 1, 2, 3]

    with_server(path, scenario, ServerLimits(answered_at_once=2), wait)


def test_large_requests_are_received_one_after_the_other(tmp_path: Path) -> None:
    """Checks that the server still answers small requests while the client of a large request
    stalls.

    The next large request waits until the stalled one has timed out.
    """
    path = tmp_path / "r1.sock"
    large = {"what": "x" * 100_000}
    limits = ServerLimits(small_bytes=1000, large_at_once=1, patience=0.2)

    async def scenario() -> None:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b'{"what": "' + b"x" * 70_000)
        await writer.drain()
        assert await asyncio.to_thread(ask, path, {"what": 1}) == {"what": 1}
        assert await asyncio.to_thread(ask, path, large) == large
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()

    with_server(path, scenario, limits)


def test_a_client_that_takes_no_answer_is_hung_up_on(tmp_path: Path) -> None:
    path = tmp_path / "r1.sock"

    async def scenario() -> None:
        stalled = socket.socket(socket.AF_UNIX)
        stalled.connect(str(path))
        request = json.dumps({"what": "x" * 4_000_000}).encode() + b"\n"
        await asyncio.to_thread(stalled.sendall, request)
        # The stalled request has the only slot until the server's timeout.
        assert await asyncio.to_thread(ask, path, {"what": 1}) == {"what": 1}
        stalled.close()

    with_server(path, scenario, ServerLimits(answered_at_once=1, patience=0.2))


def rows_of(
    slices: Iterable[list[Any]], more: dict[str, Any] | None = None, ran: list[int] | None = None
) -> Handler:
    """Returns a handler whose answer consists of these slices. Each slice is appended to `ran` when
    it is computed.
    """

    async def made() -> AsyncGenerator[list[Any], None]:
        for number, part in enumerate(slices):
            if ran is not None:
                ran.append(number)
            yield part
            await asyncio.sleep(0)

    async def answer(request: dict[str, Any]) -> Any:
        return Rows(made(), more or {}) if request.get("what") == "rows" else request

    return answer


async def raw(path: Path, request: dict[str, Any]) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path, limit=1 << 26)
    writer.write(json.dumps(request).encode() + b"\n")
    line = await reader.readline()
    writer.close()
    return line


def test_a_list_in_slices_is_one_object_of_json(tmp_path: Path) -> None:
    path = tmp_path / "r1.sock"

    async def scenario() -> None:
        line = await raw(path, {"what": "rows"})
        assert json.loads(line) == {"data": [1, "2\n", {"3": 3}], "next": "on", "ok": True}
        assert line.startswith(b'{"data": [ 1')  # an empty slice is sent as a space

    slices: list[list[Any]] = [[], [1], ["2\n", {"3": 3}], []]
    with_server(path, scenario, handler=rows_of(slices, {"next": "on"}))


def test_a_list_that_fails_on_its_way_says_so_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "r1.sock"

    def slices() -> Iterator[list[Any]]:
        yield [1, 2]
        raise RuntimeError("a bug")

    async def scenario() -> None:
        answer = json.loads(await raw(path, {"what": "rows"}))
        assert (answer["ok"], answer["data"]) == (False, [1, 2])
        assert "internal error: a bug" in answer["error"]
        assert await asyncio.to_thread(ask, path, {"what": 1}) == {"what": 1}

    with_server(path, scenario, handler=rows_of(slices()))


def test_others_are_served_between_the_slices_of_a_list(tmp_path: Path) -> None:
    path = tmp_path / "r1.sock"
    ran: list[int] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        seen: list[int] = []  # number of slices at each call of the timer, which is always due

        def tick() -> None:
            seen.append(len(ran))
            loop.call_soon(tick)

        task = asyncio.create_task(raw(path, {"what": "rows"}))
        while not ran:
            await asyncio.sleep(0)
        tick()
        assert await asyncio.to_thread(ask, path, {"what": 1}) == {"what": 1}
        answered_at = len(ran)
        assert len(json.loads(await task)["data"]) == 20_000 * 10
        assert answered_at < 20_000
        steps = [after - before for before, after in itertools.pairwise(seen)]
        assert max(steps) <= 1  # so the timer ran after every slice

    slices = ([number] * 10 for number in range(20_000))
    with_server(path, scenario, handler=rows_of(slices, ran=ran))


def test_no_more_is_made_than_the_client_takes(tmp_path: Path) -> None:
    path = tmp_path / "r1.sock"
    ran: list[int] = []

    async def scenario() -> None:
        stalled = socket.socket(socket.AF_UNIX)
        stalled.connect(str(path))
        stalled.sendall(b'{"what": "rows"}\n')
        # The stalled request has the only slot until the server's timeout.
        assert await asyncio.to_thread(ask, path, {"what": 1}) == {"what": 1}
        assert len(ran) * 10_000 < 2_000_000  # the buffers of client and server together hold less
        stalled.close()

    limits = ServerLimits(answered_at_once=1, patience=0.2)
    with_server(path, scenario, limits, rows_of(itertools.repeat(["x" * 10_000]), ran=ran))


def test_a_dead_daemons_socket_is_replaced_and_a_living_ones_is_not(tmp_path: Path) -> None:
    path = tmp_path / "r1.sock"
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()

    async def scenario() -> None:
        with pytest.raises(OSError, match="another controller answers here"):
            async with ApiServer(path, echo):
                pass
        assert await asyncio.to_thread(ask, path, {"a": 1}) == {"a": 1}

    with_server(path, scenario)
