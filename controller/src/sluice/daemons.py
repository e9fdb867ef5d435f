# SPDX-License-Identifier: Apache-2.0
"""Manages the FPM sessions of the routing daemons.

There is one daemon in the controller's network namespace, and one in each network namespace of a
VRF. Each daemon has its own FPM session and its own replay of routes. Its routes are compared with
the kernel's routes of the same namespace. Depends on inputs, unreplayed_routes, scheduler and
route_comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from sluice.inputs import RouteFeed
from sluice.model import LinkChanged
from sluice.namespaces import namespace_of
from sluice.route_comparison import RouteComparison
from sluice.scheduler import Inlet, Scheduler
from sluice.state.fib import Fib
from sluice.unreplayed_routes import SwitchRoutes, UnreplayedRoutes

WAITED_FOR = 30.0
"""Time to wait for the other daemons after the first daemon's routes are complete, in seconds.

After that time, the kernel's routes alone count for a VRF whose daemon has not connected. zebra
tries to connect every 3 s.
"""


class Daemon:
    """Holds the state of one routing daemon. `routes` and `comparing` are its scheduler inlets."""

    routes: Inlet
    comparing: Inlet

    def __init__(self, feed: RouteFeed, fib: Fib, switch: SwitchRoutes) -> None:
        self.feed = feed
        left = UnreplayedRoutes(switch, fib, feed.namespace)
        self.comparison = RouteComparison(fib, feed.gate, feed.dump, left, feed.namespace)
        self.has_spoken = False
        """Whether the daemon has had a session."""
        self.settled = False
        """Whether the daemon has replayed all its routes since the start, or did not connect in
        time."""


class RoutingDaemons:
    """Manages all routing daemons."""

    def __init__(self, feeds: Iterable[RouteFeed], fib: Fib, switch: SwitchRoutes) -> None:
        self._daemons = [Daemon(feed, fib, switch) for feed in feeds]
        self._scheduler: Scheduler | None = None
        self._waits_until: float | None = None
        self.enabled = True
        self.settled = False
        """Whether all daemons have replayed their routes, or did not connect in time."""

    def add_inlets(
        self,
        scheduler: Scheduler,
        drain: Callable[[Daemon], bool],
        compare: Callable[[Daemon], bool],
    ) -> None:
        """Adds two inlets for each daemon: `routes` reads its routes, `comparing` compares them
        with its kernel's routes."""
        self._scheduler = scheduler
        for daemon in self._daemons:
            feed = daemon.feed
            of_vrf = f" of VRF {feed.namespace}" if feed.namespace else ""
            fileno = feed.routes.fileno()
            daemon.routes = Inlet(f"routes{of_vrf}", 4, partial(drain, daemon), fileno)
            name = f"route comparison{of_vrf}"
            daemon.comparing = Inlet(name, 6, partial(compare, daemon), feed.dump.fileno())
            scheduler.add(daemon.routes)
            scheduler.add(daemon.comparing)

    def enable(self, enabled: bool) -> None:
        """Starts or stops reading routes. While stopped, unread routes wait in their sockets."""
        self.enabled = enabled
        if self._scheduler is not None:
            for daemon in self._daemons:
                self._scheduler.enable(daemon.routes, enabled)

    def link_changed(self, event: LinkChanged) -> None:
        """Passes a link change to the route source of the link's namespace."""
        namespace = namespace_of(event.ifindex)
        for daemon in self._daemons:
            if daemon.feed.namespace == namespace:
                daemon.feed.routes.link_changed(event)

    def routes_complete(self, daemon: Daemon, now: float) -> None:
        """Records that a daemon has replayed all its routes, or did not connect in time."""
        daemon.settled = True
        if self._waits_until is None:
            self._waits_until = now + WAITED_FOR

    def settle(self, now: float) -> bool:
        """Sets `settled` if all daemons are settled. Returns whether this call changed it."""
        if self.settled or not all(one.settled for one in self._daemons):
            return False
        self.settled = True
        return True

    @property
    def kept(self) -> int:
        """Number of routes in the switch that no daemon has replayed, and that are kept because a
        kernel has them."""
        return sum(one.comparison.kept for one in self._daemons)

    def compare_due(self, now: float) -> None:
        """Begins the comparisons of routes with the kernels' routes that are due.

        A VRF may have no routing daemon. If a daemon has not connected within `WAITED_FOR` seconds
        after the first daemon's replay, its routes are compared without a replay: the kernel's
        routes alone decide which of them are kept.
        """
        waited = self._waits_until is not None and now >= self._waits_until
        for daemon in self._daemons:
            if waited and not daemon.settled and not daemon.has_spoken:
                daemon.feed.gate.ask(now)
            unread = daemon.routes.ready or not daemon.routes.enabled
            started = daemon.comparison.start_if_due(now, unread=unread)
            if started and self._scheduler is not None:
                self._scheduler.wake(daemon.comparing)

    def next_due(self, now: float) -> float | None:
        """Returns when to call `compare_due` and `settle` next, or None if nothing is pending."""
        dues = [daemon.comparison.due for daemon in self._daemons]
        if not self.settled and self._waits_until is not None and now < self._waits_until:
            dues.append(self._waits_until)
        return min((due for due in dues if due is not None), default=None)
