# SPDX-License-Identifier: Apache-2.0
"""Waits for conditions, never for a fixed time.

`wait_until` polls a condition until it holds or a deadline passes. The error after a deadline names
the condition and the last value seen.

Deadlines are chosen for a machine of usual speed. For a slower machine, such as an emulated one,
set the environment variable SLUICE_PATIENCE: all deadlines are multiplied by it.
"""

import os
import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


class Timeout(AssertionError):
    """A condition did not hold in time."""


def patient(seconds: float) -> float:
    """Returns `seconds` multiplied by SLUICE_PATIENCE (default 1)."""
    return seconds * float(os.environ.get("SLUICE_PATIENCE", "1"))


def wait_until(
    condition: Callable[[], Value],
    deadline: float = 10.0,
    what: str = "",
    *,
    interval: float = 0.02,
    retry_on: tuple[type[Exception], ...] = (),
) -> Value:
    """Calls `condition` until it returns a true value, and returns that value.

    `deadline` is in seconds from now (see `patient`). If `condition` raises an exception of a type
    in `retry_on`, it is called again later; all other exceptions propagate at once. The condition
    is always checked once more after the deadline. So a stall of the machine alone does not cause a
    failure.
    """
    deadline = patient(deadline)
    end = time.monotonic() + deadline
    while True:
        last_chance = time.monotonic() >= end
        seen: object
        try:
            value = condition()
            if value:
                return value
            seen = value
        except retry_on as error:
            seen = error
        if last_chance:
            raise Timeout(f"waited {deadline:g} s for {what or condition}; last saw: {seen!r}")
        time.sleep(interval)


class Stopwatch:
    """Measures seconds since its creation, by a monotonic clock."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def seconds(self) -> float:
        """Returns the seconds since its creation."""
        return time.monotonic() - self._start
