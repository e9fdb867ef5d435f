# SPDX-License-Identifier: Apache-2.0
"""Encodes and decodes the entries of the rule tables.

A field that an entry does not match on is left out (P4Runtime, 9.1.1), because its mask would be 0
or its range would contain every value. Depends on entries, schema and tables.
"""

from __future__ import annotations

from collections.abc import Iterable

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
from sluice.p4.entries import action_of, canonical, entry, exact, read_action
from sluice.p4.schema import TableSchema
from sluice.p4.tables import RuleTable
from sluice.p4messages import p4r

_LARGEST_PORT = 0xFFFF
_PORT_BYTES = 2
_PROTOCOL_MASK = 0xFF
_OWN_MASK = 1


def rule_entity(written: RuleTable, key: RuleEntry, value: EntityValue | None) -> p4r.Entity:
    """Encodes an entry of a rule table."""
    action = None
    if isinstance(value, RuleVerdict):
        action = action_of(
            written.verdict, rule=value.rule, verdict=value.verdict, sa_bundle=value.bundle
        )
    elif value is not None:
        action = action_of(written.leave)
    if isinstance(key.match, ForeignMatch):
        matches = list(p4r.TableEntry.FromString(key.match.encoded).match)
    else:
        matches = _fields(written.table, key.rule_set, key.match)
    made = entry(written.table, matches, action)
    made.table_entry.priority = key.priority
    return made


def _fields(table: TableSchema, rule_set: int, match: RuleMatch) -> list[p4r.FieldMatch]:
    matches = [exact(table, "rule_set", rule_set)]
    if match.is_own is not None:
        matches.append(_ternary(table, "is_local", int(match.is_own), _OWN_MASK))
    for name, prefix in (("src_addr", match.source), ("dst_addr", match.destination)):
        if prefix is not None and prefix.length:
            mask = _mask(match.size, prefix.length)
            value = int.from_bytes(prefix.address, "big") & mask
            matches.append(_ternary(table, name, value, mask))
    if match.protocol is not None:
        matches.append(_ternary(table, "protocol", match.protocol, _PROTOCOL_MASK))
    for name, ports in (("src_port", match.source_port), ("dst_port", match.destination_port)):
        if ports is not None and ports != (0, _LARGEST_PORT):
            # Both bounds have the same number of bytes, not the canonical (shortest) form. PI,
            # BMv2's P4Runtime server, takes the range 0 to 255 in canonical form for the range of
            # all values, and refuses it.
            low, high = (port.to_bytes(_PORT_BYTES, "big") for port in ports)
            of_range = p4r.FieldMatch.Range(low=low, high=high)
            matches.append(p4r.FieldMatch(field_id=table.fields[name], range=of_range))
    return matches


def read_rule(
    kind: EntityKind, size: int, written: RuleTable, found: p4r.TableEntry
) -> tuple[EntityKind, RuleEntry, EntityValue]:
    """Decodes an entry of a rule table. `size` is that of the table's addresses in bytes."""
    names = {identifier: name for name, identifier in written.table.fields.items()}
    fields = {names.get(one.field_id, ""): one for one in found.match}
    rule_set = int.from_bytes(fields["rule_set"].exact.value, "big") if "rule_set" in fields else 0
    match = _match(size, fields)
    identifier, params = read_action(found)
    value: EntityValue = UNKNOWN
    if identifier == written.verdict.id and len(params) == len(RuleVerdict._fields):
        value = RuleVerdict(*params)
    elif identifier == written.leave.id:
        value = LEAVE_TO_CPU
    if _canonical(_fields(written.table, rule_set, match)) == _canonical(found.match):
        return kind, RuleEntry(rule_set, found.priority, match), value
    read = sorted(found.match, key=lambda one: one.field_id)
    encoded = p4r.TableEntry(match=read).SerializeToString(deterministic=True)
    return kind, RuleEntry(rule_set, found.priority, ForeignMatch(size, encoded)), UNKNOWN


def _canonical(matches: Iterable[p4r.FieldMatch]) -> dict[int, tuple[bytes, ...]]:
    """Returns the values of match fields by field id, in a form that can be compared."""
    return {
        one.field_id: tuple(
            part.lstrip(b"\0")
            for part in (
                one.exact.value,
                one.ternary.value,
                one.ternary.mask,
                one.range.low,
                one.range.high,
            )
        )
        for one in matches
    }


def _match(size: int, fields: dict[str, p4r.FieldMatch]) -> RuleMatch:
    """Reads fields in the form that `_fields` writes. Fields in another form get an arbitrary
    value."""
    prefixes: dict[str, Prefix | None] = {}
    for name in ("src_addr", "dst_addr"):
        prefixes[name] = None
        if name in fields:
            value, mask = fields[name].ternary.value, fields[name].ternary.mask
            length = int.from_bytes(mask, "big").bit_count()
            prefixes[name] = Prefix(value.rjust(size, b"\0")[-size:], min(length, size * 8))
    ports: dict[str, tuple[int, int] | None] = {}
    for name in ("src_port", "dst_port"):
        ports[name] = None
        if name in fields:
            of_range = fields[name].range
            ports[name] = (
                int.from_bytes(of_range.low, "big"),
                int.from_bytes(of_range.high, "big"),
            )
    numbers: dict[str, int | None] = {}
    for name in ("protocol", "is_local"):
        numbers[name] = None
        if name in fields:
            numbers[name] = int.from_bytes(fields[name].ternary.value, "big")
    own = numbers["is_local"]
    return RuleMatch(
        size,
        prefixes["src_addr"],
        prefixes["dst_addr"],
        numbers["protocol"],
        ports["src_port"],
        ports["dst_port"],
        None if own is None else bool(own),
    )


def _ternary(table: TableSchema, name: str, value: int, mask: int) -> p4r.FieldMatch:
    match = p4r.FieldMatch.Ternary(value=canonical(value), mask=canonical(mask))
    return p4r.FieldMatch(field_id=table.fields[name], ternary=match)


def _mask(size: int, length: int) -> int:
    """Returns the mask of a prefix of `length` bits of an address of `size` bytes."""
    bits = size * 8
    return ((1 << length) - 1) << (bits - length)
