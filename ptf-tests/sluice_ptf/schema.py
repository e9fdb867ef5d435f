# SPDX-License-Identifier: Apache-2.0
"""Builds P4Runtime messages by name, from Python values: table entries, actions, metadata.

Names are P4Info aliases. A value is one of these:

- an integer
- an address as text ("10.0.0.1", "2001:db8::1", "02:00:00:00:00:01")
- the name of a member of one of the program's enums
- for a prefix, text ("10.0.0.0/8")
- for a ternary field, a prefix or (value, mask)
- for a range, (low, high)

p4c's P4Info lists the enums, but not which fields use them. ENUM_OF lists the enum of each such
field. An unknown name or value raises SchemaError, whose message lists the known ones.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from p4.config.v1 import p4info_pb2
from p4.v1 import p4runtime_pb2

Value = int | str | bytes
Match = Value | tuple[Value, Value]
ENUM_OF = {
    "drop_reason": "drop_reason_t",
    "fragment": "fragment_t",
    "kind": "packet_out_kind_t",
    "origin": "origin_t",
    "reason": "punt_reason_t",
    "role": "role_t",
    "stage": "stage_t",
    "verdict": "verdict_t",
}
_MAC = re.compile(r"^[0-9a-f]{2}(:[0-9a-f]{2}){5}$", re.IGNORECASE)


class SchemaError(Exception):
    """A name or a value that the P4Info does not have."""


def to_int(value: Value) -> int:
    """Converts an integer, bytes, or a MAC, IPv4 or IPv6 address to an integer."""
    if isinstance(value, int):
        return value
    if isinstance(value, bytes):
        return int.from_bytes(value, "big")
    if _MAC.match(value):
        return int(value.replace(":", ""), 16)
    try:
        return int(ipaddress.ip_address(value))
    except ValueError:
        raise SchemaError(f"{value!r} is neither a number nor an address") from None


def bytestring(value: int, bitwidth: int) -> bytes:
    """Returns the shortest bytestring of a value (P4Runtime 1.5, section 8.4)."""
    if not 0 <= value < 1 << bitwidth:
        raise SchemaError(f"{value:#x} does not fit {bitwidth} bits")
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def _by_alias(objects: Iterable[Any]) -> dict[str, Any]:
    return {obj.preamble.alias: obj for obj in objects}


@dataclass(frozen=True)
class Field:
    """Describes a field of a packet-in or packet-out header."""

    id: int
    name: str
    bitwidth: int


class Schema:
    """Holds the P4Info of a program."""

    def __init__(self, p4info: p4info_pb2.P4Info):
        self.p4info = p4info
        self.tables = _by_alias(p4info.tables)
        self.actions = _by_alias(p4info.actions)
        self.profiles = _by_alias(p4info.action_profiles)
        self.counters = _by_alias(p4info.counters)
        self.meters = _by_alias(p4info.meters)
        self.enums: dict[str, dict[str, int]] = {
            name: {member.name: int.from_bytes(member.value, "big") for member in enum.members}
            for name, enum in p4info.type_info.serializable_enums.items()
        }

    @classmethod
    def load(cls, build: Path) -> Schema:
        """Reads router.p4info.txtpb from the directory `build`."""
        p4info = p4info_pb2.P4Info()
        text_format.Parse((build / "router.p4info.txtpb").read_text(), p4info)
        return cls(p4info)

    def number(self, field: str, value: Value) -> int:
        """Converts the value of a field, parameter or metadata to a number."""
        members = self.enums[ENUM_OF[field]] if field in ENUM_OF else {}
        return members[value] if isinstance(value, str) and value in members else to_int(value)

    def action_call(
        self, name: str, params: Mapping[str, Value] | None = None
    ) -> p4runtime_pb2.Action:
        """Returns an action with all of its parameters, by name."""
        info = self._lookup("action", self.actions, name)
        given = dict(params or {})
        call = p4runtime_pb2.Action(action_id=info.preamble.id)
        for param in info.params:
            if param.name not in given:
                raise SchemaError(f"action {name} needs parameter {param.name}")
            number = self.number(param.name, given.pop(param.name))
            call.params.add(param_id=param.id, value=bytestring(number, param.bitwidth))
        if given:
            raise SchemaError(f"action {name} has no parameter {', '.join(given)}")
        return call

    def entry(
        self, table: str, match: Mapping[str, Match], action: str = "", **params: Value
    ) -> p4runtime_pb2.TableEntry:
        """Returns a table entry. Without an action, the entry has only its key.

        Match fields that are not given match anything.
        """
        info = self._lookup("table", self.tables, table)
        fields = {field.name: field for field in info.match_fields}
        entry = p4runtime_pb2.TableEntry(table_id=info.preamble.id)
        for name, value in match.items():
            self._add_match(entry, self._lookup(f"field of {table}", fields, name), value)
        if action:
            entry.action.action.CopyFrom(self.action_call(action, params))
        return entry

    def _add_match(
        self, entry: p4runtime_pb2.TableEntry, field: p4info_pb2.MatchField, value: Match
    ) -> None:
        kinds = p4info_pb2.MatchField
        if field.match_type == kinds.EXACT:
            if isinstance(value, tuple):
                raise SchemaError(
                    f"{field.name} is an exact field: give a value, not (value, mask)"
                )
            number = bytestring(self.number(field.name, value), field.bitwidth)
            entry.match.add(field_id=field.id).exact.value = number
        elif field.match_type == kinds.LPM:
            base, length = _prefix(value)
            if length == 0:
                return  # P4Runtime omits a prefix of length 0
            lpm = entry.match.add(field_id=field.id).lpm
            lpm.value, lpm.prefix_len = bytestring(base, field.bitwidth), length
        elif field.match_type == kinds.TERNARY:
            base, mask = _ternary(value, field.bitwidth)
            if mask == 0:
                return  # P4Runtime omits a mask of 0
            ternary = entry.match.add(field_id=field.id).ternary
            ternary.value = bytestring(base, field.bitwidth)
            ternary.mask = bytestring(mask, field.bitwidth)
        elif field.match_type == kinds.RANGE:
            low, high = value if isinstance(value, tuple) else (value, value)
            if (low, high) == (0, (1 << field.bitwidth) - 1):
                return  # P4Runtime omits a range of all values
            of_range = entry.match.add(field_id=field.id).range
            # PI takes the shortest form of 0 to 255 for a range of all values, and refuses it.
            size = (field.bitwidth + 7) // 8
            of_range.low = bytestring(to_int(low), field.bitwidth).rjust(size, b"\0")
            of_range.high = bytestring(to_int(high), field.bitwidth).rjust(size, b"\0")
        else:
            raise SchemaError(f"{field.name}: match type {field.match_type} is not used here")

    def packet_fields(self, header: str) -> tuple[Field, ...]:
        """Returns the metadata fields of "packet_in" or "packet_out", in P4Info's order."""
        for metadata in self.p4info.controller_packet_metadata:
            if metadata.preamble.alias == header:
                return tuple(
                    Field(field.id, field.name, field.bitwidth) for field in metadata.metadata
                )
        raise SchemaError(f"the P4Info has no controller header {header}")

    @staticmethod
    def _lookup(kind: str, known: Mapping[str, Any], name: str) -> Any:
        if name not in known:
            raise SchemaError(f"no {kind} {name!r}; there is {', '.join(sorted(known))}")
        return known[name]


def _ternary(value: Match, bitwidth: int) -> tuple[int, int]:
    """Returns the value and the mask of a ternary field."""
    full = (1 << bitwidth) - 1
    if isinstance(value, str) and "/" in value:
        base, length = _prefix(value)
        return base, full ^ full >> length
    base_value, mask = value if isinstance(value, tuple) else (value, full)
    return to_int(base_value), to_int(mask)


def _prefix(value: Match) -> tuple[int, int]:
    if isinstance(value, tuple):
        return to_int(value[0]), to_int(value[1])
    if not isinstance(value, str):
        raise SchemaError(f"{value!r} is no prefix such as 10.0.0.0/8")
    network = ipaddress.ip_network(value)
    return int(network.network_address), network.prefixlen
