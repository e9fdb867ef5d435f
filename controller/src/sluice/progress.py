# SPDX-License-Identifier: Apache-2.0
"""How far a full table has come: what is under way, and how fast routes come in.

Nobody says beforehand how large a table is: zebra's replay has no end mark. What is known is how
many routes were named, how many of the switch's or of an earlier session's were not yet, and the
pace of the last seconds. Pure: the caller brings the clock.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

WINDOW = 5
"""Seconds over which the pace is taken."""


class Phase(StrEnum):
    """What is under way, in the order in which one follows the other."""

    NO_SWITCH = "waiting for the switch"
    READING = "reading what the switch holds"
    WRITING = "writing to the switch"
    NO_ROUTES = "waiting for the routing daemon"
    REPLAY = "taking in the routing daemon's routes"
    SETTLED = "settled"


class Facts(NamedTuple):
    """What decides the phase."""

    connected: bool
    compared: bool
    pending: int
    daemon: bool
    settled: bool


def phase_of(facts: Facts) -> Phase:
    """What is under way. Routes come in while others are written: the former is said."""
    if not facts.connected:
        return Phase.NO_SWITCH
    if not facts.compared:
        return Phase.READING
    if facts.daemon and not facts.settled:
        return Phase.REPLAY
    if facts.pending:
        return Phase.WRITING
    return Phase.SETTLED if facts.daemon or facts.settled else Phase.NO_ROUTES


class Pace:
    """Events a second, over the last seconds."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def note(self, events: int, now: float) -> None:
        """So many came just now."""
        second = int(now)
        if second not in self._counts:
            for old in [one for one in self._counts if one <= second - WINDOW]:
                del self._counts[old]
        self._counts[second] = self._counts.get(second, 0) + events

    def per_second(self, now: float) -> float:
        """The mean of the last whole seconds, and of what there is of this one."""
        second = int(now)
        recent = [one for one in self._counts if second - WINDOW < one <= second]
        if not recent:
            return 0.0
        return sum(self._counts[one] for one in recent) / max(1.0, now - min(recent))
