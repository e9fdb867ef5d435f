# SPDX-License-Identifier: Apache-2.0
"""Tests that each new election id is above the highest known id if possible, and cannot be
guessed.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sluice.p4runtime.election import HALF, LARGEST, above, is_question, question

HALVES = st.integers(0, HALF)


@given(st.tuples(HALVES, HALVES) | st.tuples(st.just(HALF), st.integers(HALF - 3, HALF)))
def test_above_is_above_and_fits(seen: tuple[int, int]) -> None:
    found = above(seen)
    if seen == LARGEST:
        assert found is None
    else:
        assert found is not None
        assert seen < found <= LARGEST
        assert not is_question(found)


def test_a_question_is_below_every_primary_and_never_nothing() -> None:
    asked = question()
    assert (0, 0) < asked < (1, 0)
    assert is_question(asked)
    assert question() != asked
