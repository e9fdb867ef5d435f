# SPDX-License-Identifier: Apache-2.0
"""Iterates in slices, with a yield to the event loop after each slice. Runs groups of tasks.

Depends on asyncio, and on p4runtime for the error that ends a session.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from itertools import islice
from typing import Any, TypeVar

from sluice.p4runtime.session import P4RuntimeError

T = TypeVar("T")


async def in_slices(items: Iterable[T], size: int) -> AsyncIterator[list[T]]:
    """Yields lists of `size` items. Yields to the event loop after each list except the last."""
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part
        if len(part) < size:
            return
        await asyncio.sleep(0)


async def drained(items: list[T], size: int) -> AsyncIterator[list[T]]:
    """Yields lists like `in_slices`, but from the end, and removes the items from `items`.

    Freed at once, a list of a million items would block the event loop.
    """
    while items:
        part = items[-size:]
        del items[-size:]
        yield part
        await asyncio.sleep(0)


async def call(function: Callable[[], T], *, in_thread: bool) -> T:
    """Returns the result of a function, called in a thread if that takes long.

    In that case, the event loop serves packets meanwhile.
    """
    return await asyncio.to_thread(function) if in_thread else function()


async def some_done(tasks: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    """Waits for at least one task. Returns the unfinished tasks. Raises a task's exception."""
    done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    return rest


async def all_done(tasks: set[asyncio.Task[None]]) -> P4RuntimeError | None:
    """Waits for all tasks. Returns a task's P4RuntimeError, or None. Raises other exceptions."""
    failed = None
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, P4RuntimeError):
            failed = result
        elif result is not None:
            raise result
    return failed


async def run_until_one_ends(coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Runs coroutines concurrently until one of them ends, and raises its exception.

    The other coroutines are cancelled, and have ended when this function returns.
    """
    await _run(coroutines, asyncio.FIRST_COMPLETED)


async def run_until_one_fails(coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Runs coroutines concurrently until all have ended or one has failed, and raises its
    exception.

    The other coroutines are cancelled, and have ended when this function returns.
    """
    await _run(coroutines, asyncio.FIRST_EXCEPTION)


async def _run(coroutines: Iterable[Coroutine[Any, Any, None]], until: str) -> None:
    tasks = [asyncio.create_task(each) for each in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=until)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
