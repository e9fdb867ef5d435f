# SPDX-License-Identifier: Apache-2.0
"""Tests the timer that is used as a file descriptor."""

from __future__ import annotations

import select
import time
from contextlib import closing

from sluice.sources.alarm import Alarm


def test_alarm_expires_once_after_each_set() -> None:
    with closing(Alarm()) as alarm:
        for _ in range(2):
            assert not alarm.take()
            before = time.monotonic()
            alarm.set(0.05)
            assert not alarm.take()
            assert select.select([alarm], [], [], 10)[0]
            assert time.monotonic() - before >= 0.05
            assert alarm.take()


def test_alarm_expires_although_the_time_is_very_short() -> None:
    with closing(Alarm()) as alarm:
        alarm.set(1e-12)
        assert select.select([alarm], [], [], 10)[0]
