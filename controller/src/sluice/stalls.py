# SPDX-License-Identifier: Apache-2.0
"""How long the event loop was kept from its work: the longest times, by the name of what ran.

`Stalls.note` takes a time; `measured` takes those of a coroutine, from each of its turns to the
next; `measured_loop` makes a loop that takes those of its own turns (name `LOOP`): all that ran
between two looks at the file descriptors, by whatever name or none. A turn that takes long keeps
every packet, timer and client waiting. Times are wall-clock seconds: they contain what other
processes took from this one.

Depends on asyncio only. Times shorter than `LEAST` are not noted, to keep measuring cheap.
"""

from __future__ import annotations

import asyncio
import gc
import selectors
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, NamedTuple, TypeVar

LOOP = "loop"
"""All that one turn of the loop does."""
GARBAGE = "garbage collection"
LEAST = 0.0005
MINUTE, PART = 60, 10
"""Seconds that count as the last minute, and of one part of them."""

T = TypeVar("T")


class Longest(NamedTuple):
    """The longest stalls of one name, in seconds."""

    ever: float
    last_minute: float


class Stalls:
    """The longest stalls since the start, and in the last minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._ever: dict[str, float] = {}
        self._parts: dict[str, dict[int, float]] = {}
        self.forget()
        self._collecting = 0.0

    def note(self, name: str, seconds: float) -> None:
        """Something ran for so long without giving the loop its turn."""
        if seconds < LEAST:
            return
        self._ever[name] = max(seconds, self._ever.get(name, 0.0))
        parts = self._parts.setdefault(name, {})
        now = int(self.clock() // PART)
        if now not in parts:
            for old in [part for part in parts if part <= now - MINUTE // PART]:
                del parts[old]
        parts[now] = max(seconds, parts.get(now, 0.0))

    def longest(self) -> dict[str, Longest]:
        """Returns the longest stall of each name that had one."""
        first = int(self.clock() // PART) - MINUTE // PART
        return {
            name: Longest(
                ever,
                max(
                    (s for part, s in self._parts.get(name, {}).items() if part > first),
                    default=0.0,
                ),
            )
            for name, ever in self._ever.items()
        }

    def forget(self) -> None:
        """Begins anew."""
        self._ever = {LOOP: 0.0}
        self._parts = {}

    async def measured(self, name: str, work: Awaitable[T]) -> T:
        """Awaits `work` and notes how long each of its turns takes."""
        return await _Steps(self, name, work)

    def watch_garbage(self) -> Callable[[], None]:
        """Notes collections from now on; call what it returns to end that."""
        gc.callbacks.append(self._collected)
        return lambda: gc.callbacks.remove(self._collected)

    def _collected(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._collecting = self.clock()
        else:
            self.note(GARBAGE, self.clock() - self._collecting)


class _Steps(Awaitable[T]):
    """An awaitable that times the steps of another."""

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
    """Times the loop between two selections."""

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
    """Returns a new event loop whose turns `stalls` notes."""
    return asyncio.SelectorEventLoop(_MeasuredSelector(stalls))
