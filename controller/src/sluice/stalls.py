# SPDX-License-Identifier: Apache-2.0
"""Measures stalls of the event loop: the longest times without a yield, by the name of the task.

A long step delays every packet, timer and client. There are three ways to measure:

- `Stalls.note` records a duration that the caller has measured;
- `measured` records each step of a coroutine, from resumption to yield;
- `measured_loop` creates an event loop that records each of its own iterations under the name
  `LOOP`: all that runs between two polls of the file descriptors.

Times are wall-clock seconds, so they include time in which other processes ran. To keep measuring
cheap, times shorter than `LEAST` are not recorded. Depends on asyncio only.
"""

from __future__ import annotations

import asyncio
import gc
import selectors
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, NamedTuple, TypeVar

LOOP = "loop"
"""Name under which the iterations of the event loop are recorded."""
GARBAGE = "garbage collection"
LEAST = 0.0005
MINUTE, PART = 60, 10
"""Length of the window of the last minute, and of one of its buckets, in seconds."""

T = TypeVar("T")


class LongestStalls(NamedTuple):
    """Holds the longest stalls recorded under one name, in seconds."""

    ever: float
    last_minute: float


class Stalls:
    """Records the longest stalls since the start and in the last minute, by name."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._ever: dict[str, float] = {}
        self._parts: dict[str, dict[int, float]] = {}
        self.forget()
        self._collecting = 0.0

    def note(self, name: str, seconds: float) -> None:
        """Records that `name` ran for `seconds` without yielding to the loop."""
        if seconds < LEAST:
            return
        self._ever[name] = max(seconds, self._ever.get(name, 0.0))
        parts = self._parts.setdefault(name, {})
        now = int(self.clock() // PART)
        if now not in parts:
            for old in [part for part in parts if part <= now - MINUTE // PART]:
                del parts[old]
        parts[now] = max(seconds, parts.get(now, 0.0))

    def longest(self) -> dict[str, LongestStalls]:
        """Returns the longest stall of each name that had one."""
        first = int(self.clock() // PART) - MINUTE // PART
        return {
            name: LongestStalls(
                ever,
                max(
                    (s for part, s in self._parts.get(name, {}).items() if part > first),
                    default=0.0,
                ),
            )
            for name, ever in self._ever.items()
        }

    def forget(self) -> None:
        """Forgets all recorded times."""
        self._ever = {LOOP: 0.0}
        self._parts = {}

    async def measured(self, name: str, work: Awaitable[T]) -> T:
        """Awaits `work` and records the time of each of its steps."""
        return await _Steps(self, name, work)

    def watch_garbage(self) -> Callable[[], None]:
        """Records garbage collections from now on. Returns a function that stops the recording."""
        gc.callbacks.append(self._collected)
        return lambda: gc.callbacks.remove(self._collected)

    def _collected(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._collecting = self.clock()
        else:
            self.note(GARBAGE, self.clock() - self._collecting)


class _Steps(Awaitable[T]):
    """Wraps an awaitable to measure the duration of each of its steps."""

    def __init__(self, stalls: Stalls, name: str, work: Awaitable[T]) -> None:
        self._stalls = stalls
        self._name = name
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._work.__await__()
        clock, note = self._stalls.clock, self._stalls.note
        error: BaseException | None = None
        while True:
            began = clock()
            try:
                awaited = next(steps) if error is None else steps.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                note(self._name, clock() - began)
            error = None
            try:
                yield awaited
            except BaseException as thrown:
                error = thrown


class _MeasuredSelector(selectors.DefaultSelector):
    """Measures the time from the end of one poll of the file descriptors to the start of the
    next."""

    def __init__(self, stalls: Stalls) -> None:
        super().__init__()
        self._stalls = stalls
        self._returned: float | None = None

    def select(self, timeout: float | None = None) -> Any:
        if self._returned is not None:
            self._stalls.note(LOOP, self._stalls.clock() - self._returned)
        try:
            return super().select(timeout)
        finally:
            self._returned = self._stalls.clock()


def measured_loop(stalls: Stalls) -> asyncio.AbstractEventLoop:
    """Returns a new event loop whose iterations are recorded in `stalls`."""
    return asyncio.SelectorEventLoop(_MeasuredSelector(stalls))
