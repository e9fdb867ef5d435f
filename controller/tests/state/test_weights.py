# SPDX-License-Identifier: Apache-2.0
"""Weights that a target's groups do not hold: scaled with the least error."""

from __future__ import annotations

from itertools import product

import pytest

from scenes import Desired, address, gateway, link, no_route, route
from sluice.entities import Group, Kind
from sluice.state.weights import scale

TNA_GROUP = 64
"""MULTIPATH_GROUP_SIZE of p4src/tna/arch.p4."""


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
    """A next hop that a route names twice has both weights, here up to 511."""
    weights = list(range(448, 512))
    scaled = scale(weights, 64 * 256)
    assert sum(scaled.weights) <= 64 * 256
    assert scaled.error == pytest.approx(worst(weights, scaled.weights))
    assert scaled.error < 0.002


def test_a_share_that_is_off_is_named() -> None:
    wanted = Desired(group_size=TNA_GROUP)
    for n in (1, 2, 3):
        wanted.apply(link(n), address(n, f"10.0.{n}.1/24"))
    fits = [gateway(f"10.0.{n}.9", n, weight) for n, weight in ((1, 10), (2, 30))]
    near = [gateway(f"10.0.{n}.9", n, weight) for n, weight in ((1, 100), (2, 101))]
    worse = [gateway(f"10.0.1.{n}", 1, weight) for n, weight in enumerate((7, 15, 46, 30), 2)]
    worst = [gateway(f"10.0.3.{n}", 3, weight) for n, weight in enumerate((1, 199), 2)]
    wanted.apply(route("192.0.2.0/24", *fits), route("192.0.3.0/24", *near))
    assert wanted.fib.path_sets.problems() == {}
    wanted.apply(route("192.0.4.0/24", *worse))
    target = wanted.target("192.0.4.0/24")
    assert target is not None
    written = wanted.entities[Kind.GROUP, target.id]
    assert isinstance(written, Group)
    assert [weight for _, weight in written.members] == [4, 9, 27, 17]
    [(text, count)] = wanted.fib.path_sets.problems().items()
    assert f"group {target.id} is to have 7:15:46:30 and has 4:9:27:17" in text
    assert "off by 3.2%" in text
    assert "sum up to 64 at most" in text
    assert count == 1
    wanted.apply(route("192.0.5.0/24", *worst))
    [(text, count)] = wanted.fib.path_sets.problems().items()
    assert "1:199" in text
    assert count == 2
    wanted.apply(no_route("192.0.4.0/24"), route("192.0.5.0/24", *fits))
    assert wanted.fib.path_sets.problems() == {}


def test_more_next_hops_than_a_group_holds_are_left_out() -> None:
    wanted = Desired(group_size=3)
    wanted.apply(link(1), address(1, "10.0.1.1/24"))
    legs = [gateway(f"10.0.1.{n}", 1, n) for n in range(2, 7)]
    wanted.apply(route("192.0.2.0/24", *legs))
    target = wanted.target("192.0.2.0/24")
    assert target is not None
    assert wanted.entities[Kind.GROUP, target.id] == Group(((2, 1), (3, 1), (4, 1)))
