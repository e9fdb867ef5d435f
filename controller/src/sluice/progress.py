# SPDX-License-Identifier: Apache-2.0
"""Reports the progress while a full table is loaded: the phase and the rate of incoming routes.

The size of a table is not known in advance: zebra's replay has no end mark. So progress is given as
three numbers: the routes replayed, the older routes not yet replayed, and the rate in the last few
seconds. Pure: the caller passes the time.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

WINDOW = 5
"""Time over which the rate is averaged, in seconds."""


class Phase(StrEnum):
    """Phases of a load, in chronological order."""

    NO_SWITCH = "waiting for the switch"
    READING = "reading what the switch holds"
    WRITING = "writing to the switch"
    NO_ROUTES = "waiting for the routing daemon"
    REPLAY = "taking in the routing daemon's routes"
    SETTLED = "settled"


class PhaseInputs(NamedTuple):
    """Holds the inputs of `phase_of`."""

    connected: bool
    compared: bool
    pending: int
    daemon: bool
    settled: bool


def phase_of(inputs: PhaseInputs) -> Phase:
    """Returns the current phase. If both REPLAY and WRITING apply, returns REPLAY."""
    if not inputs.connected:
        return Phase.NO_SWITCH
    if not inputs.compared:
        return Phase.READING
    if inputs.daemon and not inputs.settled:
        return Phase.REPLAY
    if inputs.pending:
        return Phase.WRITING
    return Phase.SETTLED if inputs.daemon or inputs.settled else Phase.NO_ROUTES


class EventRate:
    """Measures the rate of events per second, over the last `WINDOW` seconds."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def note(self, events: int, now: float) -> None:
        """Counts `events` at time `now`."""
        second = int(now)
        if second not in self._counts:
            for old in [one for one in self._counts if one <= second - WINDOW]:
                del self._counts[old]
        self._counts[second] = self._counts.get(second, 0) + events

    def per_second(self, now: float) -> float:
        """Returns the mean rate over the last whole seconds and the elapsed part of the current
        second."""
        second = int(now)
        recent = [one for one in self._counts if second - WINDOW < one <= second]
        if not recent:
            return 0.0
        return sum(self._counts[one] for one in recent) / max(1.0, now - min(recent))
