# SPDX-License-Identifier: Apache-2.0
"""When to ask the kernel for a neighbour: when it is wanted, when it failed, when it went stale.

The kernel forgets and does not ask by itself, since it never forwards. A gateway that failed is
asked for again after 1, 2, 4, ... 30 s; a neighbour that went stale is confirmed after 30 s, so
that one that moved or died is noticed. Pure; depends on model and nexthops (for `Path`).
"""

from __future__ import annotations

import heapq

from sluice.model import NeighborState
from sluice.state.nexthops import Path

FIRST_RETRY, LAST_RETRY = 1.0, 30.0
CONFIRM_AFTER = 30.0
RESOLUTION = 3.0
"""Seconds the kernel takes to give up (three probes)."""


class NeighborKeeper:
    """Who is to be asked for, and when."""

    def __init__(self) -> None:
        self._when: dict[Path, float] = {}
        self._attempts: dict[Path, int] = {}
        self._heap: list[tuple[float, int, bytes]] = []

    def ask(self, path: Path, now: float) -> None:
        """Wanted now, and it is not known: whatever was tried before does not count."""
        self._attempts.pop(path, None)
        self._schedule(path, now)

    def changed(self, path: Path, state: NeighborState, gateway: bool, now: float) -> None:
        """The kernel said something about a neighbour; `gateway`: routes use it."""
        if state in (NeighborState.FAILED, NeighborState.NONE):
            if gateway:
                attempts = self._attempts.get(path, 0)
                self._schedule(path, now + min(LAST_RETRY, FIRST_RETRY * 2.0**attempts))
            else:
                self.forget(path)
            return
        self._attempts.pop(path, None)
        if state is NeighborState.STALE:
            self._schedule(path, now + CONFIRM_AFTER)
        else:
            self._when.pop(path, None)

    def forget(self, path: Path) -> None:
        """Nobody wants it any more."""
        self._when.pop(path, None)
        self._attempts.pop(path, None)

    def due(self, now: float) -> list[Path]:
        """Whom to ask for now. Whoever is not heard of is asked for again."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            when, l3_if, address = heapq.heappop(self._heap)
            path = Path(l3_if, address)
            if self._when.get(path) != when:
                continue  # rescheduled or forgotten
            due.append(path)
            attempts = self._attempts[path] = min(self._attempts.get(path, 0) + 1, 5)
            delay = min(LAST_RETRY, FIRST_RETRY * 2.0**attempts)
            self._schedule(path, now + RESOLUTION + delay)
        return due

    @property
    def next_due(self) -> float | None:
        """When `due` has something to give next."""
        while self._heap:
            when, l3_if, address = self._heap[0]
            if self._when.get(Path(l3_if, address)) == when:
                return when
            heapq.heappop(self._heap)
        return None

    def _schedule(self, path: Path, when: float) -> None:
        if path.address is not None:
            self._when[path] = when
            heapq.heappush(self._heap, (when, path.l3_if, path.address))
