# SPDX-License-Identifier: Apache-2.0
"""Tests the bounded heap, which must return the same items as a sort, in slices."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from sluice.api.largest import Largest
from sluice.api.rows import SLICE


async def taken(best: Largest[int]) -> tuple[list[list[int]], int]:
    """Returns the slices of the result, and the number of calls of `turn`, which lets other work
    run."""
    turns = 0

    async def turn() -> None:
        nonlocal turns
        turns += 1

    return [part async for part in best.slices(turn)], turns


@given(st.lists(st.integers(0, 20), max_size=300), st.integers(0, 300))
def test_the_largest_in_order(ranks: list[int], limit: int) -> None:
    best: Largest[int] = Largest(limit)
    for number, rank in enumerate(ranks):
        best.add((rank,), number)
    slices, turns = asyncio.run(taken(best))
    in_order = sorted(range(len(ranks)), key=lambda number: -ranks[number])  # stable
    assert [number for part in slices for number in part] == in_order[:limit]
    assert all(0 < len(part) <= SLICE for part in slices)
    assert turns == len(slices)
