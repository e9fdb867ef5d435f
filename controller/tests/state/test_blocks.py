# SPDX-License-Identifier: Apache-2.0
"""Tests that the blocks of an edited list are those of a new list, and that few of them change."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from sluice.state import blocks
from sluice.state.blocks import Block, changed_blocks
from sluice.state.common_ends import ChangedPart, changed_part

LISTS = st.lists(st.integers(0, 5), max_size=60).map(tuple)


def divide(
    items: tuple[int, ...], before: tuple[int, ...], known: tuple[Block, ...]
) -> tuple[tuple[Block, ...], int]:
    """Divides items into blocks, where the item 0 ends a block. Returns the blocks, and the number
    of items that were digested."""
    digested = 0

    def digest(start: int, end: int) -> str:
        nonlocal digested
        digested += end - start
        return sha256(repr(items[start:end]).encode()).hexdigest()

    part = changed_part(items, before)
    found = changed_blocks(part, len(items), known, lambda at: items[at] == 0, digest)
    return found, digested


@given(st.lists(LISTS, min_size=1, max_size=5))
def test_blocks_do_not_depend_on_earlier_lists(versions: list[tuple[int, ...]]) -> None:
    before: tuple[int, ...] = ()
    known: tuple[Block, ...] = ()
    for items in versions:
        known, _ = divide(items, before, known)
        assert known == divide(items, (), ())[0]
        assert sum(block.length for block in known) == len(items)
        before = items


def test_an_edit_changes_one_block() -> None:
    items = tuple(at % 1000 for at in range(100_000))
    known, _ = divide(items, (), ())
    for edited in ((*items[:50_500], 7, *items[50_500:]), (*items[:50_500], *items[50_501:])):
        found, digested = divide(edited, items, known)
        assert digested <= 1001
        assert len({*found} - {*known}) == 1


def test_a_block_has_a_longest_length() -> None:
    size = 3 * blocks.LONGEST
    found = changed_blocks(ChangedPart(0, size, 0), size, (), lambda _: False, lambda *_: "")
    assert [block.length for block in found] == [blocks.LONGEST] * 3
