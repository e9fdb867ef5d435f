# SPDX-License-Identifier: Apache-2.0
"""Tests the native table of routes. In Python, its columns and queues must behave like
dictionaries."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_switch import load_codec
from sluice.entities import (
    BLACKHOLE,
    PROHIBITED,
    UNREACHABLE,
    EntityKind,
    OwnAddress,
    RouteSlot,
    RouteTarget,
    RouteTargetKind,
)
from sluice.model import Prefix
from sluice.p4runtime.messages import UpdateType
from sluice.state.route_order import new_table

CODEC = load_codec()
SLOTS = st.builds(
    lambda vrf, width, head, length: RouteSlot(
        vrf, Prefix.of(bytes([head]) + bytes(width - 1), length)
    ),
    st.integers(0, 1),
    st.sampled_from([4, 16]),
    st.integers(0, 3),
    st.sampled_from([0, 7, 8, 32]),
)
TARGETS = st.sampled_from(
    [RouteTarget(RouteTargetKind.NEXTHOP, 1), RouteTarget(RouteTargetKind.GROUP, 1), BLACKHOLE]
)


@pytest.mark.parametrize("name", ["desired", "installed"])
@given(steps=st.lists(st.tuples(SLOTS, TARGETS | st.none()), max_size=40))
def test_a_column_is_a_dictionary(name: str, steps: list[tuple[RouteSlot, Any]]) -> None:
    table, model = new_table(), dict[RouteSlot, RouteTarget]()
    column = getattr(table, name)
    for slot, target in steps:
        if target is None:
            assert column.pop(slot, None) == model.pop(slot, None)
        else:
            column[slot] = model[slot] = target
        assert (slot in column) is (slot in model)
        assert column.get(slot) == model.get(slot)
    assert column == model
    assert len(column) == len(model)
    assert dict(column.items()) == model
    assert set(column) == set(column.keys()) == set(model)
    assert all(type(slot) is RouteSlot and type(slot.prefix) is Prefix for slot in column)
    if name == "installed":
        for target in set(model.values()):
            assert table.installed_uses(target) == list(model.values()).count(target)
    column.clear()
    assert not column
    assert not list(column)


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["add", "add", "pop", "popitem", "clear"]), SLOTS), max_size=40
    )
)
def test_a_queue_is_a_dictionary_without_values(steps: list[tuple[str, RouteSlot]]) -> None:
    queue, model = new_table().upserts, dict[RouteSlot, None]()
    for what, slot in steps:
        if what == "add":
            queue[slot] = model[slot] = None
        elif what == "pop":
            queue.pop(slot, None)
            model.pop(slot, None)
        elif what == "clear":
            queue.clear()
            model.clear()
        elif model:
            assert queue.popitem() == model.popitem()
        else:
            with pytest.raises(KeyError):
                queue.popitem()
        assert (slot in queue) is (slot in model)
    assert list(queue) == list(model)
    assert len(queue) == len(model)


def test_keys_of_other_kinds_are_in_no_column() -> None:
    table = new_table()
    for key in (7, "name", OwnAddress(0, b"\x0a\0\0\1"), (0, (b"123", 8)), (0, (b"1234", 33))):
        assert key not in table.desired
        assert table.desired.get(key) is None
        assert table.desired.pop(key, None) is None
        with pytest.raises(KeyError):
            table.desired[key] = BLACKHOLE


@given(
    slot=st.builds(
        lambda vrf, address, length: RouteSlot(
            vrf, Prefix.of(address, min(length, len(address) * 8))
        ),
        st.integers(0, 300),
        st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16),
        st.integers(0, 128),
    ),
    target=st.sampled_from([UNREACHABLE, PROHIBITED, BLACKHOLE])
    | st.builds(RouteTarget, st.just(RouteTargetKind.NEXTHOP), st.integers(1, 65_535))
    | st.builds(RouteTarget, st.just(RouteTargetKind.GROUP), st.integers(1, 65_535)),
)
def test_updates_are_those_of_the_encoder(slot: RouteSlot, target: RouteTarget) -> None:
    table = new_table()
    table.desired[slot] = target
    for operation in (UpdateType.INSERT, UpdateType.MODIFY):
        table.upserts[slot] = None
        batch = table.next_upserts(10, lambda _: "", CODEC)
        assert batch.updates() == [CODEC.update(operation, EntityKind.ROUTE, slot, target)]
        assert batch.entries() == [(slot, target)]
        batch.landed(True)
        assert table.installed.pop(slot) == target
        table.installed[slot] = BLACKHOLE if target != BLACKHOLE else UNREACHABLE
    del table.desired[slot]
    table.deletes[slot] = None
    batch = table.next_deletes(10, CODEC)
    assert batch.updates() == [CODEC.update(UpdateType.DELETE, EntityKind.ROUTE, slot, None)]
    batch.landed(True)
    assert slot not in table.installed


def test_a_batch_that_is_dropped_leaves_nothing_under_way() -> None:
    table, slot = new_table(), RouteSlot(0, Prefix.parse("20.0.0.0/8"))
    table.desired[slot] = BLACKHOLE
    table.upserts[slot] = None
    batch = table.next_upserts(10, lambda _: "", CODEC)
    assert table.in_flight() == 1
    assert table.is_in_flight(slot)
    del batch
    assert table.in_flight() == 0
    assert slot not in table.installed


def test_what_a_batch_of_an_earlier_session_says_is_not_believed() -> None:
    table, slot = new_table(), RouteSlot(0, Prefix.parse("20.0.0.0/8"))
    table.desired[slot] = BLACKHOLE
    table.upserts[slot] = None
    batch = table.next_upserts(10, lambda _: "", CODEC)
    table.clear_in_flight()
    table.upserts[slot] = None
    again = table.next_upserts(10, lambda _: "", CODEC)
    batch.landed(True)
    assert table.is_in_flight(slot)
    assert slot not in table.installed
    again.landed(True)
    assert table.installed == {slot: BLACKHOLE}


def test_an_answer_that_fails_gives_back_what_was_taken() -> None:
    table, slot = new_table(), RouteSlot(0, Prefix.parse("20.0.0.0/8"))
    table.desired[slot] = BLACKHOLE
    table.upserts[slot] = None

    def fails(_: object) -> str:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        table.next_upserts(10, fails, CODEC)
    assert list(table.upserts) == [slot]
    assert not table.in_flight()
