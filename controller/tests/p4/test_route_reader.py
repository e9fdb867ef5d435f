# SPDX-License-Identifier: Apache-2.0
"""Tests that the native decoding of routes (fast) and the general decoding (slow) have the same
result for any bytes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import pytest
from finsy.proto import p4r
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from fake_switch import load_codec
from p4.test_codec import prefixes, targets
from sluice.entities import (
    UNKNOWN,
    UNREACHABLE,
    Egress,
    EntityKey,
    EntityKind,
    EntityValue,
    RouteSlot,
    RouteTarget,
    RouteTargetKind,
)
from sluice.model import Prefix
from sluice.p4.route_reader import STEP, DecodedEntity, RouteReader
from sluice.p4runtime.messages import UpdateType
from sluice.state.route_order import new_table
from wire.strategies import damaged

Found = tuple[dict[EntityKey, EntityValue], list[DecodedEntity]]
CODEC = load_codec()
routes = st.tuples(st.builds(RouteSlot, st.integers(0, 3), prefixes), targets)
DEFAULT = RouteSlot(0, Prefix(bytes(4), 0))


def entity(kind: EntityKind, key: EntityKey, value: EntityValue) -> p4r.Entity:
    update = CODEC.update(UpdateType.INSERT, kind, key, value)
    return p4r.WriteRequest.FromString(update).updates[0].entity


def reader(decode: Callable[[p4r.Entity], DecodedEntity | None]) -> RouteReader:
    """Returns a reader that has not read any entry yet."""
    tables = [
        entity(
            EntityKind.ROUTE, RouteSlot(0, Prefix(b"\x14" * size, 8 * size)), UNREACHABLE
        ).table_entry
        for size in (4, 16)
    ]
    sizes = {table.table_id: size for table, size in zip(tables, (4, 16), strict=True)}
    fields = {table.table_id: table.match[1].field_id for table in tables}
    return RouteReader(decode, sizes, fields)


class Reading:
    """Reads the parts of a response in order.

    `decoded` counts the entities that were decoded by the general decoder.
    """

    def __init__(self) -> None:
        self.decoded = 0
        self._table = new_table()
        self._reader = reader(self._decode)

    def _decode(self, one: p4r.Entity) -> DecodedEntity | None:
        self.decoded += 1
        return CODEC.decode(one)

    def read(self, part: bytes) -> Found:
        """Reads one part and returns its routes and its other entities."""
        self._table.installed.clear()
        others = list(chain.from_iterable(self._reader.read(part, self._table)))
        return dict(self._table.installed.items()), others


def test_the_codec_reads_so() -> None:
    part = response(some(1), some(2))
    table = new_table()
    assert list(CODEC.read_part(part, table)) == [[]]
    assert (dict(table.installed.items()), []) == slowly(part)


def response(*entities: p4r.Entity) -> bytes:
    return p4r.ReadResponse(entities=entities).SerializeToString()


def slowly(part: bytes) -> Found:
    each = list(map(CODEC.decode, p4r.ReadResponse.FromString(part).entities))
    return (
        {one[1]: one[2] for one in each if one is not None and one[0] is EntityKind.ROUTE},
        [one for one in each if one is not None and one[0] is not EntityKind.ROUTE],
    )


@given(st.lists(routes, max_size=30))
def test_routes_are_what_they_were(table: list[tuple[RouteSlot, RouteTarget]]) -> None:
    reading = Reading()
    part = response(*(entity(EntityKind.ROUTE, slot, target) for slot, target in table))
    for _ in range(2):
        assert reading.read(part) == (dict(table), [])


def test_most_are_read_by_the_native_table() -> None:
    reading = Reading()
    many = [
        entity(
            EntityKind.ROUTE,
            RouteSlot(n % 2, Prefix(bytes((20, n >> 8, n & 255, 0)), 24)),
            RouteTarget(RouteTargetKind.NEXTHOP, 7 + n % 3),
        )
        for n in range(3 * STEP)
    ]
    assert reading.read(response(*many)) == slowly(response(*many))
    assert reading.decoded <= 6 + len(many) // STEP


def some(number: int) -> p4r.Entity:
    slot = RouteSlot(number % 2, Prefix(bytes((20, number, 0, 0)), 16))
    return entity(EntityKind.ROUTE, slot, RouteTarget(RouteTargetKind.NEXTHOP, 7 + number % 3))


def not_ours() -> p4r.Entity:
    """Returns a table entry with an action that the controller never writes."""
    one = some(9)
    one.table_entry.action.action.action_id = 1
    return one


def with_metadata() -> p4r.Entity:
    one = some(8)
    one.table_entry.metadata = b"x" * 200
    return one


def a_default() -> p4r.Entity:
    one = entity(EntityKind.ROUTE, DEFAULT, RouteTarget(RouteTargetKind.NEXTHOP, 7))
    one.table_entry.is_default_action = True
    return one


SAMPLES = [
    response(*map(some, range(6))),
    response(
        some(1), entity(EntityKind.EGRESS_INTERFACE, 3, Egress(3, 0, b"123456", 1500)), some(2)
    ),
    response(some(1), not_ours(), some(2), with_metadata(), some(3), a_default(), some(4)),
    response(entity(EntityKind.ROUTE, DEFAULT, RouteTarget(RouteTargetKind.GROUP, 3)), some(4)),
    response(),
]


@pytest.mark.parametrize("part", SAMPLES)
def test_what_is_unusual_is_left_to_protobuf(part: bytes) -> None:
    reading = Reading()
    for _ in range(2):
        assert reading.read(part) == slowly(part)


def test_an_action_of_somebody_else_is_unknown_each_time() -> None:
    reading = Reading()
    for _ in range(2):
        routes, _ = reading.read(response(not_ours()))
        assert list(routes.values()) == [UNKNOWN]


def test_an_action_without_its_parameter_is_unknown() -> None:
    """Checks that the reader returns UNKNOWN for an entry whose action lacks its parameter.

    The controller cannot have written such an entry. So it must overwrite the entry with the
    correct one.
    """
    whole = p4r.ReadResponse.FromString(SAMPLES[0])
    del whole.entities[0].table_entry.action.action.params[:]
    routes, _ = Reading().read(whole.SerializeToString())
    assert list(routes.values()).count(UNKNOWN) == 1


@pytest.mark.parametrize("length", [-1, 33])
def test_a_prefix_longer_than_its_field_is_refused(length: int) -> None:
    damaged_one = some(0)
    damaged_one.table_entry.match[1].lpm.prefix_len = length
    reading = Reading()
    reading.read(SAMPLES[0])
    with pytest.raises(DecodeError, match=f"a prefix of {length} bits in a field of 32"):
        reading.read(response(damaged_one))


@given(st.lists(damaged(SAMPLES), max_size=4))
def test_damaged_bytes_are_refused_or_are_what_protobuf_says(parts: list[bytes]) -> None:
    reading = Reading()
    reading.read(SAMPLES[0])
    for part in parts:
        assert outcome(reading, part) == expected(part)


def outcome(reading: Reading, part: bytes) -> object:
    try:
        return reading.read(part)
    except DecodeError:
        return DecodeError


def expected(part: bytes) -> object:
    try:
        return slowly(part)
    except DecodeError:
        return DecodeError
