# SPDX-License-Identifier: Apache-2.0
"""Tests VRRP's macvlan devices.

While such a device is up, the interface below it also has the device's MAC and IP addresses.
"""

from __future__ import annotations

import pytest

from scenes import SPECS, Desired, address, device, ifindex, link, mac, neighbor, route, slot
from sluice.entities import ADMIT, LOCAL, MARTIAN, EntityKind, OwnAddress, RouterMac
from sluice.model import (
    AddressAdded,
    AddressRemoved,
    InterfaceAddress,
    LinkChanged,
    LinkRemoved,
    NexthopKind,
    NexthopSpec,
    parse_address,
)

VMAC4 = bytes([0, 0, 0x5E, 0, 1, 5])
VMAC6 = bytes([0, 0, 0x5E, 0, 2, 5])
VRRP4, VRRP6 = 51, 52
VIRTUAL4, VIRTUAL6 = "10.0.1.254", "2001:db8:1::fe"
REST = {"held_down": True}, {"carrier": False}, {"up": False}


def macvlan(
    index: int = VRRP4,
    vmac: bytes = VMAC4,
    *,
    on: int | None = ifindex(1),
    up: bool = True,
    carrier: bool = True,
    held_down: bool = False,
) -> LinkChanged:
    return LinkChanged(index, f"vrrp-{index}", up, carrier, 1500, vmac, on, held_down)


def add_addresses(index: int, text: str) -> AddressAdded:
    return AddressAdded(index, InterfaceAddress.parse(text))


def macs(wanted: Desired, l3_if: int = 1) -> set[bytes]:
    found = set()
    for kind, entry in wanted.entities:
        if kind is EntityKind.ROUTER_MAC:
            assert isinstance(entry, RouterMac)
            found |= {entry.mac} if entry.l3_if == l3_if else set()
    return found


def is_own(wanted: Desired, text: str) -> bool:
    """Returns whether the switch treats an address as this router's own.

    For an own address, the switch delivers packets to the host, and drops received packets with
    this source.
    """
    length = 128 if ":" in text else 32
    local = wanted.entities.get((EntityKind.LOCAL_PREFIX, slot(f"{text}/{length}")))
    martian = wanted.entities.get((EntityKind.OWN_SOURCE, OwnAddress(0, parse_address(text))))
    assert (local is None) == (martian is None)
    assert local in (None, LOCAL)
    assert martian in (None, MARTIAN)
    return local is LOCAL and parse_address(text) in wanted.fib.interfaces.local_addresses(0)


@pytest.fixture
def wanted() -> Desired:
    desired = Desired()
    for n in (1, 2):
        desired.apply(link(n), address(n, f"10.0.{n}.1/24"), address(n, f"2001:db8:{n}::1/64"))
    return desired


@pytest.fixture
def master(wanted: Desired) -> Desired:
    wanted.apply(macvlan(), add_addresses(VRRP4, f"{VIRTUAL4}/24"))
    wanted.apply(
        macvlan(VRRP6, VMAC6),
        add_addresses(VRRP6, f"{VIRTUAL6}/64"),
        add_addresses(VRRP6, "fe80::5/64"),
    )
    return wanted


def test_a_master_answers_to_the_virtual_addresses_of_both_versions(master: Desired) -> None:
    assert macs(master) == {SPECS[0].mac, VMAC4, VMAC6}
    assert macs(master, 2) == {SPECS[1].mac}
    assert master.entities[EntityKind.ROUTER_MAC, RouterMac(1, VMAC4)] is ADMIT
    assert is_own(master, VIRTUAL4)
    assert is_own(master, VIRTUAL6)


def test_the_versions_are_masters_of_their_own(master: Desired) -> None:
    master.apply(macvlan(VRRP6, VMAC6, held_down=True))
    assert macs(master) == {SPECS[0].mac, VMAC4}
    assert is_own(master, VIRTUAL4)
    assert not is_own(master, VIRTUAL6)


@pytest.mark.parametrize("state", REST)
def test_a_backup_has_neither_mac_nor_addresses(master: Desired, state: dict[str, bool]) -> None:
    master.apply(macvlan(**state))  # type: ignore[arg-type]
    assert macs(master) == {SPECS[0].mac, VMAC6}
    assert not is_own(master, VIRTUAL4)
    assert is_own(master, "10.0.1.1")
    master.apply(macvlan())
    assert VMAC4 in macs(master)
    assert is_own(master, VIRTUAL4)


@pytest.mark.parametrize("state", REST)
def test_an_address_given_to_a_backup_waits_for_it(wanted: Desired, state: dict[str, bool]) -> None:
    wanted.apply(macvlan(**state), add_addresses(VRRP4, f"{VIRTUAL4}/24"))  # type: ignore[arg-type]
    assert not is_own(wanted, VIRTUAL4)
    wanted.apply(macvlan())
    assert is_own(wanted, VIRTUAL4)


def test_a_backups_master_is_a_neighbour_like_others(master: Desired) -> None:
    master.apply(macvlan(held_down=True), neighbor(1, VIRTUAL4, 7))
    assert master.nexthop(f"{VIRTUAL4}/32").mac == mac(7)


def test_all_may_come_before_the_tap(wanted: Desired) -> None:
    wanted.apply(macvlan(on=ifindex(3)), add_addresses(VRRP4, "10.0.3.254/24"))
    assert is_own(wanted, "10.0.3.254")  # any interface's address is an own address
    assert macs(wanted, 3) == {SPECS[2].mac}
    wanted.apply(link(3))
    assert macs(wanted, 3) == {SPECS[2].mac, VMAC4}
    assert wanted.nexthop("10.0.3.0/24").l3_if == 3


def test_an_interface_that_is_down_answers_to_no_mac(master: Desired) -> None:
    master.apply(link(1, up=False))
    assert macs(master) == set()
    master.apply(link(1))
    assert macs(master) == {SPECS[0].mac, VMAC4, VMAC6}


def test_a_virtual_router_that_gets_another_mac(master: Desired) -> None:
    another = bytes([0, 0, 0x5E, 0, 1, 6])
    master.apply(macvlan(VRRP4, another))
    assert macs(master) == {SPECS[0].mac, another, VMAC6}


def test_two_devices_may_have_one_mac(master: Desired) -> None:
    master.apply(macvlan(53, VMAC4))
    master.apply(LinkRemoved(53))
    assert macs(master) == {SPECS[0].mac, VMAC4, VMAC6}


def test_a_device_that_is_removed_takes_all_with_it(master: Desired) -> None:
    master.apply(LinkRemoved(VRRP4))
    assert macs(master) == {SPECS[0].mac, VMAC6}
    assert not is_own(master, VIRTUAL4)
    assert is_own(master, VIRTUAL6)


def test_an_address_that_is_taken_from_the_device(master: Desired) -> None:
    master.apply(AddressRemoved(VRRP4, InterfaceAddress.parse(f"{VIRTUAL4}/24")))
    assert not is_own(master, VIRTUAL4)
    assert VMAC4 in macs(master)


def test_a_device_that_moves_to_another_interface(master: Desired) -> None:
    master.apply(macvlan(on=ifindex(2)))
    assert macs(master) == {SPECS[0].mac, VMAC6}
    assert macs(master, 2) == {SPECS[1].mac, VMAC4}


def test_a_tap_made_anew_has_no_virtual_router(master: Desired) -> None:
    master.apply(LinkRemoved(VRRP4), LinkRemoved(VRRP6), LinkRemoved(ifindex(1)))
    assert macs(master) == set()
    master.apply(link(1))
    assert macs(master) == {SPECS[0].mac}
    assert not is_own(master, VIRTUAL4)


def test_a_device_on_no_tap_is_the_hosts_own_affair(wanted: Desired) -> None:
    wanted.apply(macvlan(on=99, held_down=True), add_addresses(VRRP4, "192.0.2.1/24"))
    assert macs(wanted) == {SPECS[0].mac}
    # The host accepts packets for an address of any interface, up or down (weak host model).
    assert is_own(wanted, "192.0.2.1")
    assert wanted.target("192.0.2.0/24") is None


def test_prefix_of_a_virtual_address_is_connected_while_it_works(wanted: Desired) -> None:
    wanted.apply(macvlan(), add_addresses(VRRP4, "10.0.77.254/24"))
    assert wanted.nexthop("10.0.77.0/24").l3_if == 1
    wanted.apply(macvlan(held_down=True))
    assert wanted.target("10.0.77.0/24") is None


def test_a_route_out_by_the_device_leads_out_by_the_interface(wanted: Desired) -> None:
    spec = NexthopSpec(parse_address("10.0.1.9"), VRRP4)
    wanted.apply(route("20.0.0.0/8", spec), neighbor(1, "10.0.1.9", 4))
    assert (EntityKind.ROUTE, slot("20.0.0.0/8")) in wanted.entities
    wanted.apply(macvlan())
    assert wanted.nexthop("20.0.0.0/8").mac == mac(4)
    on_link = NexthopSpec(None, VRRP4, 1, NexthopKind.CONNECTED)
    wanted.apply(route("10.0.1.0/24", on_link))
    assert wanted.nexthop("10.0.1.0/24").l3_if == 1


def test_neighbours_are_the_taps_alone(master: Desired) -> None:
    """Checks that only the TAP's neighbours count, and those of a macvlan device on it are ignored.

    The kernel may have different entries for the same neighbour on the two devices.
    """
    master.apply(neighbor(1, "10.0.1.9", 4))
    assert master.fib.interfaces.l3_if_of(VRRP4) is None
    assert master.fib.interfaces.egress_l3_if(VRRP4) == 1
    assert master.nexthop("10.0.1.9/32").mac == mac(4)


def test_errors_come_from_the_interfaces_own_address_first(master: Desired) -> None:
    assert master.fib.interfaces.icmp_source(1, 0, 4) == parse_address("10.0.1.1")
    assert master.fib.interfaces.icmp_source(1, 0, 16) == parse_address("2001:db8:1::1")


def test_a_port_without_carrier(master: Desired) -> None:
    """Checks that a port without carrier has no virtual router: neither its MAC nor its address is
    the router's own.
    """
    master.apply(device(1, False), macvlan(carrier=False))
    assert VMAC4 not in macs(master)
    assert not is_own(master, VIRTUAL4)
