# SPDX-License-Identifier: Apache-2.0
"""Tests the removal of routes of an earlier session that neither the daemon nor the kernel has any
more. Routes change meanwhile.
"""

from __future__ import annotations

import pytest

from scenes import Desired, gateway, key, link, no_route, route
from sluice.model import FpmSessionOpened, Route, RouteKey
from sluice.state.route_order import BLOCK
from sluice.state.stale_sweep import StaleSweep

COUNT = 3000


def text(n: int) -> str:
    return f"{20 + n // 65536}.{n // 256 % 256}.{n % 256}.0/24"


def routes(*numbers: int) -> dict[RouteKey, Route]:
    return {key(text(n)): Route(key(text(n)), 186, 20, ()) for n in numbers}


@pytest.fixture
def wanted() -> Desired:
    desired = Desired()
    desired.apply(link(1), FpmSessionOpened("a"))
    desired.apply(*(route(text(n), gateway("10.0.1.9", 1)) for n in range(COUNT)))
    desired.apply(FpmSessionOpened("b"))
    assert desired.fib.rib.stale == COUNT
    return desired


def test_each_slice_is_bounded_and_the_kernels_routes_stay(wanted: Desired) -> None:
    sweep = StaleSweep(wanted.fib, routes(*range(0, COUNT, 3)))
    slices = []
    while (gone := sweep.next()) is not None:
        slices.append(len(gone.keys))
        wanted.apply(gone)
    assert max(slices) <= BLOCK
    assert len(slices) > 4
    assert sweep.still_in_kernel == wanted.fib.rib.stale == len(wanted.fib.rib) == COUNT // 3
    steps = 1
    while sweep.free():
        steps += 1
    assert steps >= 1


def test_what_is_named_again_between_two_slices_stays(wanted: Desired) -> None:
    sweep = StaleSweep(wanted.fib, {})
    named = [n for n in range(COUNT) if n % 7 == 0]
    found = sweep.next()
    assert found is not None
    # These routes are announced again after the slice was computed and before it is applied. So
    # they must stay.
    wanted.apply(*(route(text(n), gateway("10.0.1.9", 1)) for n in named))
    wanted.apply(found)
    while (gone := sweep.next()) is not None:
        wanted.apply(gone)
        wanted.apply(no_route(text(COUNT - 1)))
    assert len(wanted.fib.rib) == len(named)
    assert wanted.fib.rib.stale == 0


def test_without_stale_routes_there_is_nothing_to_look_at() -> None:
    desired = Desired()
    desired.apply(link(1), FpmSessionOpened("a"), route(text(1), gateway("10.0.1.9", 1)))
    assert StaleSweep(desired.fib, {}).next() is None
