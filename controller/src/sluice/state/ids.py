# SPDX-License-Identifier: Apache-2.0
"""Allocates ids of next hops and groups. Never allocates an id that the switch may still use.

A released id stays in quarantine until the reconciler has confirmed that the switch deleted the
entity. If the id were reused before, a route that still names it would for a moment forward to the
wrong next hop.
"""

from __future__ import annotations

from collections import deque


class OutOfIdsError(Exception):
    """Reports that all ids are in use or in quarantine."""


class IdPool:
    """Allocates ids from 1 to `limit`. The id that was freed first is reused first, and only when
    no unused id is left."""

    def __init__(self, what: str, limit: int = 0xFFFF) -> None:
        self._what = what
        self._limit = limit
        self._next = 1
        self._free: deque[int] = deque()
        self._taken: set[int] = set()
        self._quarantine: set[int] = set()

    def take(self) -> int:
        """Takes an unused id. Raises OutOfIdsError."""
        while self._next <= self._limit:
            candidate = self._next
            self._next += 1
            if candidate not in self._taken and candidate not in self._quarantine:
                self._taken.add(candidate)
                return candidate
        if not self._free:
            raise OutOfIdsError(f"all {self._limit} {self._what} ids are in use")
        candidate = self._free.popleft()
        self._taken.add(candidate)
        return candidate

    def claim(self, wanted: int) -> None:
        """Marks an id that was found in the switch as in use. Removes it from quarantine."""
        self._quarantine.discard(wanted)
        self._taken.add(wanted)

    def reserve(self, found: int) -> None:
        """Quarantines an id that the switch holds. `take` skips the id until `confirm_deleted`."""
        if found not in self._taken:
            self._quarantine.add(found)

    def release(self, taken: int) -> None:
        """Releases an id into quarantine. `confirm_deleted` makes it reusable."""
        self._taken.discard(taken)
        self._quarantine.add(taken)

    def confirm_deleted(self, deleted: int) -> None:
        """Makes a quarantined id reusable, once the switch has deleted it."""
        if deleted in self._quarantine:
            self._quarantine.discard(deleted)
            if deleted < self._next:
                self._free.append(deleted)
