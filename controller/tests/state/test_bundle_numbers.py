# SPDX-License-Identifier: Apache-2.0
"""Tests that mirrored bundles have unique numbers and keep them over a restart, and that freed
numbers are reused as late as possible."""

from __future__ import annotations

import pytest

from sluice.state.bundle_numbers import FIRST, LAST, BundleNumbers, TooManyBundlesError


def test_configured_bundles_keep_their_numbers() -> None:
    numbers = BundleNumbers({"branch": 7}, {7: "branch"})
    numbers.add(["branch", "a", "b"])
    assert numbers.by_name == {"branch": 7, "a": FIRST, "b": FIRST + 1}
    assert numbers.mirrored == ["a", "b"]
    assert numbers.retain(["b"]) == [("a", FIRST)]
    assert numbers.names == {7: "branch", FIRST + 1: "b"}


def test_a_bundle_has_the_number_that_it_had_in_an_earlier_life() -> None:
    numbers = BundleNumbers({}, {FIRST + 5: "b", FIRST + 9: "gone", 3: "configured then"})
    numbers.add(["a", "b", "configured then"])
    assert numbers.by_name == {"a": FIRST + 10, "b": FIRST + 5, "configured then": FIRST + 11}


def test_a_number_that_was_given_back_is_the_last_to_be_given_out() -> None:
    numbers = BundleNumbers({"fixed": FIRST + 2}, {})
    numbers.add(["a"])
    numbers.retain([])
    given = []
    for turn in range(LAST - FIRST + 1):
        numbers.add([f"b{turn}"])
        given.append(numbers.by_name[f"b{turn}"])
        numbers.retain([])
    assert FIRST not in given[:-2]
    assert FIRST + 2 not in given


def test_too_many_bundles_are_refused() -> None:
    numbers = BundleNumbers({}, {})
    with pytest.raises(TooManyBundlesError):
        numbers.add(str(one) for one in range(LAST - FIRST + 2))
    assert not numbers.by_name, "no number is added"
    numbers.add(["a"])
    assert numbers.by_name == {"a": FIRST}
