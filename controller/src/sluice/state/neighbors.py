# SPDX-License-Identifier: Apache-2.0
"""Tracks the neighbours on the router's links, as in the kernel's neighbour table.

A neighbour found in the switch at start counts as resolved until the kernel reports its state. So a
restart does not disturb forwarding. Depends on model and nexthops (for `Path`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from sluice.model import Address, Mac, NeighborState, Prefix
from sluice.state.nexthops import Path

_VALID = (  # the kernel's NUD_VALID
    NeighborState.REACHABLE
    | NeighborState.STALE
    | NeighborState.DELAY
    | NeighborState.PROBE
    | NeighborState.NOARP
    | NeighborState.PERMANENT
)


class Neighbor(NamedTuple):
    """Holds a neighbour. `since` is the time when its state last changed, in seconds."""

    path: Path
    mac: Mac | None
    state: NeighborState
    since: float


HEAD_OCTETS = {4: 2, 16: 4}
"""Number of leading octets that `covers_neighbor` checks first, by address length in octets."""


class NeighborTable:
    """Holds all neighbours on layer-3 interfaces, including those being resolved."""

    def __init__(self) -> None:
        self._neighbors: dict[Path, Neighbor] = {}
        self._heads: Counter[bytes] = Counter()
        self._addresses: dict[int, list[Address]] = {size: [] for size in HEAD_OCTETS}
        """Sorted addresses, by address length in octets."""
        self.version = 0
        """Number of neighbours added or removed so far."""

    def covers_neighbor(self, prefix: Prefix) -> bool:
        """Returns whether a neighbour lies within `prefix`.

        This method must be fast, because it is called for every route. For most routes, the first
        octets of the prefix already show that no neighbour lies within it.
        """
        size = len(prefix.address)
        octets = HEAD_OCTETS[size]
        if prefix.length >= octets * 8 and prefix.address[:octets] not in self._heads:
            return False
        addresses = self._addresses[size]
        at = bisect_left(addresses, prefix.address)
        return at < len(addresses) and prefix.covers(addresses[at])

    def addresses(self, size: int) -> list[Address]:
        """Returns all addresses of `size` octets, sorted."""
        return self._addresses[size]

    def _store(self, neighbor: Neighbor) -> None:
        address = neighbor.path.address or b""
        if neighbor.path not in self._neighbors:
            self._heads[address[: HEAD_OCTETS[len(address)]]] += 1
            insort(self._addresses[len(address)], address)
            self.version += 1
        self._neighbors[neighbor.path] = neighbor

    def _remove(self, path: Path) -> None:
        address = path.address or b""
        if self._neighbors.pop(path, None) is not None:
            addresses = self._addresses[len(address)]
            del addresses[bisect_left(addresses, address)]
            self.version += 1
            head = address[: HEAD_OCTETS[len(address)]]
            self._heads[head] -= 1
            if not self._heads[head]:
                del self._heads[head]

    def adopt(self, found: dict[Path, Mac], now: float) -> list[Path]:
        """Adds the neighbours found in the switch that are not known yet, and returns these. They
        have the state STALE until the kernel reports another."""
        added = []
        for path, mac in found.items():
            if path not in self._neighbors:
                self._store(Neighbor(path, mac, NeighborState.STALE, now))
                added.append(path)
        return added

    def mac_of(self, path: Path) -> Mac | None:
        """Returns a neighbour's MAC address, or None while the neighbour is unresolved."""
        neighbor = self._neighbors.get(path)
        return None if neighbor is None else neighbor.mac

    def has_failed(self, path: Path) -> bool:
        """Returns whether the kernel has given up resolving a neighbour."""
        neighbor = self._neighbors.get(path)
        return neighbor is not None and neighbor.state is NeighborState.FAILED

    def get(self, path: Path) -> Neighbor | None:
        """Returns a neighbour, or None."""
        return self._neighbors.get(path)

    def paths(self) -> list[Path]:
        """Returns all neighbours, in no particular order."""
        return list(self._neighbors)

    def on_interface(self, l3_if: int) -> list[Path]:
        """Returns the neighbours of one interface."""
        return [path for path in self._neighbors if path.l3_if == l3_if]

    def __iter__(self) -> Iterator[Neighbor]:
        return iter(list(self._neighbors.values()))

    def apply(
        self, path: Path, mac: Mac | None, state: NeighborState, now: float
    ) -> tuple[Mac | None, Mac | None]:
        """Applies a neighbour event of the kernel. Returns the MAC address before and after the
        event."""
        old = self._neighbors.get(path)
        before = None if old is None else old.mac
        after = mac if state & _VALID else None
        if state is NeighborState.NONE:
            self._remove(path)
        else:
            since = old.since if old is not None and old.state is state else now
            self._store(Neighbor(path, after, state, since))
        return before, after

    def remove_interface(self, l3_if: int) -> list[Path]:
        """Deletes the neighbours of an interface whose link is gone; returns them."""
        gone = self.on_interface(l3_if)
        for path in gone:
            self._remove(path)
        return gone


def is_unicast(address: Address) -> bool:
    """Returns whether an address can be a neighbour's. (The kernel also lists multicast groups.)"""
    if len(address) == 4:
        return address[0] < 224 and address != b"\x00\x00\x00\x00"
    return address[0] != 0xFF and any(address)
