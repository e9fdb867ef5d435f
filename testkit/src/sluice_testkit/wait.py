# SPDX-License-Identifier: Apache-2.0
"""Waiting for a condition, never for time to pass.

`wait_until` polls a condition until it holds or a deadline passes; when it
passes, the error says what was awaited and what was seen last.

Deadlines are for a machine of usual speed. On a slower one, such as an
emulated one, SLUICE_PATIENCE says by how much to multiply them.
"""

import os
import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


class Timeout(AssertionError):
    """A condition did not come to hold in time."""


def patient(seconds: float) -> float:
    """`seconds`, times SLUICE_PATIENCE."""
    return seconds * float(os.environ.get("SLUICE_PATIENCE", "1"))


def wait_until(
    condition: Callable[[], Value],
    deadline: float = 10.0,
    what: str = "",
    *,
    interval: float = 0.02,
    retry_on: tuple[type[Exception], ...] = (),
) -> Value:
    """Call `condition` until it returns something true, and return that.

    `deadline` is in seconds from now (see `patient`). Exceptions named in `retry_on` count as
    "not yet"; all others pass through at once. The condition is always tried
    once more at the deadline, so that a machine that stood still does not
    turn a condition that holds into a failure.
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
    """Seconds since it was made, by a clock that never goes back."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def seconds(self) -> float:
        """Seconds passed so far."""
        return time.monotonic() - self._start
