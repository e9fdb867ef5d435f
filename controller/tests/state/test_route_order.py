# SPDX-License-Identifier: Apache-2.0
"""Tests the order of prefixes in a walk while prefixes come and go between its blocks."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.entities import RouteSlot
from sluice.model import Prefix
from sluice.state import route_order
from sluice.state.route_order import BLOCK, RouteOrder, new_table

SLOTS = st.builds(
    lambda vrf, width, head, length: RouteSlot(
        vrf, Prefix.of(bytes([head]) + bytes(width - 1), length)
    ),
    st.integers(0, 2),
    st.sampled_from([4, 16]),
    st.integers(0, 40),
    st.integers(6, 10),
)
STEPS = st.lists(st.tuples(st.booleans(), SLOTS), max_size=60)


class Order(RouteOrder):
    """Holds a table and its order. A prefix is added by giving it an on-link target."""

    def __init__(self) -> None:
        self.table = new_table()
        super().__init__(self.table)

    def add(self, slot: RouteSlot) -> None:
        self.table.set_onlink(slot, "something")

    def discard(self, slot: RouteSlot) -> None:
        self.table.set_onlink(slot, None)


def place(slot: RouteSlot) -> tuple[int, int, Prefix]:
    return slot.vrf, len(slot.prefix.address), slot.prefix


def slot(n: int, length: int = 24) -> RouteSlot:
    return RouteSlot(0, Prefix(((1 << 24) + (n << 8)).to_bytes(4, "big"), length))


def apply(order: Order, present: set[RouteSlot], steps: list[tuple[bool, RouteSlot]]) -> None:
    for adding, one in steps:
        (order.add if adding else order.discard)(one)
        (present.add if adding else present.discard)(one)


@settings(max_examples=300)
@given(first=STEPS, between=st.lists(STEPS, max_size=20), size=st.integers(1, 8))
def test_what_stays_is_met_once_and_in_order(
    first: list[tuple[bool, RouteSlot]],
    between: list[list[tuple[bool, RouteSlot]]],
    size: int,
) -> None:
    before, route_order.BLOCK = route_order.BLOCK, size
    try:
        order, present = Order(), set[RouteSlot]()
        apply(order, present, first)
        stayed, ever = set(present), set(present)
        met: list[RouteSlot] = []
        changes = iter(between)
        for block in order.walk():
            assert block
            met += block
            apply(order, present, next(changes, []))
            stayed &= present
            ever |= present
        assert met == sorted(set(met), key=place)
        assert stayed <= set(met) <= ever
        assert [one for block in order.walk() for one in block] == sorted(present, key=place)
    finally:
        route_order.BLOCK = before


@given(present=st.sets(SLOTS), after=SLOTS)
def test_a_walk_begins_behind_any_prefix(present: set[RouteSlot], after: RouteSlot) -> None:
    order = Order()
    for one in present:
        order.add(one)
    behind = sorted((one for one in present if place(one) > place(after)), key=place)
    assert [one for block in order.walk(after) for one in block] == behind


def test_blocks_are_bounded_whatever_the_order_in_which_prefixes_come() -> None:
    for numbers in (
        range(20_000),
        range(20_000, 0, -1),
        (n * 7919 % 20_011 for n in range(20_000)),
    ):
        order = Order()
        for n in numbers:
            order.add(slot(n))
        assert max(map(len, order.walk())) <= BLOCK


def test_prefixes_go_and_come_before_and_behind_a_walk() -> None:
    order = Order()
    for n in range(5_000):
        order.add(slot(n))
    walk = order.walk()
    first = next(walk)
    for n in range(4_000):
        order.discard(slot(n))
    for n in range(100):
        # The walk has already passed the positions of some of these prefixes.
        order.add(slot(n, 25))
    rest = [one for block in walk for one in block]
    assert [one for one in rest if one.prefix.length == 24] == [
        slot(n) for n in range(4_000, 5_000)
    ]
    assert first + rest == sorted({*first, *rest})
    assert sum(map(len, order.walk())) == 1_100


def test_one_address_may_have_every_length() -> None:
    order = Order()
    before, route_order.BLOCK = route_order.BLOCK, 4
    try:
        for length in range(8, 25):
            order.add(RouteSlot(0, Prefix(bytes([10, 0, 0, 0]), length)))
        order.add(RouteSlot(0, Prefix(bytes([11, 0, 0, 0]), 8)))
        assert sum(map(len, order.walk())) == 18
    finally:
        route_order.BLOCK = before
