# SPDX-License-Identifier: Apache-2.0
"""Combines the RIBs of all routing daemons. There is one daemon for each network namespace.

Each routing daemon has its own sessions, next-hop objects and kernel tables. Depends on rib and
namespaces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sluice.model import RouteKey
from sluice.namespaces import OWN_NAMESPACE
from sluice.state.rib import Rib, RibEntry


class Ribs:
    """Provides one view of the RIBs of all network namespaces.

    `namespaces` maps routing tables to namespaces. All other tables belong to the daemon of
    `OWN_NAMESPACE`.
    """

    def __init__(self, ribs: Mapping[int, Rib], namespaces: Mapping[int, int]) -> None:
        self._ribs = ribs
        self._default = ribs[OWN_NAMESPACE]
        self._by_table = {table: ribs[namespace] for table, namespace in namespaces.items()}

    def of_table(self, table: int) -> Rib:
        """Returns the RIB to which a routing table belongs."""
        return self._by_table.get(table, self._default)

    def get(self, key: RouteKey) -> RibEntry | None:
        """Returns the entry of a route, like `Rib.get`."""
        return self.of_table(key.table).get(key)

    def is_stale(self, key: RouteKey) -> bool:
        """Returns whether a route is stale, like `Rib.is_stale`."""
        return self.of_table(key.table).is_stale(key)

    @property
    def target_changes(self) -> int:
        """Number of times that an object's target changed, over all daemons."""
        return sum(rib.target_changes for rib in self._ribs.values())

    @property
    def stale(self) -> int:
        """Number of stale routes, over all daemons."""
        return sum(rib.stale for rib in self._ribs.values())

    def waiting_objects(self) -> dict[int, int]:
        """Returns the missing objects, like `Rib.waiting_objects`.

        Different daemons may use the same object number. Then the counts of waiting routes are
        added up.
        """
        waiting: dict[int, int] = {}
        for rib in self._ribs.values():
            for identifier, uses in rib.waiting_objects().items():
                waiting[identifier] = waiting.get(identifier, 0) + uses
        return waiting

    def __iter__(self) -> Iterator[RouteKey]:
        for rib in self._ribs.values():
            yield from rib

    def __len__(self) -> int:
        return sum(map(len, self._ribs.values()))
