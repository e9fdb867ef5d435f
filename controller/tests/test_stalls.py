# SPDX-License-Identifier: Apache-2.0
"""Tests the measurement of the event loop's stalls, with a clock that the test sets."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable

import pytest

from sluice.scheduler import Inlet, Scheduler
from sluice.stalls import GARBAGE, LEAST, LOOP, LongestStalls, Stalls, measured_loop


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def run_scenario(scenario: Callable[[Stalls, Clock], Awaitable[None]]) -> dict[str, LongestStalls]:
    clock = Clock()
    stalls = Stalls(clock)
    with asyncio.Runner(loop_factory=lambda: measured_loop(stalls)) as runner:

        async def scene() -> None:
            await asyncio.sleep(0)
            await scenario(stalls, clock)

        runner.run(scene())
    return stalls.longest()


def test_the_longest_ever_and_in_the_last_minute() -> None:
    clock = Clock()
    stalls = Stalls(clock)
    assert stalls.longest() == {LOOP: (0.0, 0.0)}
    stalls.note("views", 0.030)
    clock.now += 30
    stalls.note("views", 0.010)
    stalls.note("views", LEAST / 2)
    assert stalls.longest()["views"] == (0.030, 0.030)
    clock.now += 40
    assert stalls.longest()["views"] == (0.030, 0.010)
    clock.now += 40
    assert stalls.longest()["views"] == (0.030, 0.0)
    clock.now += 1000
    stalls.note("views", 0.020)
    assert stalls.longest()["views"] == (0.030, 0.020)


def test_a_turn_of_the_loop_is_all_that_ran_in_it() -> None:
    async def scenario(stalls: Stalls, clock: Clock) -> None:
        async def work(seconds: float) -> None:
            clock.now += seconds

        await asyncio.gather(work(0.5), work(0.25))
        await asyncio.sleep(0)

    assert run_scenario(scenario)[LOOP].ever == pytest.approx(0.75)


def test_waiting_is_no_stall() -> None:
    """Checks that waiting in the selector is not a stall.

    This test uses the real clock.
    """
    stalls = Stalls()
    with asyncio.Runner(loop_factory=lambda: measured_loop(stalls)) as runner:
        runner.run(asyncio.sleep(0.01))
        stalls.forget()
        runner.run(asyncio.sleep(2.0))
    assert stalls.longest()[LOOP].ever < 1.0


def test_each_turn_of_a_coroutine_counts_and_its_waiting_does_not() -> None:
    async def scenario(stalls: Stalls, clock: Clock) -> None:
        waits = asyncio.Event()

        async def work() -> str:
            clock.now += 0.2
            await waits.wait()
            clock.now += 0.1
            await asyncio.sleep(0)
            return "done"

        task = asyncio.create_task(stalls.measured("work", work()))
        await asyncio.sleep(0)
        clock.now += 5
        waits.set()
        assert await task == "done"

    assert run_scenario(scenario)["work"].ever == pytest.approx(0.2)


def test_cancelling_and_failing_pass_through() -> None:
    async def scenario(stalls: Stalls, clock: Clock) -> None:
        ended: list[str] = []

        async def work() -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                clock.now += 0.3
                ended.append("cancelled")
                raise

        async def fail() -> None:
            raise ValueError("a bug")

        task = asyncio.create_task(stalls.measured("work", work()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == ["cancelled"]
        with pytest.raises(ValueError, match="a bug"):
            await stalls.measured("fail", fail())

    assert run_scenario(scenario)["work"].ever == pytest.approx(0.3)


def test_an_inlet_has_its_name() -> None:
    async def scenario(stalls: Stalls, clock: Clock) -> None:
        scheduler = Scheduler(stalls)
        done = asyncio.Event()

        def drain() -> bool:
            clock.now += 0.04
            done.set()
            return False

        inlet = Inlet("routes", 1, drain)
        scheduler.add(inlet)
        scheduler.wake(inlet)
        task = asyncio.create_task(scheduler.run())
        await done.wait()
        task.cancel()

    assert run_scenario(scenario)["routes"].ever == pytest.approx(0.04)


def test_garbage_collections_have_theirs() -> None:
    clock = Clock()
    stalls = Stalls(clock)

    class Slow:
        def __del__(self) -> None:
            clock.now += 0.06

    end = stalls.watch_garbage()
    try:
        slow = Slow()
        slow.itself = slow  # type: ignore[attr-defined]
        del slow
        gc.collect()
    finally:
        end()
    assert stalls.longest()[GARBAGE].ever == pytest.approx(0.06)
    gc.collect()
