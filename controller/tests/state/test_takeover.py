# SPDX-License-Identifier: Apache-2.0
"""Tests which entries of an earlier controller are withdrawn at a start: those that differ from the
desired ones, if the switch drops packets without them."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.entities import (
    ADMIT,
    NO_POLICY,
    RETIRED,
    UNKNOWN,
    Attachment,
    Decrypt,
    Egress,
    EntityKey,
    EntityKind,
    EntityValue,
    InboundSpi,
    L3Interface,
    ListBinding,
    Nexthop,
    RouterMac,
)
from sluice.state.takeover import ClosingPlan, ReassignedNumbers, plan_closing

MAC = bytes([2, 0, 0, 0, 0, 1])
Held = dict[EntityKind, dict[EntityKey, EntityValue]]
RIGHT: Any = {
    EntityKind.INBOUND_SA: {InboundSpi(0, 9): Decrypt(7, 1, 2)},
    EntityKind.INBOUND_BINDING: {1: ListBinding(1), 2: NO_POLICY},
    EntityKind.OUTBOUND_BINDING: {1: ListBinding(2), 2: NO_POLICY},
    EntityKind.EGRESS_INTERFACE: {1: Egress(1, 0, MAC, 1500), 2: Egress(2, 0, MAC, 1500)},
    EntityKind.NEXTHOP: {5: Nexthop(1, None, MAC, up=True), 6: Nexthop(2, None, None, up=True)},
    EntityKind.ROUTER_MAC: {RouterMac(1, MAC): ADMIT, RouterMac(2, MAC): ADMIT},
    EntityKind.L3_INTERFACE: {
        Attachment(1, 0): L3Interface(1, 0),
        Attachment(2, 0): L3Interface(2, 0),
    },
}
WANTED = {kind: entries for kind, entries in RIGHT.items() if kind is not EntityKind.NEXTHOP}


def held(*changes: tuple[EntityKind, EntityKey, EntityValue | None]) -> Held:
    found: Held = {kind: dict(RIGHT.get(kind, {})) for kind in EntityKind}
    for kind, key, value in changes:
        if value is None:
            del found[kind][key]
        else:
            found[kind][key] = value
    return found


def test_what_is_right_is_not_touched() -> None:
    assert plan_closing(held(), WANTED) == ClosingPlan()
    assert not plan_closing(held(), WANTED)


def test_an_mtu_or_a_mac_address_closes_nothing_behind_it() -> None:
    egress = Egress(1, 0, bytes(6), 9000)
    assert not plan_closing(held((EntityKind.EGRESS_INTERFACE, 1, egress)), WANTED)


VIRTUAL = RouterMac(1, bytes([0, 0, 0x5E, 0, 1, 5]))


def test_the_mac_addresses_of_an_interface_that_stays_are_left_to_the_kernel() -> None:
    assert not plan_closing(held((EntityKind.ROUTER_MAC, VIRTUAL, ADMIT)), WANTED)


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        (EntityKind.L3_INTERFACE, Attachment(1, 0), L3Interface(1, 7)),
        (EntityKind.EGRESS_INTERFACE, 1, Egress(9, 0, MAC, 1500)),
    ],
)
def test_the_mac_addresses_of_another_interface_are_withdrawn(
    kind: EntityKind, key: EntityKey, value: EntityValue
) -> None:
    closed = plan_closing(held((EntityKind.ROUTER_MAC, VIRTUAL, ADMIT), (kind, key, value)), WANTED)
    assert (EntityKind.ROUTER_MAC, VIRTUAL) in closed.withdrawn


def test_the_mac_addresses_of_a_moved_number_are_withdrawn() -> None:
    installed = held((EntityKind.ROUTER_MAC, VIRTUAL, ADMIT))
    closed = plan_closing(installed, WANTED, ReassignedNumbers(interfaces={1}))
    assert (EntityKind.ROUTER_MAC, VIRTUAL) in closed.withdrawn


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        (EntityKind.INBOUND_BINDING, 1, NO_POLICY),
        (EntityKind.OUTBOUND_BINDING, 2, ListBinding(2)),
        (EntityKind.OUTBOUND_BINDING, 9, NO_POLICY),
        (EntityKind.INBOUND_SA, InboundSpi(0, 8), Decrypt(7, 1, 2)),
        (EntityKind.INBOUND_SA, InboundSpi(0, 9), UNKNOWN),
        (EntityKind.ROUTER_MAC, RouterMac(1, bytes(6)), UNKNOWN),
        (EntityKind.ROUTER_MAC, RouterMac(3, MAC), ADMIT),
        (EntityKind.L3_INTERFACE, Attachment(3, 0), L3Interface(2, 0)),
    ],
)
def test_what_differs_is_withdrawn_alone(
    kind: EntityKind, key: EntityKey, value: EntityValue
) -> None:
    assert plan_closing(held((kind, key, value)), WANTED) == ClosingPlan(((kind, key),), ())


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        (EntityKind.EGRESS_INTERFACE, 1, Egress(3, 0, MAC, 1500)),
        (EntityKind.EGRESS_INTERFACE, 1, Egress(1, 5, MAC, 1500)),
        (EntityKind.L3_INTERFACE, Attachment(1, 0), L3Interface(1, 1)),
        (EntityKind.L3_INTERFACE, Attachment(1, 0), L3Interface(3, 0)),
    ],
    ids=["port", "vlan", "vrf", "number"],
)
def test_next_hops_of_an_interface_that_is_another_are_retired(
    kind: EntityKind, key: EntityKey, value: EntityValue
) -> None:
    closed = plan_closing(held((kind, key, value)), WANTED)
    assert (kind, key) in closed.withdrawn
    assert closed.retired == (5,)


def test_next_hops_of_an_interface_that_is_not_let_in_are_retired() -> None:
    """Checks that next hops of an interface are retired if the switch admits no packets at that
    interface.

    Only the entry that admits packets shows in which VRF the interface was. So no packet may leave
    by the interface either: new routes could lead to it before the new lists are in force.
    """
    closed = plan_closing(held((EntityKind.L3_INTERFACE, Attachment(2, 0), None)), WANTED)
    assert closed == ClosingPlan(((EntityKind.EGRESS_INTERFACE, 2),), (6,))


def test_a_retired_next_hop_is_not_retired_again() -> None:
    assert plan_closing(held((EntityKind.NEXTHOP, 7, RETIRED)), WANTED) == ClosingPlan()


def test_moved_numbers_are_withdrawn_though_they_look_right() -> None:
    closed = plan_closing(held(), WANTED, ReassignedNumbers(interfaces={1}, bundles={7}))
    assert set(closed.withdrawn) == {
        (EntityKind.L3_INTERFACE, Attachment(1, 0)),
        (EntityKind.ROUTER_MAC, RouterMac(1, MAC)),
        (EntityKind.EGRESS_INTERFACE, 1),
        (EntityKind.OUTBOUND_BINDING, 1),
        (EntityKind.INBOUND_BINDING, 1),
        (EntityKind.INBOUND_SA, InboundSpi(0, 9)),
    }
    assert closed.retired == (5,)


def test_who_refers_to_another_goes_first() -> None:
    everything = plan_closing(held(), {})
    kinds = [kind for kind, _ in everything.withdrawn]
    assert kinds == sorted(kinds, reverse=True)
    assert set(everything.retired) == {5, 6}
