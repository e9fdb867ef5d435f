# SPDX-License-Identifier: Apache-2.0
"""Turns: by priority, in slices, without starving anybody."""

from __future__ import annotations

import asyncio
import os

from sluice.scheduler import PATIENCE, Inlet, Scheduler


def test_priority_and_patience() -> None:
    async def story() -> list[str]:
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

    turns = asyncio.run(story())
    assert turns[:PATIENCE] == ["high"] * PATIENCE
    assert 3 <= turns[:40].count("low") <= 6


def test_a_disabled_inlet_keeps_what_it_has() -> None:
    async def story() -> None:
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

    asyncio.run(story())
