# SPDX-License-Identifier: Apache-2.0
"""Tests that views show counters as differences since the last `sluice clear counters`."""

from __future__ import annotations

from typing import Any

from sluice.api.cleared_counters import ClearedCounters


def counters(drops: dict[str, Any] | None, packets: int) -> dict[str, Any]:
    return {"switch_drops": drops, "controller": {"punts": {"packets": packets}}}


def ttl(packets: int, octets: int) -> dict[str, Any]:
    return {"TTL": {"packets": packets, "bytes": octets}}


def punts(handled: int, to_cpu: int | None, waiting: int) -> dict[str, Any]:
    counts = {"to_cpu": to_cpu, "metered_away": 0, "queue_full": 0, "handled": handled}
    return {
        "reasons": {"LOCAL": counts | {"rate": 100}},
        "waiting": waiting,
        "held": 0,
        "results": {"answered": handled},
        "held_packets": {},
    }


def interface(name: str, packets: int | None) -> dict[str, Any]:
    count = None if packets is None else {"packets": packets, "bytes": 100 * packets}
    return {"name": name, "mtu": 1500, "received": count, "sent": None}


def cleared_at(now: float, handled: int = 0) -> ClearedCounters:
    cleared = ClearedCounters()
    cleared.clear(
        now,
        counters=counters(ttl(10, 1000), 7),
        punts=punts(handled, 20, 3),
        interfaces=[interface("eth1", 5)],
    )
    return cleared


def test_before_the_first_clearing_views_are_as_they_are() -> None:
    cleared = ClearedCounters()
    assert cleared.at is None
    for view in (counters(ttl(10, 1000), 7), counters(None, 7)):
        assert cleared.counters(view) == view
    assert cleared.punts(punts(5, 20, 3)) == punts(5, 20, 3)
    assert cleared.interfaces([interface("eth1", 5)]) == [interface("eth1", 5)]


def test_counts_begin_at_the_clearing() -> None:
    cleared = cleared_at(100.0)
    assert cleared.at == 100.0
    assert cleared.counters(counters(ttl(12, 1300), 7)) == counters(ttl(2, 300), 0)


def test_what_is_no_count_is_not_changed() -> None:
    cleared = cleared_at(0.0, handled=4)
    assert cleared.punts(punts(9, 25, 3)) == punts(5, 5, 3)
    [found] = cleared.interfaces([interface("eth1", 6)])
    assert found == interface("eth1", 1)


def test_what_did_not_count_before_counts_from_0() -> None:
    cleared = cleared_at(0.0)
    found = cleared.counters(counters(ttl(10, 1000) | {"MTU": {"packets": 4, "bytes": 9}}, 7))
    assert found["switch_drops"] == ttl(0, 0) | {"MTU": {"packets": 4, "bytes": 9}}
    assert cleared.interfaces([interface("eth2", 8)]) == [interface("eth2", 8)]


def test_lower_counts_are_those_of_a_switch_that_restarted() -> None:
    cleared = cleared_at(0.0)
    assert cleared.counters(counters(ttl(3, 300), 8)) == counters(ttl(3, 300), 1)


def test_unknown_counts_stay_unknown_and_known_ones_after_unknown_are_whole() -> None:
    cleared = cleared_at(0.0)
    assert cleared.counters(counters(None, 7))["switch_drops"] is None
    assert cleared.interfaces([interface("eth1", None)]) == [interface("eth1", None)]
    cleared.clear(0.0, counters=counters(None, 0), punts=punts(0, None, 0), interfaces=[])
    assert cleared.counters(counters(ttl(3, 300), 0)) == counters(ttl(3, 300), 0)
    assert cleared.punts(punts(0, 20, 0)) == punts(0, 20, 0)
