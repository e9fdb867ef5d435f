# SPDX-License-Identifier: Apache-2.0
"""Tests the progress messages while a full table arrives."""

from __future__ import annotations

import pytest

from sluice.progress import WINDOW, EventRate, Phase, PhaseInputs, phase_of


@pytest.mark.parametrize(
    ("facts", "phase"),
    [
        (PhaseInputs(False, False, 5, True, True), Phase.NO_SWITCH),
        (PhaseInputs(True, False, 5, True, True), Phase.READING),
        (PhaseInputs(True, True, 0, False, False), Phase.NO_ROUTES),
        (PhaseInputs(True, True, 5, True, False), Phase.REPLAY),
        (PhaseInputs(True, True, 0, True, False), Phase.REPLAY),
        (PhaseInputs(True, True, 5, True, True), Phase.WRITING),
        (PhaseInputs(True, True, 5, False, True), Phase.WRITING),
        (PhaseInputs(True, True, 0, True, True), Phase.SETTLED),
        (PhaseInputs(True, True, 0, False, True), Phase.SETTLED),
    ],
)
def test_the_phase_is_what_is_waited_for(facts: PhaseInputs, phase: Phase) -> None:
    assert phase_of(facts) is phase


def test_the_pace_is_that_of_the_last_seconds() -> None:
    pace = EventRate()
    assert pace.per_second(10.0) == 0
    for tenth in range(100):
        pace.note(1000, 100 + tenth / 10)
    assert pace.per_second(109.95) == pytest.approx(10_000, rel=0.05)
    pace.note(1, 109.95 + WINDOW)
    assert pace.per_second(109.96 + WINDOW) < 1000
    assert pace.per_second(200.0) == 0


def test_a_pace_of_less_than_a_second_is_not_made_larger() -> None:
    pace = EventRate()
    pace.note(500, 100.0)
    assert pace.per_second(100.01) == 500
