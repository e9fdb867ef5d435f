# SPDX-License-Identifier: Apache-2.0
"""What the auditor found, compared and counted; pure.

`Census` compares what a switch was found to hold with what it is thought to hold, part by part, and
says which keys to look at again: an update may have been under way. `Report` is what became of it,
for people. Depends on nothing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)

SHOWN_REPAIRS = 20
"""The repairs that a report remembers."""


class Repair(NamedTuple):
    """What somebody else wrote, and what was put in its place; in words."""

    at: float
    what: str
    found: str
    put: str

    def __str__(self) -> str:
        return f"{self.what}: found {self.found}, put {self.put}"


class Census:
    """One round over some tables. Keys that were seen are remembered by their hashes only."""

    def __init__(self) -> None:
        self._seen: dict[Hashable, set[int]] = {}
        self.compared = 0

    def saw(self, what: Hashable, keys: Collection[Hashable]) -> None:
        """The switch holds something under these keys."""
        self.compared += len(keys)
        self._seen.setdefault(what, set()).update(map(hash, keys))

    def differing(
        self, what: Hashable, found: Mapping[K, object], thought: Mapping[K, object]
    ) -> list[K]:
        """Keys that are not held as thought, if at all."""
        self.saw(what, found)
        return [key for key, value in found.items() if key not in thought or thought[key] != value]

    def missing(self, what: Hashable, thought: Iterable[K]) -> list[K]:
        """Those of some keys that were not seen."""
        seen = self._seen.get(what, set())
        return [key for key in thought if hash(key) not in seen]


class Report:
    """What one part of the audit has done since the start. Times are in seconds."""

    def __init__(self) -> None:
        self.rounds = 0
        self.compared = 0
        """Entries in the last complete round."""
        self.seconds = 0.0
        """What it took."""
        self.completed_at: float | None = None
        self.repairs: Counter[str] = Counter()
        """By the name of what was repaired."""
        self.last: deque[Repair] = deque(maxlen=SHOWN_REPAIRS)
        self.problem: str | None = None
        """Why the last round is not complete."""

    def completed(self, compared: int, seconds: float, now: float) -> None:
        """A round is over."""
        self.rounds += 1
        self.compared, self.seconds, self.completed_at = compared, seconds, now
        self.problem = None

    def repaired(self, kind: str, repair: Repair) -> None:
        """Something is as it should be again."""
        self.repairs[kind] += 1
        self.last.append(repair)
