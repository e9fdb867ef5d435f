# SPDX-License-Identifier: Apache-2.0
"""Keeps Python's cycle collector from traversing a full route table.

A collection stops the process while it traverses all objects of its generation. For a million
routes this takes more than a second. Routes are never cyclic garbage: reference counts free them.
So surviving objects are frozen (excluded from collection) before they become many. A frozen object
that later becomes part of a cycle leaks. Only a few objects leak, of API connections that are made
while a table arrives.

`made` is needed in addition to the collector's thresholds. The thresholds count objects allocated
minus objects freed. This difference stays near zero while routes are replaced, even if many young
objects exist.
"""

from __future__ import annotations

import gc
from typing import Any

YOUNG = 5_000
"""Number of objects, allocated minus freed, that triggers a young collection."""
GENERATIONS = 2, 10
"""Number of young collections per middle collection, and of middle collections per full
collection."""
ROUTES = 1024
"""Number of routes applied per collection of the young and middle generations: some 8,000
objects."""
OLD = 20_000
"""Number of surviving objects that triggers a freeze: about 4 ms of a full collection."""


class GarbageCollection:
    """Controls the process's collector from `start` to `stop`."""

    def __init__(self) -> None:
        self._made = 0
        self._before = gc.get_threshold()

    def start(self) -> None:
        """Freezes the existing objects, and starts to freeze later survivors."""
        self._before = gc.get_threshold()
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG, *GENERATIONS)
        gc.callbacks.append(self._collected)

    def stop(self) -> None:
        """Restores the collector's thresholds and unfreezes all objects."""
        gc.callbacks.remove(self._collected)
        gc.set_threshold(*self._before)
        gc.unfreeze()

    def made(self, routes: int) -> None:
        """Counts applied routes, new or replaced. Collects after every `ROUTES` routes."""
        self._made += routes
        if self._made >= ROUTES:
            self._made = 0
            gc.collect(1)

    def _collected(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "stop" and info["generation"] and len(gc.get_objects(generation=2)) > OLD:
            gc.freeze()
