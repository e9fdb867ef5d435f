# SPDX-License-Identifier: Apache-2.0
"""Tests that each collection traverses a bounded number of objects, even with a large table."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from sluice.garbage_collection import OLD, ROUTES, GarbageCollection, paused_if
from sluice.model import Prefix


@pytest.fixture
def garbage() -> Iterator[GarbageCollection]:
    made = GarbageCollection()
    made.start()
    try:
        yield made
    finally:
        made.stop()
        gc.collect()


def seen() -> int:
    """Returns the number of objects that a full collection would traverse."""
    return len(gc.get_objects())


def prefix(n: int) -> Prefix:
    return Prefix(n.to_bytes(4, "big"), 32)


def test_no_collection_traverses_a_long_list_while_it_is_made(garbage: GarbageCollection) -> None:
    with paused_if(True):
        with paused_if(True):
            listed = [[number] for number in range(OLD)]
        assert not gc.isenabled()
        before = gc.get_stats()
        garbage.made(ROUTES)
        assert gc.get_stats() == before
    assert gc.isenabled()
    assert seen() < OLD
    assert len(listed) == OLD
    frozen = gc.get_freeze_count()
    with paused_if(False):
        assert gc.isenabled()
    assert gc.get_freeze_count() == frozen


def test_a_growing_table_is_frozen_as_it_comes(garbage: GarbageCollection) -> None:
    most, table = 0, []
    for n in range(300_000):
        table.append([prefix(n)])
        if n % 1000 == 0:
            most = max(most, seen())
    assert gc.get_freeze_count() > 500_000
    assert most < 3 * OLD


def test_a_table_that_is_replaced_is_as_well(garbage: GarbageCollection) -> None:
    """Checks that the number of traversed objects is bounded while all routes of a table are
    replaced.

    As many objects are freed as allocated. So the collector's own count stays near zero and never
    triggers a collection.
    """
    most, table = 0, [[prefix(n)] for n in range(200_000)]
    for n in range(200_000):
        table[n] = [prefix(n + 1)]
        if n % 100 == 99:
            garbage.made(100)
        if n % ROUTES == 0:
            most = max(most, seen())
    assert most < 3 * OLD


def test_cycles_are_still_found(garbage: GarbageCollection) -> None:
    class Cycle:
        def __init__(self) -> None:
            self.itself = self

    gone = weakref.ref(Cycle())
    garbage.made(ROUTES)
    assert gone() is None


def test_afterwards_everything_is_as_before() -> None:
    before = gc.get_threshold(), len(gc.callbacks)
    garbage = GarbageCollection()
    garbage.start()
    garbage.stop()
    assert (gc.get_threshold(), len(gc.callbacks)) == before
    assert gc.get_freeze_count() == 0
