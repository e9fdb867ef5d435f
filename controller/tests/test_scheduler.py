# SPDX-License-Identifier: Apache-2.0
"""Tests the scheduler: priorities, slices, and the absence of starvation."""

from __future__ import annotations

import asyncio
import os

import pytest

from sluice.scheduler import PATIENCE, Inlet, Scheduler


def test_priority_and_patience() -> None:
    async def scenario() -> list[str]:
        turns: list[str] = []
        scheduler = Scheduler()
        enough = asyncio.Event()

        def take(name: str) -> bool:
            turns.append(name)
            if len(turns) == 40:
                enough.set()
            return True

        low = Inlet("low", 2, lambda: take("low"))
        high = Inlet("high", 1, lambda: take("high"))
        for inlet in (low, high):
            scheduler.add(inlet)
            scheduler.wake(inlet)
        task = asyncio.create_task(scheduler.run())
        await enough.wait()
        task.cancel()
        return turns

    turns = asyncio.run(scenario())
    assert turns[:PATIENCE] == ["high"] * PATIENCE
    assert 3 <= turns[:40].count("low") <= 6


def test_a_disabled_inlet_keeps_what_it_has() -> None:
    async def scenario() -> None:
        reader, writer = os.pipe()
        got: list[bytes] = []
        scheduler = Scheduler()

        def drain() -> bool:
            got.append(os.read(reader, 1))
            return False

        inlet = Inlet("pipe", 1, drain, reader)
        scheduler.add(inlet)
        scheduler.enable(inlet, False)
        task = asyncio.create_task(scheduler.run())
        os.write(writer, b"ab")
        for _ in range(10):
            await asyncio.sleep(0)
        assert got == []
        scheduler.enable(inlet, True)
        while len(got) < 2:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        os.close(reader)
        os.close(writer)
        assert got == [b"a", b"b"]

    asyncio.run(scenario())


def test_a_lone_piece_of_work_is_served_at_once() -> None:
    async def scenario() -> None:
        scheduler = Scheduler()
        served: list[str] = []

        def drain(name: str) -> bool:
            served.append(name)
            return False

        lone = Inlet("lone", 2, lambda: drain("lone"))
        other = Inlet("other", 1, lambda: drain("other"))
        for inlet in (lone, other):
            scheduler.add(inlet)
        task = asyncio.create_task(scheduler.run())
        scheduler.serve(lone)
        assert served == []  # the scheduler has not run yet
        await asyncio.sleep(0)
        assert served == ["lone"]
        await asyncio.sleep(0)
        scheduler.serve(lone)
        assert served == ["lone", "lone"]
        scheduler.wake(other)
        scheduler.serve(lone)
        assert served == ["lone", "lone"]  # `lone` waits behind the more urgent inlet
        while len(served) < 4:
            await asyncio.sleep(0)
        assert served[2:] == ["other", "lone"]
        await asyncio.sleep(0)
        scheduler.enable(lone, False)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        scheduler.serve(lone)
        await asyncio.sleep(0)
        assert len(served) == 4
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())


def test_what_is_left_of_it_and_what_goes_wrong_are_the_tasks() -> None:
    async def scenario() -> None:
        scheduler = Scheduler()
        left = [3]

        def drain() -> bool:
            left[0] -= 1
            if left[0] < 0:
                raise ZeroDivisionError
            return left[0] > 0

        inlet = Inlet("inlet", 1, drain)
        scheduler.add(inlet)
        task = asyncio.create_task(scheduler.run())
        await asyncio.sleep(0)
        scheduler.serve(inlet)
        assert left == [2]
        while left[0]:
            await asyncio.sleep(0)
        for _ in range(3):
            await asyncio.sleep(0)
        scheduler.serve(inlet)
        with pytest.raises(ZeroDivisionError):
            await task

    asyncio.run(scenario())
