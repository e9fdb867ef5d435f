# SPDX-License-Identifier: Apache-2.0
"""Turns of the loop for tasks that have much to do and are in no hurry: the API's views.

`await turns.next()` returns when the scheduler has come to this inlet, so that all work of higher
priority goes first, with the patience that every inlet has. One task gets one turn at a time, in
the order in which they asked: several answers share what one would have had. Between two turns a
task does one bounded slice. Depends on scheduler.
"""

from __future__ import annotations

import asyncio
from collections import deque

from sluice.scheduler import Inlet, Scheduler


class EndedError(Exception):
    """There are no more turns: the controller has ended."""


class Turns:
    """An inlet whose work is done by tasks that wait for it."""

    def __init__(self, scheduler: Scheduler, name: str, priority: int) -> None:
        self._scheduler = scheduler
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._ended = False
        self._inlet = Inlet(name, priority, self._give)
        scheduler.add(self._inlet)

    async def next(self) -> None:
        """Waits until it is this task's turn. Raises EndedError where that will not come."""
        if self._ended:
            raise EndedError("the controller was reloaded, or stands by, meanwhile; ask again")
        if not self._scheduler.running:
            await asyncio.sleep(0)
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._scheduler.wake(self._inlet)
        await turn

    def close(self) -> None:
        """Ends the tasks that wait, and those that would."""
        self._ended = True
        for turn in self._waiting:
            if not turn.done():
                turn.set_exception(EndedError("the controller was reloaded meanwhile; ask again"))
        self._waiting.clear()

    def _give(self) -> bool:
        """One turn; tasks that were cancelled meanwhile have none."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                break
        return bool(self._waiting)
