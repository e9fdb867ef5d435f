# SPDX-License-Identifier: Apache-2.0
"""Tests that routes in the switch from an earlier run stay until all routing daemons have completed
their replays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from scenes import Desired
from sluice.daemons import WAITED_FOR, Daemon, RoutingDaemons
from sluice.entities import EntityKey, EntityKind
from sluice.inputs import RouteFeed
from sluice.scheduler import Inlet
from sluice.sources.replay import ReplayGate
from sluice.state.fib import Fib

RED = 1


class Switch:
    """Fakes a switch that has no routes of an earlier run."""

    comparisons = 1

    def is_orphan(self, kind: EntityKind, key: EntityKey) -> bool:
        return False

    def delete_orphans_unless(
        self, kind: EntityKind, is_kept: Callable[[EntityKey], bool]
    ) -> Iterator[None]:
        return iter(())


class Dump:
    """Fakes a route dump that is never started."""

    running = False


class TwoDaemons:
    """Holds two routing daemons, one of the default VRF and one of VRF red."""

    def __init__(self) -> None:
        fib = Fib([], {254: 0, 100: RED}, namespaces={100: RED})
        nothing = cast(Any, None)
        feeds = [
            RouteFeed(number, nothing, ReplayGate(3.0), cast(Any, Dump())) for number in (0, RED)
        ]
        self.daemons = RoutingDaemons(feeds, fib, Switch())
        self.home, self.red = self.daemons._daemons
        for daemon in self.daemons._daemons:
            daemon.routes = Inlet("routes", 4, bool)

    def names_all(self, daemon: Daemon, now: float) -> bool:
        daemon.has_spoken = True
        self.daemons.routes_complete(daemon, now)
        return self.daemons.settle(now)

    def compare(self, now: float) -> list[Daemon]:
        """Runs the comparisons that are due. Returns the daemons whose routes were compared."""
        self.daemons.compare_due(now)
        under_way = [each for each in (self.home, self.red) if each.comparison.running]
        for daemon in under_way:
            while not daemon.comparison.step(now).settled:
                pass
            self.daemons.routes_complete(daemon, now)
        return under_way


@pytest.fixture
def daemons() -> TwoDaemons:
    return TwoDaemons()


def test_all_are_waited_for(daemons: TwoDaemons) -> None:
    assert not daemons.daemons.settle(0.0)
    assert not daemons.names_all(daemons.home, 1.0)
    assert not daemons.daemons.settled
    assert daemons.names_all(daemons.red, 2.0)
    assert not daemons.daemons.settle(3.0)  # settled only once


def test_in_the_place_of_one_that_does_not_come_the_kernel_is_asked(daemons: TwoDaemons) -> None:
    assert not daemons.names_all(daemons.red, 1.0)
    assert daemons.compare(0.9 + WAITED_FOR) == []
    assert not daemons.daemons.settle(0.9 + WAITED_FOR)
    assert daemons.daemons.next_due(0.9 + WAITED_FOR) == 1.0 + WAITED_FOR
    assert daemons.compare(1.0 + WAITED_FOR) == [daemons.home]
    assert daemons.daemons.settle(1.0 + WAITED_FOR)
    assert daemons.compare(2.0 + WAITED_FOR) == []


def test_one_that_has_come_is_waited_for_as_long_as_it_takes(daemons: TwoDaemons) -> None:
    daemons.red.has_spoken = True
    assert not daemons.names_all(daemons.home, 1.0)
    assert daemons.compare(10 * WAITED_FOR) == []
    assert not daemons.daemons.settle(10 * WAITED_FOR)
    assert daemons.names_all(daemons.red, 11 * WAITED_FOR)


def test_one_alone_waits_for_nobody() -> None:
    nothing = cast(Any, None)
    daemons = RoutingDaemons([RouteFeed(0, nothing, nothing, nothing)], Desired().fib, Switch())
    (home,) = daemons._daemons
    daemons.routes_complete(home, 5.0)
    assert daemons.settle(5.0)
