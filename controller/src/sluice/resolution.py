# SPDX-License-Identifier: Apache-2.0
"""Neighbour resolution: decides which neighbours the kernel shall resolve, and when.

Routes and packets want neighbours; `state.keeper` says when each is due; the kernel's answer comes
as a NeighborChanged. A request waits until the kernel's neighbour table was read for the first
time, so that known neighbours are not requested, and until the neighbour's interface is known.
Depends on state, held and the kernel's input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from sluice.held import HeldPackets
from sluice.inputs import KernelInput
from sluice.model import NeighborChanged, NeighborState
from sluice.state.fib import Fib
from sluice.state.keeper import NeighborKeeper
from sluice.state.nexthops import Path


class Resolution:
    """Asks the kernel for neighbours. `counters` are the controller's."""

    def __init__(
        self, fib: Fib, held: HeldPackets, kernel: KernelInput, counters: Counter[str]
    ) -> None:
        self._fib = fib
        self._held = held
        self._kernel = kernel
        self._counters = counters
        self._keeper = NeighborKeeper()
        self._waiting: dict[Path, None] = {}
        self._table_read = False

    @property
    def next_due(self) -> float | None:
        """When `ask_due` has something to do next."""
        return self._keeper.next_due

    @property
    def waiting(self) -> int:
        """How many questions cannot be put yet."""
        return len(self._waiting)

    def want(self, path: Path, now: float) -> None:
        """A route wants a neighbour that is not known: it is due now."""
        self._keeper.ask(path, now)

    def changed(self, path: Path, event: NeighborChanged, now: float) -> None:
        """Takes notice of what the kernel says, after the Fib has."""
        in_use = self._fib.nexthops.id_of(path) is not None
        self._keeper.changed(path, event.state, in_use, now)

    def unanswered(self, paths: Iterable[Path], now: float) -> None:
        """Packets have waited for these in vain: asked again later, as after a failure."""
        for path in paths:
            in_use = self._fib.nexthops.id_of(path) is not None
            self._keeper.changed(path, NeighborState.FAILED, in_use, now)

    def ask_due(self, now: float) -> None:
        """Asks for the neighbours whose time has come, unless nobody wants them any more."""
        due = self._keeper.due(now)
        for path in due:
            if not self._is_wanted(path):
                self._keeper.forget(path)
        self.ask(filter(self._is_wanted, due))

    def _is_wanted(self, path: Path) -> bool:
        return (
            self._fib.nexthops.id_of(path) is not None
            or self._fib.neighbors.mac_of(path) is not None
            or path in self._held
        )

    def ask(self, paths: Iterable[Path] = ()) -> None:
        """Asks for these neighbours, and for those that waited for this moment."""
        self._waiting.update(dict.fromkeys(paths))
        self._table_read = self._table_read or self._kernel.synced
        if not self._table_read or not self._waiting:
            return
        waiting, self._waiting = self._waiting, {}
        for path in waiting:
            ifindex = self._fib.interfaces.ifindex_of(path.l3_if)
            if ifindex is None:
                self._waiting[path] = None
            elif path.address is not None:
                self._ask(ifindex, path.address)

    def _ask(self, ifindex: int, address: bytes) -> None:
        try:
            self._kernel.use_neighbor(ifindex, address)
        except OSError as error:  # short of buffers, no route: the keeper asks again
            self._counters[f"neighbours not asked for: {error.strerror}"] += 1
        else:
            self._counters["neighbours asked for"] += 1
