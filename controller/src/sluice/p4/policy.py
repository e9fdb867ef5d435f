# SPDX-License-Identifier: Apache-2.0
"""IPsec policy's entities as table entries and back, but for the flows (`p4.flows`).

A part of encoder and decoder. Depends on entries and tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from finsy.proto import p4r

from sluice.entities import (
    NO_POLICY,
    UNKNOWN,
    Binding,
    Decrypt,
    Encrypt,
    EnginePort,
    Key,
    Kind,
    ListState,
    Spi,
    Value,
)
from sluice.p4.entries import action_of, entry, exact, read_action, read_fields
from sluice.p4.tables import BindingTable, PolicyTables, SingleAction

Decoded = tuple[Kind, Key, Value]


def policy_entity(
    tables: PolicyTables, kind: Kind, key: Key, value: Value | None
) -> p4r.Entity | None:
    """The entry of one entity; None where kind and key are none of policy's."""
    match kind, key:
        case ((Kind.INBOUND_LIST | Kind.OUTBOUND_LIST), int()):
            return _single(tables.lists[kind], {"list_id": key}, value)
        case ((Kind.INBOUND_BINDING | Kind.OUTBOUND_BINDING | Kind.BUNDLE_BINDING), int()):
            return _binding(tables.bindings[kind], key, value)
        case Kind.ENGINE, int():
            return _single(tables.engine, {"engine": key}, value)
        case Kind.OUTBOUND_SA, int():
            return _single(tables.outbound_sa, {"bundle": key}, value)
        case Kind.INBOUND_SA, Spi():
            return _single(tables.inbound_sa, key._asdict(), value)
        case _:
            return None


def _single(written: SingleAction, key: dict[str, int], value: Value | None) -> p4r.Entity:
    """The action's parameters are the value's fields, by name."""
    table, action = written
    matches = [exact(table, name, number) for name, number in key.items()]
    if not isinstance(value, ListState | EnginePort | Encrypt | Decrypt):
        return entry(table, matches, None)
    return entry(table, matches, action_of(action, **value._asdict()))


def _binding(written: BindingTable, key: int, value: Value | None) -> p4r.Entity:
    (field,) = written.table.fields
    action = None
    if isinstance(value, Binding):
        if value.list_id or written.none is None:
            action = action_of(written.check, list_id=value.list_id)
        else:
            action = action_of(written.none)
    return entry(written.table, [exact(written.table, field, key)], action)


class PolicyDecoder:
    """Entries as entities; `tables` is what to read."""

    def __init__(self, tables: PolicyTables) -> None:
        singles: list[tuple[Kind, SingleAction, Callable[..., Value]]] = [
            (Kind.ENGINE, tables.engine, EnginePort),
            (Kind.OUTBOUND_SA, tables.outbound_sa, Encrypt),
            (Kind.INBOUND_SA, tables.inbound_sa, Decrypt),
            *((kind, written, ListState) for kind, written in tables.lists.items()),
        ]
        self.decoders: Mapping[int, Callable[[p4r.TableEntry], Decoded]] = {
            written.table.id: partial(_read_single, kind, written, made)
            for kind, written, made in singles
        } | {
            written.table.id: partial(_read_binding, kind, written)
            for kind, written in tables.bindings.items()
        }
        self.tables = [written.table for _, written, _ in singles] + [
            written.table for written in tables.bindings.values()
        ]


def _read_single(
    kind: Kind, written: SingleAction, made: Callable[..., Value], found: p4r.TableEntry
) -> Decoded:
    identifier, params = read_action(found)
    fields = read_fields(found)
    key: Key = next(iter(fields.values()), 0)
    if kind is Kind.INBOUND_SA:
        names = written.table.fields
        key = Spi(fields.get(names["vrf"], 0), fields.get(names["spi"], 0))
    known = identifier == written.action.id and len(params) == len(written.action.params)
    return kind, key, made(*params) if known else UNKNOWN


def _read_binding(kind: Kind, written: BindingTable, found: p4r.TableEntry) -> Decoded:
    identifier, params = read_action(found)
    key = next(iter(read_fields(found).values()), 0)
    if identifier == written.check.id and params and params[0]:
        return kind, key, Binding(params[0])
    if written.none is not None and identifier == written.none.id:
        return kind, key, NO_POLICY
    return kind, key, UNKNOWN
