# SPDX-License-Identifier: Apache-2.0
"""Scales the weights of a next-hop group to fit the switch's groups.

Switches distribute flows by integer weights, and limit the sum of a group's weights: BMv2 copies a
member once per unit of weight, and Tofino has a limited number of entries per group. Depends on
nothing. No I/O.
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

TOTALS_TRIED = 64
"""Maximum number of weight sums that are tried, from the largest downwards. A small group has fewer
sums. In a large group, the error of a share is small for any sum."""

_ONE = 1 << 40
"""Unit of errors. Errors are whole numbers, so that results do not depend on rounding."""


class Scaled(NamedTuple):
    """Holds weights that fit the switch. `error` is the largest relative error of a member's share
    of the flows."""

    weights: list[int]
    error: float


def scale(weights: list[int], size: int) -> Scaled:
    """Returns integer weights in the same proportions. Each is at least 1, and their sum is at most
    `size`.

    The result is in lowest terms. It is exact if exact weights fit. Otherwise it minimizes the
    largest relative error of a share. There must be at most `size` weights.
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
    """Returns each weight's minimum and maximum. Empty if no weights are possible.

    The weights add up to `total`, and the relative error of each share is at most `error`.
    """
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
    """Returns weights within their ranges that add up to `total`."""
    ranges = _ranges(weights, total, error)
    chosen = [least for least, _ in ranges]
    left = total - sum(chosen)
    # Increase the weights that are furthest below their shares first.
    while left:
        open_ = [at for at, (_, most) in enumerate(ranges) if chosen[at] < most]
        at = min(open_, key=lambda at: (chosen[at] / weights[at], at))
        chosen[at] += 1
        left -= 1
    return chosen
