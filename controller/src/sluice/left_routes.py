# SPDX-License-Identifier: Apache-2.0
"""Routes that an earlier controller left in the switch, until a routing daemon names them.

A controller that starts finds a table in the switch and hears it named again. What is not named may
be gone, or the daemon pauses: zebra's replay has no end mark. The kernel is the second witness, as
it is for routes of an earlier session (`sources.replay`): what it holds stays. Depends on entities,
model and fib; the reconciler keeps the routes.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Protocol

from sluice.entities import Key, Kind, RouteSlot
from sluice.model import RouteKey
from sluice.namespaces import HOME
from sluice.state.fib import Fib


class SwitchRoutes(Protocol):
    """What is needed of a `Reconciler`."""

    @property
    def comparisons(self) -> int | None:
        """How often what the switch holds was compared with what is desired; None while it is not
        known."""

    def is_orphan(self, kind: Kind, key: Key) -> bool:
        """Whether the switch holds an entity that nobody wants, and is to keep it for now."""

    def sift_orphans(self, kind: Kind, stays: Callable[[Key], bool]) -> Iterator[None]:
        """Has the orphans deleted that do not stay, a block at each step."""


class LeftRoutes:
    """Those of one network namespace's routing daemon."""

    def __init__(self, switch: SwitchRoutes, fib: Fib, namespace: int = HOME) -> None:
        self._switch = switch
        self._fib = fib
        self._namespace = namespace
        self.found = 0
        """How many the last walk has left, so far."""

    @property
    def version(self) -> int | None:
        """Changes when they may be others; None while they are not known."""
        return self._switch.comparisons

    def is_left(self, key: RouteKey) -> bool:
        """Whether the switch holds this route, and nobody has named it."""
        slot = self._fib.slot_of(key)
        return slot is not None and self._switch.is_orphan(Kind.ROUTE, slot)

    def search(self) -> Iterator[None]:
        """Counts them, a block at each step."""
        return self._walk(lambda _: True)

    def sweep(self, kernel: Container[RouteKey]) -> Iterator[None]:
        """Has those deleted that the kernel does not hold, a block at each step."""
        return self._walk(lambda key: key in kernel)

    def _walk(self, holds: Callable[[RouteKey], bool]) -> Iterator[None]:
        self.found = 0

        def stays(slot: Key) -> bool:
            if not isinstance(slot, RouteSlot):
                return True
            key = self._fib.key_of(slot)
            if self._fib.namespace_of(key.table) != self._namespace:
                return True
            if not holds(key):
                return False
            self.found += 1
            return True

        return self._switch.sift_orphans(Kind.ROUTE, stays)
