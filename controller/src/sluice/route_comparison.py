# SPDX-License-Identifier: Apache-2.0
"""The routing daemon's routes against the kernel's, once its replay is over, a slice at a time.

The gate says when, and which of the kernel's routes stand for those that the replay left out; the
dump brings the kernel's routes; `StaleSweep` compares. A session that opens
or ends after the kernel was asked makes its answer too old: nothing follows from it then, and the
gate says when to ask again. Where no route is stale and none can have been left out, as after a
start of the controller, the kernel is not asked: its million routes take seconds to read.
Depends on inputs and state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sluice.inputs import ReplayGate, RouteDump
from sluice.model import FpmSessionClosed, FpmSessionOpened, RouteDeleted, RouteEvent, RouteKey
from sluice.namespaces import HOME
from sluice.state.fib import Fib
from sluice.state.stale_sweep import StaleSweep

DATAGRAMS = 4
"""Of the kernel's dump, 32 KiB each, that are read in one go."""


class Step(NamedTuple):
    """What one slice came to."""

    more: bool
    """Whether there is more to do now; else the next datagram says so."""
    events: Sequence[RouteEvent] = ()
    """What follows from it, to be applied before the next."""
    routes: int = 0
    """How many routes these are about."""
    settled: bool = False
    """Whether all routes have been compared."""


class RouteComparison:
    """One comparison after the other, of the routes of one network namespace's routing daemon."""

    def __init__(self, fib: Fib, gate: ReplayGate, dump: RouteDump, namespace: int = HOME) -> None:
        self._fib = fib
        self._rib = fib.ribs[namespace]
        self._namespace = namespace
        self._gate = gate
        self._dump = dump
        self._sweep: StaleSweep | None = None
        self._outdated = False
        # Routes that went since the kernel was asked, which its answer may still have.
        self._withdrawn: set[RouteKey] = set()

    @property
    def running(self) -> bool:
        """Whether one is under way."""
        return self._dump.running or self._sweep is not None

    @property
    def due(self) -> float | None:
        """When the next one is to begin, unless one is under way."""
        return None if self.running else self._gate.due

    def note(self, events: Sequence[RouteEvent], now: float) -> None:
        """Takes notice of events of the routing daemon; at least one."""
        for event in events:
            if type(event) in (FpmSessionOpened, FpmSessionClosed):
                self._gate.note(event, now)
                self._outdated = True
            elif self.running and type(event) is RouteDeleted:
                self._withdrawn.add(event.key)
        self._gate.note(events[-1], now)

    def _is_told(self, key: RouteKey) -> bool:
        """Whether this session has named a route, or has withdrawn it."""
        return key in self._withdrawn or self._rib.is_current(key)

    def start_if_due(self, now: float, *, unread: bool = False) -> bool:
        """Asks the kernel for its routes, unless nothing could follow from them: then there is a
        slice to do at once, which is said. With `unread` events of the daemon wait to be read: it
        is not quiet then, and the question is put off."""
        due = self.due
        if due is None or due > now:
            return False
        if unread:
            self._gate.unread(now)
            return False
        self._outdated = False
        self._withdrawn.clear()
        if self._rib.stale or self._gate.takes_left_out:
            self._dump.start()
            return False
        self._sweep = StaleSweep(self._fib, {}, self._namespace)
        return True

    def step(self, now: float) -> Step:
        """Does the next slice."""
        if self._sweep is None:
            kernel = self._dump.poll(DATAGRAMS) if self._dump.running else None
            if kernel is not None:
                self._sweep = StaleSweep(self._fib, kernel, self._namespace)
            return Step(more=kernel is not None)
        routes = () if self._outdated else self._sweep.kernel_routes()
        if routes:
            left_out = self._gate.left_out(routes, self._is_told)
            return Step(more=True, events=left_out, routes=len(left_out))
        gone = None if self._outdated else self._sweep.next()
        if gone is not None:
            return Step(more=True, events=(gone,), routes=len(gone.keys))
        if self._sweep.free():
            return Step(more=True)
        kept, self._sweep = self._sweep.kept, None
        if self._outdated:
            return Step(more=False)
        self._gate.settled(kept, now)
        return Step(more=False, settled=True)
