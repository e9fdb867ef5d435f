# SPDX-License-Identifier: Apache-2.0
"""Translates routes of a routing daemon that runs in the network namespace of a VRF.

Inside its namespace, the daemon's VRF is the default VRF. So the daemon uses the main table, and
its ids of interfaces and next-hop objects may also occur in other namespaces. This module
translates the daemon's events to the VRF's table and to unique ifindexes (`sluice.namespaces`), and
adds the namespace's number. Routes of other tables are ignored and counted. Depends on sources.fpm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sluice._native import RouteRun
from sluice.model import (
    MAIN_TABLE,
    FpmSessionClosed,
    FpmSessionOpened,
    LinkChanged,
    NexthopObjectDeleted,
    NexthopObjectUpdated,
    NexthopSpec,
    RouteDeleted,
    RouteEvent,
    RouteKey,
    RouteUpdated,
)
from sluice.namespaces import INDEX_LIMIT, base, local
from sluice.sources.fpm import FpmSource

REMEMBERED = 16384
"""Limit of cached next-hop lists. A full cache is cleared."""


class NamespaceRoutes:
    """Provides the translated events of one namespace's FPM peer. `table` is the VRF's table.

    Never returns a `RouteRun`: each route is an event of its own.
    """

    def __init__(self, source: FpmSource, namespace: int, table: int, vrf: str) -> None:
        self._source = source
        self._namespace = namespace
        self._base = base(namespace)
        self._table = table
        self._vrf = vrf
        # Maps tuples of next hops to translated tuples, so that routes that shared a tuple still
        # do.
        self._nexthops: dict[tuple[NexthopSpec, ...], tuple[NexthopSpec, ...]] = {}

    @property
    def counters(self) -> Mapping[str, int]:
        """Same as `FpmSource.counters`."""
        return self._source.counters

    @property
    def problem(self) -> str | None:
        """Same as `FpmSource.problem`."""
        return self._source.problem

    def fileno(self) -> int:
        """Behaves like `FpmSource.fileno`."""
        return self._source.fileno()

    def link_changed(self, event: LinkChanged) -> None:
        """Passes an event of a link of this namespace to the source."""
        self._source.link_changed(replace(event, ifindex=local(event.ifindex)))

    def poll(self, limit: int) -> list[RouteEvent]:
        """Behaves like `FpmSource.poll`."""
        while events := self._source.poll(limit):
            known = [one for event in events if (one := self._of_vrf(event)) is not None]
            if known:
                return known
        return []

    def _of_vrf(self, event: RouteEvent | RouteRun) -> RouteEvent | None:
        match event:
            case RouteUpdated(route):
                key = self._key(route.key)
                nexthops = self._specs(route.nexthops)
                return key and RouteUpdated(route._replace(key=key, nexthops=nexthops))
            case RouteDeleted(key):
                vrfs = self._key(key)
                return vrfs and RouteDeleted(vrfs)
            case NexthopObjectUpdated(nexthop=nexthop):
                of_vrf = None if nexthop is None else self._specs((nexthop,))[0]
                return replace(event, nexthop=of_vrf, namespace=self._namespace)
            case FpmSessionOpened(peer):
                return FpmSessionOpened(f"{peer}, VRF {self._vrf}", self._namespace)
            case NexthopObjectDeleted() | FpmSessionClosed():
                return replace(event, namespace=self._namespace)
        return None

    def _key(self, key: RouteKey) -> RouteKey | None:
        if key.table == MAIN_TABLE:
            return RouteKey(self._table, key.prefix)
        self._source.counters["routes_of_another_table"] += 1
        return None

    def _specs(self, specs: tuple[NexthopSpec, ...]) -> tuple[NexthopSpec, ...]:
        known = self._nexthops.get(specs)
        if known is None:
            if len(self._nexthops) >= REMEMBERED:
                self._nexthops.clear()
            known = self._nexthops[specs] = tuple(map(self._spec, specs))
        return known

    def _spec(self, spec: NexthopSpec) -> NexthopSpec:
        index = spec.ifindex
        if index is None:
            return spec
        # An index beyond the limit would fall into the range of another namespace. So it is
        # replaced by index 0, which no interface has.
        return spec._replace(ifindex=self._base + (index if 0 <= index < INDEX_LIMIT else 0))
