# SPDX-License-Identifier: Apache-2.0
"""When zebra's replay is over.

After connecting, zebra sends everything it knows and no end mark. Routes that it does not name
again have to go, but a timer alone would remove valid ones when convergence is slow. `ReplayGate`
demands quiet, and then the kernel's routes as the second witness: zebra keeps those as well, so
what the kernel still holds is kept (`RoutesSettled.keep`), and the question is asked again later.

Pure: the caller brings the clock and the kernel's routes (`sources.kernel_routes`).
"""

from __future__ import annotations

from sluice.model import FpmSessionClosed, FpmSessionOpened, RouteEvent, RouteKey, RoutesSettled


class ReplayGate:
    """Says when to compare with the kernel, and what follows from the comparison."""

    def __init__(self, quiet_seconds: float, ask_again_seconds: float = 30.0) -> None:
        self._quiet = quiet_seconds
        self._ask_again = ask_again_seconds
        self._due: float | None = None

    @property
    def due(self) -> float | None:
        """When to ask for the kernel's routes and call `settle`; None: nothing to settle."""
        return self._due

    def note(self, event: RouteEvent, now: float) -> None:
        """Takes notice of an event from FPM."""
        if isinstance(event, FpmSessionClosed):
            self._due = None
        elif self._due is not None or isinstance(event, FpmSessionOpened):
            self._due = now + self._quiet

    def settle(
        self, stale: frozenset[RouteKey], kernel: frozenset[RouteKey], now: float
    ) -> RoutesSettled:
        """The verdict on `stale`, which this session has not named, given the kernel's routes."""
        keep = stale & kernel
        self._due = now + self._ask_again if keep else None
        return RoutesSettled(keep)
