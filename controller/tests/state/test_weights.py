# SPDX-License-Identifier: Apache-2.0
"""Tests weights that exceed the target's group size: they are scaled with the least error."""

from __future__ import annotations

from itertools import product

import pytest

from sluice.state.weights import scale

TNA_GROUP = 64
"""Largest group in p4src/tna/arch.p4 (MULTIPATH_GROUP_SIZE)."""


def worst(weights: list[int] | tuple[int, ...], scaled: list[int] | tuple[int, ...]) -> float:
    whole, total = sum(weights), sum(scaled)
    pairs = zip(weights, scaled, strict=True)
    return max(abs(new * whole / (weight * total) - 1) for weight, new in pairs)


@pytest.mark.parametrize(
    ("weights", "fitting"),
    [([1] * 64, [1] * 64), ([256] * 64, [1] * 64), ([10, 30], [1, 3]), ([63, 1], [63, 1])],
)
def test_what_fits_is_exact_and_in_lowest_terms(weights: list[int], fitting: list[int]) -> None:
    assert scale(weights, TNA_GROUP) == (fitting, 0.0)


@pytest.mark.parametrize(
    ("weights", "error"),
    [
        ([7, 15, 46, 30], 0.032),
        ([100, 101], 0.006),
        ([1, 255], 3.01),
        ([256] * 63 + [255], 0.005),
        (list(range(1, 65)), 32.0),
    ],
)
def test_what_does_not_fit_a_group_of_tna_is_scaled(weights: list[int], error: float) -> None:
    scaled = scale(weights, TNA_GROUP)
    assert sum(scaled.weights) <= TNA_GROUP
    assert min(scaled.weights) >= 1
    assert scaled.error == pytest.approx(worst(weights, scaled.weights))
    assert scaled.error < error


@pytest.mark.parametrize("size", [3, 5, 8, 11])
def test_no_other_weights_are_nearer(size: int) -> None:
    for weights in ([7, 15, 46], [1, 1, 9], [5, 6, 7], [2, 9, 90], [255, 254, 3]):
        possible = product(range(1, size + 1), repeat=3)
        least = min(worst(weights, choice) for choice in possible if sum(choice) <= size)
        assert scale(weights, size).error == pytest.approx(least)


def test_large_groups_are_off_by_little() -> None:
    """Checks that the error of large groups is small.

    If a route names a next hop twice, the two weights are added, here up to 511.
    """
    weights = list(range(448, 512))
    scaled = scale(weights, 64 * 256)
    assert sum(scaled.weights) <= 64 * 256
    assert scaled.error == pytest.approx(worst(weights, scaled.weights))
    assert scaled.error < 0.002
