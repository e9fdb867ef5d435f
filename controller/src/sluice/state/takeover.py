# SPDX-License-Identifier: Apache-2.0
"""Selects the entities that must be deleted from a switch before the controller writes anything
else to it.

The switch may hold the entities of an earlier configuration, which may use the same numbers for
other interfaces, lists and bundles. No packet may be handled by a mix of old and new entities. So
every entity that differs is deleted first, if the switch drops packets without it. It is written
again once everything that it depends on matches the new configuration. Equal entities stay and keep
forwarding.

A next hop is retired instead of deleted, because routes refer to it and it refers to its interface
by number. The routes of a retired next hop drop their packets until they get another next hop.
Until then the next hop's number is not reused.

Pure; depends on entities.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from sluice.entities import (
    ADMIT,
    DROPS_WITHOUT,
    OPENING,
    RETIRED,
    Attachment,
    Egress,
    EntityKey,
    EntityKind,
    EntityValue,
    L3Interface,
    Nexthop,
    RouterMac,
)

EntitiesByKind: TypeAlias = Mapping[EntityKind, Mapping[EntityKey, EntityValue]]

BUNDLE_KINDS = frozenset(
    {
        EntityKind.INBOUND_SA,
        EntityKind.BUNDLE_BINDING,
        EntityKind.OUTBOUND_SA,
        EntityKind.ESP_SOURCE,
    }
)
"""Kinds of entities that name a bundle by its number."""
INTERFACE_KINDS = OPENING | {EntityKind.INBOUND_BINDING, EntityKind.OUTBOUND_BINDING}
"""Kinds of entities that name an interface by its number."""


class ClosingPlan(NamedTuple):
    """Holds the entities to delete, dependent entities first, and the next hops to retire."""

    withdrawn: tuple[tuple[EntityKind, EntityKey], ...] = ()
    retired: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.withdrawn or self.retired)


class ReassignedNumbers(NamedTuple):
    """Holds the numbers that may have meant another interface or bundle in the earlier
    configuration.

    An entity with such a number may by chance equal the wanted entity, although it means another
    interface or bundle. Flows also name bundles by number. Until a flow's list has a new epoch,
    another bundle with the same number must not protect the flow.
    """

    interfaces: Container[int] = ()
    bundles: Container[int] = ()

    def concerns(self, kind: EntityKind, key: EntityKey, value: EntityValue) -> bool:
        """Returns whether an entity names one of these numbers."""
        if kind in BUNDLE_KINDS:
            return _number(key, value, "bundle") in self.bundles
        return kind in INTERFACE_KINDS and _number(key, value, "l3_if") in self.interfaces


NOTHING_REASSIGNED = ReassignedNumbers()


def plan_closing(
    installed: EntitiesByKind,
    wanted: EntitiesByKind,
    moved: ReassignedNumbers = NOTHING_REASSIGNED,
    swapped: Container[EntityKind] = (),
) -> ClosingPlan:
    """Plans which entities of `installed` to delete or retire because they differ from `wanted`.

    `wanted` follows from the configuration alone. Entities of the kinds in `swapped` change in the
    same write as the lists. They stay until that write, unless the number of their interface was
    reassigned. The MAC addresses of an unchanged interface stay too: some may belong to virtual
    routers, which the kernel reports only later.
    """
    differing = [
        (kind, key)
        for kind in sorted(DROPS_WITHOUT, reverse=True)
        for key, value in installed[kind].items()
        if moved.concerns(kind, key, value)
        or not (kind in swapped or _equal(kind, wanted.get(kind, {}).get(key), value))
    ]
    kept = frozenset(_kept_interfaces(installed, frozenset(differing)))
    # These interfaces may now be in another VRF. New routes of that VRF must not lead to them while
    # the old lists are in force. (The entity of an egress interface names no VRF.)
    differing += [
        (EntityKind.EGRESS_INTERFACE, key)
        for key in installed[EntityKind.EGRESS_INTERFACE]
        if key not in kept and (EntityKind.EGRESS_INTERFACE, key) not in differing
    ]
    withdrawn = [
        (kind, key)
        for kind, key in differing
        if not (isinstance(key, RouterMac) and key.l3_if in kept) or installed[kind][key] != ADMIT
    ]
    retired = [
        key
        for key, value in installed[EntityKind.NEXTHOP].items()
        if isinstance(key, int) and isinstance(value, Nexthop) and value != RETIRED
        if value.l3_if not in kept and wanted.get(EntityKind.NEXTHOP, {}).get(key) != value
    ]
    return ClosingPlan(tuple(withdrawn), tuple(retired))


def _number(key: EntityKey, value: EntityValue, name: str) -> object:
    """Returns the interface's or bundle's number: field `name` of the key or of the value, or the
    key itself."""
    return getattr(key, name, getattr(value, name, key))


def _equal(kind: EntityKind, wanted: EntityValue | None, held: EntityValue) -> bool:
    """Returns whether two entities are equal, except for an interface's MAC address and MTU."""
    if (
        kind is EntityKind.EGRESS_INTERFACE
        and isinstance(wanted, Egress)
        and isinstance(held, Egress)
    ):
        return (wanted.port, wanted.vlan) == (held.port, held.vlan)
    return wanted == held


def _kept_interfaces(
    installed: EntitiesByKind, gone: Container[tuple[EntityKind, EntityKey]]
) -> Iterator[int]:
    """Yields the interface numbers that still mean the same interface in the same VRF."""
    admitted = {
        (value.l3_if, key)
        for key, value in installed[EntityKind.L3_INTERFACE].items()
        if isinstance(value, L3Interface) and (EntityKind.L3_INTERFACE, key) not in gone
    }
    for key, value in installed[EntityKind.EGRESS_INTERFACE].items():
        if isinstance(key, int) and isinstance(value, Egress):
            at = key, Attachment(value.port, value.vlan)
            if at in admitted and (EntityKind.EGRESS_INTERFACE, key) not in gone:
                yield key
