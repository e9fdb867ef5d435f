# SPDX-License-Identifier: Apache-2.0
"""Builds and decodes P4Runtime table entries. Depends on schema."""

from __future__ import annotations

from sluice.p4.schema import ActionSchema, TableSchema
from sluice.p4messages import p4r


def canonical(number: int) -> bytes:
    """Encodes a number as P4Runtime's canonical (shortest) byte string."""
    return number.to_bytes((number.bit_length() + 7) // 8 or 1, "big")


def exact(table: TableSchema, name: str, value: int) -> p4r.FieldMatch:
    """Builds an exact match."""
    match = p4r.FieldMatch.Exact(value=canonical(value))
    return p4r.FieldMatch(field_id=table.fields[name], exact=match)


def action_of(action: ActionSchema, **values: int) -> p4r.TableAction:
    """Builds an action with its parameters."""
    params = [
        p4r.Action.Param(param_id=action.params[name], value=canonical(value))
        for name, value in values.items()
    ]
    return p4r.TableAction(action=p4r.Action(action_id=action.id, params=params))


def entry(
    table: TableSchema,
    matches: list[p4r.FieldMatch],
    action: p4r.TableAction | None,
    metadata: bytes = b"",
) -> p4r.Entity:
    """Builds a table entry. An entry without an action is enough to delete or read the entry."""
    made = p4r.TableEntry(table_id=table.id, match=matches, action=action, metadata=metadata)
    return p4r.Entity(table_entry=made)


def read_fields(found: p4r.TableEntry) -> dict[int, int]:
    """Returns the values of an entry's exact match fields, by field id."""
    return {match.field_id: int.from_bytes(match.exact.value, "big") for match in found.match}


def read_action(found: p4r.TableEntry) -> tuple[int, list[int]]:
    """Returns the action's id, and its parameters in the order of their ids."""
    action = found.action.action
    params = sorted(action.params, key=lambda param: param.param_id)
    return action.action_id, [int.from_bytes(param.value, "big") for param in params]
