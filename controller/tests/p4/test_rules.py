# SPDX-License-Identifier: Apache-2.0
"""Tests the encoding of the rule tables' entries. The controller must be able to read back and
delete any entry, even one that it cannot have written."""

from __future__ import annotations

import pytest
from finsy.proto import p4r
from hypothesis import given
from hypothesis import strategies as st

from fake_switch import load_codec
from sluice.entities import (
    LEAVE_TO_CPU,
    UNKNOWN,
    EntityKind,
    EntityValue,
    ForeignMatch,
    RuleEntry,
    RuleMatch,
    RuleVerdict,
)
from sluice.model import Prefix
from sluice.p4runtime.messages import UpdateType

CODEC = load_codec()
RULE = RuleVerdict(0x10000, 3, 7)
PORTS = st.tuples(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF)).map(
    lambda ends: (min(ends), max(ends))
)


def entry_of(operation: UpdateType, key: RuleEntry, value: EntityValue | None) -> p4r.TableEntry:
    update = CODEC.update(operation, EntityKind.OUTBOUND_RULE, key, value)
    (encoded,) = p4r.WriteRequest.FromString(update).updates
    return encoded.entity.table_entry


def prefixes(size: int) -> st.SearchStrategy[Prefix | None]:
    def masked(address: bytes, length: int) -> Prefix:
        bits = size * 8
        value = int.from_bytes(address, "big") >> (bits - length) << (bits - length)
        return Prefix(value.to_bytes(size, "big"), length)

    address = st.binary(min_size=size, max_size=size)
    return st.none() | st.builds(masked, address, st.integers(1, size * 8))


@st.composite
def rule_matches(draw: st.DrawFn) -> RuleMatch:
    size = draw(st.sampled_from((4, 16)))
    ports = st.none() | PORTS.filter(lambda ends: ends != (0, 0xFFFF))
    return RuleMatch(
        size,
        draw(prefixes(size)),
        draw(prefixes(size)),
        draw(st.none() | st.integers(0, 255)),
        draw(ports),
        draw(ports),
        draw(st.none() | st.booleans()),
    )


@given(rule_matches(), st.integers(1, 0xFFFF), st.integers(1, 0x7FFFFFFF))
def test_entries_survive(match: RuleMatch, rule_set: int, priority: int) -> None:
    key = RuleEntry(rule_set, priority, match)
    values: list[EntityValue] = [RULE, LEAVE_TO_CPU]
    for value in values:
        entry = entry_of(UpdateType.INSERT, key, value)
        decoded = CODEC.decode(p4r.Entity(table_entry=entry))
        assert decoded == (EntityKind.OUTBOUND_RULE, key, value)


def test_fields_that_match_anything_are_left_out() -> None:
    whole = RuleMatch(4, Prefix.parse("0.0.0.0/0"), None, None, (0, 0xFFFF))
    entry = entry_of(UpdateType.INSERT, RuleEntry(1, 1, whole), RULE)
    assert len(entry.match) == 1  # the rule set


def test_no_range_looks_like_one_of_all_values() -> None:
    """PI compares the bounds of a range byte by byte as they are encoded, whatever the field's
    width."""
    entry = entry_of(
        UpdateType.INSERT, RuleEntry(1, 1, RuleMatch(4, destination_port=(0, 0xFF))), RULE
    )
    (ports,) = (one.range for one in entry.match if one.HasField("range"))
    assert (ports.low, ports.high) == (b"\0\0", b"\0\xff")


@pytest.mark.parametrize("mask", [b"\x80", b"\x01\xff\x00", b"\xff\x00\xff\x00\xff"])
def test_entries_of_another_form_are_deleted_by_their_own_match(mask: bytes) -> None:
    """These masks are not those of prefixes, and one is wider than the field."""
    match = RuleMatch(4, Prefix.parse("128.0.0.0/1"), None, 6)
    written = entry_of(UpdateType.INSERT, RuleEntry(7, 9, match), RULE)
    for field in written.match:
        if field.ternary.mask == b"\x80\0\0\0":
            field.ternary.mask = mask
    decoded = CODEC.decode(p4r.Entity(table_entry=written))
    assert decoded is not None
    _, key, value = decoded
    assert isinstance(key, RuleEntry)
    assert isinstance(key.match, ForeignMatch)
    assert value == UNKNOWN
    deleted = entry_of(UpdateType.DELETE, key, None)
    assert deleted.priority == 9
    assert sorted(one.SerializeToString() for one in deleted.match) == sorted(
        one.SerializeToString() for one in written.match
    )


def test_an_action_without_its_parameters_is_unknown() -> None:
    written = entry_of(UpdateType.INSERT, RuleEntry(7, 9, RuleMatch(16)), RULE)
    del written.action.action.params[0]
    decoded = CODEC.decode(p4r.Entity(table_entry=written))
    assert decoded == (EntityKind.OUTBOUND_RULE, RuleEntry(7, 9, RuleMatch(16)), UNKNOWN)
