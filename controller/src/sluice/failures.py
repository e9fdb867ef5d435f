# SPDX-License-Identifier: Apache-2.0
"""The updates that the switch refused, or that wait for another entity: named, and tried again.

Each is retried after 0.1, 0.2, 0.4, ... 30 s and forgotten once it succeeds. A success lets those
that wait try again at once. What only shows that the switch is not as it was thought to be is tried
again at once, the first time. Pure but for the clock it is given. Depends on entities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from sluice.entities import Key, Kind
from sluice.p4runtime.session import ALREADY_EXISTS, NOT_FOUND, code_name

FIRST_RETRY, LAST_RETRY = 0.1, 30.0
"""Seconds between attempts: the first, and the longest."""
NEVER = float("inf")
WAITING = -1
"""The code of a failure that is no answer of the switch: a reference is not installed."""

Subject = tuple[Kind, Key]


class Failure(NamedTuple):
    """What became of the last attempt. `retry_at` is NEVER while the next one is queued."""

    code: int
    message: str
    attempts: int
    retry_at: float

    def __str__(self) -> str:
        name = "WAITING" if self.code == WAITING else code_name(self.code)
        return f"{name}: {self.message}" if self.message else name


class Failures:
    """All entities whose last update failed."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures: dict[Subject, Failure] = {}
        self.next_retry = NEVER

    def __len__(self) -> int:
        return len(self._failures)

    def items(self) -> Iterator[tuple[Subject, Failure]]:
        """All failures."""
        return iter(self._failures.items())

    def get(self, kind: Kind, key: Key) -> Failure | None:
        """An entity's failure, if its last update failed."""
        return self._failures.get((kind, key))

    def record(self, kind: Kind, key: Key, code: int, message: str) -> None:
        """An update failed; it becomes due again."""
        before = self._failures.get((kind, key))
        attempts = 1 if before is None else before.attempts + 1
        delay = min(LAST_RETRY, FIRST_RETRY * 2.0 ** min(attempts - 1, 16))
        if code in (ALREADY_EXISTS, NOT_FOUND) and attempts == 1:
            delay = 0.0
        retry_at = self._clock() + delay
        self._failures[kind, key] = Failure(code, message, attempts, retry_at)
        self.next_retry = min(self.next_retry, retry_at)

    def due(self) -> list[Subject]:
        """What is to be tried again by now, each once."""
        now = self._clock()
        if now < self.next_retry:
            return []
        self.next_retry = NEVER
        due = []
        for subject, failure in self._failures.items():
            if failure.retry_at <= now:
                due.append(subject)
                self._failures[subject] = failure._replace(retry_at=NEVER)
            else:
                self.next_retry = min(self.next_retry, failure.retry_at)
        return due

    def forget(self, kind: Kind, key: Key) -> None:
        """Nobody wants it any more, or it is as wanted."""
        if self._failures:
            self._failures.pop((kind, key), None)

    def succeeded(self, kind: Kind, keys: Iterable[Key]) -> None:
        """These updates were applied; if one had failed, what waits may try again at once."""
        if not self._failures:
            return
        recovered = [self._failures.pop((kind, key), None) for key in keys]
        if any(recovered):
            self.retry_waiting()

    def retry_waiting(self) -> None:
        """Something that others may have waited for is installed."""
        if not self._failures:
            return
        now = self._clock()
        for subject, failure in self._failures.items():
            if failure.code == WAITING:
                self._failures[subject] = failure._replace(retry_at=now)
                self.next_retry = now

    def clear(self) -> None:
        """Nothing is known any more."""
        self._failures.clear()
        self.next_retry = NEVER
