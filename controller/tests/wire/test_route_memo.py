# SPDX-License-Identifier: Apache-2.0
"""Tests that the cache of parsed route messages never changes a result."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.model import RouteUpdated
from sluice.wire import fpm, netlink, route_memo
from sluice.wire import routes as routes_wire
from sluice.wire.errors import WireError
from sluice.wire.route_memo import RouteMemo, cut
from wire.fpm_messages import PAYLOADS, decode, new_route
from wire.strategies import damaged


def test_gives_what_is_decoded_without_it() -> None:
    memo, known = RouteMemo(), 0
    for _ in range(2):
        for payload in PAYLOADS:
            known += memo.events(payload) is not None
            assert fpm.decode_payload(payload, Counter(), memo) == decode(payload)
    routes = [payload for payload in PAYLOADS if memo.events(payload)]
    assert len(routes) > len(PAYLOADS) // 2, (len(routes), len(PAYLOADS))
    assert known >= len(routes)


@given(st.lists(damaged(PAYLOADS), max_size=4))
def test_changes_nothing_of_damaged_frames(payloads: list[bytes]) -> None:
    memo = RouteMemo()
    for payload in PAYLOADS:
        fpm.decode_payload(payload, Counter(), memo)
    for payload in (*payloads, *payloads):
        with_memo, without = Counter[str](), Counter[str]()
        assert outcome(payload, with_memo, memo) == outcome(payload, without, None)
        assert with_memo == without


def outcome(payload: bytes, ignored: Counter[str], memo: RouteMemo | None) -> object:
    try:
        return fpm.decode_payload(payload, ignored, memo)
    except WireError as error:
        return str(error)


def test_routes_that_lead_alike_share_their_next_hops() -> None:
    """Checks that routes with the same next hops share one tuple of next hops.

    With a million routes, separate copies would take a quarter of the controller's memory.
    """
    memo = RouteMemo()
    routes = [
        event.route
        for number in range(1, 4)
        for event in fpm.decode_payload(new_route(bytes((10, 9, number, 0))), Counter(), memo)
        if isinstance(event, RouteUpdated)
    ]
    assert [str(route.key.prefix) for route in routes] == [f"10.9.{n}.0/24" for n in range(1, 4)]
    assert routes[1].nexthops is routes[2].nexthops is routes[0].nexthops


def test_does_not_take_a_second_destination_for_the_first() -> None:
    second = netlink.attribute(routes_wire.RTA_DST, bytes((10, 8, 0, 0)))
    memo = RouteMemo()
    for number in range(1, 4):
        payload = new_route(bytes((10, 9, number, 0)), more=second)
        assert fpm.decode_payload(payload, Counter(), memo) == decode(payload)


def test_masks_host_bits_and_refuses_impossible_lengths() -> None:
    memo = RouteMemo()
    fpm.decode_payload(new_route(bytes((10, 9, 1, 0))), Counter(), memo)
    odd = new_route(bytes((10, 9, 1, 7)))
    assert fpm.decode_payload(odd, Counter(), memo) == decode(odd) != []
    with pytest.raises(WireError, match="/33"):
        fpm.decode_payload(new_route(bytes((10, 9, 1, 0)), 33), Counter(), memo)


def test_a_full_cache_is_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_memo, "LIMIT", 2)
    memo = RouteMemo()
    texts = [netlink.attribute(routes_wire.RTA_PRIORITY, netlink.U32.pack(n)) for n in range(3)]
    payloads = [new_route(bytes((10, 9, 1, 0)), more=text) for text in texts]
    for payload in payloads:
        assert fpm.decode_payload(payload, Counter(), memo) == decode(payload)
    assert [memo.events(payload) is None for payload in payloads] == [True, True, False]


def test_a_message_is_cut_at_its_prefix_if_it_comes_first_or_behind_the_table() -> None:
    payload = new_route(bytes((10, 9, 1, 0)))
    whole, kind = len(payload), routes_wire.RTM_NEWROUTE
    assert cut(payload, 0, whole, kind) == (routes_wire.AF_INET, 28, 36)
    table = netlink.attribute(routes_wire.RTA_TABLE, netlink.U32.pack(254))
    behind = payload[:28] + table + payload[28:]
    assert cut(behind, 0, len(behind), kind) == (routes_wire.AF_INET, 36, 44)
    other = payload[:28] + netlink.attribute(routes_wire.RTA_OIF, bytes(4)) + payload[28:]
    assert cut(other, 0, len(other), kind) is None
    assert cut(payload, 0, whole, routes_wire.RTM_NEWNEXTHOP) is None
    assert cut(payload, 0, whole + 1, kind) is None
    assert cut(payload[:35], 0, 35, kind) is None
