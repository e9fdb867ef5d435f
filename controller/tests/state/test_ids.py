# SPDX-License-Identifier: Apache-2.0
"""Tests the ids of next hops and groups: an id is not reused for another object while the switch
may still hold it.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.state.ids import IdPool, OutOfIdsError


def test_ids_are_new_ones_while_there_are_any() -> None:
    pool = IdPool("next-hop", limit=3)
    first = pool.take()
    pool.release(first)
    pool.confirm_deleted(first)
    assert [first, pool.take(), pool.take()] == [1, 2, 3]
    assert pool.take() == first


def test_the_id_freed_first_is_reused_first() -> None:
    pool = IdPool("next-hop", limit=3)
    taken = [pool.take() for _ in range(3)]
    for identifier in (2, 1, 3):
        pool.release(identifier)
        pool.confirm_deleted(identifier)
    assert taken == [1, 2, 3]
    assert [pool.take() for _ in range(3)] == [2, 1, 3]


def test_a_released_id_rests_until_the_switch_has_deleted_it() -> None:
    pool = IdPool("next-hop", limit=1)
    pool.take()
    pool.release(1)
    with pytest.raises(OutOfIdsError, match="all 1 next-hop ids are in use"):
        pool.take()
    pool.confirm_deleted(1)
    assert pool.take() == 1


def test_an_id_that_the_switch_holds_is_skipped_unless_it_is_claimed() -> None:
    pool = IdPool("group", limit=3)
    pool.reserve(1)
    pool.reserve(2)
    pool.claim(2)
    assert pool.take() == 3
    with pytest.raises(OutOfIdsError):
        pool.take()


def test_a_reserved_id_that_was_not_reached_yet_is_taken_in_its_turn() -> None:
    pool = IdPool("group", limit=3)
    pool.reserve(3)
    pool.confirm_deleted(3)
    assert [pool.take() for _ in range(3)] == [1, 2, 3]
    with pytest.raises(OutOfIdsError):
        pool.take()


def test_an_id_in_use_is_not_reserved() -> None:
    pool = IdPool("group", limit=1)
    pool.take()
    pool.reserve(1)
    pool.confirm_deleted(1)
    with pytest.raises(OutOfIdsError):
        pool.take()


@given(st.lists(st.tuples(st.sampled_from(("take", "release", "confirm")), st.integers(0, 5))))
def test_no_id_has_two_meanings(steps: list[tuple[str, int]]) -> None:
    pool = IdPool("next-hop", limit=5)
    taken: list[int] = []
    held: list[int] = []  # ids that are released but still in the switch
    for step, which in steps:
        if step == "take":
            try:
                identifier = pool.take()
            except OutOfIdsError:
                assert len(taken) + len(held) == 5
                continue
            assert identifier not in (*taken, *held)
            taken.append(identifier)
        elif step == "release" and taken:
            held.append(taken.pop(which % len(taken)))
            pool.release(held[-1])
        elif step == "confirm" and held:
            pool.confirm_deleted(held.pop(which % len(held)))
