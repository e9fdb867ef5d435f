# SPDX-License-Identifier: Apache-2.0
"""Divides long lists into blocks, so that an edit of a list changes few blocks. Pure.

Only a block's own items decide where the block ends. So a block stays unchanged when items are
added or deleted before it.
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
    whether item `at` is the last of its block. It is called for the items of changed blocks only,
    in order. `digest(start, end)` returns a digest of the items of one block. It is called for
    changed blocks only.
    """
    blocks: list[Block] = []
    at = 0
    for block in before[:-1]:  # the last block may end only because the list does
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
    """Finds the earlier blocks that begin behind the changed part. Maps the position of each
    block's first item in the new list to the block's index in `before`."""
    starts = {}
    at = 0
    for index, block in enumerate(before):
        if at >= part.end_before:
            starts[at - part.end_before + part.end] = index
        at += block.length
    return starts
