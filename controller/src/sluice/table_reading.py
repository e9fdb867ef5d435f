# SPDX-License-Identifier: Apache-2.0
"""Reads the route table of a switch, in the background if the table is large.

The caller waits for a small table. A large table takes seconds to read, so a separate task reads it
while interfaces, neighbours and policy are corrected. Meanwhile the switch keeps forwarding by
these routes. Depends on asyncio.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sized
from typing import Any

LARGE = 16_384
"""Minimum size of a large table, in routes. After this number of routes, the caller no longer waits
for the rest."""


class TableReading:
    """Reads a route table once.

    `found` grows with the routes read, and `progressed` must be called whenever it has grown.
    `ended` is called when the reading is complete, cancelled or failed.
    """

    def __init__(self, found: Sized, ended: Callable[[], None]) -> None:
        self._found = found
        self._ended = ended
        self._enough = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def progressed(self) -> None:
        """Records that `found` has grown."""
        if len(self._found) > LARGE:
            self._enough.set()

    async def begin(self, reading: Coroutine[Any, Any, None]) -> None:
        """Waits until the table is read, or is known to be large. Raises the errors of
        `reading`."""
        self._task = asyncio.create_task(reading)
        self._task.add_done_callback(self._done)
        try:
            await self._enough.wait()
        except asyncio.CancelledError:
            self.cancel()
            raise
        if self._task.done():
            self._task.result()

    def complete(self) -> bool:
        """Returns whether the table is read. Raises the errors of the reading."""
        if self._task is None or not self._task.done():
            return False
        self._task.result()
        return True

    def cancel(self) -> None:
        """Cancels the reading."""
        if self._task is not None:
            self._task.cancel()

    def _done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # or asyncio logs it as never retrieved
        self._enough.set()
        self._ended()
