# SPDX-License-Identifier: Apache-2.0
"""Python's cycle collector, kept from walking a full table.

A collection stops everything for as long as it takes to look at all objects of its generation. Of a
million routes that is more than a second, and routes are never garbage of that kind: reference
counts free them. So what has survived is frozen, taken out of the collector's sight, before it
becomes much. What is frozen while it is in use and becomes part of a cycle later, is lost: a few
connections of the API in the middle of a table's arrival, not more.

Order: `made` is needed beside the collector's own thresholds. These count objects made less objects
freed, which stays near zero while routes are replaced, however many young objects there are.
"""

from __future__ import annotations

import gc
from typing import Any

YOUNG = 5_000
"""Objects made, less those freed, before the young ones are looked at."""
GENERATIONS = 2, 10
"""Such collections before the middle generation is looked at, and of those before all is."""
ROUTES = 1024
"""Routes taken in before the young and middle generations are looked at: some 8,000 objects."""
OLD = 20_000
"""Objects that may have survived before they are frozen: about 4 ms of a full collection."""


class Garbage:
    """The process's collector, from `start` to `stop`."""

    def __init__(self) -> None:
        self._made = 0
        self._before = gc.get_threshold()

    def start(self) -> None:
        """Freezes what is there, and watches over what comes."""
        self._before = gc.get_threshold()
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG, *GENERATIONS)
        gc.callbacks.append(self._collected)

    def stop(self) -> None:
        """Gives the collector back its thresholds and everything to look at."""
        gc.callbacks.remove(self._collected)
        gc.set_threshold(*self._before)
        gc.unfreeze()

    def made(self, routes: int) -> None:
        """So many routes were taken in, new or in place of others."""
        self._made += routes
        if self._made >= ROUTES:
            self._made = 0
            gc.collect(1)

    def _collected(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "stop" and info["generation"] and len(gc.get_objects(generation=2)) > OLD:
            gc.freeze()
