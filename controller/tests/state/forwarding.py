# SPDX-License-Identifier: Apache-2.0
"""Gateways, next-hop objects and views of groups that the tests of the forwarding state share."""

from __future__ import annotations

from scenes import (
    Desired,
    gateway,
)
from sluice.entities import (
    Group,
    Kind,
    Nexthop,
    TargetKind,
)
from sluice.model import (
    NexthopObjectUpdated,
)

GW1, GW2, GW3 = "10.0.1.9", "10.0.2.9", "10.0.3.9"


def group_of(wanted: Desired, text: str) -> Group:
    target = wanted.target(text)
    assert target is not None
    assert target.kind is TargetKind.GROUP
    group = wanted.entities[Kind.GROUP, target.id]
    assert isinstance(group, Group)
    return group


def nexthop_ids(wanted: Desired) -> dict[int, Nexthop]:
    found = {}
    for (kind, entry), value in wanted.entities.items():
        if kind is Kind.NEXTHOP:
            assert isinstance(entry, int)
            assert isinstance(value, Nexthop)
            found[entry] = value
    return found


def obj(identifier: int, text: str, n: int) -> NexthopObjectUpdated:
    return NexthopObjectUpdated(identifier, gateway(text, n))


def group(identifier: int, *members: int) -> NexthopObjectUpdated:
    return NexthopObjectUpdated(identifier, None, tuple((member, 1) for member in members))
