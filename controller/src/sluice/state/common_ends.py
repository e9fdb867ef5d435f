# SPDX-License-Identifier: Apache-2.0
"""Converts the items of a long list that differs little from an earlier list. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def convert_changed(
    convert: Callable[[T], R], items: Sequence[T], before: Sequence[T], results: Sequence[R]
) -> tuple[R, ...]:
    """Returns `convert` of each item. Reuses `results`, which are the results for the list
    `before`.

    Items at the start and at the end that are equal in both lists are not converted again. So after
    an edit of some adjacent rules of an SPD, only these rules are converted.
    """
    shorter = min(len(items), len(before))
    start = 0
    while start < shorter and _are_equal(items[start], before[start]):
        start += 1
    end = 0
    while end < shorter - start and _are_equal(items[-1 - end], before[-1 - end]):
        end += 1
    changed = map(convert, items[start : len(items) - end])
    return (*results[:start], *changed, *results[len(results) - end :])


def _are_equal(one: T, other: T) -> bool:
    """Returns whether two items are equal. Tests identity first: most equal items are the same
    object."""
    return one is other or one == other
