# SPDX-License-Identifier: Apache-2.0
"""A start closes entities that differ and whose absence drops packets, and no more."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.entities import (
    ADMIT,
    NO_POLICY,
    RETIRED,
    UNKNOWN,
    Attachment,
    Binding,
    Decrypt,
    Egress,
    Key,
    Kind,
    L3Interface,
    Nexthop,
    RouterMac,
    Spi,
    Value,
)
from sluice.state.takeover import Closing, Moved, closing

MAC = bytes([2, 0, 0, 0, 0, 1])
Held = dict[Kind, dict[Key, Value]]
RIGHT: Any = {
    Kind.INBOUND_SA: {Spi(0, 9): Decrypt(7, 1, 2)},
    Kind.INBOUND_BINDING: {1: Binding(1), 2: NO_POLICY},
    Kind.OUTBOUND_BINDING: {1: Binding(2), 2: NO_POLICY},
    Kind.EGRESS_INTERFACE: {1: Egress(1, 0, MAC, 1500), 2: Egress(2, 0, MAC, 1500)},
    Kind.NEXTHOP: {5: Nexthop(1, None, MAC, up=True), 6: Nexthop(2, None, None, up=True)},
    Kind.ROUTER_MAC: {RouterMac(1, MAC): ADMIT, RouterMac(2, MAC): ADMIT},
    Kind.L3_INTERFACE: {Attachment(1, 0): L3Interface(1, 0), Attachment(2, 0): L3Interface(2, 0)},
}
WANTED = {kind: entries for kind, entries in RIGHT.items() if kind is not Kind.NEXTHOP}


def held(*changes: tuple[Kind, Key, Value | None]) -> Held:
    found: Held = {kind: dict(RIGHT.get(kind, {})) for kind in Kind}
    for kind, key, value in changes:
        if value is None:
            del found[kind][key]
        else:
            found[kind][key] = value
    return found


def test_what_is_right_is_not_touched() -> None:
    assert closing(held(), WANTED) == Closing()
    assert not closing(held(), WANTED)


def test_an_mtu_or_a_mac_address_closes_nothing_behind_it() -> None:
    egress = Egress(1, 0, bytes(6), 9000)
    assert not closing(held((Kind.EGRESS_INTERFACE, 1, egress)), WANTED)


VIRTUAL = RouterMac(1, bytes([0, 0, 0x5E, 0, 1, 5]))


def test_the_mac_addresses_of_an_interface_that_stays_are_left_to_the_kernel() -> None:
    assert not closing(held((Kind.ROUTER_MAC, VIRTUAL, ADMIT)), WANTED)


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        (Kind.L3_INTERFACE, Attachment(1, 0), L3Interface(1, 7)),
        (Kind.EGRESS_INTERFACE, 1, Egress(9, 0, MAC, 1500)),
    ],
)
def test_the_mac_addresses_of_another_interface_are_withdrawn(
    kind: Kind, key: Key, value: Value
) -> None:
    closed = closing(held((Kind.ROUTER_MAC, VIRTUAL, ADMIT), (kind, key, value)), WANTED)
    assert (Kind.ROUTER_MAC, VIRTUAL) in closed.withdrawn


def test_the_mac_addresses_of_a_moved_number_are_withdrawn() -> None:
    installed = held((Kind.ROUTER_MAC, VIRTUAL, ADMIT))
    closed = closing(installed, WANTED, Moved(interfaces={1}))
    assert (Kind.ROUTER_MAC, VIRTUAL) in closed.withdrawn


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        (Kind.INBOUND_BINDING, 1, NO_POLICY),
        (Kind.OUTBOUND_BINDING, 2, Binding(2)),
        (Kind.OUTBOUND_BINDING, 9, NO_POLICY),
        (Kind.INBOUND_SA, Spi(0, 8), Decrypt(7, 1, 2)),
        (Kind.INBOUND_SA, Spi(0, 9), UNKNOWN),
        (Kind.ROUTER_MAC, RouterMac(1, bytes(6)), UNKNOWN),
        (Kind.ROUTER_MAC, RouterMac(3, MAC), ADMIT),
        (Kind.L3_INTERFACE, Attachment(3, 0), L3Interface(2, 0)),
    ],
)
def test_what_differs_is_withdrawn_alone(kind: Kind, key: Key, value: Value) -> None:
    assert closing(held((kind, key, value)), WANTED) == Closing(((kind, key),), ())


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        (Kind.EGRESS_INTERFACE, 1, Egress(3, 0, MAC, 1500)),
        (Kind.EGRESS_INTERFACE, 1, Egress(1, 5, MAC, 1500)),
        (Kind.L3_INTERFACE, Attachment(1, 0), L3Interface(1, 1)),
        (Kind.L3_INTERFACE, Attachment(1, 0), L3Interface(3, 0)),
    ],
    ids=["port", "vlan", "vrf", "number"],
)
def test_next_hops_of_an_interface_that_is_another_are_retired(
    kind: Kind, key: Key, value: Value
) -> None:
    closed = closing(held((kind, key, value)), WANTED)
    assert (kind, key) in closed.withdrawn
    assert closed.retired == (5,)


def test_next_hops_of_an_interface_that_is_not_let_in_are_retired() -> None:
    """Nobody knows which VRF it was in."""
    closed = closing(held((Kind.L3_INTERFACE, Attachment(2, 0), None)), WANTED)
    assert closed == Closing((), (6,))


def test_a_retired_next_hop_is_not_retired_again() -> None:
    assert closing(held((Kind.NEXTHOP, 7, RETIRED)), WANTED) == Closing()


def test_moved_numbers_are_withdrawn_though_they_look_right() -> None:
    closed = closing(held(), WANTED, Moved(interfaces={1}, bundles={7}))
    assert set(closed.withdrawn) == {
        (Kind.L3_INTERFACE, Attachment(1, 0)),
        (Kind.ROUTER_MAC, RouterMac(1, MAC)),
        (Kind.EGRESS_INTERFACE, 1),
        (Kind.OUTBOUND_BINDING, 1),
        (Kind.INBOUND_BINDING, 1),
        (Kind.INBOUND_SA, Spi(0, 9)),
    }
    assert closed.retired == (5,)


def test_who_refers_to_another_goes_first() -> None:
    everything = closing(held(), {})
    kinds = [kind for kind, _ in everything.withdrawn]
    assert kinds == sorted(kinds, reverse=True)
    assert set(everything.retired) == {5, 6}
