# SPDX-License-Identifier: Apache-2.0
"""Tests connected prefixes and host routes of neighbours, in a table that also has routes of the
routing daemon.
"""

from __future__ import annotations

import pytest

from scenes import (
    Desired,
    connected,
    gateway,
    mac,
    neighbor,
    no_address,
    no_route,
    route,
    slot,
)
from sluice.entities import Nexthop, RouteTarget, RouteTargetKind
from sluice.model import NeighborState, parse_address
from sluice.state.ids import OutOfIdsError
from sluice.state.nexthops import Path
from sluice.state.onlink import OnLink
from sluice.state.usable_routes import UsableRoutes
from state.forwarding import GW1, GW2, Stages


def test_a_neighbor_is_a_next_hop_and_a_host_route(wanted: Desired) -> None:
    wanted.apply(neighbor(1, GW1, 7))
    assert wanted.nexthop(f"{GW1}/32") == Nexthop(1, b"\x0a\0\1\x09", mac(7), True)
    wanted.apply(neighbor(1, GW1, 8, NeighborState.STALE))
    assert wanted.nexthop(f"{GW1}/32").mac == mac(8)
    wanted.apply(neighbor(1, GW1, None, NeighborState.FAILED))
    assert wanted.target(f"{GW1}/32") is None


def test_link_local_neighbors_have_no_host_route(wanted: Desired) -> None:
    wanted.apply(neighbor(1, "fe80::9", 7))
    assert wanted.target("fe80::9/128") is None


def test_no_host_route_where_a_longer_prefix_leads_elsewhere(wanted: Desired) -> None:
    wanted.apply(neighbor(1, GW1, 7))
    wanted.apply(route("10.0.1.8/29", gateway(GW2, 2)))
    assert wanted.target(f"{GW1}/32") is None
    wanted.apply(no_route("10.0.1.8/29"))
    assert wanted.nexthop(f"{GW1}/32").mac == mac(7)


def test_no_host_route_off_link(wanted: Desired) -> None:
    wanted.apply(neighbor(1, "10.0.2.77", 7))
    assert wanted.target("10.0.2.77/32") is None


def test_the_daemons_host_route_wins(wanted: Desired) -> None:
    wanted.apply(neighbor(1, GW1, 7), route(f"{GW1}/32", gateway(GW2, 2)))
    assert wanted.nexthop(f"{GW1}/32").address == b"\x0a\0\2\x09"
    wanted.apply(no_route(f"{GW1}/32"))
    assert wanted.nexthop(f"{GW1}/32").address == b"\x0a\0\1\x09"


def test_a_connected_route_of_the_daemon_keeps_host_routes(wanted: Desired) -> None:
    wanted.apply(neighbor(1, GW1, 7), route("10.0.1.0/24", connected(1)))
    assert wanted.nexthop(f"{GW1}/32").mac == mac(7)


class TestChanges:
    """Tests that `refresh_*` yields the prefixes whose on-link target changed."""

    PREFIXES = tuple(slot(f"10.0.{n}.0/24") for n in (1, 2, 3))

    def test_connected_prefixes(self) -> None:
        stages = Stages()
        onlink = on_link(stages)
        assert tuple(onlink.refresh_connected(stages.changes)) == self.PREFIXES
        assert tuple(onlink.refresh_connected(stages.changes)) == ()
        stages.interfaces.address_removed(no_address(2, "10.0.2.1/24"), stages.changes)
        assert tuple(onlink.refresh_connected(stages.changes)) == self.PREFIXES[1:2]
        assert onlink.target(self.PREFIXES[1]) is None
        assert onlink.path(self.PREFIXES[0]) == Path(1, None)
        assert onlink.lengths(0, 4) == {24}
        assert onlink.lengths(0, 16) == set()

    def test_connected_prefixes_before_ids_run_out(self) -> None:
        stages = Stages()
        onlink = on_link(stages)
        stages.nexthops._nexthop_ids._next = 0xFFFF  # the last id
        changed = onlink.refresh_connected(stages.changes)
        assert next(changed) == self.PREFIXES[0]
        with pytest.raises(OutOfIdsError):
            next(changed)
        assert onlink.target(self.PREFIXES[0]) == RouteTarget(RouteTargetKind.NEXTHOP, 0xFFFF)

    def test_host_routes(self) -> None:
        stages = Stages()
        onlink = on_link(stages)
        list(onlink.refresh_connected(stages.changes))
        path, host = Path(1, parse_address(GW1)), slot(f"{GW1}/32")
        assert list(onlink.refresh_host(path, stages.changes)) == []
        stages.neighbors.apply(path, mac(1), NeighborState.REACHABLE, 0.0)
        assert list(onlink.refresh_host(path, stages.changes)) == [host]
        assert list(onlink.refresh_hosts(stages.changes)) == []
        assert onlink.hosts() == [(host, path)]
        stages.update(route("10.0.1.8/29", gateway(GW2, 2)))
        assert list(onlink.refresh_hosts(stages.changes)) == [host]
        assert onlink.hosts() == []


def on_link(stages: Stages) -> OnLink:
    usable = UsableRoutes(stages.table, [0], {})
    return OnLink(stages.interfaces, stages.neighbors, stages.nexthops, usable)
