# SPDX-License-Identifier: Apache-2.0
"""Tests the conversion of a script's names and numbers to P4Runtime, with a small program."""

from typing import Any

import pytest
from google.protobuf import text_format
from p4.config.v1 import p4info_pb2

from sluice_conformance import stf
from sluice_conformance.control import Control, masked, prefix
from sluice_conformance.program import Program, UnknownName

P4INFO = """
tables {
  preamble { id: 1 name: "c.t" }
  match_fields { id: 1 name: "h.exact" bitwidth: 9 match_type: EXACT }
  match_fields { id: 2 name: "h.prefix" bitwidth: 32 match_type: LPM }
  match_fields { id: 3 name: "h.any[0].f" bitwidth: 16 match_type: TERNARY }
  action_refs { id: 11 }
}
tables {
  preamble { id: 2 name: "c.u" }
  match_fields { id: 1 name: "h.isValid()" bitwidth: 1 match_type: EXACT }
  action_refs { id: 11 }
  action_refs { id: 12 }
}
actions { preamble { id: 11 name: "c.act" } params { id: 1 name: "port" bitwidth: 9 } }
actions { preamble { id: 12 name: "c.react" } }
counters { preamble { id: 21 name: "c.count" } }
direct_counters { preamble { id: 22 name: "c.entries" } direct_table_id: 1 }
"""
KEYS = {"c.t": ["h.exact", "h.prefix", "h.any[0].f"], "c.u": ["h.$valid$"]}


@pytest.fixture
def control() -> Control:
    p4info = p4info_pb2.P4Info()
    text_format.Parse(P4INFO, p4info)
    return Control(Program(p4info, KEYS))


def update(control: Control, line: str) -> Any:
    ((_, statement),) = stf.parse(line)
    return control.update(statement)


def test_an_entry(control: Control) -> None:
    line = "add t 7 exact:0x1 prefix:0x0a00****  any$0.f:0x**2f act(port:3)"
    entry = update(control, line).entity.table_entry
    assert (entry.table_id, entry.priority) == (1, 8)
    exact, lpm, ternary = entry.match
    assert exact.exact.value == b"\x01"
    assert (lpm.lpm.value, lpm.lpm.prefix_len) == (b"\x0a\x00\x00\x00", 16)
    assert (ternary.ternary.value, ternary.ternary.mask) == (b"\x2f", b"\xff")
    assert entry.action.action.action_id == 11
    assert entry.action.action.params[0].value == b"\x03"


def test_keys_left_out_are_zero_if_exact_and_else_anything(control: Control) -> None:
    entry = update(control, "add c.t act(port:3)").entity.table_entry
    assert [(match.field_id, match.exact.value) for match in entry.match] == [(1, b"\x00")]
    assert entry.priority == 1


def test_stars_alone_are_anything(control: Control) -> None:
    line = "add t exact:1 prefix:0x******** any$0.f:0b* act(port:3)"
    entry = update(control, line).entity.table_entry
    assert [match.field_id for match in entry.match] == [1]


def test_validity_and_no_priority(control: Control) -> None:
    entry = update(control, "add u h.valid:1 react()").entity.table_entry
    assert entry.match[0].exact.value == b"\x01"
    assert entry.priority == 0
    assert update(control, "add u h:0 react()").entity.table_entry.match[0].exact.value == b"\x00"


def test_a_default_action(control: Control) -> None:
    made = update(control, "setdefault u react()")
    assert made.type == made.MODIFY
    assert made.entity.table_entry.is_default_action
    assert made.entity.table_entry.action.action.action_id == 12


@pytest.mark.parametrize(
    "line",
    [
        "add nowhere act(port:1)",
        "add t nothing:1 act(port:1)",
        "add t nothing()",
        "add u ct()",
        "add t act()",
        "add t act(port:1, more:2)",
        "add t act(port:0x200)",
    ],
)
def test_what_the_program_has_no_place_for(control: Control, line: str) -> None:
    with pytest.raises((UnknownName, ValueError)):
        update(control, line)


def test_an_ending_that_fits_several_things_is_no_name(control: Control) -> None:
    with pytest.raises(UnknownName, match="several"):
        update(control, "setdefault u act()")


def test_groups_nodes_and_sessions(control: Control) -> None:
    assert update(control, "mc_node_create 400 6 7") is None
    assert update(control, "mc_node_create 401 8") is None
    assert update(control, "mc_mgrp_create 3").type == 1
    update(control, "mc_node_associate 3 0")
    group = update(control, "mc_node_associate 3 1")
    replicas = group.entity.packet_replication_engine_entry.multicast_group_entry.replicas
    assert [(r.egress_port, r.instance) for r in replicas] == [(6, 400), (7, 400), (8, 401)]
    session = update(control, "mirroring_add_mc 8 3")
    entry = session.entity.packet_replication_engine_entry.clone_session_entry
    assert (entry.session_id, len(entry.replicas)) == (8, 3)


def test_counters_by_index_and_by_label(control: Control) -> None:
    update(control, "add t exact:5 act(port:3) = A")
    entity, kind = control.count(stf.CheckCounter("count", 10, "packets", "==", 1))
    assert (kind, entity.counter_entry.counter_id, entity.counter_entry.index.index) == (
        "counter_entry",
        21,
        10,
    )
    entity, kind = control.count(stf.CheckCounter("entries", "$A", "packets", "==", 1))
    assert kind == "direct_counter_entry"
    assert entity.direct_counter_entry.table_entry.match[0].exact.value == b"\x05"
    with pytest.raises(ValueError, match="labelled"):
        control.count(stf.CheckCounter("entries", "$B", None, "==", 0))


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("0x12**", 16, (0x1200, 0xFF00)),
        ("0x12", 16, (0x12, 0xFF)),
        ("0b1*", 4, (2, 2)),
        ("0x****", 9, (0, 0)),
        ("0xf", 3, ValueError),
        ("12", 8, (12, 0xFF)),
    ],
)
def test_ternaries(text: str, width: int, expected: Any) -> None:
    if expected is ValueError:
        with pytest.raises(ValueError, match="does not fit"):
            masked(text, width)
    else:
        assert masked(text, width) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0x0a000001", (0x0A000001, 32)),
        ("0x0a0000ff/8", (0x0A000000, 8)),
        ("0xc0a8****", (0xC0A80000, 16)),
        ("10", (10, 32)),
        ("0x0/0", (0, 0)),
    ],
)
def test_prefixes(text: str, expected: tuple[int, int]) -> None:
    assert prefix(text, 32) == expected


def test_a_prefix_longer_than_its_field() -> None:
    with pytest.raises(ValueError, match="not a prefix"):
        prefix("0x1/33", 32)
