# SPDX-License-Identifier: Apache-2.0
"""Tests `Ribs`, which presents the RIBs of several routing daemons as one."""

from __future__ import annotations

from scenes import gateway, route
from sluice.entities import RouteSlot
from sluice.model import MAIN_TABLE, NexthopSpec, Prefix, Route, RouteKey
from sluice.namespaces import OWN_NAMESPACE
from sluice.state.ribs import Ribs
from state.forwarding import GW1, Stages, obj

RED_TABLE, RED = 1005, 5
PREFIX = Prefix.parse("192.0.2.0/24")
HOME_KEY, RED_KEY = RouteKey(MAIN_TABLE, PREFIX), RouteKey(RED_TABLE, PREFIX)


class TwoDaemons(Stages):
    def __init__(self) -> None:
        super().__init__()
        self.red = self.another_rib({RED_TABLE: RED})
        self.both = Ribs({OWN_NAMESPACE: self.rib, RED: self.red}, {RED_TABLE: RED})

    def update_red(self, *nexthops: NexthopSpec, obj: int | None = None) -> None:
        one = Route(RED_KEY, 186, 20, nexthops, obj)
        self.red.update(RouteSlot(RED, PREFIX), one, self.changes)


def test_a_route_is_read_from_the_rib_that_has_its_table() -> None:
    daemons = TwoDaemons()
    daemons.update(route(str(PREFIX), gateway(GW1, 1)))
    assert daemons.both.get(RED_KEY) is None
    daemons.update_red(gateway(GW1, 1))
    home, red = daemons.both.get(HOME_KEY), daemons.both.get(RED_KEY)
    assert home is not None
    assert red is not None
    assert (home.rib, red.rib) == (daemons.rib, daemons.red)
    assert daemons.both.get(RouteKey(77, PREFIX)) is None
    assert set(daemons.both) == {HOME_KEY, RED_KEY}
    assert len(daemons.both) == 2


def test_routes_are_stale_by_their_own_daemons_sessions() -> None:
    daemons = TwoDaemons()
    daemons.update(route(str(PREFIX), gateway(GW1, 1)))
    daemons.update_red(gateway(GW1, 1))
    daemons.red.open_session()
    assert daemons.both.is_stale(RED_KEY)
    assert not daemons.both.is_stale(HOME_KEY)
    assert daemons.both.stale == 1


def test_routes_that_wait_for_objects_of_one_number_are_added_up() -> None:
    daemons = TwoDaemons()
    daemons.update(route(str(PREFIX), obj=7))
    daemons.update_red(obj=7)
    assert daemons.both.waiting_objects() == {7: 2}
    list(daemons.rib.update_object(obj(7, GW1, 1), daemons.changes))
    assert daemons.both.waiting_objects() == {7: 1}


def test_target_changes_of_all_daemons_count() -> None:
    daemons = TwoDaemons()
    for rib, n in ((daemons.rib, 1), (daemons.red, 2)):
        list(rib.update_object(obj(7, GW1, 1), daemons.changes))
        assert daemons.both.target_changes == n - 1
        if rib is daemons.rib:
            daemons.update(route(str(PREFIX), obj=7))
        else:
            daemons.update_red(obj=7)
        list(rib.update_object(obj(7, "10.0.2.9", 2), daemons.changes))
        assert daemons.both.target_changes == n
