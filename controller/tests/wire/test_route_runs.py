# SPDX-License-Identifier: Apache-2.0
"""Tests that route messages have the same result whether they are read as a run or decoded one by
one."""

from __future__ import annotations

from collections import Counter

from sluice.model import Route, RouteDeleted, RouteEvent, RouteKey, RouteUpdated
from sluice.state.route_runs import events_of
from sluice.wire import fpm, netlink, routes
from sluice.wire.route_runs import RouteRuns
from wire.fpm_messages import PAYLOADS, decode, new_route


def read(runs: RouteRuns, payloads: list[bytes], limit: int = 1000) -> list[RouteEvent]:
    """Reads payloads and returns all events. A payload is read as part of a run if the cache knows
    all its messages; otherwise the decoder reads it."""
    events: list[RouteEvent] = []
    start = 0
    while start < len(payloads):
        run, count = runs.read(payloads, start, limit)
        events += events_of(run)
        start += count
        if not count:
            events += fpm.decode_payload(payloads[start], Counter(), runs)
            start += 1
    return events


def table(*thirds: int, more: bytes = b"") -> list[bytes]:
    return [new_route(bytes((10, 9, third, 0)), more=more) for third in thirds]


def at_the_end(events: list[RouteEvent]) -> dict[RouteKey, Route]:
    """Returns the routes that exist after these events.

    Tests compare these routes instead of the events, because the number of events may differ: for a
    payload that deletes and adds a route, the decoder yields one event and a run two.
    """
    found: dict[RouteKey, Route] = {}
    for event in events:
        if isinstance(event, RouteUpdated):
            found[event.route.key] = event.route
        elif isinstance(event, RouteDeleted):
            found.pop(event.key, None)
    return found


def test_recordings_give_the_same_routes() -> None:
    runs = RouteRuns(())
    wanted = [event for payload in PAYLOADS for event in decode(payload)]
    for _ in range(2):
        assert at_the_end(read(runs, PAYLOADS)) == at_the_end(wanted)
    hits = sum(len(runs.read([payload], 0, 1000)[0]) for payload in PAYLOADS)
    assert hits > sum(type(one) in (RouteUpdated, RouteDeleted) for one in wanted) // 2


def test_a_text_is_known_once_it_was_decoded() -> None:
    runs = RouteRuns(())
    first, *others = table(1, 2, 3)
    assert runs.read([first], 0, 10)[1] == 0
    fpm.decode_payload(first, Counter(), runs)
    run, count = runs.read(others, 0, 10)
    assert (len(run), count) == (2, 2)
    assert list(events_of(run)) == decode(others[0]) + decode(others[1])


def test_reading_ends_at_the_limit_and_before_a_miss() -> None:
    runs = RouteRuns(())
    fpm.decode_payload(table(1)[0], Counter(), runs)
    metric = netlink.attribute(routes.RTA_PRIORITY, netlink.U32.pack(9))
    payloads = table(2, 3, 4) + table(5, more=metric) + table(6)
    assert runs.read(payloads, 0, 2)[1] == 2
    assert runs.read(payloads, 0, 10)[1] == 3
    assert runs.read(payloads, 3, 10)[1] == 0
    assert runs.read(payloads, 4, 10)[1] == 1


def test_prefixes_with_an_unusual_head_always_miss() -> None:
    runs = RouteRuns((10,))
    fpm.decode_payload(table(1)[0], Counter(), runs)
    assert runs.read(table(1), 0, 10)[1] == 0


def test_a_message_with_two_destinations_is_not_learned() -> None:
    runs = RouteRuns(())
    second = netlink.attribute(routes.RTA_DST, bytes((10, 8, 0, 0)))
    payloads = table(1, 2, more=second)
    fpm.decode_payload(payloads[0], Counter(), runs)
    assert runs.read(payloads, 0, 10)[1] == 0
