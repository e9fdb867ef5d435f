# SPDX-License-Identifier: Apache-2.0
"""Decides when zebra's replay is over, and which stale routes may be removed.

After it has connected, zebra sends all its routes, without an end marker. Routes that zebra does
not send again must be removed. But a timer alone would remove valid routes when convergence is
slow. So `ReplayGate` waits until the session is quiet, and then requires a comparison with the
kernel's routes, which zebra maintains as well. A route that the kernel still has is kept
(`state.stale_sweep`, `unreplayed_routes`), and the comparison is repeated later. Without a session
no comparison is due, unless the caller reports that no session will come (`ask`).

A replay may also lack routes: zebra 8.4.4 replays only the tables of its own VRFs. If the kernel
has no VRF devices, only the main table is among them. The routes of the other tables are taken from
the kernel instead (`left_out`).

Pure: the caller provides the clock, and compares with the kernel (`sources.kernel_routes`).
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
"""RTPROT_* values of zebra's routes in the kernel (zebra/rt_netlink.h)."""


class ReplayGate:
    """Decides when to compare the routes with the kernel's, and which of the kernel's routes to
    add."""

    def __init__(
        self,
        quiet_seconds: float,
        ask_again_seconds: float = 30.0,
        tables: frozenset[int] = frozenset(),
    ) -> None:
        """`tables`: the kernel's tables of VRFs, except the main one."""
        self._quiet = quiet_seconds
        self._tables = tables
        self._ask_again = ask_again_seconds
        self._due: float | None = None

    @property
    def takes_left_out(self) -> bool:
        """Whether `left_out` can return any route."""
        return bool(self._tables)

    @property
    def due(self) -> float | None:
        """Time of the next comparison with the kernel's routes. None if none is due.

        A due comparison stays due until `settled`.
        """
        return self._due

    def takes_from(self, table: int) -> bool:
        """Returns whether `left_out` accepts the kernel's routes of a table."""
        return table in self._tables

    def ask(self, now: float) -> None:
        """Makes a comparison due although no session is open. The comparison then removes all
        routes that the kernel lacks."""
        if self._due is None:
            self._due = now

    def note(self, event: object, now: float) -> None:
        """Records an event from FPM, which schedules, postpones or cancels the comparison."""
        if isinstance(event, FpmSessionClosed):
            self._due = None
        elif self._due is not None or isinstance(event, FpmSessionOpened):
            self._due = now + self._quiet

    def unread(self, now: float) -> None:
        """Postpones the comparison: the session has unread events, so it is not quiet."""
        if self._due is not None:
            self._due = max(self._due, now + self._quiet)

    def settled(self, kept: int, now: float) -> None:
        """Ends a comparison. If `kept` is not 0, another comparison follows.

        `kept` is the number of routes that the replay omitted and that were kept because the kernel
        has them.
        """
        self._due = now + self._ask_again if kept else None

    def left_out(
        self, routes: Iterable[Route], is_current: Callable[[RouteKey], bool]
    ) -> list[RouteUpdated]:
        """Returns those of the kernel's `routes` that zebra installed and that are missing in this
        session.

        Returns only routes of the VRFs' tables. zebra later sends their withdrawals over FPM, as
        for any other route.
        """
        return [
            RouteUpdated(route)
            for route in routes
            if route.key.table in self._tables
            and route.protocol in FRR_PROTOCOLS
            and not is_current(route.key)
        ]
