# SPDX-License-Identifier: Apache-2.0
"""Tests when the event loop computes the slices of views.

Views wait for more urgent work, but are not starved. Several views take turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from sluice.scheduler import PATIENCE, Inlet, Scheduler
from sluice.turns import Turns


def run_scenario(scenario: Callable[[Scheduler, Turns], Awaitable[None]]) -> None:
    async def scene() -> None:
        scheduler = Scheduler()
        turns = Turns(scheduler, "views", 6)
        task = asyncio.create_task(scheduler.run())
        await asyncio.sleep(0)
        try:
            await asyncio.wait_for(scenario(scheduler, turns), 10)
        finally:
            task.cancel()

    asyncio.run(scene())


def test_urgent_work_goes_first_and_a_view_gets_on_all_the_same() -> None:
    async def scenario(scheduler: Scheduler, turns: Turns) -> None:
        log: list[str] = []

        def drain() -> bool:
            log.append("punts")
            return len(log) < 500

        punts = Inlet("punts", 2, drain)
        scheduler.add(punts)
        scheduler.wake(punts)
        for _ in range(10):
            await turns.next()
            log.append("view")
        assert log.count("punts") >= 10 * (PATIENCE - 1)
        assert log.index("view") >= PATIENCE - 1

    run_scenario(scenario)


def test_tasks_share_the_turns() -> None:
    async def scenario(scheduler: Scheduler, turns: Turns) -> None:
        log: list[int] = []

        async def view(number: int) -> None:
            for _ in range(5):
                await turns.next()
                log.append(number)

        await asyncio.gather(view(1), view(2))
        assert log == [1, 2] * 5

    run_scenario(scenario)


def test_a_task_that_was_cancelled_holds_nobody_up() -> None:
    async def scenario(scheduler: Scheduler, turns: Turns) -> None:
        gone = asyncio.create_task(turns.next())
        await asyncio.sleep(0)
        gone.cancel()
        await turns.next()
        assert gone.cancelled()

    run_scenario(scenario)


def test_without_a_scheduler_at_work_the_loop_has_its_turn() -> None:
    async def scene() -> None:
        turns = Turns(Scheduler(), "views", 6)
        log: list[str] = []
        asyncio.get_running_loop().call_soon(log.append, "loop")
        await turns.next()
        assert log == ["loop"]

    asyncio.run(scene())
