# SPDX-License-Identifier: Apache-2.0
"""Tests when neighbours are resolved: on demand at once, after failures with growing delays, and
later for confirmation."""

from __future__ import annotations

from sluice.model import NeighborState
from sluice.state.nexthops import Path
from sluice.state.resolution_schedule import CONFIRM_AFTER, LAST_RETRY, ResolutionSchedule

A = Path(1, b"\x0a\0\0\1")


def test_asked_at_once_and_again_ever_more_rarely() -> None:
    schedule = ResolutionSchedule()
    schedule.resolve_now(A, 0.0)
    now, gaps = 0.0, []
    assert schedule.due(0.0) == [A]
    for _ in range(8):
        schedule.changed(A, NeighborState.FAILED, True, now + 3)
        due = schedule.next_due
        assert due is not None
        gaps.append(due - now)
        assert schedule.due(due - 0.01) == []
        assert schedule.due(due) == [A]
        now = due
    assert gaps == sorted(gaps)
    assert gaps[-1] == LAST_RETRY + 3


def test_no_word_from_the_kernel_is_asked_again() -> None:
    schedule = ResolutionSchedule()
    schedule.resolve_now(A, 0.0)
    assert schedule.due(0.0) == [A]
    due = schedule.next_due
    assert due is not None
    assert due > 3
    assert schedule.due(due) == [A]


def test_known_is_left_alone_until_stale() -> None:
    schedule = ResolutionSchedule()
    schedule.resolve_now(A, 0.0)
    schedule.due(0.0)
    schedule.changed(A, NeighborState.REACHABLE, True, 0.1)
    assert schedule.next_due is None
    schedule.changed(A, NeighborState.STALE, True, 40.0)
    assert schedule.due(40.0 + CONFIRM_AFTER) == [A]


def test_hosts_that_fail_are_forgotten() -> None:
    schedule = ResolutionSchedule()
    schedule.changed(A, NeighborState.STALE, False, 0.0)
    schedule.changed(A, NeighborState.FAILED, False, 1.0)
    assert schedule.next_due is None
