# SPDX-License-Identifier: Apache-2.0
"""Schedules long tasks of low priority, such as the API's views, one slice at a time.

`Turns` has one inlet of the scheduler for all its tasks. `await turns.next()` returns when the
scheduler serves this inlet and the task is the first in the queue. So work of higher priority goes
first, and the scheduler prevents starvation. Each turn serves one waiting task, in FIFO order. So
several tasks together get no more time than one task would. After each turn a task does one slice
of bounded size. Depends on scheduler.
"""

from __future__ import annotations

import asyncio
from collections import deque

from sluice.scheduler import Inlet, Scheduler


class EndedError(Exception):
    """Reports that there are no more turns: the controller has ended."""


class Turns:
    """Gives turns to waiting tasks. When its inlet is served, it wakes the next task."""

    def __init__(self, scheduler: Scheduler, name: str, priority: int) -> None:
        self._scheduler = scheduler
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._ended = False
        self._inlet = Inlet(name, priority, self._give)
        scheduler.add(self._inlet)

    async def next(self) -> None:
        """Waits for this task's turn. Raises EndedError if the controller has ended."""
        if self._ended:
            raise EndedError("the controller was reloaded or is on standby now; ask again")
        if not self._scheduler.running:
            await asyncio.sleep(0)
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._scheduler.wake(self._inlet)
        await turn

    def close(self) -> None:
        """Raises EndedError in all waiting tasks and in later calls of `next`."""
        self._ended = True
        for turn in self._waiting:
            if not turn.done():
                turn.set_exception(EndedError("the controller was reloaded; ask again"))
        self._waiting.clear()

    def _give(self) -> bool:
        """Wakes the first waiting task that is not cancelled. Returns whether more are waiting."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                break
        return bool(self._waiting)
