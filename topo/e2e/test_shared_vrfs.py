# SPDX-License-Identifier: Apache-2.0
"""Tests three VRFs with the same addresses and one common host stack: no packet may enter another
VRF.

In each VRF, the site 10.9.0.0/24 is behind host b. FRR has a route to the site in the VRF's table.
"""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial

import pytest

from sluice_testkit.namespaces import Lab
from sluice_testkit.wait import wait_until
from sluice_topo import probes

from .three_vrfs import (
    EACH_VRF,
    NETWORKS,
    SERVICE,
    VERSIONS,
    VRFS,
    ThreeVrfs,
    address,
    interface_of,
    router_address,
)

SITE = {4: "10.9.0.1", 6: "2001:db8:9::1"}
FRR = """
frr defaults traditional
hostname r
no zebra nexthop kernel enable
no fpm use-next-hop-groups
fpm address 127.0.0.1 port 2620
ip route 192.0.2.0/24 blackhole
"""


def site_routes() -> list[str]:
    """Returns the lines of FRR's configuration for routes to the sites.

    The routes need `onlink`, because zebra looks up gateways in the main table only.
    """
    lines = []
    for vrf, table in VRFS.items():
        where = "" if vrf == "default" else f" table {table}"
        leg = f"eth{interface_of(vrf, 'b')}{where} onlink"
        lines.append(f"ip route 10.9.0.0/24 {address('b')} {leg}")
        lines.append(f"ipv6 route 2001:db8:9::/64 {address('b', 6)} {leg}")
    return lines


class SharedVrfs(ThreeVrfs):
    """Holds the running network."""

    def __init__(self, lab: Lab, stack: ExitStack) -> None:
        super().__init__(lab, stack)
        for vrf, host in self.ends:
            self.start_host(vrf, host)
            if host == "b":
                self.ends[vrf, host].add_address("lo", *SITE.values())
        self.start_router(
            FRR,
            vrfs={vrf: {"isolation": "shared"} for vrf in VRFS},
            fpm={"quiet_seconds": 0.3},
        )
        # The kernel refuses an IPv6 route through an interface whose address is still tentative
        # (duplicate address detection).
        tentative = ("ip", "-6", "address", "show", "tentative")
        wait_until(lambda: not self.place.run(*tentative).stdout, 20, "duplicate detection's end")
        self.router.frr.configure(*site_routes())

    def host_counter(self, name: str) -> int:
        """Returns a counter in the controller's group `host`, which counts packets between switch
        and host.
        """
        counters = self.router.controller.ask(command="show", what="counters")
        return int(counters["controller"]["host"].get(name, 0))


@pytest.fixture(scope="module")
def vrfs(module_lab: Lab) -> Iterator[SharedVrfs]:
    with ExitStack() as stack:
        network = SharedVrfs(module_lab, stack)
        for vrf in VRFS:
            for version in NETWORKS:
                for to in (address("b", version), SITE[version]):
                    wait_until(partial(network.reaches, vrf, to), 30, f"{to} to answer in {vrf}")
        network.router.controller.wait_synced()
        yield network


@VERSIONS
@EACH_VRF
def test_the_switch_forwards_in_the_vrf_alone(vrfs: SharedVrfs, vrf: str, version: int) -> None:
    for to in (address("b", version), SITE[version]):
        mark = f"from {vrf} to {to}".encode()
        vrfs.send(vrf, to, SERVICE, mark)
        wait_until(lambda: (vrf, "b") in vrfs.links_with(mark), 10, f"{to} to get it")  # noqa: B023
        assert vrfs.links_with(mark) == {(vrf, "a"), (vrf, "b")}


@EACH_VRF
def test_routes_lead_by_the_vrfs_own_interfaces(vrfs: SharedVrfs, vrf: str) -> None:
    for prefix in ("10.9.0.0/24", "2001:db8:9::/64", "10.2.0.0/24", "2001:db8:2::/64"):
        (route,) = vrfs.routes(vrf, prefix)
        legs = [leg["interface"] for leg in route["nexthops"]]
        assert (legs, route["installed"]) == ([f"eth{interface_of(vrf, 'b')}"], True)


def test_an_address_of_one_vrf_is_reached_from_no_other(vrfs: SharedVrfs) -> None:
    """A connected prefix of red is reachable only in red, although zebra sends it for the main
    table.
    """
    red = f"eth{interface_of('red', 'b')}"
    vrfs.place.add_address(red, "10.7.0.1/24")
    end = vrfs.ends["red", "b"]
    end.add_address("eth0", "10.7.0.2/24")
    try:
        wait_until(lambda: vrfs.routes("red", "10.7.0.0/24"), 10, "red's route")
        frr_sees = partial(vrfs.router.frr.vtysh, "show ip route 10.7.0.0/24")
        wait_until(lambda: red in frr_sees(), 10, "zebra's connected route")
        vrfs.router.controller.wait_synced()
        assert not vrfs.routes("default", "10.7.0.0/24")
        for vrf in VRFS:
            mark = f"{vrf} asks for red".encode()
            vrfs.send(vrf, "10.7.0.2", SERVICE, mark)
            seen = {("red", "a"), ("red", "b")} if vrf == "red" else {(vrf, "a")}
            wait_until(lambda: vrfs.links_with(mark) == seen, 10, "the packet to reach its links")  # noqa: B023
        mark = b"red asks last"
        vrfs.send("red", "10.7.0.2", SERVICE, mark)
        wait_until(lambda: ("red", "b") in vrfs.links_with(mark), 10, "the last packet in red")
        for vrf in ("default", "blue"):
            assert vrfs.links_with(f"{vrf} asks for red".encode()) == {(vrf, "a")}
    finally:
        vrfs.place.run("ip", "address", "del", "10.7.0.1/24", "dev", red)


@VERSIONS
def test_the_host_stack_answers_in_no_other_vrf(vrfs: SharedVrfs, version: int) -> None:
    """The router answers no pings to an address that is local in three VRFs: its one host stack
    cannot tell in which VRF the packet arrived.

    So the answer is refused, and leaves in no VRF.
    """
    for vrf in VRFS:
        refused = vrfs.host_counter("from_host_source_of_several_vrfs")
        pattern = f"{VRFS[vrf]:04x}" + "5ec2" * 4
        options = ("-p", pattern)
        a = vrfs.ends[vrf, "a"]
        done = probes.ping(a, router_address("a", version), count=1, size=400, options=options)
        assert done.received == 0
        later = partial(vrfs.host_counter, "from_host_source_of_several_vrfs")
        wait_until(lambda: later() > refused, 10, "the answer to be refused")  # noqa: B023
        mark = bytes.fromhex(pattern)
        assert vrfs.links_with(mark) == {(vrf, "a")}


def test_a_server_of_the_host_is_asked_in_the_default_vrf_only(vrfs: SharedVrfs) -> None:
    counter = partial(vrfs.host_counter, "to_host_of_a_service_without_vrfs")
    with closing(vrfs.place.socket(socket.AF_INET, socket.SOCK_DGRAM)) as server:
        server.bind(("", SERVICE))
        server.settimeout(10)
        before = counter()
        for vrf in ("red", "blue"):
            vrfs.send(vrf, router_address("a"), SERVICE, f"{vrf}'s secret".encode())
        wait_until(lambda: counter() == before + 2, 10, "both packets to be kept from the server")
        vrfs.send("default", router_address("a"), SERVICE, b"a question")
        assert server.recvfrom(100)[0] == b"a question"
