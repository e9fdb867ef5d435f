# SPDX-License-Identifier: Apache-2.0
"""Entities that the switch was found to hold and that nobody wants, so far.

Kept in blocks: a dictionary of a million keys would stop the loop each time that it grows. What is
wanted by now is no orphan any more; it is dropped when its block is looked at. Depends on entities.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from sluice.entities import Key


class Orphans:
    """The orphans of one kind."""

    def __init__(self) -> None:
        self._blocks: deque[list[Key]] = deque()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, keys: list[Key]) -> None:
        """Adds a block; the list becomes this object's own."""
        if keys:
            self._blocks.append(keys)
            self._size += len(keys)

    def take(self, count: int) -> list[Key]:
        """Removes `count` keys, or all that there are, and returns them."""
        taken: list[Key] = []
        while self._blocks and len(taken) < count:
            block = self._blocks[-1]
            rest = count - len(taken)
            taken += block[-rest:]
            del block[-rest:]
            if not block:
                self._blocks.pop()
        self._size -= len(taken)
        return taken

    def discard(self, key: Key) -> None:
        """Removes a key, if it is there. Looks at all of them: for kinds of which there are few."""
        for _ in self.sift(lambda other: other != key):
            pass

    def sift(self, stays: Callable[[Key], bool]) -> Iterator[None]:
        """Removes the keys that do not stay, a block at each step. Others may be taken between two
        steps."""
        for _ in range(len(self._blocks)):
            if not self._blocks:
                return
            block = self._blocks.popleft()
            kept = [key for key in block if stays(key)]
            self._size -= len(block) - len(kept)
            if kept:
                self._blocks.append(kept)
            yield
