# SPDX-License-Identifier: Apache-2.0
"""A long walk in slices, and tasks that are waited for a few at a time.

Depends on asyncio, and on p4runtime for the error that ends a session.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import TypeVar

from sluice.p4runtime.session import P4RuntimeError

T = TypeVar("T")


async def in_slices(items: Iterable[T], size: int) -> AsyncIterator[list[T]]:
    """Lists of `size` items, with a turn for the loop after each but the last."""
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part
        if len(part) < size:
            return
        await asyncio.sleep(0)


async def drained(items: list[T], size: int) -> AsyncIterator[list[T]]:
    """As `in_slices`, from the end, and what was given is forgotten: a list of a million items that
    goes at once takes its time."""
    while items:
        part = items[-size:]
        del items[-size:]
        yield part
        await asyncio.sleep(0)


async def some_done(tasks: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    """Waits for at least one task; returns those still under way. Raises what one raised."""
    done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    return rest


async def all_done(tasks: set[asyncio.Task[None]]) -> P4RuntimeError | None:
    """Waits for all; returns the session's end if one of them met it."""
    failed = None
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, P4RuntimeError):
            failed = result
        elif result is not None:
            raise result
    return failed
