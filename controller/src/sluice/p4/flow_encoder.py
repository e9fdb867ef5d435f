# SPDX-License-Identifier: Apache-2.0
"""Encodes flows as P4Runtime updates without protobuf.

protobuf's encoder would take most of the time that a new flow costs. All flows of a list have the
same list id, and their verdicts take few different values. So encoded list ids and verdicts are
cached. The encoded parts may be concatenated, since a protobuf message may have its fields in any
order. tests/p4/test_flows.py compares the result with protobuf's own encoding. Depends on entries,
schema and state.flow_cache.
"""

from __future__ import annotations

from typing import Final

from sluice.p4.entries import canonical
from sluice.p4.schema import ActionSchema, TableSchema
from sluice.p4runtime.messages import UpdateType, field, update, varint
from sluice.policy.model import FragmentClass
from sluice.state import flow_cache
from sluice.state.flow_cache import FlowVerdict, FlowWrite

LIST_FIELDS = ("list_id", "fragment", "is_local", "bundle")
FLOW_FIELDS = ("src_addr", "dst_addr", "protocol", "src_port", "dst_port")
PARAMS = ("epoch", "rule", "verdict", "sa_bundle")
"""Parameters of the action, in the order of FlowVerdict's fields."""
ENTITY_TABLE_ENTRY: Final = 2
KEPT = 4096
"""Limit of cached heads, and of cached verdicts. The limit is needed since every commit may give
lists new version numbers, so that cached parts are no longer used."""

_OPERATIONS = {
    flow_cache.FlowOperation.INSERT: UpdateType.INSERT,
    flow_cache.FlowOperation.MODIFY: UpdateType.MODIFY,
    flow_cache.FlowOperation.DELETE: UpdateType.DELETE,
}


class FlowEncoder:
    """Encodes the updates of one flow table."""

    def __init__(self, table: TableSchema, action: ActionSchema) -> None:
        self._table = table
        self._action = action
        source, destination, protocol, source_port, destination_port = (
            table.fields[name] for name in FLOW_FIELDS
        )
        # TableEntry.match { field_id, exact { value } }, five times. Each length fits one byte.
        self._flow = b"".join(
            b"\x12%%c\x08%c\x12%%c\x0a%%c%%b" % number
            for number in (source, destination, protocol, source_port, destination_port)
        )
        self._heads: dict[tuple[int, FragmentClass, bool, int], bytes] = {}
        self._actions: dict[FlowVerdict, bytes] = {}

    def encode(self, list_id: int, write: FlowWrite) -> bytes:
        """Encodes the write of a flow as the field `updates` of a write request."""
        key, verdict = write.key, write.verdict
        of_list = (list_id, key.fragment, key.is_local, key.bundle)
        head = self._heads.get(of_list) or self._keep_head(of_list)
        source = key.source.lstrip(b"\0") or b"\0"
        destination = key.destination.lstrip(b"\0") or b"\0"
        protocol = canonical(key.protocol)
        source_port = canonical(key.source_port)
        destination_port = canonical(key.destination_port)
        a, b, c = len(source), len(destination), len(protocol)
        d, e = len(source_port), len(destination_port)
        flow = head + self._flow % (
            *(a + 6, a + 2, a, source),
            *(b + 6, b + 2, b, destination),
            *(c + 6, c + 2, c, protocol),
            *(d + 6, d + 2, d, source_port),
            *(e + 6, e + 2, e, destination_port),
        )
        if verdict is not None:
            flow += self._actions.get(verdict) or self._keep_action(verdict)
        return update(_OPERATIONS[write.operation], field(ENTITY_TABLE_ENTRY, flow))

    def _keep_head(self, of_list: tuple[int, FragmentClass, bool, int]) -> bytes:
        """Encodes TableEntry.table_id and the match fields that many flows of a list share.

        Caches the result.
        """
        head = b"\x08" + varint(self._table.id)
        for name, number in zip(LIST_FIELDS, of_list, strict=True):
            value = canonical(int(number))
            width = len(value)
            identifier = self._table.fields[name]
            head += b"\x12%c\x08%c\x12%c\x0a%c%b" % (width + 6, identifier, width + 2, width, value)
        if len(self._heads) >= KEPT:
            self._heads.clear()
        self._heads[of_list] = head
        return head

    def _keep_action(self, verdict: FlowVerdict) -> bytes:
        """Encodes TableEntry.action { action { action_id, params { param_id, value } ... } } and
        caches it."""
        encoded = b"\x08" + varint(self._action.id)
        for name, number in zip(PARAMS, verdict, strict=True):
            value = canonical(number)
            width = len(value)
            parameter = self._action.params[name]
            encoded += b"\x22%c\x10%c\x1a%c%b" % (width + 4, parameter, width, value)
        encoded = b"\x1a%c\x0a%c%b" % (len(encoded) + 2, len(encoded), encoded)
        if len(self._actions) >= KEPT:
            self._actions.clear()
        self._actions[verdict] = encoded
        return encoded
