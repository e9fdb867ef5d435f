# SPDX-License-Identifier: Apache-2.0
"""Encodes and decodes the entities of IPsec policy, except flows (`p4.flows`).

The modules `encoder` and `decoder` use this module. Depends on entries and tables.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sluice.entities import (
    ENGINE_DOWN,
    NO_POLICY,
    OF_BUNDLE,
    UNKNOWN,
    BundleInVrf,
    Decrypt,
    DropCopy,
    Encrypt,
    EnginePort,
    EntityKey,
    EntityKind,
    EntityValue,
    EspSource,
    InboundSpi,
    ListBinding,
    ListState,
    ReassemblyEngine,
    RuleEntry,
)
from sluice.p4.entries import action_of, entry, exact, read_action, read_fields
from sluice.p4.rules import read_rule, rule_entity
from sluice.p4.schema import TableSchema
from sluice.p4.tables import BindingTable, EngineTable, PolicyTables, SingleAction
from sluice.p4messages import p4r

DecodedEntity = tuple[EntityKind, EntityKey, EntityValue]


def policy_entity(
    tables: PolicyTables, kind: EntityKind, key: EntityKey, value: EntityValue | None
) -> p4r.Entity | None:
    """Encodes one entity. Returns None if it is not an entity of policy."""
    match kind, key:
        case ((EntityKind.INBOUND_LIST | EntityKind.OUTBOUND_LIST), int()):
            return _single(tables.lists[kind], {"list_id": key}, value)
        case ((EntityKind.INBOUND_BINDING | EntityKind.OUTBOUND_BINDING), int()):
            return _binding(tables.bindings[kind], {"l3_if": key}, value)
        case EntityKind.BUNDLE_BINDING, BundleInVrf():
            return _binding(tables.bindings[kind], key._asdict(), value)
        case EntityKind.ENGINE, int():
            return _engine(tables.engine, key, value)
        case EntityKind.REASSEMBLY_ENGINE, int():
            return _single(tables.reassembly_engine, {"vrf": key}, value)
        case EntityKind.OUTBOUND_SA, BundleInVrf():
            return _single(tables.outbound_sa, key._asdict(), value)
        case EntityKind.INBOUND_SA, InboundSpi():
            return _single(tables.inbound_sa, key._asdict(), value)
        case EntityKind.ESP_SOURCE, EspSource():
            fields = {"vrf": key.vrf, "bundle": key.bundle}
            fields["src_addr"] = int.from_bytes(key.address, "big")
            return _single(tables.esp_sources[len(key.address)], fields, value)
        case ((EntityKind.INBOUND_RULE | EntityKind.OUTBOUND_RULE), RuleEntry()):
            return rule_entity(tables.rules[kind, key.match.size], key, value)
        case EntityKind.COPIED_DROP, str():
            return _copied_drop(tables, key, value)
        case _:
            return None


def _single(written: SingleAction, key: dict[str, int], value: EntityValue | None) -> p4r.Entity:
    """Encodes an entry of a table with one action.

    The fields of `value` become the action's parameters of the same names.
    """
    table, action = written
    matches = [exact(table, name, number) for name, number in key.items()]
    if value is None:
        return entry(table, matches, None)
    if isinstance(value, ListState | ReassemblyEngine | Encrypt | Decrypt):
        return entry(table, matches, action_of(action, **value._asdict()))
    return entry(table, matches, action_of(action))


def _copied_drop(tables: PolicyTables, key: str, value: EntityValue | None) -> p4r.Entity:
    table, action = tables.copied_drop
    matches = [exact(table, "drop_reason", tables.drop_reasons[key])]
    if isinstance(value, DropCopy):
        reason = tables.punt_reasons[value.punt_reason]
        return entry(table, matches, action_of(action, reason=reason))
    return entry(table, matches, None)


def _engine(written: EngineTable, key: int, value: EntityValue | None) -> p4r.Entity:
    matches = [exact(written.table, "engine", key)]
    if isinstance(value, EnginePort):
        return entry(written.table, matches, action_of(written.up, port=value.port))
    return entry(written.table, matches, None if value is None else action_of(written.down))


def _binding(written: BindingTable, key: dict[str, int], value: EntityValue | None) -> p4r.Entity:
    matches = [exact(written.table, name, number) for name, number in key.items()]
    action = None
    if isinstance(value, ListBinding):
        if value.list_id or written.none is None:
            action = action_of(written.check, list_id=value.list_id)
        else:
            action = action_of(written.none)
    return entry(written.table, matches, action)


class PolicyDecoder:
    """Decodes table entries into entities of policy. `tables` lists the tables to read."""

    def __init__(self, tables: PolicyTables) -> None:
        names = {number: name for name, number in tables.drop_reasons.items()}
        reasons = {number: name for name, number in tables.punt_reasons.items()}
        singles: list[tuple[EntityKind, SingleAction, _ReadKey, Callable[..., EntityValue]]] = [
            (EntityKind.REASSEMBLY_ENGINE, tables.reassembly_engine, _number, ReassemblyEngine),
            (EntityKind.OUTBOUND_SA, tables.outbound_sa, BundleInVrf, Encrypt),
            (EntityKind.INBOUND_SA, tables.inbound_sa, InboundSpi, Decrypt),
            (
                EntityKind.COPIED_DROP,
                tables.copied_drop,
                lambda number: names.get(number, str(number)),
                lambda number: DropCopy(reasons.get(number, str(number))),
            ),
            *(
                (EntityKind.ESP_SOURCE, written, partial(_esp_source, size), lambda: OF_BUNDLE)
                for size, written in tables.esp_sources.items()
            ),
            *((kind, written, _number, ListState) for kind, written in tables.lists.items()),
        ]
        self.decoders: dict[int, Callable[[p4r.TableEntry], DecodedEntity]] = {
            tables.engine.table.id: partial(_read_engine, tables.engine),
            **{
                written.table.id: partial(_read_single, kind, written, key, made)
                for kind, written, key, made in singles
            },
            **{
                written.table.id: partial(_read_binding, kind, written)
                for kind, written in tables.bindings.items()
            },
            **{
                written.table.id: partial(read_rule, kind, size, written)
                for (kind, size), written in tables.rules.items()
            },
        }
        self.tables = [
            tables.engine.table,
            *(written.table for _, written, *_ in singles),
            *(written.table for written in tables.bindings.values()),
            *(written.table for written in tables.rules.values()),
        ]


_ReadKey = Callable[..., EntityKey]
"""Makes a key from match field values, which are in the order of the table's fields."""


def _number(value: int) -> EntityKey:
    return value


def _esp_source(size: int, vrf: int, bundle: int, address: int) -> EntityKey:
    return EspSource(vrf, bundle, address.to_bytes(size, "big"))


def _values(table: TableSchema, found: p4r.TableEntry) -> list[int]:
    """Returns the values of an entry's match fields, in the order of the table's fields.

    The value of an omitted field is 0.
    """
    fields = read_fields(found)
    return [fields.get(identifier, 0) for identifier in table.fields.values()]


def _read_single(
    kind: EntityKind,
    written: SingleAction,
    read_key: _ReadKey,
    made: Callable[..., EntityValue],
    found: p4r.TableEntry,
) -> DecodedEntity:
    identifier, params = read_action(found)
    key = read_key(*_values(written.table, found))
    known = identifier == written.action.id and len(params) == len(written.action.params)
    return kind, key, made(*params) if known else UNKNOWN


def _read_engine(written: EngineTable, found: p4r.TableEntry) -> DecodedEntity:
    identifier, params = read_action(found)
    (key,) = _values(written.table, found)
    if identifier == written.up.id and params:
        return EntityKind.ENGINE, key, EnginePort(params[0])
    return EntityKind.ENGINE, key, ENGINE_DOWN if identifier == written.down.id else UNKNOWN


def _read_binding(kind: EntityKind, written: BindingTable, found: p4r.TableEntry) -> DecodedEntity:
    identifier, params = read_action(found)
    values = _values(written.table, found)
    key: EntityKey = BundleInVrf(*values) if kind is EntityKind.BUNDLE_BINDING else values[0]
    if identifier == written.check.id and params and params[0]:
        return kind, key, ListBinding(params[0])
    if written.none is not None and identifier == written.none.id:
        return kind, key, NO_POLICY
    return kind, key, UNKNOWN
