# SPDX-License-Identifier: Apache-2.0
"""Converts the items of a long list that differs little from an earlier list. Pure.

Slices of the two lists are compared to find their common start and end. The interpreter first
compares the identity of two items, which is fast. So a comparison of a million rules takes a few
milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_LONGEST_SLICE = 4096


class ChangedPart(NamedTuple):
    """The part of a list that differs from an earlier list: items `start` to `end` replace the
    earlier list's items `start` to `end_before`. The items at `end` and `end_before` are not
    included."""

    start: int
    end: int
    end_before: int

    @property
    def is_empty(self) -> bool:
        """Whether the lists are equal."""
        return self.start == self.end == self.end_before

    def is_within(self, most: int) -> bool:
        """Whether the part has at most this number of items, in both lists."""
        return max(self.end, self.end_before) - self.start <= most

    def union(self, other: ChangedPart) -> ChangedPart:
        """Returns the smallest part that contains this part and `other`. Both describe lists of the
        same lengths."""
        if self.is_empty or other.is_empty:
            return other if self.is_empty else self
        return ChangedPart(*map(max, self, other))._replace(start=min(self.start, other.start))


def changed_part(items: tuple[T, ...], before: tuple[T, ...]) -> ChangedPart:
    """Returns the part of `items` that remains without the common start and the common end of both
    lists."""
    if items is before:
        return ChangedPart(len(items), len(items), len(items))
    shorter = min(len(items), len(before))
    start = _common_length(shorter, lambda low, high: items[low:high] == before[low:high])
    size, size_before = len(items), len(before)
    end = _common_length(
        shorter - start,
        lambda low, high: (
            items[size - high : size - low] == before[size_before - high : size_before - low]
        ),
    )
    return ChangedPart(start, size - end, size_before - end)


def _common_length(longest: int, are_equal: Callable[[int, int], bool]) -> int:
    """Returns the number of leading items that are equal in two lists. `are_equal(low, high)`
    returns whether the items from `low` to `high` are equal."""
    at, step = 0, 1
    may_grow = True
    while at < longest and step:
        high = min(at + step, longest)
        if are_equal(at, high):
            at = high
            step = min(2 * step, _LONGEST_SLICE) if may_grow else step // 2
        else:
            may_grow = False
            step //= 2
    return at


def convert_changed(
    convert: Callable[[T], R],
    items: tuple[T, ...],
    before: tuple[T, ...],
    results: tuple[R, ...],
    part: ChangedPart | None = None,
) -> tuple[R, ...]:
    """Returns the converted `items`, given the `results` of an earlier list `before`.

    Items at the start and at the end that are equal in both lists are not converted again. So after
    an edit of some adjacent rules of an SPD, only these rules are converted. `part` is the changed
    part of `items`, if the caller knows it.
    """
    start, end, end_before = part or changed_part(items, before)
    return spliced(results, start, end_before, map(convert, items[start:end]))


def spliced(before: tuple[T, ...], start: int, end: int, items: Iterable[T]) -> tuple[T, ...]:
    """Returns a list in which `items` replace the items from `start` to `end`.

    Faster than concatenating slices, which would update the reference count of each item once more.
    """
    changed = list(before)
    changed[start:end] = items
    return tuple(changed)
