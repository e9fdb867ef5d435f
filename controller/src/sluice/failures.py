# SPDX-License-Identifier: Apache-2.0
"""Records updates that the switch refused, and updates that wait for another entity.

Each update is retried after 0.1, 0.2, 0.4, ... 30 s, and forgotten once it succeeds. When a failed
update succeeds, the updates that wait for another entity are retried at once. The first retry after
ALREADY_EXISTS or NOT_FOUND is immediate, because these codes only mean that the switch's state
differs from the recorded state. Pure except for the clock. Depends on entities.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from sluice.entities import EntityKey, EntityKind
from sluice.p4runtime.session import ALREADY_EXISTS, NOT_FOUND, code_name

FIRST_RETRY, LAST_RETRY = 0.1, 30.0
"""Back-off in seconds: the first delay, and the longest."""
NEVER = float("inf")
WAITING = -1
"""Code of an update that was not sent, since an entity that it refers to is not installed."""

DUE_AT_ONCE = 2000
"""Largest number of failures examined in one call of `due`."""

FailedEntity = tuple[EntityKind, EntityKey]


class Failure(NamedTuple):
    """Holds the result of the last attempt to update an entity.

    When `due` returns the entity, `retry_at` becomes NEVER, until the retry has a result.
    """

    code: int
    message: str
    attempts: int
    retry_at: float

    def __str__(self) -> str:
        name = "WAITING" if self.code == WAITING else code_name(self.code)
        return f"{name}: {self.message}" if self.message else name


class Failures:
    """Holds all entities whose last update failed.

    All routes may have failed. So no method examines all failures in one call.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures: dict[FailedEntity, Failure] = {}
        self._of_kind: Counter[EntityKind] = Counter()
        # Heap of retries by time. An entity may have several items in the heap, of which only the
        # earliest is valid; `_queued` holds its time. When the valid item is popped, the entity is
        # due. But if the `retry_at` of its failure is later, the entity is enqueued again.
        self._queue: list[tuple[float, int, FailedEntity]] = []
        self._queued: dict[FailedEntity, float] = {}
        self._pushed = 0
        self._waiting: dict[FailedEntity, None] = {}
        self._released: deque[dict[FailedEntity, None]] = deque()
        """Entities that waited when another entity was installed, and are now due at once."""

    def __len__(self) -> int:
        return len(self._failures)

    def items(self) -> Iterator[tuple[FailedEntity, Failure]]:
        """Iterates over all failures."""
        return iter(self._failures.items())

    def get(self, kind: EntityKind, key: EntityKey) -> Failure | None:
        """Returns an entity's failure, or None if its last update did not fail."""
        return self._failures.get((kind, key))

    def of_kind(self, kind: EntityKind) -> int:
        """Returns the number of failed entities of a kind."""
        return self._of_kind[kind]

    @property
    def next_retry(self) -> float:
        """Time at which `due` next returns an entity, or NEVER."""
        if self._released:
            return self._clock()
        return self._queue[0][0] if self._queue else NEVER

    def record(self, kind: EntityKind, key: EntityKey, code: int, message: str) -> None:
        """Records a failed update and schedules its retry."""
        subject = (kind, key)
        before = self._failures.get(subject)
        self._of_kind[kind] += before is None
        attempts = 1 if before is None else before.attempts + 1
        delay = min(LAST_RETRY, FIRST_RETRY * 2.0 ** min(attempts - 1, 16))
        if code in (ALREADY_EXISTS, NOT_FOUND) and attempts == 1:
            delay = 0.0
        retry_at = self._clock() + delay
        self._failures[subject] = Failure(code, message, attempts, retry_at)
        self._enqueue(retry_at, subject)
        if code == WAITING:
            self._waiting[subject] = None
        else:
            self._waiting.pop(subject, None)

    def _enqueue(self, at: float, subject: FailedEntity) -> None:
        if at < self._queued.get(subject, NEVER):
            self._queued[subject] = at
            self._pushed += 1
            heappush(self._queue, (at, self._pushed, subject))

    def due(self, limit: int = DUE_AT_ONCE) -> list[FailedEntity]:
        """Returns the entities to retry now, each once.

        Examines at most `limit` failures. The next call continues with the others.
        """
        due: list[FailedEntity] = []
        looked_at, now = 0, self._clock()
        while self._released and looked_at < limit:
            if not self._released[0]:
                self._released.popleft()
                continue
            looked_at += 1
            subject, _ = self._released[0].popitem()
            failure = self._failures.get(subject)
            if failure is not None and failure.code == WAITING:
                self._take(subject, failure, due)
        while self._queue and self._queue[0][0] <= now and looked_at < limit:
            looked_at += 1
            at, _, subject = heappop(self._queue)
            if self._queued.get(subject) != at:
                continue
            del self._queued[subject]
            failure = self._failures.get(subject)
            if failure is None:
                continue
            if now < failure.retry_at < NEVER:
                self._enqueue(failure.retry_at, subject)
            else:
                self._take(subject, failure, due)
        return due

    def _take(self, subject: FailedEntity, failure: Failure, due: list[FailedEntity]) -> None:
        if failure.retry_at != NEVER:
            self._failures[subject] = failure._replace(retry_at=NEVER)
            self._waiting.pop(subject, None)
            due.append(subject)

    def forget(self, kind: EntityKind, key: EntityKey) -> None:
        """Forgets an entity's failure. Called when the entity is no longer desired, or the switch
        already has the desired value."""
        if self._failures:
            self._drop((kind, key))

    def succeeded(self, kind: EntityKind, keys: Iterable[EntityKey]) -> None:
        """Records updates that the switch has applied.

        If one of these updates had failed before, makes all waiting updates due.
        """
        if not self._failures:
            return
        recovered = [self._drop((kind, key)) for key in keys]
        if any(recovered):
            self.retry_waiting()

    def _drop(self, subject: FailedEntity) -> Failure | None:
        self._waiting.pop(subject, None)
        failure = self._failures.pop(subject, None)
        self._of_kind[subject[0]] -= failure is not None
        return failure

    def retry_waiting(self) -> None:
        """Makes all waiting updates due. Called when an entity that they may refer to is
        installed."""
        if self._waiting:
            self._released.append(self._waiting)
            self._waiting = {}

    def clear(self) -> None:
        """Forgets all failures."""
        self._failures.clear()
        self._of_kind.clear()
        self._queue.clear()
        self._queued.clear()
        self._waiting = {}
        self._released.clear()
