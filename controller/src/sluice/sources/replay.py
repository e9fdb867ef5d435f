# SPDX-License-Identifier: Apache-2.0
"""When zebra's replay is over.

After connecting, zebra sends everything it knows and no end mark. Routes that it does not name
again have to go, but a timer alone would remove valid ones when convergence is slow. `ReplayGate`
demands quiet, and then the kernel's routes as the second witness: zebra keeps those as well, so
what the kernel still holds is kept (`state.stale_sweep`, `left_routes`), and the question is asked
again later. Without a session nothing is due, unless the caller says that none is to come (`ask`).

A replay has gaps, too: zebra 8.4.4 replays the tables of its own VRFs only, and where the kernel
has no VRF devices every table but the main one is in none of these. Of such tables the kernel's
routes are taken in the replay's place (`left_out`).

Pure: the caller brings the clock, and compares with the kernel (`sources.kernel_routes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sluice.model import (
    FpmSessionClosed,
    FpmSessionOpened,
    Route,
    RouteKey,
    RouteUpdated,
)

FRR_PROTOCOLS = frozenset({11, *range(186, 199)})
"""RTPROT_* of routes that zebra puts into the kernel (zebra/rt_netlink.h)."""


class ReplayGate:
    """Says when to compare with the kernel, and which of its routes are taken from there."""

    def __init__(
        self,
        quiet_seconds: float,
        ask_again_seconds: float = 30.0,
        tables: frozenset[int] = frozenset(),
    ) -> None:
        """`tables`: those of the kernel that a VRF has, but the main one."""
        self._quiet = quiet_seconds
        self._tables = tables
        self._ask_again = ask_again_seconds
        self._due: float | None = None

    @property
    def takes_left_out(self) -> bool:
        """Whether `left_out` can have something to say."""
        return bool(self._tables)

    @property
    def due(self) -> float | None:
        """When to ask for the kernel's routes and call `settled`; None: nothing to settle."""
        return self._due

    def takes_from(self, table: int) -> bool:
        """Whether `left_out` takes the kernel's routes of a table."""
        return table in self._tables

    def ask(self, now: float) -> None:
        """No session has come: the kernel alone is to say what is kept."""
        if self._due is None:
            self._due = now

    def note(self, event: object, now: float) -> None:
        """Takes notice of an event from FPM."""
        if isinstance(event, FpmSessionClosed):
            self._due = None
        elif self._due is not None or isinstance(event, FpmSessionOpened):
            self._due = now + self._quiet

    def unread(self, now: float) -> None:
        """Events of the session wait to be read: that no event was noted does not mean quiet."""
        if self._due is not None:
            self._due = max(self._due, now + self._quiet)

    def settled(self, kept: int, now: float) -> None:
        """The comparison is done: so many routes that were not named again were kept, since the
        kernel holds them."""
        self._due = now + self._ask_again if kept else None

    def left_out(
        self, routes: Iterable[Route], is_current: Callable[[RouteKey], bool]
    ) -> list[RouteUpdated]:
        """Those of the kernel's routes that are zebra's and in `tables`, and that this session has
        not named.

        When zebra withdraws one, it says so over FPM as of any other.
        """
        return [
            RouteUpdated(route)
            for route in routes
            if route.key.table in self._tables
            and route.protocol in FRR_PROTOCOLS
            and not is_current(route.key)
        ]
