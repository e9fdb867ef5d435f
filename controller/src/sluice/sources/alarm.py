# SPDX-License-Identifier: Apache-2.0
"""Implements a timer as a descriptor that becomes readable when the time is over (timerfd).

A source with a timer can use it in any loop that waits for descriptors. Python has
`os.timerfd_create` since version 3.13 only, so this module calls the C library. Linux only.
"""

from __future__ import annotations

import ctypes
import os
import time
from struct import Struct

TFD_NONBLOCK, TFD_CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC
# struct itimerspec: seconds and nanoseconds of the interval, and of the first expiration
TIMES = Struct("@4l")
SECOND = 1_000_000_000
_libc = ctypes.CDLL(None, use_errno=True)


class Alarm:
    """A timer that expires once after each `set`."""

    def __init__(self) -> None:
        """Raises OSError."""
        flags = TFD_NONBLOCK | TFD_CLOEXEC
        self._file = _checked(_libc.timerfd_create(time.CLOCK_MONOTONIC, flags))

    def fileno(self) -> int:
        """Returns a descriptor that is readable when the time is over."""
        return self._file

    def set(self, seconds: float) -> None:
        """Starts the timer. `seconds` is more than 0."""
        times = TIMES.pack(0, 0, *divmod(max(1, int(seconds * SECOND)), SECOND))
        _checked(_libc.timerfd_settime(self._file, 0, times, None))

    def take(self) -> bool:
        """Returns whether the timer has expired. Returns True once for each `set`."""
        try:
            return bool(os.read(self._file, 8))
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Closes the descriptor."""
        os.close(self._file)


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
