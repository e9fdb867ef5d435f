# SPDX-License-Identifier: Apache-2.0
"""Tests whether a route's prefix covers a neighbour. The check is made for each route of a full
table, so it must be fast.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenes import Desired, address, gateway, link, neighbor, route
from sluice.entities import EntityChanges, RouteSlot
from sluice.model import Mac, NeighborState, Prefix
from sluice.state.neighbors import NeighborTable
from sluice.state.nexthops import Path

MAC: Mac = b"\2\0\0\0\0\1"
near = st.binary(min_size=2, max_size=2)
hosts = st.one_of(
    near.map(lambda tail: b"\x0a\1" + tail),
    near.map(lambda tail: b"\x20\1\x0d\xb8" + bytes(10) + tail),
)
prefixes = st.one_of(
    st.builds(lambda tail, n: Prefix.of(b"\x0a\1" + tail, n), near, st.integers(0, 32)),
    st.builds(
        lambda tail, n: Prefix.of(b"\x20\1\x0d\xb8" + bytes(10) + tail, n),
        near,
        st.integers(0, 128),
    ),
    st.builds(Prefix.of, st.binary(min_size=4, max_size=4), st.integers(0, 32)),
)


@given(st.lists(hosts), st.lists(st.integers(0, 20)), st.lists(prefixes, min_size=1))
def test_a_prefix_covers_a_neighbour_or_none(
    known: list[bytes], gone: list[int], asked: list[Prefix]
) -> None:
    table = NeighborTable()
    there: dict[Path, None] = {}
    for number, host in enumerate(known):
        path = Path(1 + number % 2, host)
        there[path] = None
        table.apply(path, MAC, NeighborState.REACHABLE, 0.0)
    for number in gone:
        if number < len(known):
            path = Path(1 + number % 2, known[number])
            there.pop(path, None)
            table.apply(path, None, NeighborState.NONE, 0.0)
    for prefix in asked:
        covered = any(path.address and prefix.covers(path.address) for path in there)
        assert table.covers_neighbor(prefix) == covered


def test_routes_that_cover_no_neighbour_look_at_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that a route whose prefix covers no neighbour causes no work per neighbour.

    Regression: with hundreds of neighbours, a walk over all of them took most of the time in which
    a full table was loaded.
    """
    wanted = Desired()
    wanted.apply(link(1), address(1, "10.0.1.1/24"))
    wanted.apply(*(neighbor(1, f"10.0.1.{n}", n) for n in range(2, 200)))
    looked: list[Path] = []
    refresh = wanted.fib.onlink.refresh_host

    def counted(path: Path, changes: EntityChanges) -> Iterator[RouteSlot]:
        looked.append(path)
        return refresh(path, changes)

    monkeypatch.setattr(wanted.fib.onlink, "refresh_host", counted)
    leg = gateway("10.0.1.9", 1)
    wanted.apply(*(route(f"{n}.0.0.0/8", leg) for n in (9, 11, 12, 20)), route("10.64.0.0/10", leg))
    assert not looked
    wanted.apply(route("10.0.0.0/8", leg))
    assert len(looked) == 198
