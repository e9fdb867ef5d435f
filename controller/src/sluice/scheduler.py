# SPDX-License-Identifier: Apache-2.0
"""Drains inlets in bounded slices, by priority, without starvation.

An **inlet** is a source of work. It is `ready` when its file descriptor is readable, or after
`wake`. Its `drain` does one slice of work and returns whether more work may remain. The ready inlet
of the highest priority runs first. But an inlet that was ready and passed over `PATIENCE` times
goes before it. The scheduler yields to the event loop between slices.

`serve` runs a slice immediately from an event loop callback if no other work waits. To switch to
the scheduler's task would take longer than the work for a single packet. `Stalls` records the
duration of each slice. Depends on asyncio and stalls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sluice.stalls import Stalls

PATIENCE = 8


class Inlet:
    """Represents a source of work. The inlet with the smallest `priority` number runs first."""

    def __init__(
        self, name: str, priority: int, drain: Callable[[], bool], fileno: int | None = None
    ) -> None:
        self.name = name
        self.priority = priority
        self.drain = drain
        self.fileno = fileno
        self.ready = False
        self.enabled = True
        self.slices = 0
        self.passed_over = 0


class Scheduler:
    """Schedules the inlets of one event loop."""

    def __init__(self, stalls: Stalls | None = None) -> None:
        self.running = False
        self._stalls = stalls or Stalls()
        self._loop = asyncio.get_running_loop()
        self._inlets: list[Inlet] = []
        self._wake = asyncio.Event()
        self._waits = False
        self._failed: Exception | None = None

    @property
    def inlets(self) -> tuple[Inlet, ...]:
        """All inlets, by priority."""
        return tuple(self._inlets)

    def add(self, inlet: Inlet) -> None:
        """Adds an inlet. Watches its file descriptor from now on."""
        self._inlets.append(inlet)
        self._inlets.sort(key=lambda other: other.priority)
        self._watch(inlet)

    def wake(self, inlet: Inlet) -> None:
        """Marks an inlet as ready."""
        inlet.ready = True
        self._wake.set()

    def serve(self, inlet: Inlet) -> None:
        """Runs a slice of an inlet immediately if no other work waits. Otherwise marks the inlet as
        ready.

        Must be called from a callback of the event loop, not from a `drain`.
        """
        if not self._waits or self._wake.is_set() or not inlet.enabled:
            self.wake(inlet)
            return
        try:
            self._take(inlet)
        except Exception as error:
            self._failed = error  # `run` raises this error
        if inlet.ready or self._failed is not None:
            self._wake.set()

    def enable(self, inlet: Inlet, enabled: bool) -> None:
        """Enables or disables an inlet. Work of a disabled inlet waits until it is enabled
        again."""
        if inlet.enabled != enabled:
            inlet.enabled = enabled
            self._wake.set()

    async def run(self) -> None:
        """Drains the inlets until cancelled."""
        self.running = True
        try:
            while True:
                if self._failed is not None:
                    raise self._failed
                inlet = self._next()
                if inlet is None:
                    self._wake.clear()
                    self._waits = True
                    await self._wake.wait()
                    self._waits = False
                    continue
                self._take(inlet)
                if not inlet.ready:
                    self._watch(inlet)
                await asyncio.sleep(0)
        finally:
            self.running = self._waits = False
            for inlet in self._inlets:
                if inlet.fileno is not None:
                    self._loop.remove_reader(inlet.fileno)

    def _take(self, inlet: Inlet) -> None:
        """Runs one slice of an inlet."""
        inlet.passed_over = 0
        inlet.slices += 1
        inlet.ready = False
        began = self._stalls.clock()
        if inlet.drain():
            inlet.ready = True
        self._stalls.note(inlet.name, self._stalls.clock() - began)

    def _next(self) -> Inlet | None:
        ready = [inlet for inlet in self._inlets if inlet.ready and inlet.enabled]
        if not ready:
            return None
        chosen = next((inlet for inlet in ready if inlet.passed_over >= PATIENCE), ready[0])
        for inlet in ready:
            inlet.passed_over += 1
        return chosen

    def _watch(self, inlet: Inlet) -> None:
        if inlet.fileno is not None:
            self._loop.add_reader(inlet.fileno, self._readable, inlet)

    def _readable(self, inlet: Inlet) -> None:
        if inlet.fileno is not None:
            self._loop.remove_reader(inlet.fileno)
        self.wake(inlet)
