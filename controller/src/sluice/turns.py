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


class Turns:
    """An inlet whose work is done by tasks that wait for it."""

    def __init__(self, scheduler: Scheduler, name: str, priority: int) -> None:
        self._scheduler = scheduler
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._inlet = Inlet(name, priority, self._give)
        scheduler.add(self._inlet)

    async def next(self) -> None:
        """Waits until it is this task's turn."""
        if not self._scheduler.running:
            await asyncio.sleep(0)
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._scheduler.wake(self._inlet)
        await turn

    def _give(self) -> bool:
        """One turn; tasks that were cancelled meanwhile have none."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                break
        return bool(self._waiting)
