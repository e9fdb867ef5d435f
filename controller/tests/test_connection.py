# SPDX-License-Identifier: Apache-2.0
"""Tests the back-off of connection attempts to a switch that does not answer."""

from __future__ import annotations

from sluice.primacy import EAGER_SECONDS, FIRST_RECONNECT, LAST_RECONNECT, Backoff


def test_a_switch_that_never_answered_is_asked_for_less_and_less_often() -> None:
    backoff = Backoff()
    delays = [backoff.failed(float(n)) for n in range(12)]
    assert delays == sorted(delays)
    assert delays[0] <= 2 * FIRST_RECONNECT
    assert delays[-1] == LAST_RECONNECT


def test_a_switch_that_restarts_is_asked_for_at_the_first_pace() -> None:
    """Checks that after the end of a session, attempts start with the shortest pause again.

    Neighbours of a restarted switch cannot send packets through it until the controller is
    connected.
    """
    backoff = Backoff()
    for n in range(12):
        backoff.failed(float(n))
    now = 100.0
    assert backoff.ended(now) == FIRST_RECONNECT
    while now < 100.0 + EAGER_SECONDS:
        assert backoff.failed(now) == FIRST_RECONNECT
        now += FIRST_RECONNECT
    assert backoff.failed(now) == 2 * FIRST_RECONNECT
