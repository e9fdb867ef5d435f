# SPDX-License-Identifier: Apache-2.0
"""Tracks routes that an earlier controller left in the switch until a daemon replays them.

At start the controller finds a routing table in the switch, and the daemon replays its routes. If a
route is missing in the replay, either it is gone or the replay is not over yet. The two cases look
alike, because zebra's replay has no end mark. So such a route stays if the kernel holds it, like a
route of an earlier session (`sources.replay`). The reconciler stores the left-over routes, as
orphans. Depends on entities, model and fib.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Protocol

from sluice.entities import EntityKey, EntityKind, RouteSlot
from sluice.model import RouteKey
from sluice.namespaces import OWN_NAMESPACE
from sluice.state.fib import Fib


class SwitchRoutes(Protocol):
    """Describes the methods of `Reconciler` that this module uses."""

    @property
    def comparisons(self) -> int | None:
        """Number of comparisons of the switch with the desired state.

        None while the switch's state is unknown.
        """

    def is_orphan(self, kind: EntityKind, key: EntityKey) -> bool:
        """Returns whether the switch holds an entity that is not desired but is kept for now."""

    def delete_orphans_unless(
        self, kind: EntityKind, is_kept: Callable[[EntityKey], bool]
    ) -> Iterator[None]:
        """Deletes the orphans for which `is_kept` is false, one block at each step."""


class UnreplayedRoutes:
    """Tracks the routes that an earlier controller left in the switch and that one daemon has not
    replayed."""

    def __init__(self, switch: SwitchRoutes, fib: Fib, namespace: int = OWN_NAMESPACE) -> None:
        self._switch = switch
        self._fib = fib
        self._namespace = namespace
        self.found = 0
        """Number of routes that the last walk has kept so far."""

    @property
    def version(self) -> int | None:
        """Version of the left-over routes. A new value means that these routes may have changed.

        None while the left-over routes are not known.
        """
        return self._switch.comparisons

    def is_unreplayed(self, key: RouteKey) -> bool:
        """Returns whether the switch holds this route and no daemon has replayed it."""
        slot = self._fib.slot_of(key)
        return slot is not None and self._switch.is_orphan(EntityKind.ROUTE, slot)

    def search(self) -> Iterator[None]:
        """Counts the left-over routes, one block at each step."""
        return self._walk(lambda _: True)

    def sweep(self, kernel: Container[RouteKey]) -> Iterator[None]:
        """Deletes the left-over routes that the kernel does not hold, one block at each step."""
        return self._walk(lambda key: key in kernel)

    def _walk(self, holds: Callable[[RouteKey], bool]) -> Iterator[None]:
        self.found = 0

        def is_kept(slot: EntityKey) -> bool:
            if not isinstance(slot, RouteSlot):
                return True
            key = self._fib.key_of(slot)
            if self._fib.namespace_of(key.table) != self._namespace:
                return True
            if not holds(key):
                return False
            self.found += 1
            return True

        return self._switch.delete_orphans_unless(EntityKind.ROUTE, is_kept)
