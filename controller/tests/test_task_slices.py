# SPDX-License-Identifier: Apache-2.0
"""Tests that long walks run in slices, and that groups of tasks end together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

import pytest

from sluice.task_slices import drained, run_until_one_ends, run_until_one_fails


def test_what_is_drained_is_given_once_and_forgotten_at_once() -> None:
    async def scenario() -> None:
        items, found, left = list(range(10)), [], []
        async for part in drained(items, 4):
            found.append(part)
            left.append(len(items))
        assert found == [[6, 7, 8, 9], [2, 3, 4, 5], [0, 1]]
        assert left == [6, 2, 0]

    asyncio.run(scenario())


class Group:
    """Makes coroutines that wait, end or fail, and records which ones were cancelled."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []

    async def wait(self, name: str) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            self.cancelled.append(name)
            raise

    async def end(self) -> None:
        await asyncio.sleep(0)

    async def fail(self) -> None:
        await asyncio.sleep(0)
        raise LookupError("failed")


def test_the_first_end_cancels_the_rest_of_a_group() -> None:
    async def scenario() -> None:
        group = Group()
        await run_until_one_ends([group.wait("a"), group.end(), group.wait("b")])
        assert group.cancelled == ["a", "b"]

    asyncio.run(scenario())


def test_an_end_leaves_a_group_running_that_only_a_failure_ends() -> None:
    async def scenario() -> None:
        group = Group()
        running = asyncio.create_task(run_until_one_fails([group.wait("a"), group.end()]))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not running.done()
        assert group.cancelled == []
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert group.cancelled == ["a"]
        await run_until_one_fails([group.end(), group.end()])

    asyncio.run(scenario())


@pytest.mark.parametrize("run", [run_until_one_ends, run_until_one_fails])
def test_a_failure_is_raised_after_the_rest_has_ended(
    run: Callable[[Iterable[Coroutine[Any, Any, None]]], Awaitable[None]],
) -> None:
    async def scenario() -> None:
        group = Group()
        with pytest.raises(LookupError, match="failed"):
            await run([group.wait("a"), group.fail(), group.wait("b")])
        assert group.cancelled == ["a", "b"]

    asyncio.run(scenario())
