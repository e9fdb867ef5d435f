# SPDX-License-Identifier: Apache-2.0
"""Encodes flows as P4Runtime updates without protobuf.

protobuf's encoder would take most of the time that a new flow costs. All flows of a list have the
same list id, and their verdicts take few different values. So encoded list ids and verdicts are
cached, and native code adds the fields that differ. The encoded parts may be concatenated, since a
protobuf message may have its fields in any order. tests/p4/test_flows.py compares the result with
protobuf's own encoding. Depends on entries, schema, state.flow_cache and `sluice._native`.
"""

from __future__ import annotations

from sluice._native import flow_update
from sluice.p4.entries import canonical
from sluice.p4.schema import ActionSchema, TableSchema
from sluice.p4runtime.messages import UpdateType, varint
from sluice.policy.model import FragmentClass
from sluice.state import flow_cache
from sluice.state.flow_cache import FlowVerdict, FlowWrite

LIST_FIELDS = ("list_id", "fragment", "is_local", "bundle")
FLOW_FIELDS = ("src_addr", "dst_addr", "protocol", "src_port", "dst_port")
PARAMS = ("epoch", "rule", "verdict", "sa_bundle")
"""Parameters of the action, in the order of FlowVerdict's fields."""
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
        self._fields = bytes(table.fields[name] for name in FLOW_FIELDS)
        self._heads: dict[tuple[int, FragmentClass, bool, int], bytes] = {}
        self._actions: dict[FlowVerdict, bytes] = {}

    def encode(self, list_id: int, write: FlowWrite) -> bytes:
        """Encodes the write of a flow as the field `updates` of a write request."""
        operation, key, verdict = write
        of_list = (list_id, key.fragment, key.is_local, key.bundle)
        head = self._heads.get(of_list) or self._keep_head(of_list)
        action = b""
        if verdict is not None:
            action = self._actions.get(verdict) or self._keep_action(verdict)
        return flow_update(_OPERATIONS[operation], head, self._fields, key, action)

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
