# SPDX-License-Identifier: Apache-2.0
"""Tests the conversion of a changed list: for the items at its beginning and end that are
unchanged, earlier results are reused.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sluice.state.common_ends import convert_changed

LISTS = st.lists(st.integers(0, 3), max_size=8)


@given(LISTS, LISTS)
def test_the_results_are_those_of_converting_all(items: list[int], before: list[int]) -> None:
    results = [str(one) for one in before]
    assert convert_changed(str, items, before, results) == tuple(map(str, items))


@given(LISTS, st.integers(4, 9), st.data())
def test_only_changed_items_are_converted(before: list[int], new: int, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(before)))
    converted: list[int] = []

    def convert(item: int) -> str:
        converted.append(item)
        return str(item)

    results = [str(one) for one in before]
    convert_changed(convert, [*before[:at], new, *before[at:]], before, results)
    assert converted == [new]
    converted.clear()
    convert_changed(convert, before, before, results)
    assert converted == []
