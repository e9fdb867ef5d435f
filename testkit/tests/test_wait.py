# SPDX-License-Identifier: Apache-2.0
"""Tests `wait_until`: it returns the value of the condition, and its error names the last value."""

import pytest

from sluice_testkit.wait import Timeout, wait_until


def test_returns_the_first_true_value() -> None:
    values = iter([0, [], "third"])
    assert wait_until(lambda: next(values), 5, interval=0) == "third"


def test_says_what_was_awaited_and_what_was_seen_last() -> None:
    with pytest.raises(Timeout, match=r"waited 0 s for two peers; last saw: \[\]"):
        wait_until(list, 0, "two peers")


def test_an_exception_passes_unless_it_was_named() -> None:
    peers: dict[str, str] = {}
    with pytest.raises(KeyError):
        wait_until(lambda: peers["one"], 0)
    with pytest.raises(Timeout, match="KeyError"):
        wait_until(lambda: peers["one"], 0, retry_on=(KeyError,))


def test_tries_once_more_at_the_deadline() -> None:
    assert wait_until(lambda: True, -1)


def test_a_slow_machine_gets_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_PATIENCE", "1000")
    answers = iter([False, True])
    assert wait_until(lambda: next(answers), 0.00001, interval=0.001)
