# SPDX-License-Identifier: Apache-2.0
"""Tests that refused updates become due again after a back-off, and that each call returns a
limited number of them."""

from __future__ import annotations

from sluice.entities import EntityKind
from sluice.failures import DUE_AT_ONCE, FIRST_RETRY, LAST_RETRY, NEVER, WAITING, Failures

FULL = 8
NOT_FOUND = 5


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def made() -> tuple[Failures, Clock]:
    clock = Clock()
    return Failures(clock), clock


def test_each_is_due_once_and_later_each_time() -> None:
    failures, clock = made()
    delay = FIRST_RETRY
    for _ in range(12):
        failures.record(EntityKind.ROUTE, 1, FULL, "full")
        assert failures.next_retry == clock.now + delay
        clock.now += delay * 0.9
        assert failures.due() == []
        clock.now += delay * 0.2
        assert failures.due() == [(EntityKind.ROUTE, 1)]
        assert failures.due() == []
        assert failures.next_retry == NEVER
        delay = min(LAST_RETRY, 2 * delay)


def test_what_is_not_as_thought_is_tried_at_once_the_first_time() -> None:
    failures, _ = made()
    failures.record(EntityKind.ROUTE, 1, NOT_FOUND, "")
    assert failures.due() == [(EntityKind.ROUTE, 1)]
    failures.record(EntityKind.ROUTE, 1, NOT_FOUND, "")
    assert failures.due() == []


def test_a_success_lets_those_that_wait_try_and_no_others() -> None:
    failures, clock = made()
    failures.record(EntityKind.ROUTE, 1, WAITING, "next hop 1 is not installed")
    failures.record(EntityKind.ROUTE, 2, FULL, "full")
    failures.record(EntityKind.NEXTHOP, 1, FULL, "full")
    failures.succeeded(EntityKind.NEXTHOP, [7])  # this entity had not failed before
    assert failures.due() == []
    failures.succeeded(EntityKind.NEXTHOP, [1])
    assert failures.next_retry == clock.now
    assert failures.due() == [(EntityKind.ROUTE, 1)]
    assert failures.due() == []
    failures.record(EntityKind.ROUTE, 1, WAITING, "still not")  # new retry time
    clock.now += FIRST_RETRY * 1.5
    assert failures.due() == [(EntityKind.ROUTE, 2)]
    clock.now += FIRST_RETRY
    assert failures.due() == [(EntityKind.ROUTE, 1)]


def test_who_fails_anew_does_not_wait_as_long_as_before() -> None:
    failures, clock = made()
    for _ in range(12):
        failures.record(EntityKind.ROUTE, 1, WAITING, "")
        failures.retry_waiting()
        assert failures.due() == [(EntityKind.ROUTE, 1)]
    failures.record(EntityKind.ROUTE, 1, WAITING, "")  # the back-off is now half a minute
    failures.forget(EntityKind.ROUTE, 1)
    failures.record(EntityKind.ROUTE, 1, FULL, "full")
    clock.now += FIRST_RETRY * 1.5
    assert failures.due() == [(EntityKind.ROUTE, 1)]
    clock.now += 2 * LAST_RETRY
    assert failures.due() == []


def test_what_is_forgotten_is_not_tried() -> None:
    failures, clock = made()
    for key in (1, 2):
        failures.record(EntityKind.ROUTE, key, WAITING, "")
    failures.forget(EntityKind.ROUTE, 1)
    failures.retry_waiting()
    failures.forget(EntityKind.ROUTE, 2)
    clock.now += 100
    assert failures.due() == []
    assert not failures


def test_as_many_as_routes_are_taken_in_bounded_parts() -> None:
    failures, clock = made()
    count = 5 * DUE_AT_ONCE
    for key in range(count):
        failures.record(EntityKind.ROUTE, key, WAITING if key % 2 else FULL, "")
    failures.retry_waiting()
    clock.now += FIRST_RETRY * 2
    found: list[object] = []
    while failures.next_retry <= clock.now:
        part = failures.due()
        assert len(part) <= DUE_AT_ONCE
        found += part
    assert sorted(found) == [(EntityKind.ROUTE, key) for key in range(count)]  # type: ignore[type-var]
    assert len(failures) == count


def test_nothing_is_queued_twice_however_often_it_fails() -> None:
    failures, clock = made()
    for _ in range(1000):
        failures.record(EntityKind.ROUTE, 1, WAITING, "")
        failures.retry_waiting()
        assert failures.due() == [(EntityKind.ROUTE, 1)]
        clock.now += 0.001
    assert len(failures._queue) == 1
    failures.clear()
    assert failures.next_retry == NEVER
