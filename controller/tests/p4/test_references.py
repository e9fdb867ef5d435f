# SPDX-License-Identifier: Apache-2.0
"""Tests that the order of writes agrees with the references in the P4 program.

The program declares references with `@refers_to(TABLE, FIELD)` at an action parameter: the
parameter's value must be the match field FIELD of an entry of TABLE. In the controller,
`entities.references` and the order of `EntityKind` must express the same references.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from finsy.proto import p4i, p4r

from fake_switch import PIPELINE, load_codec
from sluice.entities import (
    MEMBER,
    NO_POLICY,
    Attachment,
    BundleInVrf,
    Decrypt,
    Encrypt,
    EntityKey,
    EntityKind,
    EntityValue,
    InboundSpi,
    L3Interface,
    ListBinding,
    Nexthop,
    ReassemblyEngine,
    RouteSlot,
    RouteTarget,
    RouteTargetKind,
    references,
)
from sluice.model import Prefix
from sluice.p4.schema import load_pipeline
from sluice.p4runtime.messages import UpdateType

CODEC = load_codec()
P4INFO = load_pipeline(PIPELINE).p4info
SLOT = RouteSlot(1, Prefix.parse("10.0.0.0/8"))
KINDS = {
    "bundle_binding": EntityKind.BUNDLE_BINDING,
    "egress_interface": EntityKind.EGRESS_INTERFACE,
    "engine": EntityKind.ENGINE,
    "inbound.list_state": EntityKind.INBOUND_LIST,
    "nexthop": EntityKind.NEXTHOP,
    "nexthop_group": EntityKind.GROUP_ENTRY,
    "outbound.list_state": EntityKind.OUTBOUND_LIST,
}
"""Kind of the entries of each table that a parameter may refer to."""
ENTITIES: list[tuple[EntityKind, EntityKey, EntityValue]] = [
    (EntityKind.ROUTE, SLOT, RouteTarget(RouteTargetKind.NEXTHOP, 7)),
    (EntityKind.ROUTE, SLOT, RouteTarget(RouteTargetKind.GROUP, 8)),
    (EntityKind.ROUTE, SLOT, RouteTarget(RouteTargetKind.BLACKHOLE)),
    (EntityKind.GROUP_MEMBER, 9, MEMBER),
    (EntityKind.NEXTHOP, 1, Nexthop(3, b"\x0a\0\0\1", bytes(6), True)),
    (EntityKind.NEXTHOP, 2, Nexthop(3, None, None, True)),
    (EntityKind.REASSEMBLY_ENGINE, 0, ReassemblyEngine(2)),
    (EntityKind.OUTBOUND_SA, BundleInVrf(5, 1), Encrypt(2, 4, 1500, 73)),
    (EntityKind.INBOUND_SA, InboundSpi(5, 300), Decrypt(6, 2, 200)),
    (EntityKind.INBOUND_BINDING, 1, ListBinding(4)),
    (EntityKind.INBOUND_BINDING, 1, NO_POLICY),
    (EntityKind.OUTBOUND_BINDING, 1, ListBinding(4)),
    (EntityKind.BUNDLE_BINDING, BundleInVrf(5, 7), ListBinding(4)),
    (EntityKind.L3_INTERFACE, Attachment(1, 0), L3Interface(1, 5)),
]


def declared(annotations: list[str]) -> Iterator[tuple[str, str]]:
    """Yields the table and the field of each `@refers_to` among the annotations."""
    for annotation in annotations:
        match = re.fullmatch(r"@refers_to\((.*),(.*)\)", annotation.replace(" ", ""))
        if match:
            yield match[1], match[2]


DECLARED = {
    (action.preamble.id, param.id): list(declared(list(param.annotations)))
    for action in P4INFO.actions
    for param in action.params
}


def referred(action: p4r.Action) -> set[tuple[EntityKind, int]]:
    """Returns the kind and value of each reference in an action's parameters."""
    return {
        (KINDS[table], int.from_bytes(param.value, "big"))
        for param in action.params
        for table, _ in DECLARED[action.action_id, param.param_id]
    }


def number(key: EntityKey) -> int:
    """Returns the value by which an action parameter refers to the entity with this key."""
    if isinstance(key, BundleInVrf):
        return key.bundle
    assert isinstance(key, int)
    return key


@pytest.mark.parametrize(("kind", "key", "value"), ENTITIES)
def test_the_controller_refers_to_what_the_program_declares(
    kind: EntityKind, key: EntityKey, value: EntityValue
) -> None:
    encoded = p4r.WriteRequest.FromString(CODEC.update(UpdateType.INSERT, kind, key, value))
    entity = encoded.updates[0].entity
    member = entity.action_profile_member if kind is EntityKind.GROUP_MEMBER else None
    action = member.action if member else entity.table_entry.action.action
    expected = {(of, number(name)) for of, name in references(kind, key, value)}
    assert referred(action) == expected
    # A referred entity must be installed first, and entities are installed in the order of their
    # kinds.
    assert all(of < kind for of, _ in expected)


def test_each_declared_reference_names_a_match_field() -> None:
    tables: dict[str, p4i.Table] = {table.preamble.alias: table for table in P4INFO.tables}
    found = [one for ones in DECLARED.values() for one in ones]
    assert {table for table, _ in found} == KINDS.keys()
    for table, field in found:
        assert field in {match.name for match in tables[table].match_fields}
