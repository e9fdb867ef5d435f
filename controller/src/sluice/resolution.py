# SPDX-License-Identifier: Apache-2.0
"""Decides which neighbours the kernel resolves, and when.

Routes and held packets need neighbours. `state.resolution_schedule` schedules the requests to the
kernel, and the kernel reports each result as a NeighborChanged. A request waits until the kernel's
neighbour table has been read, because the table may already have the neighbour. It also waits until
the kernel has reported the neighbour's interface. Depends on state, held_packets and the kernel's
input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from sluice.held_packets import HeldPackets
from sluice.inputs import KernelInput
from sluice.model import NeighborChanged, NeighborState
from sluice.state.fib import Fib
from sluice.state.nexthops import Path
from sluice.state.resolution_schedule import ResolutionSchedule


class Resolution:
    """Requests the resolution of neighbours from the kernel. `counters` are the controller's."""

    def __init__(
        self, fib: Fib, held: HeldPackets, kernel: KernelInput, counters: Counter[str]
    ) -> None:
        self._fib = fib
        self._held = held
        self._kernel = kernel
        self._counters = counters
        self._schedule = ResolutionSchedule()
        self._waiting: dict[Path, None] = {}
        self._table_read = False

    @property
    def next_due(self) -> float | None:
        """Time of the next request by `ask_due`, or None if there is none."""
        return self._schedule.next_due

    @property
    def waiting(self) -> int:
        """Number of requests that cannot be made yet."""
        return len(self._waiting)

    def want(self, path: Path, now: float) -> None:
        """Schedules an immediate request for an unresolved neighbour that a route needs."""
        self._schedule.resolve_now(path, now)

    def changed(self, path: Path, event: NeighborChanged, now: float) -> None:
        """Handles a notification of the kernel, after the Fib has applied it."""
        in_use = self._fib.nexthops.id_of(path) is not None
        self._schedule.changed(path, event.state, in_use, now)

    def unanswered(self, paths: Iterable[Path], now: float) -> None:
        """Handles neighbours that were not resolved while packets waited for them. Schedules a
        later request, as after a failed resolution."""
        for path in paths:
            in_use = self._fib.nexthops.id_of(path) is not None
            self._schedule.changed(path, NeighborState.FAILED, in_use, now)

    def ask_due(self, now: float) -> None:
        """Requests the neighbours that are due. Cancels the requests of neighbours that are no
        longer needed."""
        due = self._schedule.due(now)
        for path in due:
            if not self._is_wanted(path):
                self._schedule.cancel(path)
        self.ask(filter(self._is_wanted, due))

    def _is_wanted(self, path: Path) -> bool:
        return (
            self._fib.nexthops.id_of(path) is not None
            or self._fib.neighbors.mac_of(path) is not None
            or path in self._held
        )

    def ask(self, paths: Iterable[Path] = ()) -> None:
        """Requests these neighbours, and all neighbours whose earlier requests could not be
        made."""
        self._waiting.update(dict.fromkeys(paths))
        self._table_read = self._table_read or self._kernel.synced
        if not self._table_read or not self._waiting:
            return
        waiting, self._waiting = self._waiting, {}
        for path in waiting:
            ifindex = self._fib.interfaces.ifindex_of(path.l3_if)
            if ifindex is None:
                self._waiting[path] = None
            elif path.address is not None:
                self._ask(ifindex, path.address)

    def _ask(self, ifindex: int, address: bytes) -> None:
        try:
            self._kernel.use_neighbor(ifindex, address)
        except OSError as error:  # out of buffers, no route: the schedule retries
            self._counters[f"neighbours not asked for: {error.strerror}"] += 1
        else:
            self._counters["neighbours asked for"] += 1
