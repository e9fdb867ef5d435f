# SPDX-License-Identifier: Apache-2.0
"""Tests that a run (many routes in one event) has the same effect as single events for these
routes.
"""

from __future__ import annotations

from sluice._native import RouteMemo
from sluice.model import NexthopSpec, Prefix, Route, RouteDeleted, RouteKey, RouteUpdated
from sluice.state.route_runs import events_of
from sluice.wire import routes
from sluice.wire.netlink import attribute, message

NEXTHOPS = (NexthopSpec(bytes((10, 0, 1, 9)), 11),)


def route_message(kind: int, third: int) -> bytes:
    header = routes.RTMSG.pack(routes.AF_INET, 24, 0, 0, 254, 186, 0, 1, 0)
    body = header + attribute(routes.RTA_DST, bytes((20, 0, third, 0)))
    return message(kind, 0x501, 0, body)


def test_updates_and_deletions_in_order() -> None:
    memo = RouteMemo(b"")
    new, old = (route_message(kind, 1) for kind in (routes.RTM_NEWROUTE, routes.RTM_DELROUTE))
    assert memo.learn(new, 0, len(new), (254, 186, 20, NEXTHOPS, None))
    assert memo.learn(old, 0, len(old), (254,))
    frames = [route_message(kind, n) for n in (1, 2) for kind in (24, 25)]
    run, read = memo.read(frames, 0, 100)
    assert (len(run), read) == (4, 4)
    keys = [RouteKey(254, Prefix.parse(f"20.0.{n}.0/24")) for n in (1, 2)]
    assert list(events_of(run)) == [
        event
        for key in keys
        for event in (RouteUpdated(Route(key, 186, 20, NEXTHOPS, None)), RouteDeleted(key))
    ]
