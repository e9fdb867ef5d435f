# SPDX-License-Identifier: Apache-2.0
"""When what no routing daemon has named is nobody's: none of them is overtaken by another."""

from __future__ import annotations

from typing import Any, cast

import pytest

from scenes import Desired
from sluice.daemons import WAITED_FOR, Daemon, RoutingDaemons
from sluice.inputs import RouteFeed
from sluice.state.fib import Fib

RED = 1


class Two:
    """The default VRF's daemon, and red's."""

    def __init__(self) -> None:
        fib = Fib([], {254: 0, 100: RED}, namespaces={100: RED})
        nothing = cast(Any, None)
        feeds = [RouteFeed(number, nothing, nothing, nothing) for number in (0, RED)]
        self.daemons = RoutingDaemons(feeds, fib)
        self.home, self.red = self.daemons._daemons

    def names_all(self, daemon: Daemon, now: float) -> bool:
        daemon.has_spoken = True
        self.daemons.named_all(daemon, now)
        return self.daemons.settle(now)


@pytest.fixture
def two() -> Two:
    return Two()


def test_all_are_waited_for(two: Two) -> None:
    assert not two.daemons.settle(0.0)
    assert not two.names_all(two.home, 1.0)
    assert not two.daemons.settled
    assert two.names_all(two.red, 2.0)
    assert not two.daemons.settle(3.0)  # only once


def test_one_that_does_not_come_is_not_waited_for_for_ever(two: Two) -> None:
    assert not two.names_all(two.red, 1.0)
    assert not two.daemons.settle(0.9 + WAITED_FOR)
    assert two.daemons.settle(1.0 + WAITED_FOR)


def test_one_that_has_come_is_waited_for_as_long_as_it_takes(two: Two) -> None:
    two.red.has_spoken = True
    assert not two.names_all(two.home, 1.0)
    assert not two.daemons.settle(10 * WAITED_FOR)
    assert two.names_all(two.red, 11 * WAITED_FOR)


def test_one_alone_waits_for_nobody() -> None:
    nothing = cast(Any, None)
    daemons = RoutingDaemons([RouteFeed(0, nothing, nothing, nothing)], Desired().fib)
    (home,) = daemons._daemons
    daemons.named_all(home, 5.0)
    assert daemons.settle(5.0)
