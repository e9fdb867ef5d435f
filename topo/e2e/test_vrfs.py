# SPDX-License-Identifier: Apache-2.0
"""Three VRFs with the same addresses and one host stack: no link sees what belongs to another VRF.

Runs where the kernel has no VRF devices; test_vrf_devices is for the others.

In each VRF the hosts a (10.1.0.2) and b (10.2.0.2) are on links of their own, and b owns the site
10.9.0.0/24, to which FRR has a route in each VRF's table. Captures stand on all six links.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sluice_testkit.capture import Capture
from sluice_testkit.namespaces import Lab, veth
from sluice_testkit.packet import Frame
from sluice_testkit.wait import wait_until
from sluice_topo import probes
from sluice_topo.description import Host, Kind, Router
from sluice_topo.routers import HostNode, P4Router

from .kernel import has_vrf_devices

VRFS = {"default": 254, "red": 100, "blue": 200}
NETWORKS = {4: "10.{}.0.{}/24", 6: "2001:db8:{}::{}/64"}
SITE = {4: "10.9.0.1", 6: "2001:db8:9::1"}
VERSIONS = pytest.mark.parametrize("version", [4, 6])
EACH_VRF = pytest.mark.parametrize("vrf", VRFS)
SERVICE = 7000


def interface_of(vrf: str, host: str) -> int:
    """The number of the port, the TAP and the link: 1 and 2 are the default VRF's."""
    return 1 + 2 * list(VRFS).index(vrf) + "ab".index(host)


def address(host: str, version: int = 4) -> str:
    return NETWORKS[version].format("ab".index(host) + 1, 2).partition("/")[0]


def router_address(host: str, version: int = 4) -> str:
    return NETWORKS[version].format("ab".index(host) + 1, 1).partition("/")[0]


FRR = """
frr defaults traditional
hostname r
no zebra nexthop kernel enable
no fpm use-next-hop-groups
fpm address 127.0.0.1 port 2620
ip route 192.0.2.0/24 blackhole
"""


def site_routes() -> list[str]:
    """FRR's lines; onlink, since zebra looks for the gateways in the main table."""
    lines = []
    for vrf, table in VRFS.items():
        where = "" if vrf == "default" else f" table {table}"
        leg = f"eth{interface_of(vrf, 'b')}{where} onlink"
        lines.append(f"ip route 10.9.0.0/24 {address('b')} {leg}")
        lines.append(f"ipv6 route 2001:db8:9::/64 {address('b', 6)} {leg}")
    return lines


class Vrfs:
    """The network, running, with what was seen on its links."""

    def __init__(self, lab: Lab, stack: ExitStack) -> None:
        self.place = lab.namespace("r")
        if has_vrf_devices(self.place):
            pytest.skip(f"kernel {os.uname().release} has VRF devices: see test_vrf_devices")
        self.hosts: dict[tuple[str, str], HostNode] = {}
        self.seen: dict[tuple[str, str], Capture] = {}
        interfaces: list[dict[str, Any]] = []
        for vrf in VRFS:
            for host in "ab":
                number = interface_of(vrf, host)
                end = lab.namespace(f"{vrf}-{host}")
                veth(end, "eth0", self.place, f"port{number}")
                addresses = tuple(one.format("ab".index(host) + 1, 2) for one in NETWORKS.values())
                gateways = tuple(router_address(host, version) for version in NETWORKS)
                self.hosts[vrf, host] = HostNode(Host(f"{vrf}-{host}", addresses, gateways), end)
                self.seen[vrf, host] = stack.enter_context(Capture(end, "eth0"))
                interfaces.append(
                    {
                        "name": f"eth{number}",
                        "port": number,
                        "device": f"port{number}",
                        "mac": f"02:00:00:00:01:{number:02x}",
                        "addresses": [
                            f"{router_address(host, 4)}/24",
                            f"{router_address(host, 6)}/64",
                        ],
                        "vrf": vrf,
                    }
                )
        self.router = P4Router(
            Router("r", Kind.P4, Path()),
            self.place,
            lab.directory,
            lab.supervisor,
            target=os.environ.get("TARGET"),
            config={
                "router": "r",
                "switch": {"device_id": 1},
                "fpm": {"quiet_seconds": 0.3},
                "vrfs": {vrf: {"table": table} for vrf, table in VRFS.items() if vrf != "default"},
                "interfaces": interfaces,
            },
            frr_config=FRR,
        )
        for (_, host), node in self.hosts.items():
            node.start()
            if host == "b":
                node.namespace.add_address("lo", *SITE.values())
        self.router.start()
        # Of an interface whose address is tentative the kernel takes no IPv6 route.
        tentative = ("ip", "-6", "address", "show", "tentative")
        wait_until(lambda: not self.place.run(*tentative).stdout, 20, "duplicate detection's end")
        self.router.frr.configure(*site_routes())

    def routes(self, vrf: str, prefix: str) -> list[dict[str, Any]]:
        """The routes to a prefix in a VRF."""
        number = list(VRFS).index(vrf)
        routes = self.router.controller.ask(command="show", what="routes", prefix=prefix)
        return [route for route in routes if route["vrf"] == number]

    def host_counter(self, name: str) -> int:
        """What the controller counted of packets between switch and host."""
        counters = self.router.controller.ask(command="show", what="counters")
        return int(counters["controller"]["host"].get(name, 0))

    def send(self, vrf: str, to: str, port: int, data: bytes) -> None:
        """A datagram of host a's."""
        family = socket.AF_INET6 if ":" in to else socket.AF_INET
        with closing(self.hosts[vrf, "a"].namespace.socket(family, socket.SOCK_DGRAM)) as sender:
            sender.sendto(data, (to, port))

    def links_with(self, mark: bytes) -> set[tuple[str, str]]:
        """The links that have seen a packet with these bytes, in either direction."""
        has_mark = partial(_has, mark)
        return {link for link, capture in self.seen.items() if capture.count(has_mark)}


def _has(mark: bytes, frame: Frame) -> bool:
    return mark in frame.data


@pytest.fixture(scope="module")
def vrfs(module_lab: Lab) -> Iterator[Vrfs]:
    with ExitStack() as stack:
        network = Vrfs(module_lab, stack)
        for vrf in VRFS:
            a = network.hosts[vrf, "a"].namespace
            for version in NETWORKS:
                for to in (address("b", version), SITE[version]):
                    answered = lambda a=a, to=to: probes.ping(a, to, count=1).received == 1  # noqa: E731
                    wait_until(answered, 30, f"{to} to answer in {vrf}")
        network.router.controller.wait_synced()
        yield network


@VERSIONS
@EACH_VRF
def test_the_switch_forwards_in_the_vrf_alone(vrfs: Vrfs, vrf: str, version: int) -> None:
    for to in (address("b", version), SITE[version]):
        mark = f"from {vrf} to {to}".encode()
        vrfs.send(vrf, to, SERVICE, mark)
        wait_until(lambda: (vrf, "b") in vrfs.links_with(mark), 10, f"{to} to get it")  # noqa: B023
        assert vrfs.links_with(mark) == {(vrf, "a"), (vrf, "b")}


@EACH_VRF
def test_routes_lead_by_the_vrfs_own_interfaces(vrfs: Vrfs, vrf: str) -> None:
    for prefix in ("10.9.0.0/24", "2001:db8:9::/64", "10.2.0.0/24", "2001:db8:2::/64"):
        (route,) = vrfs.routes(vrf, prefix)
        legs = [leg["interface"] for leg in route["nexthops"]]
        assert (legs, route["installed"]) == ([f"eth{interface_of(vrf, 'b')}"], True)


def test_an_address_of_one_vrf_is_reached_from_no_other(vrfs: Vrfs) -> None:
    """The main table has the connected prefix of red's interface, and zebra sends it."""
    red = f"eth{interface_of('red', 'b')}"
    vrfs.place.add_address(red, "10.7.0.1/24")
    end = vrfs.hosts["red", "b"].namespace
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
            wait_until(lambda: vrfs.links_with(mark) == seen, 10, "it to get there")  # noqa: B023
        mark = b"red asks last"
        vrfs.send("red", "10.7.0.2", SERVICE, mark)
        wait_until(lambda: ("red", "b") in vrfs.links_with(mark), 10, "the last one")
        for vrf in ("default", "blue"):
            assert vrfs.links_with(f"{vrf} asks for red".encode()) == {(vrf, "a")}
    finally:
        vrfs.place.run("ip", "address", "del", "10.7.0.1/24", "dev", red)


@VERSIONS
def test_the_host_stack_answers_in_no_other_vrf(vrfs: Vrfs, version: int) -> None:
    """It has the asked address in three VRFs, and cannot know in which it was asked."""
    for vrf in VRFS:
        refused = vrfs.host_counter("from_host_source_of_several_vrfs")
        pattern = f"{VRFS[vrf]:04x}" + "5ec2" * 4
        options = ("-p", pattern)
        a = vrfs.hosts[vrf, "a"].namespace
        done = probes.ping(a, router_address("a", version), count=1, size=400, options=options)
        assert done.received == 0
        later = partial(vrfs.host_counter, "from_host_source_of_several_vrfs")
        wait_until(lambda: later() > refused, 10, "the answer to be refused")  # noqa: B023
        mark = bytes.fromhex(pattern)
        assert vrfs.links_with(mark) == {(vrf, "a")}


def test_a_server_of_the_host_is_asked_in_the_default_vrf_only(vrfs: Vrfs) -> None:
    counter = partial(vrfs.host_counter, "to_host_of_a_service_without_vrfs")
    with closing(vrfs.place.socket(socket.AF_INET, socket.SOCK_DGRAM)) as server:
        server.bind(("", SERVICE))
        server.settimeout(10)
        before = counter()
        for vrf in ("red", "blue"):
            vrfs.send(vrf, router_address("a"), SERVICE, f"{vrf}'s secret".encode())
        wait_until(lambda: counter() == before + 2, 10, "both to be kept from the server")
        vrfs.send("default", router_address("a"), SERVICE, b"a question")
        assert server.recvfrom(100)[0] == b"a question"
