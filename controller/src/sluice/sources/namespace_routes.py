# SPDX-License-Identifier: Apache-2.0
"""The routes of a routing daemon that runs in the network namespace of a VRF.

To the daemon its VRF is the default one: it names the main table, and interfaces and next-hop
objects by numbers that other namespaces have too. Here they get the VRF's table, indexes that are
unique (`sluice.namespaces`) and the namespace's number. Routes of other tables are ignored and
counted. Depends on sources.fpm.
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
"""Lists of next hops; with more, all are made anew."""


class NamespaceRoutes:
    """The events of one namespace's FPM peer, which makes no runs. `table` is that of the VRF with
    this number."""

    def __init__(self, source: FpmSource, namespace: int, table: int, vrf: str) -> None:
        self._source = source
        self._namespace = namespace
        self._base = base(namespace)
        self._table = table
        self._vrf = vrf
        # Routes of one text share their next hops, and go on to do so.
        self._nexthops: dict[tuple[NexthopSpec, ...], tuple[NexthopSpec, ...]] = {}

    @property
    def counters(self) -> Mapping[str, int]:
        """As `FpmSource.counters`."""
        return self._source.counters

    @property
    def problem(self) -> str | None:
        """As `FpmSource.problem`."""
        return self._source.problem

    def fileno(self) -> int:
        """As `FpmSource.fileno`."""
        return self._source.fileno()

    def link_changed(self, event: LinkChanged) -> None:
        """Takes notice of a link of this namespace."""
        self._source.link_changed(replace(event, ifindex=local(event.ifindex)))

    def poll(self, limit: int) -> list[RouteEvent]:
        """As `FpmSource.poll`."""
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
        # An index that no interface has: beyond the limit it would be one of another namespace.
        return spec._replace(ifindex=self._base + (index if 0 <= index < INDEX_LIMIT else 0))
