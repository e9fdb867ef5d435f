# SPDX-License-Identifier: Apache-2.0
"""Schedules when the kernel is to resolve neighbours: on demand, again after a failure, and to
confirm a stale entry.

The kernel forwards no packets in this router, because the switch does. So the kernel drops unused
neighbour entries, and resolves no gateway by itself. After a failure, a gateway is resolved again
with a back-off of 1, 2, 4, ... 30 s. A stale neighbour is confirmed after 30 s, to detect that a
neighbour has moved or died. Pure; depends on model and nexthops (`Path`).
"""

from __future__ import annotations

import heapq

from sluice.model import NeighborState
from sluice.state.nexthops import Path

FIRST_RETRY, LAST_RETRY = 1.0, 30.0
CONFIRM_AFTER = 30.0
RESOLUTION = 3.0
"""Time in seconds after which the kernel gives up a resolution (three probes)."""


class ResolutionSchedule:
    """Holds the neighbours to resolve, and the time of each resolution."""

    def __init__(self) -> None:
        self._when: dict[Path, float] = {}
        self._attempts: dict[Path, int] = {}
        self._heap: list[tuple[float, int, bytes]] = []

    def resolve_now(self, path: Path, now: float) -> None:
        """Resolves this neighbour now; resets its back-off."""
        self._attempts.pop(path, None)
        self._schedule(path, now)

    def changed(self, path: Path, state: NeighborState, gateway: bool, now: float) -> None:
        """Schedules the next resolution of a neighbour after its state in the kernel changed.
        `gateway`: routes use the neighbour as next hop."""
        if state in (NeighborState.FAILED, NeighborState.NONE):
            if gateway:
                attempts = self._attempts.get(path, 0)
                self._schedule(path, now + min(LAST_RETRY, FIRST_RETRY * 2.0**attempts))
            else:
                self.cancel(path)
            return
        self._attempts.pop(path, None)
        if state is NeighborState.STALE:
            self._schedule(path, now + CONFIRM_AFTER)
        else:
            self._when.pop(path, None)

    def cancel(self, path: Path) -> None:
        """Cancels the resolutions of a neighbour."""
        self._when.pop(path, None)
        self._attempts.pop(path, None)

    def due(self, now: float) -> list[Path]:
        """Returns the neighbours to resolve now, and schedules their retries."""
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
        """Time of the next resolution, or None if none is scheduled."""
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
