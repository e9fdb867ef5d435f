# SPDX-License-Identifier: Apache-2.0
"""Tests the conversion of lists that differ little from earlier lists."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sluice.state.common_ends import ChangedPart, changed_part, convert_changed

LISTS = st.lists(st.integers(0, 2), max_size=40).map(tuple)


def test_the_changed_part_of_an_edited_list() -> None:
    before = tuple(range(100_000))
    assert changed_part(before, before) == (100_000, 100_000, 100_000)
    assert changed_part((*before[:70_001], -1, *before[70_001:]), before) == (
        70_001,
        70_002,
        70_001,
    )
    assert changed_part((*before[:9], *before[11:]), before) == ChangedPart(9, 9, 11)
    assert changed_part(before, ()) == ChangedPart(0, 100_000, 0)


@given(LISTS, LISTS)
def test_the_changed_part_is_the_smallest_one(
    items: tuple[int, ...], before: tuple[int, ...]
) -> None:
    start, end, end_before = changed_part(items, before)
    assert items[:start] == before[:start]
    assert items[end:] == before[end_before:]
    assert start <= min(end, end_before)
    if start < min(end, end_before):
        assert items[start] != before[start]
        assert items[end - 1] != before[end_before - 1]


@given(LISTS, LISTS)
def test_only_the_changed_items_are_converted(
    items: tuple[int, ...], before: tuple[int, ...]
) -> None:
    converted: list[int] = []

    def convert(item: int) -> str:
        converted.append(item)
        return str(item)

    assert convert_changed(convert, items, before, tuple(map(str, before))) == tuple(
        map(str, items)
    )
    start, end, _ = changed_part(items, before)
    assert converted == list(items[start:end])
