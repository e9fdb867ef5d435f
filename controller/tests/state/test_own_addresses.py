# SPDX-License-Identifier: Apache-2.0
"""Tests the entities for the addresses of the host's interfaces: local prefixes, and sources that
received packets must not have."""

from __future__ import annotations

import pytest

from sluice.entities import (
    LOCAL,
    MARTIAN,
    EntityChanges,
    EntityKey,
    EntityKind,
    EntityValue,
    OwnAddress,
    RouteSlot,
)
from sluice.model import InterfaceAddress, Prefix, parse_address
from sluice.namespaces import base
from sluice.state.own_addresses import OwnAddresses, local_slots

ETH1, ETH2 = 11, 12
ADDRESS = InterfaceAddress.parse("10.0.1.1/24")


def local(vrf: int, *texts: str) -> dict[EntityKey, EntityValue | None]:
    return {RouteSlot(vrf, Prefix.parse(text)): LOCAL for text in texts}


def changes_of(
    changes: EntityChanges,
) -> tuple[dict[EntityKey, EntityValue | None], dict[EntityKey, EntityValue | None]]:
    return changes.of(EntityKind.LOCAL_PREFIX), changes.of(EntityKind.OWN_SOURCE)


@pytest.mark.parametrize(
    ("text", "prefixes"),
    [
        ("10.0.1.1/24", ["10.0.1.1/32", "10.0.1.255/32"]),
        ("10.0.1.1/30", ["10.0.1.1/32", "10.0.1.3/32"]),
        ("10.0.1.1/31", ["10.0.1.1/32"]),
        ("10.0.1.1/32", ["10.0.1.1/32"]),
        ("127.0.0.1/8", []),
        ("2001:db8::1/64", ["2001:db8::1/128"]),
        ("::1/128", []),
        ("fe80::1/64", []),
    ],
)
def test_local_prefixes_of_an_address(text: str, prefixes: list[str]) -> None:
    found = local_slots(3, InterfaceAddress.parse(text))
    assert found == [RouteSlot(3, Prefix.parse(prefix)) for prefix in prefixes]


def test_an_address_is_local_and_a_martian_while_an_interface_has_it() -> None:
    own, changes = OwnAddresses(), EntityChanges()
    own.add(ETH1, ADDRESS, changes)
    prefixes, sources = changes_of(changes)
    assert prefixes == local(0, "10.0.1.1/32", "10.0.1.255/32")
    assert sources[OwnAddress(0, parse_address("10.0.1.1"))] == MARTIAN
    changes = EntityChanges()
    own.remove(ETH1, ADDRESS, changes)
    prefixes, sources = changes_of(changes)
    assert set(prefixes.values()) == set(sources.values()) == {None}
    assert len(prefixes) == len(sources) == 2


def test_an_address_that_another_interface_has_stays_local() -> None:
    own, changes = OwnAddresses(), EntityChanges()
    own.add(ETH1, ADDRESS, changes)
    own.add(ETH2, ADDRESS, changes)
    changes = EntityChanges()
    own.forget(ETH1, changes)
    assert not changes
    own.remove(ETH2, ADDRESS, changes)
    assert set(changes.of(EntityKind.LOCAL_PREFIX).values()) == {None}


def test_an_address_added_twice_is_removed_once() -> None:
    own, changes = OwnAddresses(), EntityChanges()
    own.add(ETH1, ADDRESS, changes)
    own.add(ETH1, ADDRESS, changes)
    own.remove(ETH1, ADDRESS, changes)
    own.remove(ETH1, ADDRESS, changes)
    assert set(changes.of(EntityKind.LOCAL_PREFIX).values()) == {None}


def test_addresses_move_with_their_interface_to_another_vrf() -> None:
    own, changes = OwnAddresses(), EntityChanges()
    own.add(ETH1, ADDRESS, changes)
    changes = EntityChanges()
    own.set_vrf(ETH1, 3, changes)
    prefixes, _ = changes_of(changes)
    assert {key: value for key, value in prefixes.items() if value is not None} == local(
        3, "10.0.1.1/32", "10.0.1.255/32"
    )
    assert sum(value is None for value in prefixes.values()) == 2
    assert own.of_interface(ETH1).sorted() == [ADDRESS]


def test_addresses_of_an_interface_in_no_vrf_are_kept_but_not_valid() -> None:
    own, changes = OwnAddresses(), EntityChanges()
    own.set_vrf(ETH1, None, changes)
    own.add(ETH1, ADDRESS, changes)
    assert not changes
    assert own.of_interface(ETH1).sorted() == []
    own.set_vrf(ETH1, 0, changes)
    assert changes.of(EntityKind.LOCAL_PREFIX) == local(0, "10.0.1.1/32", "10.0.1.255/32")


def test_an_unknown_interface_is_in_the_vrf_of_its_namespace() -> None:
    own, changes = OwnAddresses(), EntityChanges()
    own.add(base(5) + ETH1, ADDRESS, changes)
    assert changes.of(EntityKind.LOCAL_PREFIX) == local(5, "10.0.1.1/32", "10.0.1.255/32")
