# SPDX-License-Identifier: Apache-2.0
"""Tests for flows of all four tables that decoding the encoded bytes returns the original flow.

Also tests the requests that read the flows' counters, and the decoding of these counters.
"""

from __future__ import annotations

import pytest
from finsy.proto import p4i, p4r
from hypothesis import given
from hypothesis import strategies as st

from fake_switch import PIPELINE
from sluice.p4.counters import Count
from sluice.p4.flow_encoder import KEPT
from sluice.p4.flows import FlowCodec, FlowSlot
from sluice.p4.schema import Schema, SchemaError, load_pipeline
from sluice.p4runtime.messages import UpdateType
from sluice.p4runtime.messages import update as encoded_update
from sluice.policy.model import Action, Direction, FlowKey, FragmentClass
from sluice.state.flow_cache import FlowOperation, FlowVerdict, FlowWrite

CODEC = FlowCodec(Schema(load_pipeline(PIPELINE).p4info))
numbers = st.integers(0, 0xFFFF)


@st.composite
def slots(draw: st.DrawFn) -> FlowSlot:
    size = draw(st.sampled_from([4, 16]))
    address = st.binary(min_size=size, max_size=size)
    key = FlowKey(
        draw(address),
        draw(address),
        draw(st.integers(0, 255)),
        draw(numbers),
        draw(numbers),
        draw(st.sampled_from(FragmentClass)),
        draw(st.booleans()),
        draw(numbers),
    )
    return FlowSlot(draw(st.sampled_from(Direction)), draw(st.integers(1, 1023)), key)


verdicts = st.builds(
    FlowVerdict, st.integers(1, 0xFFFFFFFF), numbers, st.sampled_from(Action), numbers
)


def only(data: bytes) -> p4r.Update:
    (update,) = p4r.WriteRequest.FromString(data).updates
    return update


@given(slots(), verdicts)
def test_a_flow_survives(slot: FlowSlot, verdict: FlowVerdict) -> None:
    write = FlowWrite(FlowOperation.INSERT, slot.key, verdict)
    update = only(CODEC.update(slot.direction, slot.list_id, write))
    assert update.type == p4r.Update.INSERT
    assert CODEC.decode(update.entity) == (slot, verdict)
    assert update.entity == CODEC._entry(slot, verdict)


@given(slots())
def test_deleting_and_counting_name_the_key_only(slot: FlowSlot) -> None:
    write = FlowWrite(FlowOperation.DELETE, slot.key, None)
    update = only(CODEC.update(slot.direction, slot.list_id, write))
    assert update == only(CODEC.delete(slot))
    assert not update.entity.table_entry.HasField("action")
    request = CODEC.count_request(slot)
    request.direct_counter_entry.data.packet_count = 7
    request.direct_counter_entry.data.byte_count = 700
    assert CODEC.counts([request]) == {slot: Count(7, 700)}


def test_rules_are_counted_by_cache_and_by_cpu() -> None:
    requests = CODEC.rule_requests(Direction.OUTBOUND, [3, 4])
    for number, request in enumerate(requests, 1):
        request.counter_entry.data.packet_count = number
    assert CODEC.rule_counts(Direction.OUTBOUND, requests) == {3: (1, 2), 4: (3, 4)}
    reset = [only(data).entity for data in CODEC.reset_rules(Direction.OUTBOUND, [3])]
    assert [entity.counter_entry.index.index for entity in reset] == [3, 3]
    assert all(entity.counter_entry.HasField("data") for entity in reset)


@given(st.sampled_from(Direction), st.lists(st.integers(1, 0xFFFFF)))
def test_counters_are_reset_as_protobuf_encodes_it(direction: Direction, rules: list[int]) -> None:
    requests = CODEC.rule_requests(direction, rules)
    for request in requests:
        request.counter_entry.data.CopyFrom(p4r.CounterData())
    expected = [encoded_update(UpdateType.MODIFY, one.SerializeToString()) for one in requests]
    assert CODEC.reset_rules(direction, rules) == expected


def test_a_verdict_that_is_none_is_of_no_epoch() -> None:
    key = FlowKey(bytes(4), bytes(4), 6, 1, 2)
    write = FlowWrite(FlowOperation.INSERT, key, FlowVerdict(9, 1, Action.BYPASS))
    entity = only(CODEC.update(Direction.INBOUND, 1, write)).entity
    for param in entity.table_entry.action.action.params:
        if param.value == b"\x01" and param.param_id == 3:
            param.value = b"\x07"
    decoded = CODEC.decode(entity)
    assert decoded is not None
    assert (decoded[1].epoch, decoded[1].action) == (0, Action.DISCARD)


def test_another_pipeline_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"table inbound\.ipv4_flow"):
        FlowCodec(Schema(p4i.P4Info()))


def test_more_verdicts_and_bundles_than_are_cached() -> None:
    key = FlowKey(bytes(4), bytes(4), 6, 1, 2)
    for number in (*range(1, KEPT + 3), 1, KEPT + 2):
        slot = FlowSlot(Direction.INBOUND, 1, key._replace(bundle=number))
        verdict = FlowVerdict(number, number, Action.BYPASS)
        write = FlowWrite(FlowOperation.INSERT, slot.key, verdict)
        assert CODEC.decode(only(CODEC.update(Direction.INBOUND, 1, write)).entity) == (
            slot,
            verdict,
        )
