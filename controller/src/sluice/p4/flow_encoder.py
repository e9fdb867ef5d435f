# SPDX-License-Identifier: Apache-2.0
"""Encodes flows as P4Runtime updates without protobuf.

protobuf's encoder would take most of the time that a new flow costs. All flows of a list have the
same list id, and their verdicts take few different values. So this module encodes list ids and
verdicts, and native code caches these parts and adds the fields that differ. The parts may be
concatenated, because a protobuf message may have its fields in any order. tests/p4/test_flows.py
compares the result with protobuf's own encoding. Depends on entries, schema, state.native_flows and
`sluice._native`.
"""

from __future__ import annotations

from functools import partial

from sluice import _native
from sluice.p4.entries import canonical
from sluice.p4.schema import ActionSchema, TableSchema
from sluice.p4runtime.messages import varint
from sluice.state.flow_cache import FlowVerdict, FlowWrite
from sluice.state.native_flows import FLOW_TYPES

LIST_FIELDS = ("list_id", "fragment", "is_local", "bundle")
FLOW_FIELDS = ("src_addr", "dst_addr", "protocol", "src_port", "dst_port")
PARAMS = ("epoch", "rule", "verdict", "sa_bundle")
"""Parameters of the action, in the order of FlowVerdict's fields."""
KEPT = 4096
"""Limit of cached heads, and of cached verdicts. The limit is needed since every commit may give
lists new version numbers, so that cached parts are no longer used."""


class FlowEncoder:
    """Encodes the updates of one flow table. `native` is the part that native code does."""

    def __init__(self, table: TableSchema, action: ActionSchema) -> None:
        fields = tuple(table.fields[name] for name in FLOW_FIELDS)
        head, with_action = partial(_encode_head, table), partial(_encode_action, action)
        self.native = _native.FlowEncoder(FLOW_TYPES, fields, head, with_action, KEPT)

    def encode(self, list_id: int, write: FlowWrite) -> bytes:
        """Encodes the write of a flow as the field `updates` of a write request."""
        return self.native.encode(list_id, write)


def _encode_head(table: TableSchema, of_list: tuple[int, ...]) -> bytes:
    """Encodes TableEntry.table_id and the match fields that many flows of a list share.

    `of_list` has the values of `LIST_FIELDS`.
    """
    head = b"\x08" + varint(table.id)
    for name, number in zip(LIST_FIELDS, of_list, strict=True):
        value = canonical(int(number))
        width = len(value)
        identifier = table.fields[name]
        head += b"\x12%c\x08%c\x12%c\x0a%c%b" % (width + 6, identifier, width + 2, width, value)
    return head


def _encode_action(action: ActionSchema, verdict: FlowVerdict) -> bytes:
    """Encodes TableEntry.action { action { action_id, params { param_id, value } ... } }."""
    encoded = b"\x08" + varint(action.id)
    for name, number in zip(PARAMS, verdict, strict=True):
        value = canonical(number)
        width = len(value)
        parameter = action.params[name]
        encoded += b"\x22%c\x10%c\x1a%c%b" % (width + 4, parameter, width, value)
    return b"\x1a%c\x0a%c%b" % (len(encoded) + 2, len(encoded), encoded)
