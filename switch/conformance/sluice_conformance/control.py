# SPDX-License-Identifier: Apache-2.0
"""Converts the control statements of a script to P4Runtime updates.

Depends on stf and program. Remembers the objects to which later statements refer by number or
label: multicast nodes, groups and labelled entries. A statement that does not fit the program
raises ValueError or UnknownName.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from p4.v1 import p4runtime_pb2

from sluice_conformance import stf
from sluice_conformance.program import Key, Program, Table

_BITS = {"0x": 4, "0b": 1, "0o": 3}
_ANYTHING = re.compile(r"(?:0[xbo])?\*+", re.IGNORECASE)


def bytestring(value: int, width: int) -> bytes:
    """Returns the shortest bytestring of a value (P4Runtime 1.5, section 8.4).

    Raises ValueError.
    """
    if value >= 1 << width:
        raise ValueError(f"{value:#x} does not fit {width} bits")
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def masked(text: str, width: int) -> tuple[int, int]:
    """Returns value and mask of a ternary field.

    A digit `*` matches any digit, and so do higher digits that are omitted. A decimal number is
    compared in all bits.
    """
    bits = _BITS.get(text[:2].lower())
    if bits is None:
        return stf.number(text), (1 << width) - 1
    value = mask = 0
    for digit in text[2:]:
        value, mask = value << bits, mask << bits
        if digit != "*":
            value |= int(digit, 1 << bits)
            mask |= (1 << bits) - 1
    mask &= (1 << width) - 1
    if value >= 1 << width:
        raise ValueError(f"{text} does not fit {width} bits")
    return value & mask, mask


def prefix(text: str, width: int) -> tuple[int, int]:
    """Returns value and length of a prefix. `text` is V/LENGTH, or digits that may end with `*`."""
    if "/" in text:
        number, _, length = text.partition("/")
        value, bits = stf.number(number), int(length)
    else:
        stars = len(text) - len(text.rstrip("*"))
        bits = width - stars * _BITS.get(text[:2].lower(), 0)
        value = stf.number(text.replace("*", "0"))
    if not 0 <= bits <= width:
        raise ValueError(f"{text} is not a prefix of {width} bits")
    return value & ~((1 << (width - bits)) - 1), bits


@dataclass
class Control:
    """Holds the state of one script's control plane."""

    program: Program
    nodes: list[stf.CreateNode] = field(default_factory=list)
    groups: dict[int, list[stf.CreateNode]] = field(default_factory=dict)
    labelled: dict[str, Any] = field(default_factory=dict)

    def update(self, statement: stf.Statement) -> Any | None:
        """Returns the P4Runtime update for a statement, or None if the statement needs none."""
        match statement:
            case stf.Add():
                return _update("INSERT", table_entry=self._entry(statement))
            case stf.SetDefault():
                return _update("MODIFY", table_entry=self._default(statement))
            case stf.MirrorTo(session, port):
                return self._session(session, [(port, 0)])
            case stf.MirrorToGroup(session, group):
                return self._session(session, _replicas(self.groups[group]))
            case stf.CreateGroup(group):
                self.groups[group] = []
                return self._group("INSERT", group)
            case stf.CreateNode():
                self.nodes.append(statement)
                return None
            case stf.Associate(group, node):
                self.groups[group].append(self.nodes[node])
                return self._group("MODIFY", group)
        raise ValueError(f"{type(statement).__name__} is not a control statement")

    def count(self, check: stf.CheckCounter) -> tuple[Any, str]:
        """Returns the entity to read for a counter's cell, and the name of the field with the
        count.
        """
        entity = p4runtime_pb2.Entity()
        counter = self.program.counter(check.counter)
        if counter.table_id:
            entry = self.labelled.get(str(check.cell).lstrip("$"))
            if entry is None:
                raise ValueError(f"no entry is labelled {check.cell}")
            entity.direct_counter_entry.table_entry.CopyFrom(entry)
            entity.direct_counter_entry.table_entry.ClearField("action")
            return entity, "direct_counter_entry"
        entity.counter_entry.counter_id = counter.id
        entity.counter_entry.index.index = int(check.cell)
        return entity, "counter_entry"

    def _entry(self, statement: stf.Add) -> Any:
        table = self.program.table(statement.table)
        entry = p4runtime_pb2.TableEntry(table_id=table.id)
        given = {table.key(name).id: text for name, text in statement.keys}
        for key in table.keys:
            _add_match(entry, key, given.get(key.id))
        if table.has_priority:
            entry.priority = 1 + (statement.priority or 0)
        _set_action(entry, table, statement.call)
        if statement.label is not None:
            self.labelled[statement.label] = entry
        return entry

    def _default(self, statement: stf.SetDefault) -> Any:
        table = self.program.table(statement.table)
        entry = p4runtime_pb2.TableEntry(table_id=table.id, is_default_action=True)
        _set_action(entry, table, statement.call)
        return entry

    def _session(self, session: int, replicas: list[tuple[int, int]]) -> Any:
        entry = p4runtime_pb2.CloneSessionEntry(session_id=session)
        for port, instance in replicas:
            entry.replicas.add(egress_port=port, instance=instance)
        return _update(
            "INSERT", packet_replication_engine_entry=_replication(clone_session_entry=entry)
        )

    def _group(self, kind: str, group: int) -> Any:
        entry = p4runtime_pb2.MulticastGroupEntry(multicast_group_id=group)
        for port, instance in _replicas(self.groups[group]):
            entry.replicas.add(egress_port=port, instance=instance)
        return _update(
            kind, packet_replication_engine_entry=_replication(multicast_group_entry=entry)
        )


def _replicas(nodes: list[stf.CreateNode]) -> list[tuple[int, int]]:
    return [(port, node.replication_id) for node in nodes for port in node.ports]


def _replication(**entry: Any) -> Any:
    return p4runtime_pb2.PacketReplicationEngineEntry(**entry)


def _update(kind: str, **entity: Any) -> Any:
    return p4runtime_pb2.Update(
        type=p4runtime_pb2.Update.Type.Value(kind), entity=p4runtime_pb2.Entity(**entity)
    )


def _add_match(entry: Any, key: Key, text: str | None) -> None:
    """Adds the match of one key field.

    An omitted exact field is 0; other omitted fields match anything.
    """
    if key.kind != "exact" and (text is None or _ANYTHING.fullmatch(text)):
        return
    match = p4runtime_pb2.FieldMatch(field_id=key.id)
    text = text or "0"
    if key.kind == "exact":
        match.exact.value = bytestring(stf.number(text), key.width)
    elif key.kind == "optional":
        match.optional.value = bytestring(stf.number(text), key.width)
    elif key.kind == "lpm":
        value, match.lpm.prefix_len = prefix(text, key.width)
        match.lpm.value = bytestring(value, key.width)
        if not match.lpm.prefix_len:
            return
    elif key.kind == "ternary":
        value, mask = masked(text, key.width)
        match.ternary.value = bytestring(value, key.width)
        match.ternary.mask = bytestring(mask, key.width)
        if not mask:
            return
    else:
        low, _, high = text.replace("..", "->").partition("->")
        match.range.low = bytestring(stf.number(low), key.width)
        match.range.high = bytestring(stf.number(high or low), key.width)
    entry.match.append(match)


def _set_action(entry: Any, table: Table, call: stf.Call) -> None:
    action = table.action(call.action)
    made = entry.action.action
    made.action_id = action.id
    given = dict(call.arguments)
    for identifier, name, width in action.parameters:
        if name not in given:
            raise ValueError(f"action {action.name} needs {name!r}")
        value = bytestring(stf.number(given.pop(name)), width)
        made.params.add(param_id=identifier, value=value)
    if given:
        raise ValueError(f"action {action.name} has no {', '.join(given)}")
