# SPDX-License-Identifier: Apache-2.0
"""Tests the notifications to a service manager."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.service_manager import ServiceManager


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.settimeout(10)
        listener.bind(str(tmp_path / "notify"))
        yield listener


def test_ready_is_heard(manager: socket.socket) -> None:
    told = ServiceManager.from_environment({"NOTIFY_SOCKET": manager.getsockname()})
    told.notify("READY=1")
    assert manager.recv(100) == b"READY=1"


def test_an_abstract_socket_is_reached_too() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.settimeout(10)
        listener.bind(f"\0sluice-test-{os.getpid()}")
        ServiceManager(f"@sluice-test-{os.getpid()}").notify("STOPPING=1")
        assert listener.recv(100) == b"STOPPING=1"


def test_signs_of_life_come_while_the_loop_turns(manager: socket.socket) -> None:
    async def run() -> None:
        told = ServiceManager(manager.getsockname(), 0.001)
        task = asyncio.create_task(told.keep_informed())
        for _ in range(3):
            assert await asyncio.to_thread(manager.recv, 100) == b"WATCHDOG=1"
        task.cancel()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("environment", "interval"),
    [
        ({"WATCHDOG_USEC": "3000000"}, 1.5),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 1.5),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_signs_of_life_come_twice_in_the_manager_s_time(
    environment: dict[str, str], interval: float | None
) -> None:
    found = ServiceManager.from_environment({"NOTIFY_SOCKET": "/nowhere"} | environment)
    assert found.interval == interval


def test_a_manager_that_is_gone_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    ServiceManager("/nowhere/notify").notify("READY=1")
    assert "No such file" in caplog.text
    caplog.clear()
    ServiceManager.from_environment({}).notify("READY=1")
    assert caplog.text == ""
