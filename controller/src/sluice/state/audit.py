# SPDX-License-Identifier: Apache-2.0
"""Comparison and report of the auditor; pure.

`Census` compares what a switch holds with the record, part by part, and returns the keys to check
again: an update may have been in flight. `Report` has the result for operators. Depends on nothing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)

SHOWN_REPAIRS = 20
"""Number of repairs that a report keeps."""


class Repair(NamedTuple):
    """A foreign entry and its replacement, as text."""

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
        """Records the keys of entries that the switch holds."""
        self.compared += len(keys)
        self._seen.setdefault(what, set()).update(map(hash, keys))

    def differing(
        self, what: Hashable, found: Mapping[K, object], thought: Mapping[K, object]
    ) -> list[K]:
        """Returns the keys of found entries that the record lacks or has otherwise."""
        self.saw(what, found)
        return [key for key, value in found.items() if key not in thought or thought[key] != value]

    def missing(self, what: Hashable, thought: Iterable[K]) -> list[K]:
        """Returns the recorded keys that the switch does not hold."""
        seen = self._seen.get(what, set())
        return [key for key in thought if hash(key) not in seen]


class Report:
    """What one part of the audit has done since the start. Times are in seconds."""

    def __init__(self) -> None:
        self.rounds = 0
        self.compared = 0
        """Entries in the last complete round."""
        self.seconds = 0.0
        """Duration of the last complete round."""
        self.completed_at: float | None = None
        self.repairs: Counter[str] = Counter()
        """Number of repairs by kind."""
        self.last: deque[Repair] = deque(maxlen=SHOWN_REPAIRS)
        self.problem: str | None = None
        """Why the last round is not complete."""

    def completed(self, compared: int, seconds: float, now: float) -> None:
        """Records a complete round."""
        self.rounds += 1
        self.compared, self.seconds, self.completed_at = compared, seconds, now
        self.problem = None

    def repaired(self, kind: str, repair: Repair) -> None:
        """Records a repair."""
        self.repairs[kind] += 1
        self.last.append(repair)
