# SPDX-License-Identifier: Apache-2.0
"""Tests that a route affects only its own VRF, and that the kernel's main table affects the default
VRF only.
"""

from __future__ import annotations

from dataclasses import replace

from scenes import (
    SPECS,
    Desired,
    address,
    connected,
    gateway,
    ifindex,
    link,
    neighbor,
    no_route,
    route,
)
from sluice.entities import EntityKind, Nexthop, RouteSlot, RouteTarget, RouteTargetKind
from sluice.model import (
    MAIN_TABLE,
    AddressAdded,
    FpmSessionClosed,
    FpmSessionOpened,
    InterfaceAddress,
    KernelEvent,
    LinkChanged,
    LinkRemoved,
    NexthopObjectUpdated,
    NexthopSpec,
    Prefix,
    RouteKey,
    RouteUpdated,
    parse_address,
)
from sluice.namespaces import base, from_namespace
from sluice.state.fib import Fib
from sluice.state.stale_sweep import StaleSweep

RED, BLUE = 1, 2
TABLES = {MAIN_TABLE: 0, 100: RED, 200: BLUE}
SHARED = "10.0.1.0/24"
"""Prefix of three links: of eth1 (default), eth2 (red) and eth3 (blue)."""


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
        """Returns the layer-3 interface of a route's next hop. For other targets, returns the type
        of the target.

        Returns None if there is no route.
        """
        target = self.entities.get((EntityKind.ROUTE, RouteSlot(vrf, Prefix.parse(prefix))))
        if target is None:
            return None
        assert isinstance(target, RouteTarget)
        if target.kind is not RouteTargetKind.NEXTHOP:
            return target.kind.name
        nexthop = self.entities[EntityKind.NEXTHOP, target.id]
        assert isinstance(nexthop, Nexthop)
        return nexthop.l3_if

    def everywhere(self, prefix: str) -> list[int | str | None]:
        return [self.leads_to(vrf, prefix) for vrf in (0, RED, BLUE)]


def vrf_device(table: int) -> LinkChanged:
    return LinkChanged(50, "vrf", True, True, 65575, bytes(6), vrf_table=table)


def held(ifindex: int, own: str) -> AddressAdded:
    return AddressAdded(ifindex, InterfaceAddress.parse(own))


def local_in(wanted: Vrfs, text: str) -> list[int]:
    """Returns the VRFs in which an address is this router's own."""
    prefix = Prefix.parse(text)
    slots = ((EntityKind.LOCAL_PREFIX, RouteSlot(vrf, prefix)) for vrf in (0, RED, BLUE))
    return [vrf for vrf, slot in enumerate(slots) if slot in wanted.entities]


def of_table(table: int, event: RouteUpdated) -> RouteUpdated:
    return RouteUpdated(event.route._replace(key=event.route.key._replace(table=table)))


def test_the_kernels_vrf_device_says_where_other_interfaces_addresses_count() -> None:
    """Checks that an address belongs to the VRF whose device is the interface's master.

    Interface 60 is a dummy, used as a loopback of the VRF.
    """
    wanted = Vrfs()
    dummy = LinkChanged(60, "dummy", True, True, 1500, bytes(6), master=50)
    wanted.apply(dummy, held(60, "192.0.2.6/32"))
    # The controller has not seen the master yet, which may be a bridge instead of a VRF device.
    assert local_in(wanted, "192.0.2.6/32") == [0]
    wanted.apply(vrf_device(100), held(50, "192.0.2.5/32"))
    for own in ("192.0.2.5/32", "192.0.2.6/32"):
        assert local_in(wanted, own) == [RED]
    assert sorted(wanted.fib.interfaces.local_addresses(RED)) == sorted(
        parse_address(own) for own in ("10.0.1.2", "192.0.2.5", "192.0.2.6")
    )
    wanted.apply(vrf_device(300))  # the table of a VRF that is not configured
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
    for n in (2, 3):  # zebra announces a VRF's connected route as a route of the main table
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


class TestNamespaces:
    """Tests a VRF with its own network namespace (red).

    The namespace has its own numbers of interfaces and next-hop objects.
    """

    @staticmethod
    def vrfs() -> Vrfs:
        vrfs = Vrfs()
        specs = [replace(spec, vrf=vrf) for vrf, spec in enumerate(SPECS)]
        specs[RED] = replace(specs[RED], namespace=RED)
        vrfs.fib = Fib(specs, TABLES, namespaces={100: RED})
        vrfs.entities.clear()
        vrfs.take(vrfs.fib.start())
        vrfs.apply(link(1), red(link(2)))
        return vrfs

    def test_an_index_is_another_interface_in_each(self) -> None:
        vrfs = self.vrfs()
        vrfs.apply(red(LinkChanged(ifindex(1), "lo", True, True, 65536, bytes(6))))
        vrfs.apply(address(1, "10.0.1.1/24"), red(address(2, "10.0.1.2/24")))
        assert vrfs.everywhere(SHARED) == [1, 2, None]
        vrfs.apply(LinkRemoved(ifindex(2)))
        assert vrfs.everywhere(SHARED) == [1, 2, None]
        vrfs.apply(red(LinkRemoved(ifindex(2))))
        assert vrfs.everywhere(SHARED) == [1, None, None]

    def test_an_interface_of_the_same_name_elsewhere_is_another(self) -> None:
        vrfs = self.vrfs()
        vrfs.apply(link(2), address(2, "10.0.9.1/24"))  # left by an earlier configuration
        assert vrfs.everywhere("10.0.9.0/24") == [None, None, None]

    def test_addresses_of_loopback_are_the_vrfs(self) -> None:
        vrfs = self.vrfs()
        own = InterfaceAddress.parse("192.0.2.1/32")
        vrfs.apply(red(AddressAdded(1, own)))
        vrfs.apply(red(LinkChanged(ifindex(1), "lo", True, True, 65536, bytes(6))))
        assert vrfs.fib.interfaces.local_addresses(RED) == [own.address]
        assert vrfs.fib.interfaces.local_addresses(0) == []
        assert local_in(vrfs, "192.0.2.1/32") == [RED]

    def test_a_vrf_device_in_a_namespace_is_no_vrf_of_ours(self) -> None:
        vrfs = self.vrfs()
        own = InterfaceAddress.parse("192.0.2.1/32")
        vrfs.apply(red(vrf_device(200)), red(AddressAdded(50, own)))
        assert [vrfs.fib.interfaces.local_addresses(vrf) for vrf in (0, RED, BLUE)] == [[], [], []]

    def test_each_daemon_has_sessions_and_objects_of_its_own(self) -> None:
        vrfs = self.vrfs()
        gateway_of = {0: gateway("10.0.1.9", 1), RED: gateway("10.0.1.9", base(RED) + 2)}
        prefix = "20.0.0.0/8"
        vrfs.apply(FpmSessionOpened("home"), FpmSessionOpened("red's", RED))
        vrfs.apply(neighbor(1, "10.0.1.9", 9), red(neighbor(2, "10.0.1.9", 9)))
        vrfs.apply(NexthopObjectUpdated(7, gateway_of[0]), route(prefix, obj=7))
        of_red = route(prefix, obj=7).route
        key = RouteKey(100, of_red.key.prefix)
        vrfs.apply(
            NexthopObjectUpdated(7, gateway_of[RED], namespace=RED),
            RouteUpdated(of_red._replace(key=key)),
        )
        assert vrfs.everywhere(prefix) == [1, 2, None]
        vrfs.apply(FpmSessionOpened("red's again", RED))
        assert (vrfs.fib.ribs[0].stale, vrfs.fib.ribs[RED].stale) == (0, 1)
        assert not vrfs.fib.rib.is_stale(RouteKey(MAIN_TABLE, key.prefix))
        sweep = StaleSweep(vrfs.fib, {}, RED)
        while (gone := sweep.next()) is not None:
            vrfs.apply(gone)
        assert vrfs.everywhere(prefix) == [1, None, None]
        vrfs.apply(FpmSessionClosed("gone", RED))
        assert vrfs.fib.sessions == {0: "home"}

    def test_a_route_by_another_namespaces_interface_is_ignored(self) -> None:
        vrfs = self.vrfs()
        vrfs.apply(neighbor(1, "10.0.1.9", 9))
        of_red = route("20.0.0.0/8", gateway("10.0.1.9", 1)).route
        vrfs.apply(RouteUpdated(of_red._replace(key=RouteKey(100, of_red.key.prefix))))
        assert vrfs.everywhere("20.0.0.0/8") == [None, None, None]


def red(event: KernelEvent) -> KernelEvent:
    return from_namespace(event, RED)
