# SPDX-License-Identifier: Apache-2.0
"""Keeps the largest of many items in a bounded heap, and returns them in slices."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from heapq import heappop, heappush, heappushpop
from typing import Generic, TypeVar

from sluice.api.rows import SLICE, WaitForTurn

T = TypeVar("T")


class Largest(Generic[T]):
    """Keeps the `limit` items of largest rank. Among items of equal rank, one that was added
    earlier counts as larger."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._added = 0
        self._heap: list[tuple[tuple[float, ...], int, T]] = []  # smallest first

    def add(self, rank: tuple[float, ...], item: T) -> None:
        """Adds an item, and drops the smallest one if there are more than `limit`."""
        self._added += 1
        entry = (rank, -self._added, item)
        if len(self._heap) < self._limit:
            heappush(self._heap, entry)
        elif self._heap:
            heappushpop(self._heap, entry)

    async def slices(self, turn: WaitForTurn) -> AsyncGenerator[list[T], None]:
        """Yields the items in slices, the largest first, and forgets them. Awaits `turn` between
        slices."""
        items: list[T] = []  # smallest first
        while self._heap:
            for _ in range(min(SLICE, len(self._heap))):
                items.append(heappop(self._heap)[2])
            await turn()
        while items:
            part = items[: -SLICE - 1 : -1]
            del items[-SLICE:]
            yield part
