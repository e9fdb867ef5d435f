# SPDX-License-Identifier: Apache-2.0
"""Compares tables for the auditor, and holds the auditor's report. Pure.

`TableComparison` compares the entries of a switch with the controller's record, part by part. It
returns the keys of entries that differ. The auditor checks these keys again, because an update of
an entry may have been in flight during the first check. `AuditReport` holds the results for
operators. Depends on nothing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)

KEPT_REPAIRS = 20
"""Number of repairs that a report keeps."""


class Repair(NamedTuple):
    """Describes a repair as text: the entry that the switch held, and the entry written instead."""

    at: float
    what: str
    found: str
    written: str

    def __str__(self) -> str:
        return f"{self.what}: found {self.found}, put {self.written}"


class TableComparison:
    """Compares tables in one round of the audit. To save memory, stores only hashes of the found
    keys."""

    def __init__(self) -> None:
        self._found: dict[Hashable, set[int]] = {}
        self.compared = 0

    def add_found(self, what: Hashable, keys: Collection[Hashable]) -> None:
        """Records the keys of entries that the switch holds."""
        self.compared += len(keys)
        self._found.setdefault(what, set()).update(map(hash, keys))

    def differing(
        self, what: Hashable, found: Mapping[K, object], recorded: Mapping[K, object]
    ) -> list[K]:
        """Returns the keys of found entries that the record lacks or holds with another value."""
        self.add_found(what, found)
        return [
            key for key, value in found.items() if key not in recorded or recorded[key] != value
        ]

    def missing(self, what: Hashable, recorded: Iterable[K]) -> list[K]:
        """Returns the recorded keys that the switch does not hold."""
        hashes = self._found.get(what, set())
        return [key for key in recorded if hash(key) not in hashes]


class AuditReport:
    """Holds the results of one part of the audit since the controller's start. Times are in
    seconds."""

    def __init__(self) -> None:
        self.rounds = 0
        self.compared = 0
        """Entries in the last complete round."""
        self.seconds = 0.0
        """Duration of the last complete round."""
        self.completed_at: float | None = None
        self.repairs: Counter[str] = Counter()
        """Number of repairs by kind."""
        self.last: deque[Repair] = deque(maxlen=KEPT_REPAIRS)
        self.problem: str | None = None
        """Reason why the last round is not complete."""

    def completed(self, compared: int, seconds: float, now: float) -> None:
        """Records that a round of the audit has ended."""
        self.rounds += 1
        self.compared, self.seconds, self.completed_at = compared, seconds, now
        self.problem = None

    def repaired(self, kind: str, repair: Repair) -> None:
        """Records a repair."""
        self.repairs[kind] += 1
        self.last.append(repair)
