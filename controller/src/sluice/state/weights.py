# SPDX-License-Identifier: Apache-2.0
"""Weights of a next-hop group, made to fit what the switch's groups hold.

A target shares flows out by whole numbers whose sum is limited: BMv2 copies a member as often as
its weight says, and Tofino has so many places for each group. Depends on nothing. No I/O.
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

TOTALS_TRIED = 64
"""Sums of weights that are looked at, from the largest downwards. Small groups have no more; in
large ones a share is off by little, whatever the sum."""

_ONE = 1 << 40
"""Unit of errors, which are whole numbers so that results do not depend on rounding."""


class Scaled(NamedTuple):
    """Weights that fit. `error` is the largest difference of a share, as a part of that share."""

    weights: list[int]
    error: float


def scale(weights: list[int], size: int) -> Scaled:
    """Returns whole weights of at least 1 whose sum is at most `size`, in the same proportions.

    They are in lowest terms, and exact where these fit. Where not, the largest error of a share,
    relative to that share, is the least that there is. Needs at most `size` weights.
    """
    divisor = gcd(*weights)
    reduced = [weight // divisor for weight in weights]
    if sum(reduced) <= size:
        return Scaled(reduced, 0.0)
    best, error = 0, _ONE * sum(reduced)
    for total in range(size, max(len(weights), size - TOTALS_TRIED + 1) - 1, -1):
        if best and not _ranges(reduced, total, error - 1):
            continue
        low, high = 0, error
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if _ranges(reduced, total, middle) else (middle + 1, high)
        best, error = total, low
    found = _choose(reduced, best, error)
    divisor = gcd(*found)
    return Scaled([weight // divisor for weight in found], error / _ONE)


def _ranges(weights: list[int], total: int, error: int) -> list[tuple[int, int]]:
    """The least and the largest that each weight may become, if the sum is to be `total` and no
    share is to be off by more than `error`. Empty if there are no such weights."""
    whole = sum(weights) * _ONE
    ranges = []
    for weight in weights:
        due = total * weight
        least = max(1, -(-due * (_ONE - error) // whole))
        most = due * (_ONE + error) // whole
        if least > most:
            return []
        ranges.append((least, most))
    fits = sum(least for least, _ in ranges) <= total <= sum(most for _, most in ranges)
    return ranges if fits else []


def _choose(weights: list[int], total: int, error: int) -> list[int]:
    """Weights within their ranges that add up to `total`."""
    ranges = _ranges(weights, total, error)
    chosen = [least for least, _ in ranges]
    left = total - sum(chosen)
    # Those furthest below their shares first.
    while left:
        open_ = [at for at, (_, most) in enumerate(ranges) if chosen[at] < most]
        at = min(open_, key=lambda at: (chosen[at] / weights[at], at))
        chosen[at] += 1
        left -= 1
    return chosen
