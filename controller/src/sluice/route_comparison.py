# SPDX-License-Identifier: Apache-2.0
"""Compares a routing daemon's routes with the kernel's after the daemon's replay, in slices.

- `ReplayGate` decides when to compare, and which of the kernel's routes to add because the replay
  omitted them.
- `RouteDump` reads the kernel's routes.
- `StaleSweep` finds stale routes of earlier sessions that the kernel no longer holds.
- `UnreplayedRoutes` deletes routes that an earlier controller left in the switch, unless the kernel
  holds them.

A dump is obsolete if a session with the daemon or the switch opened or ended after the comparison
began. It is then discarded, and the gate schedules another one. A dump of a million routes takes
seconds. So the kernel's routes are read only if some route is stale, is left over in the switch, or
may have been omitted by the replay. Depends on inputs, unreplayed_routes and state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sluice._native import RouteRun
from sluice.inputs import ReplayGate, RouteDump
from sluice.model import (
    FpmSessionClosed,
    FpmSessionOpened,
    Route,
    RouteDeleted,
    RouteEvent,
    RouteKey,
)
from sluice.namespaces import OWN_NAMESPACE
from sluice.state.fib import Fib
from sluice.state.route_runs import RoutesEvent, events_of
from sluice.state.stale_sweep import StaleSweep
from sluice.unreplayed_routes import UnreplayedRoutes

DATAGRAMS = 4
"""Number of datagrams of the kernel's dump, of 32 KiB each, that one slice reads."""
_END = object()


class ComparisonStep(NamedTuple):
    """Holds the result of one slice."""

    more: bool
    """Whether another slice can run now. If not, the next datagram of a dump triggers a slice."""
    events: Sequence[RouteEvent] = ()
    """Events that follow from the slice. They must be applied before the next slice."""
    routes: int = 0
    """Number of routes that the events concern."""
    settled: bool = False
    """Whether all routes have been compared."""


class RouteComparison:
    """Runs comparisons, one at a time, for the routing daemon of one network namespace."""

    def __init__(
        self,
        fib: Fib,
        gate: ReplayGate,
        dump: RouteDump,
        unreplayed: UnreplayedRoutes,
        namespace: int = OWN_NAMESPACE,
    ) -> None:
        self._fib = fib
        self._unreplayed = unreplayed
        self._rib = fib.ribs[namespace]
        self._namespace = namespace
        self._gate = gate
        self._dump = dump
        self._search: Iterator[None] | None = None
        self._sweep: StaleSweep | None = None
        self._left_sweep: Iterator[None] = iter(())
        self._version: int | None = None
        self._outdated = False
        self.kept = 0
        """Number of left-over routes in the switch that the last comparison kept."""
        # Routes deleted since the comparison began. The kernel's dump may still contain them.
        self._withdrawn: set[RouteKey] = set()

    @property
    def running(self) -> bool:
        """Whether a comparison is under way."""
        return self._dump.running or self._search is not None or self._sweep is not None

    @property
    def due(self) -> float | None:
        """Time of the next comparison. None if none is due or one is under way."""
        return None if self.running else self._gate.due

    def note(self, events: Sequence[RoutesEvent], now: float) -> None:
        """Records events of the routing daemon. `events` must not be empty."""
        for event in events:
            if type(event) is RouteRun:
                if self.running:
                    self._withdrawn.update(
                        one.key for one in events_of(event) if type(one) is RouteDeleted
                    )
                continue
            if type(event) in (FpmSessionOpened, FpmSessionClosed):
                self._gate.note(event, now)
                self._outdated = True
            elif self.running and type(event) is RouteDeleted:
                self._withdrawn.add(event.key)
        self._gate.note(events[-1], now)

    def _is_named(self, key: RouteKey) -> bool:
        """Returns whether this session has announced or withdrawn a route."""
        return key in self._withdrawn or self._rib.is_current(key)

    def start_if_due(self, now: float, *, unread: bool = False) -> bool:
        """Begins a comparison if one is due. Returns whether it began; then `step` must be called.

        Postpones the comparison if the daemon has `unread` events, or if the switch's content is
        not yet known.
        """
        due = self.due
        if due is None or due > now:
            return False
        if unread or self._unreplayed.version is None:
            self._gate.unread(now)
            return False
        self._outdated = False
        self._version = self._unreplayed.version
        self._withdrawn.clear()
        self._search = self._unreplayed.search()
        return True

    def _ask_kernel(self) -> bool:
        """Starts a dump of the kernel's routes if the comparison needs them.

        Otherwise begins the sweep without a dump. Returns whether `step` can run its next slice at
        once.
        """
        if self._rib.stale or self._gate.takes_left_out or self._unreplayed.found:
            self._dump.start(self._is_relevant)
            return False
        self._begin_sweep({})
        return True

    def _is_relevant(self, key: RouteKey) -> bool:
        """Returns whether the comparison needs this route if the kernel has it."""
        named = self._rib.is_stale(key) or self._gate.takes_from(key.table)
        return named or self._unreplayed.is_unreplayed(key)

    def _begin_sweep(self, kernel: dict[RouteKey, Route]) -> None:
        self._sweep = StaleSweep(self._fib, kernel, self._namespace)
        self._left_sweep = self._unreplayed.sweep(kernel)

    def step(self, now: float) -> ComparisonStep:
        """Runs the next slice of the comparison."""
        if self._search is not None:
            if next(self._search, _END) is not _END:
                return ComparisonStep(more=True)
            self._search = None
            return ComparisonStep(more=self._ask_kernel())
        if self._sweep is None:
            kernel = self._dump.poll(DATAGRAMS) if self._dump.running else None
            if kernel is not None:
                self._begin_sweep(kernel)
            return ComparisonStep(more=kernel is not None)
        routes = () if self._is_obsolete else self._sweep.next_kernel_routes()
        if routes:
            left_out = self._gate.left_out(routes, self._is_named)
            return ComparisonStep(more=True, events=left_out, routes=len(left_out))
        gone = None if self._is_obsolete else self._sweep.next()
        if gone is not None:
            return ComparisonStep(more=True, events=(gone,), routes=len(gone.keys))
        if not self._is_obsolete and next(self._left_sweep, _END) is not _END:
            return ComparisonStep(more=True)
        if self._sweep.free():
            return ComparisonStep(more=True)
        stale, self._sweep, self._left_sweep = self._sweep.still_in_kernel, None, iter(())
        if self._is_obsolete:
            if not self._outdated:
                self._gate.unread(now)
            return ComparisonStep(more=False)
        self.kept = self._unreplayed.found
        self._gate.settled(stale + self.kept, now)
        return ComparisonStep(more=False, settled=True)

    @property
    def _is_obsolete(self) -> bool:
        """Whether the dump must be discarded.

        This is so if a session with the daemon or the switch opened or ended since the comparison
        began.
        """
        return self._outdated or self._unreplayed.version != self._version
