# SPDX-License-Identifier: Apache-2.0
"""Compares the routes of an earlier session with the kernel's routes, in slices.

First, the caller takes the kernel's routes (`next_kernel_routes`). Among them are routes that the
daemon's replay left out. The caller adds them, so they no longer count as stale. Between two
slices, routes may be added, deleted or announced again. This does no harm, because `fib` deletes
only the routes that are still stale when it applies the event. Depends on fib, entities and model.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from sluice.entities import RouteSlot
from sluice.model import Route, RouteKey, StaleRoutesGone
from sluice.namespaces import OWN_NAMESPACE
from sluice.state.fib import Fib

KERNEL_ROUTES_PER_SLICE = 512
"""Kernel routes per slice of the comparison."""
FREED_PER_SLICE = 4096
"""Kernel routes freed per slice: about 2 ms."""


class StaleSweep:
    """Runs one comparison for the routing daemon of one network namespace.

    `kernel` has the kernel's routes. The sweep empties this dictionary.
    """

    def __init__(
        self, fib: Fib, kernel: dict[RouteKey, Route], namespace: int = OWN_NAMESPACE
    ) -> None:
        self._fib = fib
        self._rib = fib.ribs[namespace]
        self._kernel = kernel
        self._unread = iter(kernel.values())
        self._walk: Iterator[list[RouteSlot]] | None = None
        self.still_in_kernel = 0
        """Number of stale routes that the kernel holds: a later sweep must compare them again."""

    def next_kernel_routes(self) -> list[Route]:
        """Returns the next slice of the kernel's routes; empty at the end."""
        return list(islice(self._unread, KERNEL_ROUTES_PER_SLICE))

    def next(self) -> StaleRoutesGone | None:
        """Compares the next block of routes. Returns the stale routes that the kernel lacks, or
        None at the end."""
        if self._walk is None:
            self._walk = self._fib.order.walk() if self._rib.stale else iter(())
        slots = next(self._walk, None)
        if slots is None:
            return None
        stale = [key for key in map(self._fib.key_of, slots) if self._rib.is_stale(key)]
        gone = tuple(key for key in stale if key not in self._kernel)
        self.still_in_kernel += len(stale) - len(gone)
        return StaleRoutesGone(gone)

    def free(self) -> bool:
        """Frees a slice of the kernel's routes; returns whether any are left."""
        for _ in range(min(FREED_PER_SLICE, len(self._kernel))):
            self._kernel.popitem()
        return bool(self._kernel)
