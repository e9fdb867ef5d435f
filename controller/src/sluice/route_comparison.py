# SPDX-License-Identifier: Apache-2.0
"""The routing daemon's routes against the kernel's, once its replay is over, a slice at a time.

The gate says when, and which of the kernel's routes stand for those that the replay left out; the
dump brings the kernel's routes; `StaleSweep` compares, and `UnreplayedRoutes` what the switch was
found to hold at the start. A session that opens or ends after the kernel was asked makes its answer
too old: nothing follows from it then, and the gate says when to ask again. Where no route is stale,
none is left unnamed in the switch and none can have been left out, as after most starts of the
controller, the kernel is not asked: its million routes take seconds to read. Depends on inputs,
unreplayed_routes and state.
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
"""Of the kernel's dump, 32 KiB each, that are read in one go."""
_END = object()


class ComparisonStep(NamedTuple):
    """Result of one slice."""

    more: bool
    """Whether there is more to do now; else the next datagram says so."""
    events: Sequence[RouteEvent] = ()
    """Events that follow from the slice, to be applied before the next slice."""
    routes: int = 0
    """Number of routes that the events concern."""
    settled: bool = False
    """Whether all routes have been compared."""


class RouteComparison:
    """One comparison after the other, of the routes of one network namespace's routing daemon."""

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
        """Routes of the switch's that nobody has named, and that the last comparison kept."""
        # Routes that went since the kernel was asked, which its answer may still have.
        self._withdrawn: set[RouteKey] = set()

    @property
    def running(self) -> bool:
        """Whether one is under way."""
        return self._dump.running or self._search is not None or self._sweep is not None

    @property
    def due(self) -> float | None:
        """When the next one is to begin, unless one is under way."""
        return None if self.running else self._gate.due

    def note(self, events: Sequence[RoutesEvent], now: float) -> None:
        """Takes notice of events of the routing daemon; at least one."""
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
        """Whether this session has named a route, or has withdrawn it."""
        return key in self._withdrawn or self._rib.is_current(key)

    def start_if_due(self, now: float, *, unread: bool = False) -> bool:
        """Begins a comparison if it is time; returns whether, since there is a slice to do then.
        With `unread` events of the daemon wait to be read: it is not quiet then, and the comparison
        is put off, as it is until what the switch holds is known."""
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
        """Asks the kernel for its routes, unless nothing could follow from them; returns whether
        there is a slice to do without them."""
        if self._rib.stale or self._gate.takes_left_out or self._unreplayed.found:
            self._dump.start(self._is_relevant)
            return False
        self._begin_sweep({})
        return True

    def _is_relevant(self, key: RouteKey) -> bool:
        """Whether it makes a difference that the kernel has this route."""
        named = self._rib.is_stale(key) or self._gate.takes_from(key.table)
        return named or self._unreplayed.is_unreplayed(key)

    def _begin_sweep(self, kernel: dict[RouteKey, Route]) -> None:
        self._sweep = StaleSweep(self._fib, kernel, self._namespace)
        self._left_sweep = self._unreplayed.sweep(kernel)

    def step(self, now: float) -> ComparisonStep:
        """Does the next slice."""
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
        """Whether nothing follows from the kernel's answer: a session opened or ended since it was
        asked, with the daemon or with the switch."""
        return self._outdated or self._unreplayed.version != self._version
