# SPDX-License-Identifier: Apache-2.0
"""Selects which routes of the routing daemons their VRF may use.

A route may lead through an interface of another VRF. For example, the kernel's main table may have
the connected prefixes of all interfaces. Such a route is usable only if the configuration allows
next hops in the other VRF. A route that waits for its next-hop object is not usable.

Depends on model, entities, paths and rib. Changes none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sluice._native import RouteTable
from sluice.entities import RouteSlot
from sluice.model import Address, Prefix, mask_address
from sluice.state.paths import PathSet
from sluice.state.rib import RibEntry


class RibMatch(NamedTuple):
    """Describes the routing daemon's longest match for an address: the length of its prefix, and
    its on-link interfaces."""

    length: int
    connected_on: frozenset[int]


class UsableRoutes:
    """Selects the usable routes of all VRFs.

    `next_hop_vrfs` maps a VRF to the other VRFs whose interfaces its routes may use.
    """

    def __init__(
        self, table: RouteTable, vrfs: Iterable[int], next_hop_vrfs: Mapping[int, frozenset[int]]
    ) -> None:
        self._table = table
        self._next_hop_vrfs = {vrf: next_hop_vrfs.get(vrf, frozenset()) | {vrf} for vrf in vrfs}

    def is_usable(self, vrf: int, paths: PathSet) -> bool:
        """Returns whether routes of a VRF may use all interfaces of a path set."""
        return paths.vrfs <= self._next_hop_vrfs[vrf]

    def paths_of(self, slot: RouteSlot) -> PathSet | None:
        """Returns the path set of the usable route for a prefix, or None."""
        entry: RibEntry | None = self._table.entry(slot)
        paths = None if entry is None else entry.paths
        return paths if paths is not None and self.is_usable(slot.vrf, paths) else None

    def longest_match(self, vrf: int, address: Address) -> RibMatch | None:
        """Returns the usable route with the longest prefix that covers an address, or None."""
        for length in self._table.lengths(vrf, len(address)):
            prefix = Prefix(mask_address(address, length), length)
            paths = self.paths_of(RouteSlot(vrf, prefix))
            if paths is not None:
                links = {m.path.l3_if for m in paths.members if m.path.address is None}
                return RibMatch(prefix.length, frozenset(links))
        return None
