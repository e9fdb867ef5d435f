# SPDX-License-Identifier: Apache-2.0
"""Checks fragments against the state of their datagram (RFC 4301, section 7).

Only the first fragment of a datagram has ports. If the rules that a later fragment could match
differ in their effect, the fragment waits for the first fragment. The rule that matches the first
fragment then decides for all. The table keeps the selectors of first fragments, not their verdicts.
So a commit applies to all fragments that arrive after the commit.

A fragment that contradicts its datagram is refused, and so are all later fragments of the datagram.
A fragment contradicts its datagram in these cases:

- The fragment overlaps another fragment (RFC 5722). An exact duplicate is accepted.
- The fragment ends after the last fragment.
- The table already holds the maximum number of the datagram's fragments.

The state of a datagram is deleted when all its fragments have arrived. All state is bounded: the
number of datagrams, the fragments of each datagram, the waiting fragments, and the time for which a
datagram is kept after its first fragment to arrive.

Pure; depends on model and policy.model.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from sluice.model import Address, PuntedPacket
from sluice.policy.model import Selectors

MAX_FRAGMENTS = 256
"""Maximum number of fragments of one datagram: 65,535 bytes in fragments of 256 bytes."""
MAX_WAITING = 64
"""Maximum number of fragments of one datagram that wait for its first fragment."""
MAX_LENGTH = 0xFFFF
"""Maximum number of bytes of a reassembled IP packet after its IP headers."""
FIRST_MISSING = "fragment whose first did not come"


class DatagramKey(NamedTuple):
    """Holds the fields that all fragments of a datagram share (RFC 791, RFC 8200).

    `protocol` is 0 for IPv6. List and bundle are part of the key, so fragments of different lists
    or bundles never belong to the same datagram.
    """

    list_id: int
    is_own: bool
    bundle: int
    source: Address
    destination: Address
    protocol: int
    identification: int


class FragmentRange(NamedTuple):
    """Holds the position of a fragment in its datagram, in bytes. `more`: more fragments follow."""

    start: int
    end: int
    more: bool


class FragmentRefusal(Enum):
    """Reasons for dropping a fragment."""

    LENGTH = "fragment length"
    OVERLAP = "fragments overlap"
    TOO_MANY = "too many fragments of one datagram"
    NO_ROOM = "too many fragments wait"


@dataclass(slots=True, eq=False)
class _Datagram:
    deadline: float
    first: Selectors | None = None
    ranges: dict[int, int] = field(default_factory=dict)  # start -> end
    length: int | None = None  # None until the datagram's last fragment has arrived
    waiting: list[PuntedPacket] = field(default_factory=list)
    refused: FragmentRefusal | None = None

    def add(self, fragment: FragmentRange) -> FragmentRefusal | None:
        """Adds a fragment. Once a fragment has been refused, refuses all further fragments of the
        datagram."""
        if self.refused is None:
            self.refused = self._contradiction(fragment)
        if self.refused is None:
            self.ranges[fragment.start] = fragment.end
            if not fragment.more:
                self.length = fragment.end
        return self.refused

    def _contradiction(self, fragment: FragmentRange) -> FragmentRefusal | None:
        start, end, more = fragment
        if not start < end <= MAX_LENGTH or (more and (end - start) % 8):
            return FragmentRefusal.LENGTH
        if self.ranges.get(start) == end and (more or self.length == end):
            return None  # a duplicate
        if len(self.ranges) >= MAX_FRAGMENTS:
            return FragmentRefusal.TOO_MANY
        if self.length is not None and (not more or end > self.length):
            return FragmentRefusal.OVERLAP
        if any(start < other_end and other < end for other, other_end in self.ranges.items()):
            return FragmentRefusal.OVERLAP
        if not more and any(other_end > end for other_end in self.ranges.values()):
            return FragmentRefusal.OVERLAP
        return None

    def is_complete(self) -> bool:
        """Returns whether every byte has arrived. Accepted fragments do not overlap, so their sizes
        add up."""
        if self.length is None or self.first is None:
            return False
        return sum(end - start for start, end in self.ranges.items()) == self.length


class Arrival(NamedTuple):
    """Holds the decision on a fragment.

    `first`: the selectors with which the caller must search the rules. None: the fragment waits or
    is refused. `released`: fragments that waited for this fragment, in the order of their arrival.
    """

    first: Selectors | None = None
    refusal: FragmentRefusal | None = None
    released: tuple[PuntedPacket, ...] = ()


WAITS = Arrival()


class FragmentTable:
    """Holds the incomplete datagrams.

    `datagrams` limits the number of datagrams. `waiting` limits the number of waiting fragments of
    all datagrams together. `seconds` limits the lifetime of each datagram.
    """

    def __init__(self, datagrams: int, waiting: int, seconds: float) -> None:
        self.set_limits(datagrams, waiting, seconds)
        self._datagrams: OrderedDict[DatagramKey, _Datagram] = OrderedDict()  # by deadline
        self.waiting = 0
        self.counters: Counter[str] = Counter()
        """Fragments dropped while waiting, by reason."""
        self._dropped: list[tuple[PuntedPacket, str]] = []

    def set_limits(self, datagrams: int, waiting: int, seconds: float) -> None:
        """Sets the limits; they apply from the next fragment on."""
        self._max_datagrams = datagrams
        self._max_waiting = waiting
        self._seconds = seconds

    def __len__(self) -> int:
        """Number of known datagrams."""
        return len(self._datagrams)

    @property
    def next_deadline(self) -> float | None:
        """Time at which the next datagram expires."""
        return next((each.deadline for each in self._datagrams.values()), None)

    def arrive(
        self,
        key: DatagramKey,
        fragment: FragmentRange,
        packet: PuntedPacket,
        first: Selectors | None,
        now: float,
    ) -> Arrival:
        """Handles a fragment. `first` has the selectors of a first fragment, and is None for a
        later fragment."""
        datagram = self._datagrams.get(key)
        if datagram is not None and datagram.deadline <= now:
            self._remove(key, FIRST_MISSING)
            datagram = None
        if datagram is None:
            datagram = self._add(key, now)
        # A second first fragment with other ports contradicts the datagram.
        if first is not None and datagram.first is not None and first != datagram.first:
            datagram.refused = datagram.refused or FragmentRefusal.OVERLAP
        refusal = datagram.add(fragment)
        if refusal is not None:
            self._drop_waiting(datagram, refusal.value)
            return Arrival(refusal=refusal)
        if first is not None:
            datagram.first = first
        if datagram.first is None:
            return self._wait(datagram, packet)
        released = tuple(datagram.waiting)
        self._clear_waiting(datagram)
        subject = datagram.first
        if datagram.is_complete():
            del self._datagrams[key]
        return Arrival(subject, None, released)

    def expire(self, now: float) -> None:
        """Drops the expired datagrams."""
        while (due := self.next_deadline) is not None and due <= now:
            self._remove(next(iter(self._datagrams)), FIRST_MISSING)

    def take_dropped(self) -> list[tuple[PuntedPacket, str]]:
        """Returns the waiting fragments that were dropped since the last call, each with the
        reason."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def _add(self, key: DatagramKey, now: float) -> _Datagram:
        if len(self._datagrams) >= self._max_datagrams:
            self.counters["datagrams forgotten: no room"] += 1
            self._remove(next(iter(self._datagrams)), "fragment, no room for its datagram")
        datagram = self._datagrams[key] = _Datagram(now + self._seconds)
        return datagram

    def _wait(self, datagram: _Datagram, packet: PuntedPacket) -> Arrival:
        if len(datagram.waiting) >= MAX_WAITING or self.waiting >= self._max_waiting:
            return Arrival(refusal=FragmentRefusal.NO_ROOM)
        datagram.waiting.append(packet)
        self.waiting += 1
        return WAITS

    def _remove(self, key: DatagramKey, why: str) -> None:
        self._drop_waiting(self._datagrams.pop(key), why)

    def _drop_waiting(self, datagram: _Datagram, why: str) -> None:
        if datagram.waiting:
            self.counters[f"dropped: {why}"] += len(datagram.waiting)
            self._dropped += [(packet, why) for packet in datagram.waiting]
            self._clear_waiting(datagram)

    def _clear_waiting(self, datagram: _Datagram) -> None:
        self.waiting -= len(datagram.waiting)
        datagram.waiting.clear()
