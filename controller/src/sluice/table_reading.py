# SPDX-License-Identifier: Apache-2.0
"""Reads the route table of a switch, concurrently with work that need not wait for it.

A small table is waited for. A large table takes seconds to read: a task of its own reads it, while
interfaces, neighbours and policy are corrected. Its routes keep forwarding meanwhile.
Depends on asyncio.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sized
from typing import Any

LARGE = 16_384
"""Routes that are waited for; the rest of a larger table is not."""


class TableReading:
    """One reading, from its beginning. `found` grows with what is read, of which `progressed` is to
    be told; `ended` is called when there is no more, or the session has failed."""

    def __init__(self, found: Sized, ended: Callable[[], None]) -> None:
        self._found = found
        self._ended = ended
        self._enough = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def progressed(self) -> None:
        """Some more was found."""
        if len(self._found) > LARGE:
            self._enough.set()

    async def begin(self, reading: Coroutine[Any, Any, None]) -> None:
        """Reads until all is read or the table proves large. Raises what `reading` raised."""
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
        """Returns whether all is read. Raises what the reading raised."""
        if self._task is None or not self._task.done():
            return False
        self._task.result()
        return True

    def cancel(self) -> None:
        """Ends it."""
        if self._task is not None:
            self._task.cancel()

    def _done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # counts as looked at: `complete` may never be asked again
        self._enough.set()
        self._ended()
