# SPDX-License-Identifier: Apache-2.0
"""Routes stay in their VRF, whatever the kernel's main table knows of its interfaces."""

from __future__ import annotations

from dataclasses import replace

from scenes import SPECS, Desired, address, connected, gateway, link, neighbor, no_route, route
from sluice.entities import Kind, Nexthop, RouteSlot, Target, TargetKind
from sluice.model import (
    MAIN_TABLE,
    AddressAdded,
    InterfaceAddress,
    LinkChanged,
    LinkRemoved,
    NexthopObjectUpdated,
    NexthopSpec,
    Prefix,
    RouteUpdated,
    parse_address,
)
from sluice.state.fib import Fib

RED, BLUE = 1, 2
TABLES = {MAIN_TABLE: 0, 100: RED, 200: BLUE}
SHARED = "10.0.1.0/24"
"""eth1 (default), eth2 (red) and eth3 (blue) are each on a link with these addresses."""


class Vrfs(Desired):
    def __init__(self, next_hop_vrfs: dict[int, frozenset[int]] | None = None) -> None:
        super().__init__()
        specs = [replace(spec, vrf=vrf) for vrf, spec in enumerate(SPECS)]
        self.fib = Fib(specs, TABLES, next_hop_vrfs)
        self.entities.clear()
        self.take(self.fib.start())
        for n in (1, 2, 3):
            self.apply(link(n), address(n, f"10.0.1.{n}/24"))

    def leads_to(self, vrf: int, prefix: str) -> int | str | None:
        """The layer-3 interface of a route, else what becomes of its packets, if there is one."""
        target = self.entities.get((Kind.ROUTE, RouteSlot(vrf, Prefix.parse(prefix))))
        if target is None:
            return None
        assert isinstance(target, Target)
        if target.kind is not TargetKind.NEXTHOP:
            return target.kind.name
        nexthop = self.entities[Kind.NEXTHOP, target.id]
        assert isinstance(nexthop, Nexthop)
        return nexthop.l3_if

    def everywhere(self, prefix: str) -> list[int | str | None]:
        return [self.leads_to(vrf, prefix) for vrf in (0, RED, BLUE)]


def vrf_device(table: int) -> LinkChanged:
    return LinkChanged(50, "vrf", True, True, 65575, bytes(6), vrf_table=table)


def held(ifindex: int, own: str) -> AddressAdded:
    return AddressAdded(ifindex, InterfaceAddress.parse(own))


def local_in(wanted: Vrfs, text: str) -> list[int]:
    """The VRFs in which an address is this router's own."""
    prefix = Prefix.parse(text)
    slots = ((Kind.LOCAL_PREFIX, RouteSlot(vrf, prefix)) for vrf in (0, RED, BLUE))
    return [vrf for vrf, slot in enumerate(slots) if slot in wanted.entities]


def of_table(table: int, event: RouteUpdated) -> RouteUpdated:
    return RouteUpdated(event.route._replace(key=event.route.key._replace(table=table)))


def test_the_kernels_vrf_device_says_where_other_interfaces_addresses_count() -> None:
    """60 is a dummy interface, a loopback of the VRF."""
    wanted = Vrfs()
    dummy = LinkChanged(60, "dummy", True, True, 1500, bytes(6), master=50)
    wanted.apply(dummy, held(60, "192.0.2.6/32"))
    assert local_in(wanted, "192.0.2.6/32") == [0]  # its master may be a bridge
    wanted.apply(vrf_device(100), held(50, "192.0.2.5/32"))
    for own in ("192.0.2.5/32", "192.0.2.6/32"):
        assert local_in(wanted, own) == [RED]
    assert sorted(wanted.fib.interfaces.local_addresses(RED)) == sorted(
        parse_address(own) for own in ("10.0.1.2", "192.0.2.5", "192.0.2.6")
    )
    wanted.apply(vrf_device(300))  # a VRF that is not configured
    assert local_in(wanted, "192.0.2.5/32") == local_in(wanted, "192.0.2.6/32") == []
    wanted.apply(vrf_device(200), replace(dummy, master=None))
    assert local_in(wanted, "192.0.2.5/32") == [BLUE]
    assert local_in(wanted, "192.0.2.6/32") == [0]
    wanted.apply(dummy, LinkRemoved(50))
    assert local_in(wanted, "192.0.2.5/32") == []
    assert local_in(wanted, "192.0.2.6/32") == [0]


def test_the_address_of_an_interface_of_ours_counts_in_its_configured_vrf() -> None:
    wanted = Vrfs()
    wanted.apply(vrf_device(200), replace(link(1), master=50))
    assert local_in(wanted, "10.0.1.1/32") == [0]


def test_each_vrf_has_its_own_connected_prefix() -> None:
    wanted = Vrfs()
    assert wanted.everywhere(SHARED) == [1, 2, 3]
    for n in (2, 3):  # zebra takes one of them for the main table's
        wanted.apply(route(SHARED, connected(n)))
        assert wanted.everywhere(SHARED) == [1, 2, 3]
    assert sum(wanted.fib.problems.values()) == 2
    wanted.apply(no_route(SHARED))
    assert wanted.everywhere(SHARED) == [1, 2, 3]


def test_a_connected_prefix_of_a_vrf_is_none_of_the_default_one() -> None:
    wanted = Vrfs()
    wanted.apply(address(2, "10.7.0.1/24"), route("10.7.0.0/24", connected(2)))
    assert wanted.everywhere("10.7.0.0/24") == [None, 2, None]


def test_neighbours_of_a_vrf_are_none_of_another() -> None:
    wanted = Vrfs()
    wanted.apply(route(SHARED, connected(2)))
    for n in (1, 2, 3):
        wanted.apply(neighbor(n, "10.0.1.9", n))
    assert wanted.everywhere("10.0.1.9/32") == [1, 2, 3]


def test_a_route_by_another_vrfs_interface_is_no_route() -> None:
    wanted = Vrfs()
    wanted.apply(route("10.9.0.0/16", gateway("10.0.1.9", 1)))
    leaking = route("10.9.0.0/24", gateway("10.0.1.9", 2))
    wanted.apply(leaking, of_table(200, leaking), of_table(100, leaking))
    assert wanted.everywhere("10.9.0.0/24") == [None, 2, None]
    assert wanted.leads_to(0, "10.9.0.0/16") == 1
    mixed = route("10.9.0.0/24", gateway("10.0.1.9", 1), gateway("10.0.1.9", 2))
    wanted.apply(mixed)
    assert wanted.leads_to(0, "10.9.0.0/24") is None
    wanted.apply(route("10.9.0.0/24", gateway("10.0.1.9", 1)))
    assert wanted.leads_to(0, "10.9.0.0/24") == 1
    wanted.apply(leaking)
    assert wanted.leads_to(0, "10.9.0.0/24") is None


def test_a_next_hop_object_is_for_the_vrf_of_its_interface() -> None:
    wanted = Vrfs()
    spec: NexthopSpec = gateway("10.0.1.9", 2)
    wanted.apply(NexthopObjectUpdated(7, spec, ()))
    by_object = route("10.9.0.0/24", obj=7)
    wanted.apply(by_object, of_table(100, by_object))
    assert wanted.everywhere("10.9.0.0/24") == [None, 2, None]
    wanted.apply(NexthopObjectUpdated(7, gateway("10.0.1.9", 1), ()))
    assert wanted.everywhere("10.9.0.0/24") == [1, None, None]


def test_the_interface_may_be_told_after_the_route() -> None:
    wanted = Vrfs()
    specs = [replace(spec, vrf=vrf) for vrf, spec in enumerate(SPECS)]
    wanted.fib = Fib(specs, TABLES)
    wanted.entities.clear()
    wanted.apply(route("10.9.0.0/24", gateway("10.0.1.9", 2)))
    assert wanted.leads_to(0, "10.9.0.0/24") == "UNREACHABLE"
    wanted.apply(link(2))
    assert wanted.leads_to(0, "10.9.0.0/24") is None


def test_where_the_configuration_says_so_routes_lead_into_another_vrf() -> None:
    wanted = Vrfs({0: frozenset({RED})})
    leaking = route("10.9.0.0/24", gateway("10.0.1.9", 2))
    wanted.apply(leaking, of_table(200, leaking))
    assert wanted.everywhere("10.9.0.0/24") == [2, None, None]
    back = of_table(100, route("10.8.0.0/24", gateway("10.0.1.9", 1)))
    wanted.apply(back)
    assert wanted.leads_to(RED, "10.8.0.0/24") is None
