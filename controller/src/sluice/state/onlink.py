# SPDX-License-Identifier: Apache-2.0
"""Derives on-link routes: connected prefixes (glean) and host routes for neighbours.

Packets to a connected prefix go to the next hop (l3_if, None), which punts them so that the
neighbour is resolved. A resolved neighbour gets a host route to the next hop (l3_if, its address).

Invariant: a host route exists only while the longest match without host routes is a connected route
of the same interface. So a host that answers ARP on a link cannot attract traffic for an address
that the routing daemon routes elsewhere.

Each `refresh_*` yields the prefixes whose on-link target changed. The caller must exhaust the
iterator. If ids run out, the iterator first yields the changes made so far, then raises
OutOfIdsError.

Depends on model, entities and the tables of `state`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sluice.entities import EntityChanges, RouteSlot, RouteTarget, RouteTargetKind
from sluice.model import Address, Mac, Prefix, is_link_local
from sluice.state.interfaces import InterfaceTable
from sluice.state.neighbors import NeighborTable, is_unicast
from sluice.state.nexthops import NexthopTable, Path
from sluice.state.usable_routes import UsableRoutes


class _OnLink(NamedTuple):
    path: Path
    target: RouteTarget


class OnLink:
    """Holds connected prefixes and host routes, and their targets."""

    def __init__(
        self,
        interfaces: InterfaceTable,
        neighbors: NeighborTable,
        nexthops: NexthopTable,
        routes: UsableRoutes,
    ) -> None:
        self._interfaces = interfaces
        self._neighbors = neighbors
        self._nexthops = nexthops
        self._routes = routes
        self._connected: dict[RouteSlot, _OnLink] = {}
        self._hosts: dict[RouteSlot, _OnLink] = {}

    def target(self, slot: RouteSlot) -> RouteTarget | None:
        """Returns the on-link target of a prefix, or None. A route of the routing daemon overrides
        it."""
        found = self._find(slot)
        return None if found is None else found.target

    def path(self, slot: RouteSlot) -> Path | None:
        """Returns the next hop of a connected prefix or host route, or None."""
        found = self._find(slot)
        return None if found is None else found.path

    def _find(self, slot: RouteSlot) -> _OnLink | None:
        return self._connected.get(slot) or self._hosts.get(slot)

    def lengths(self, vrf: int, size: int) -> set[int]:
        """Returns the lengths of a VRF's connected prefixes with addresses of `size` octets."""
        return {
            slot.prefix.length
            for slot in self._connected
            if slot.vrf == vrf and len(slot.prefix.address) == size
        }

    def hosts(self) -> list[tuple[RouteSlot, Path]]:
        """Returns all host routes."""
        return [(slot, host.path) for slot, host in self._hosts.items()]

    def connected(self) -> list[tuple[RouteSlot, Path]]:
        """Returns all connected prefixes."""
        return [(slot, connected.path) for slot, connected in self._connected.items()]

    def refresh_connected(self, changes: EntityChanges) -> Iterator[RouteSlot]:
        """Updates connected prefixes after addresses or links changed."""
        wanted: dict[RouteSlot, Path] = {}
        for connected in self._interfaces.connected():
            wanted.setdefault(connected.slot, Path(connected.l3_if, None))
        before = {slot: connected.path for slot, connected in self._connected.items()}
        if wanted == before:
            return
        for slot, path in wanted.items():
            if before.get(slot) != path:
                identifier = self._nexthops.acquire(path, None, changes)
                self._connected[slot] = _OnLink(
                    path, RouteTarget(RouteTargetKind.NEXTHOP, identifier)
                )
                yield slot
        for slot, path in before.items():
            if slot not in wanted:
                del self._connected[slot]
                yield slot
            if wanted.get(slot) != path:
                self._nexthops.release(path, changes)

    def refresh_hosts(self, changes: EntityChanges) -> Iterator[RouteSlot]:
        """Updates all host routes after a change of a less specific prefix that covers some of
        them."""
        for neighbor in self._neighbors:
            yield from self.refresh_host(neighbor.path, changes)

    def refresh_host(self, path: Path, changes: EntityChanges) -> Iterator[RouteSlot]:
        """Updates the host route of a neighbour after a change of the neighbour or of a prefix that
        covers it."""
        interface = self._interfaces.by_l3_if.get(path.l3_if)
        if interface is None or path.address is None:
            return
        slot = RouteSlot(interface.spec.vrf, Prefix.host(path.address))
        mac = self._neighbors.mac_of(path)
        present = self._hosts.get(slot)
        if mac is not None and self._is_wanted(slot, path, path.address):
            if present is None or present.path != path:
                self._set_host(slot, path, mac, changes)
                yield slot
        elif present is not None and present.path == path:
            del self._hosts[slot]
            self._nexthops.release(path, changes)
            yield slot

    def _set_host(self, slot: RouteSlot, path: Path, mac: Mac, changes: EntityChanges) -> None:
        before = self._hosts.get(slot)
        identifier = self._nexthops.acquire(path, mac, changes)
        self._hosts[slot] = _OnLink(path, RouteTarget(RouteTargetKind.NEXTHOP, identifier))
        if before is not None:
            self._nexthops.release(before.path, changes)

    def _is_wanted(self, slot: RouteSlot, path: Path, address: Address) -> bool:
        if not is_unicast(address) or is_link_local(address):
            return False
        best, links = -1, frozenset[int]()
        for connected_slot, connected in self._connected.items():
            prefix = connected_slot.prefix
            if connected_slot.vrf == slot.vrf and prefix.length > best and prefix.covers(address):
                best, links = prefix.length, frozenset((connected.path.l3_if,))
        match = self._routes.longest_match(slot.vrf, address)
        if match is not None and match.length >= best:
            links = match.connected_on
        return path.l3_if in links
