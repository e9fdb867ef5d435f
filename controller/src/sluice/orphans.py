# SPDX-License-Identifier: Apache-2.0
"""Holds orphans: entities of the switch that no module has declared as desired yet.

The keys are kept in blocks (lists), because a dictionary of a million keys would stall the event
loop each time it grows. If a key becomes desired, it is no longer an orphan, but stays here until
its block is visited. Depends on entities.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from sluice.entities import EntityKey


class Orphans:
    """Holds the orphans of one kind."""

    def __init__(self) -> None:
        self._blocks: deque[list[EntityKey]] = deque()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, keys: list[EntityKey]) -> None:
        """Adds a block. Takes ownership of the list."""
        if keys:
            self._blocks.append(keys)
            self._size += len(keys)

    def take(self, count: int) -> list[EntityKey]:
        """Removes and returns up to `count` keys."""
        taken: list[EntityKey] = []
        while self._blocks and len(taken) < count:
            block = self._blocks[-1]
            rest = count - len(taken)
            taken += block[-rest:]
            del block[-rest:]
            if not block:
                self._blocks.pop()
        self._size -= len(taken)
        return taken

    def discard(self, key: EntityKey) -> None:
        """Removes a key, if present. The search is linear, so use it only for kinds with few
        orphans."""
        for _ in self.delete_unless(lambda other: other != key):
            pass

    def delete_unless(self, is_kept: Callable[[EntityKey], bool]) -> Iterator[None]:
        """Removes the keys for which `is_kept` is false, one block at each step.

        `take` may remove further keys between two steps.
        """
        for _ in range(len(self._blocks)):
            if not self._blocks:
                return
            block = self._blocks.popleft()
            kept = [key for key in block if is_kept(key)]
            self._size -= len(block) - len(kept)
            if kept:
                self._blocks.append(kept)
            yield
