# SPDX-License-Identifier: Apache-2.0
"""Divides long lists into blocks, so that an edit of a list changes few blocks. Pure.

Where a block ends depends on its items only. So the blocks of a list do not move when items are
added or deleted before them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from sluice.state.common_ends import ChangedPart

MEAN_LENGTH = 1024
"""Mean number of items in a block, if one item in this number ends a block."""
LONGEST = 8 * MEAN_LENGTH


class Block(NamedTuple):
    """A block of `length` adjacent items. Equal digests mean equal items."""

    length: int
    digest: str


def changed_blocks(
    part: ChangedPart,
    size: int,
    before: Sequence[Block],
    ends_block: Callable[[int], bool],
    digest: Callable[[int, int], str],
) -> tuple[Block, ...]:
    """Returns the blocks of a list of `size` items, given the blocks `before` of an earlier list.

    `part` is the part of the list that differs from the earlier list. `ends_block(at)` returns
    whether a block ends behind item `at`, and `digest(start, end)` digests some items. They are
    called for the changed blocks only: for each of these items in order, and then for their block.
    """
    blocks: list[Block] = []
    at = 0
    for block in before[:-1]:  # the last block may have ended with the list
        if at + block.length > part.start:
            break
        blocks.append(block)
        at += block.length
    rest = _blocks_behind(part, before)
    start = at
    while at < size:
        is_end = ends_block(at)
        at += 1
        if is_end or at - start == LONGEST or at == size:
            blocks.append(Block(at - start, digest(start, at)))
            start = at
            if at in rest:
                return (*blocks, *before[rest[at] :])
    return tuple(blocks)


def _blocks_behind(part: ChangedPart, before: Sequence[Block]) -> dict[int, int]:
    """Returns the indexes of the earlier blocks that begin behind the changed part, by the position
    of their first item in the new list."""
    starts = {}
    at = 0
    for index, block in enumerate(before):
        if at >= part.end_before:
            starts[at - part.end_before + part.end] = index
        at += block.length
    return starts
