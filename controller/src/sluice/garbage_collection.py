# SPDX-License-Identifier: Apache-2.0
"""Prevents long pauses by Python's cycle collector, which would traverse a full route table.

A collection stops the process while the collector traverses all objects of a generation. For a
million routes this takes more than a second. But routes never become cyclic garbage: reference
counts free them. So objects that have survived collections are frozen (excluded from later
collections) before they become many. A frozen object leaks if it later becomes part of a garbage
cycle. This concerns only a few objects: those of API connections made while a route table arrives.

A list of a million rules is a tuple. One collection of a new tuple of this length takes a tenth of
a second, because the collector reads every item. So collections are paused while long lists are
made (`paused_if`), and then the lists are frozen. Rules never become cyclic garbage either.

The collector's own thresholds do not suffice, so `made` counts routes. They count objects allocated
minus objects freed. This difference stays near zero while routes are replaced, even if there are
many young objects.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
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


_pauses = 0


@contextmanager
def paused_if(is_long: bool) -> Iterator[None]:
    """If the block makes a long list, prevents collections while it runs, and then freezes all
    objects.

    May be nested, and used by several threads or tasks at the same time.
    """
    global _pauses  # noqa: PLW0603 - the collector is global too
    if not is_long:
        yield
        return
    _pauses += 1
    gc.disable()
    try:
        yield
    finally:
        _pauses -= 1
        if not _pauses:
            gc.freeze()
            gc.enable()


class GarbageCollection:
    """Controls Python's cycle collector from `start` to `stop`."""

    def __init__(self) -> None:
        self._made = 0
        self._before = gc.get_threshold()

    def start(self) -> None:
        """Freezes the existing objects. From then on, freezes objects that survive collections."""
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
        """Counts applied routes, new or replaced. Runs a collection after every `ROUTES` routes."""
        self._made += routes
        if self._made >= ROUTES and gc.isenabled():
            self._made = 0
            gc.collect(1)

    def _collected(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "stop" and info["generation"] and len(gc.get_objects(generation=2)) > OLD:
            gc.freeze()
