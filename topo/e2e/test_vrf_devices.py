# SPDX-License-Identifier: Apache-2.0
"""Three VRFs with the same addresses and kernel VRF devices: host stack and routing protocols too.

In each VRF the host a (10.1.0.2) and the router b (10.2.0.2) are on links of their own. b has the
sites 10.9.0.0/24 and 2001:db8:9::/64, of which it tells by BGP, and 10.8.0.0/24, of which it tells
by OSPF. Captures stand on all six links. The links to b of red and blue have each an SPD of their
VRF. Runs where the kernel has VRF devices, as Debian's has: `make prove-vrfs`.
"""

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sluice_testkit.capture import Capture
from sluice_testkit.namespaces import Lab, Namespace, veth
from sluice_testkit.packet import Frame
from sluice_testkit.wait import patient, wait_until
from sluice_topo import probes
from sluice_topo.description import Host, Kind, Router
from sluice_topo.routers import HostNode, LinuxRouter, P4Router

from .kernel import has_vrf_devices

VRFS = {"default": 254, "red": 100, "blue": 200}
NETWORKS = {4: "10.{}.0.{}/24", 6: "2001:db8:{}::{}/64"}
BGP_SITE = {4: "10.9.0.1", 6: "2001:db8:9::1"}
OSPF_SITE = "10.8.0.1"
ELSEWHERE = "203.0.113.1"
"""Behind b of the default VRF, and in no other VRF."""
SERVICE = 7000
DISCARDED = {"red": 7101, "blue": 7102}
"""The UDP port that the SPD of a VRF discards."""
VERSIONS = pytest.mark.parametrize("version", [4, 6])
EACH_VRF = pytest.mark.parametrize("vrf", VRFS)


def interface_of(vrf: str, host: str) -> int:
    """The number of the port, the TAP and the link: 1 and 2 are the default VRF's."""
    return 1 + 2 * list(VRFS).index(vrf) + "ab".index(host)


def with_length(host: str, number: int) -> tuple[str, ...]:
    return tuple(form.format("ab".index(host) + 1, number) for form in NETWORKS.values())


def address(host: str, version: int = 4) -> str:
    return with_length(host, 2)[version == 6].partition("/")[0]


def router_address(host: str, version: int = 4) -> str:
    return with_length(host, 1)[version == 6].partition("/")[0]


def bgp(own: int, other: int, number: int, vrf: str = "", networks: Sequence[str] = ()) -> str:
    """A BGP instance with its peer on the link to b over IPv4 and over IPv6."""
    four, six = (one.partition("/")[0] for one in with_length("b", number))
    sets = {
        "ipv4": [one for one in networks if ":" not in one],
        "ipv6": [one for one in networks if ":" in one],
    }
    text = f"router bgp {own}{vrf}\n bgp router-id 10.255.0.{own % 256}\n"
    text += " no bgp ebgp-requires-policy\n no bgp network import-check\n"
    for peer in (four, six):
        text += f" neighbor {peer} remote-as {other}\n neighbor {peer} timers 5 120\n"
        text += f" neighbor {peer} timers connect 2\n"
    for family, told in sets.items():
        text += f" address-family {family} unicast\n"
        text += f"  no neighbor {four} activate\n  neighbor {six} activate\n" * (family == "ipv6")
        text += f"  no neighbor {six} activate\n" * (family == "ipv4")
        text += "".join(f"  network {network}\n" for network in told)
        text += " exit-address-family\n"
    return text + "exit\n"


def ospf(interface: str, vrf: str = "", *, router_id: str) -> str:
    """An OSPF instance on the link to b."""
    return (
        f"interface {interface}{vrf}\n ip ospf area 0\n ip ospf network point-to-point\n"
        " ip ospf hello-interval 2\n ip ospf dead-interval 120\nexit\n"
        f"router ospf{vrf}\n ospf router-id {router_id}\nexit\n"
    )


def router_config() -> str:
    """FRR of the router r: each protocol in each VRF."""
    text = (
        "frr defaults traditional\nhostname r\nno zebra nexthop kernel enable\n"
        "no fpm use-next-hop-groups\nfpm address 127.0.0.1 port 2620\n"
    )
    for vrf in VRFS:
        of_vrf = "" if vrf == "default" else f" vrf {vrf}"
        text += ospf(f"eth{interface_of(vrf, 'b')}", of_vrf, router_id="10.255.0.9")
        text += bgp(65001, 65002, 2, of_vrf, networks=("10.1.0.0/24", "2001:db8:1::/64"))
    return text


def neighbor_config(vrf: str) -> str:
    """FRR of a router b."""
    networks = ["10.9.0.0/24", "2001:db8:9::/64"]
    if vrf == "default":
        networks.append(f"{ELSEWHERE}/32")
    return (
        f"frr defaults traditional\nhostname {vrf}-b\n"
        + ospf("eth0", router_id="10.255.0.8")
        + "interface site\n ip ospf area 0\nexit\n"
        + bgp(65002, 65001, 1, networks=networks)
    )


def policy_of(vrf: str) -> dict[str, Any]:
    """An SPD that discards one port on the way to b."""
    everything = {"name": "everything", "action": "bypass"}
    ports = [DISCARDED[vrf]]
    secret = {"name": "no", "action": "discard", "protocol": "udp", "destination_ports": ports}
    return {"name": vrf, "inbound": [everything], "outbound": [secret, everything]}


class Vrfs:
    """The network, running, with what was seen on its links."""

    def __init__(self, lab: Lab, stack: ExitStack) -> None:
        self.place = lab.namespace("r")
        if not has_vrf_devices(self.place):
            pytest.skip(f"kernel {os.uname().release} has no VRF devices (make prove-vrfs)")
        self.ends: dict[tuple[str, str], Namespace] = {}
        self.seen: dict[tuple[str, str], Capture] = {}
        interfaces: list[dict[str, Any]] = []
        for vrf in VRFS:
            for host in "ab":
                number = interface_of(vrf, host)
                end = self.ends[vrf, host] = lab.namespace(f"{vrf}-{host}")
                veth(end, "eth0", self.place, f"port{number}")
                self.seen[vrf, host] = stack.enter_context(Capture(end, "eth0"))
                interfaces.append(
                    {
                        "name": f"eth{number}",
                        "port": number,
                        "device": f"port{number}",
                        "mac": f"02:00:00:00:01:{number:02x}",
                        "addresses": list(with_length(host, 1)),
                        "vrf": vrf,
                        "spd": vrf if host == "b" and vrf in DISCARDED else "none",
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
                "vrfs": {vrf: {"table": table} for vrf, table in VRFS.items() if vrf != "default"},
                "spds": [policy_of(vrf) for vrf in DISCARDED],
                "interfaces": interfaces,
            },
            frr_config=router_config(),
        )
        self.router.start()
        for vrf in VRFS:
            self._start_host(vrf)
            self._start_neighbor(vrf, lab)

    def _start_host(self, vrf: str) -> None:
        gateways = tuple(router_address("a", version) for version in NETWORKS)
        HostNode(Host(f"{vrf}-a", with_length("a", 2), gateways), self.ends[vrf, "a"]).start()

    def _start_neighbor(self, vrf: str, lab: Lab) -> None:
        end = self.ends[vrf, "b"]
        veth(end, "site", end, "siteend")
        end.add_address("site", f"{OSPF_SITE}/24")
        end.add_address("lo", *(f"{one}/{8 * (4, 16)[':' in one]}" for one in BGP_SITE.values()))
        if vrf == "default":
            end.add_address("lo", f"{ELSEWHERE}/32")
        config = neighbor_config(vrf)
        place = Router(f"{vrf}-b", Kind.LINUX, Path())
        addresses = {"eth0": list(with_length("b", 2))}
        LinuxRouter(
            place, end, lab.directory, lab.supervisor, addresses=addresses, frr_config=config
        ).start()

    def routes(self, vrf: str, prefix: str) -> list[dict[str, Any]]:
        """The routes to a prefix in a VRF."""
        number = list(VRFS).index(vrf)
        routes = self.router.controller.ask(command="show", what="routes", prefix=prefix)
        return [route for route in routes if route["vrf"] == number]

    def legs(self, vrf: str, prefix: str) -> list[str] | None:
        """The interfaces that a VRF's route leads by; None: it is not there yet."""
        routes = self.routes(vrf, prefix)
        return [leg["interface"] for leg in routes[0]["nexthops"]] if routes else None

    def sessions(self, vrf: str) -> dict[str, str]:
        """The state of each BGP session, by peer."""
        of_vrf = "" if vrf == "default" else f" vrf {vrf}"
        peers = self.router.frr.json(f"show bgp{of_vrf} neighbors json")
        return {peer: found["bgpState"] for peer, found in peers.items() if isinstance(found, dict)}

    def devices(self) -> dict[str, str | None]:
        """The kernel's VRF devices, as the controller tells of them."""
        status = self.router.controller.ask(command="show", what="status")
        return {vrf["name"]: vrf["device"] for vrf in status["vrfs"]}

    def server(self, vrf: str, version: int) -> socket.socket:
        """A server of the router's in a VRF; of the default VRF it is bound to no device."""
        family = socket.AF_INET6 if version == 6 else socket.AF_INET
        opened = self.place.socket(family, socket.SOCK_DGRAM)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # one port for all VRFs
        if vrf != "default":
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, vrf.encode())
        opened.bind(("", SERVICE))
        opened.settimeout(patient(10))
        return opened

    def send(self, vrf: str, to: str, port: int, data: bytes) -> None:
        """A datagram of host a's."""
        family = socket.AF_INET6 if ":" in to else socket.AF_INET
        with closing(self.ends[vrf, "a"].socket(family, socket.SOCK_DGRAM)) as sender:
            sender.sendto(data, (to, port))

    def links_with(self, mark: bytes) -> set[tuple[str, str]]:
        """The links that have seen a packet with these bytes, in either direction."""
        has_mark = partial(_has, mark)
        return {link for link, capture in self.seen.items() if capture.count(has_mark)}

    def settle(self, vrf: str) -> None:
        """Waits until the router has forwarded what it had got: a datagram overtakes no other."""
        for number in range(2):
            mark = f"last {number} of {vrf} {os.urandom(8).hex()}".encode()
            self.send(vrf, address("b"), SERVICE, mark)
            wait_until(lambda: (vrf, "b") in self.links_with(mark), 10, f"{vrf}'s last")  # noqa: B023


def _has(mark: bytes, frame: Frame) -> bool:
    return mark in frame.data


@pytest.fixture(scope="module")
def vrfs(module_lab: Lab) -> Iterator[Vrfs]:
    with ExitStack() as stack:
        network = Vrfs(module_lab, stack)
        for vrf in VRFS:
            for site in (*BGP_SITE.values(), OSPF_SITE):
                wait_until(partial(reaches, network, vrf, site), 60, f"{site} to answer in {vrf}")
        network.router.controller.wait_synced()
        yield network


def reaches(network: Vrfs, vrf: str, to: str) -> bool:
    """Whether a of a VRF is answered."""
    return probes.ping(network.ends[vrf, "a"], to, count=1).received == 1


def is_up(network: Vrfs, vrf: str) -> bool:
    """Whether both BGP sessions of a VRF are up."""
    return set(network.sessions(vrf).values()) == {"Established"}


def test_each_vrf_has_its_device(vrfs: Vrfs) -> None:
    assert vrfs.devices() == {"default": None, "red": "red", "blue": "blue"}
    for vrf in ("red", "blue"):
        members = vrfs.place.run("ip", "-brief", "link", "show", "master", vrf).stdout
        names = {line.split()[0] for line in members.splitlines()}
        assert names == {f"eth{interface_of(vrf, host)}" for host in "ab"}


@EACH_VRF
def test_bgp_and_ospf_run_in_each_vrf(vrfs: Vrfs, vrf: str) -> None:
    peers = {address("b", version) for version in NETWORKS}
    assert vrfs.sessions(vrf) == dict.fromkeys(peers, "Established")
    for prefix in ("10.9.0.0/24", "2001:db8:9::/64", "10.8.0.0/24", "10.2.0.0/24"):
        (route,) = vrfs.routes(vrf, prefix)
        legs = [leg["interface"] for leg in route["nexthops"]]
        assert (legs, route["installed"]) == ([f"eth{interface_of(vrf, 'b')}"], True)
    protocol = {prefix: vrfs.routes(vrf, prefix)[0]["protocol"] for prefix in ("10.8.0.0/24",)}
    assert protocol == {"10.8.0.0/24": "ospf"}


def test_a_route_of_one_vrf_is_in_no_other(vrfs: Vrfs) -> None:
    assert vrfs.legs("default", f"{ELSEWHERE}/32") == ["eth2"]
    assert vrfs.legs("red", f"{ELSEWHERE}/32") == vrfs.legs("blue", f"{ELSEWHERE}/32") == None  # noqa: E711
    for vrf in VRFS:
        assert not [route for route in vrfs.routes(vrf, "0.0.0.0/0") if route["installed"]]


@VERSIONS
@EACH_VRF
def test_the_switch_forwards_in_the_vrf_alone(vrfs: Vrfs, vrf: str, version: int) -> None:
    sites = (address("b", version), BGP_SITE[version], *((OSPF_SITE,) if version == 4 else ()))
    for to in sites:
        mark = f"from {vrf} to {to}".encode()
        vrfs.send(vrf, to, SERVICE, mark)
        wait_until(lambda: (vrf, "b") in vrfs.links_with(mark), 10, f"{to} to get it")  # noqa: B023
        assert vrfs.links_with(mark) == {(vrf, "a"), (vrf, "b")}


@VERSIONS
@EACH_VRF
def test_the_host_stack_answers_in_the_vrf_alone(vrfs: Vrfs, vrf: str, version: int) -> None:
    """It has the asked address in three VRFs."""
    pattern = f"{VRFS[vrf]:04x}{version:02x}" + "5ec2" * 4
    for host in "ab":
        done = probes.ping(
            *(vrfs.ends[vrf, "a"], router_address(host, version)),
            count=1,
            size=400,
            options=("-p", pattern),
        )
        assert done.received == 1, done.output
    assert vrfs.links_with(bytes.fromhex(pattern)) == {(vrf, "a")}


@VERSIONS
def test_each_server_of_the_host_is_asked_in_its_own_vrf(vrfs: Vrfs, version: int) -> None:
    with ExitStack() as stack:
        servers = {vrf: stack.enter_context(vrfs.server(vrf, version)) for vrf in VRFS}
        for vrf in VRFS:
            question = f"question of {vrf} over {version}".encode()
            vrfs.send(vrf, router_address("a", version), SERVICE, question)
        for vrf, server in servers.items():
            question, asker, *_ = server.recvfrom(100)
            assert question == f"question of {vrf} over {version}".encode()
            server.sendto(b"answer to " + question, asker)
    for vrf in VRFS:
        mark = f"answer to question of {vrf} over {version}".encode()
        wait_until(lambda: vrfs.links_with(mark), 10, "the answer")  # noqa: B023
        assert vrfs.links_with(mark) == {(vrf, "a")}
    for vrf in VRFS:
        mark = f"question of {vrf} over {version}".encode()
        assert vrfs.links_with(mark) == {(vrf, "a")}


@EACH_VRF
def test_what_the_host_sends_in_a_vrf_leaves_in_it(vrfs: Vrfs, vrf: str) -> None:
    mark = f"the host in {vrf}".encode()
    with closing(vrfs.server(vrf, 4)) as sender:
        for to in (address("a"), BGP_SITE[4], OSPF_SITE):
            sender.sendto(mark, (to, SERVICE))
    links = {(vrf, "a"), (vrf, "b")}
    wait_until(lambda: vrfs.links_with(mark) == links, 10, "both links to see it")
    vrfs.settle(vrf)
    assert vrfs.links_with(mark) == links


def test_what_the_host_has_no_route_for_leaves_in_no_other_vrf(vrfs: Vrfs) -> None:
    with closing(vrfs.server("default", 4)) as sender:
        sender.sendto(b"default's own", (ELSEWHERE, SERVICE))
    wait_until(lambda: vrfs.links_with(b"default's own") == {("default", "b")}, 10, "it to leave")
    for vrf in ("red", "blue"):
        with (
            closing(vrfs.server(vrf, 4)) as sender,
            pytest.raises(OSError, match=r"unreachable|No route"),
        ):
            sender.sendto(b"nobody's", (ELSEWHERE, SERVICE))
    vrfs.settle("default")
    assert vrfs.links_with(b"nobody's") == set()


@pytest.mark.parametrize("port", DISCARDED.values())
def test_each_vrf_has_its_own_policy(vrfs: Vrfs, port: int) -> None:
    for vrf in VRFS:
        mark = f"{vrf} to port {port}".encode()
        vrfs.send(vrf, address("b"), port, mark)
        vrfs.settle(vrf)
        passes = DISCARDED.get(vrf) != port
        assert vrfs.links_with(mark) == ({(vrf, "a"), (vrf, "b")} if passes else {(vrf, "a")})


def test_an_interface_that_leaves_its_vrf_is_closed(vrfs: Vrfs) -> None:
    red = f"eth{interface_of('red', 'a')}"
    try:
        vrfs.place.run("ip", "link", "set", red, "nomaster")
        wait_until(lambda: vrfs.devices()["red"] is None, 10, "the controller to know")
        # The kernel sets an interface down and up that changes its VRF.
        wait_until(partial(reaches, vrfs, "red", BGP_SITE[4]), 30, "red's site to answer")
        with closing(vrfs.server("default", 4)) as server:
            vrfs.send("red", router_address("a"), SERVICE, b"red's secret")
            vrfs.settle("red")
            vrfs.send("default", router_address("a"), SERVICE, b"default's question")
            assert server.recvfrom(100)[0] == b"default's question"
    finally:
        vrfs.place.run("ip", "link", "set", red, "master", "red")
    wait_until(lambda: vrfs.devices()["red"] == "red", 10, "the controller to know")


def test_a_restarted_controller_finds_the_vrfs_as_they_were(vrfs: Vrfs) -> None:
    """In emulation it is away for longer than host interfaces are kept: new ones join the VRFs."""
    vrfs.router.controller.kill()
    vrfs.router.controller.start()
    vrfs.router.controller.wait_synced()
    assert vrfs.devices() == {"default": None, "red": "red", "blue": "blue"}
    for vrf in VRFS:
        wait_until(partial(reaches, vrfs, vrf, BGP_SITE[4]), 30, f"{vrf}'s site to answer")
        mark = f"{vrf} after the restart".encode()
        with closing(vrfs.server(vrf, 4)) as server:
            vrfs.send(vrf, router_address("a"), SERVICE, mark)
            assert server.recvfrom(100)[0] == mark
        assert vrfs.links_with(mark) == {(vrf, "a")}
        wait_until(partial(is_up, vrfs, vrf), 60, f"{vrf}'s BGP sessions")
