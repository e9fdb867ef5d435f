# SPDX-License-Identifier: Apache-2.0
"""Whom to ask for, and when: at once, again with growing delay, and to confirm."""

from __future__ import annotations

from sluice.model import NeighborState
from sluice.state.keeper import CONFIRM_AFTER, LAST_RETRY, NeighborKeeper
from sluice.state.nexthops import Path

A = Path(1, b"\x0a\0\0\1")


def test_asked_at_once_and_again_ever_more_rarely() -> None:
    keeper = NeighborKeeper()
    keeper.ask(A, 0.0)
    now, gaps = 0.0, []
    assert keeper.due(0.0) == [A]
    for _ in range(8):
        keeper.changed(A, NeighborState.FAILED, True, now + 3)
        due = keeper.next_due
        assert due is not None
        gaps.append(due - now)
        assert keeper.due(due - 0.01) == []
        assert keeper.due(due) == [A]
        now = due
    assert gaps == sorted(gaps)
    assert gaps[-1] == LAST_RETRY + 3


def test_no_word_from_the_kernel_is_asked_again() -> None:
    keeper = NeighborKeeper()
    keeper.ask(A, 0.0)
    assert keeper.due(0.0) == [A]
    due = keeper.next_due
    assert due is not None
    assert due > 3
    assert keeper.due(due) == [A]


def test_known_is_left_alone_until_stale() -> None:
    keeper = NeighborKeeper()
    keeper.ask(A, 0.0)
    keeper.due(0.0)
    keeper.changed(A, NeighborState.REACHABLE, True, 0.1)
    assert keeper.next_due is None
    keeper.changed(A, NeighborState.STALE, True, 40.0)
    assert keeper.due(40.0 + CONFIRM_AFTER) == [A]


def test_hosts_that_fail_are_forgotten() -> None:
    keeper = NeighborKeeper()
    keeper.changed(A, NeighborState.STALE, False, 0.0)
    keeper.changed(A, NeighborState.FAILED, False, 1.0)
    assert keeper.next_due is None
