# SPDX-License-Identifier: Apache-2.0
"""Builds three VRFs, each with its own host stack and routing protocols (see `three_vrfs`).

In each VRF, router b announces three pairs of sites:

    BGP with BFD   10.9.0.0/24, 2001:db8:9::/64
    OSPF           10.8.0.0/24, 2001:db8:8::/64
    IS-IS          10.7.0.0/24, 2001:db8:7::/64

In red and blue, an SPD of the VRF guards the link to b. With VRF devices, one FRR serves all VRFs.
With network namespaces, each VRF has its own FRR.
"""

import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import pytest

from sluice_testkit.frr import Frr
from sluice_testkit.namespaces import Lab, veth
from sluice_testkit.wait import patient
from sluice_topo.description import Router, RouterKind
from sluice_topo.routers import LinuxRouter

from .kernel import has_vrf_devices
from .three_vrfs import (
    SERVICE,
    VRFS,
    ThreeVrfs,
    interface_of,
    with_length,
)

Isolation = Literal["device", "namespace"]
BGP_SITE = {4: "10.9.0.1", 6: "2001:db8:9::1"}
OSPF_SITE = "10.8.0.1"
SITES = (*BGP_SITE.values(), OSPF_SITE, "2001:db8:8::1", "10.7.0.1", "2001:db8:7::1")
"""One address in each of the sites that BGP, OSPF and IS-IS announce."""
ELSEWHERE = "203.0.113.1"
"""An address that only exists behind b of the default VRF."""
ZEBRA = (
    "no zebra nexthop kernel enable\nno fpm use-next-hop-groups\nfpm address 127.0.0.1 port 2620\n"
)
STATIC = "ip route 192.0.2.0/24 blackhole\n"
DISCARDED = {"red": 7101, "blue": 7102}
"""The UDP port that the SPD of each VRF discards."""


def bgp(own: int, other: int, number: int, vrf: str = "", networks: Sequence[str] = ()) -> str:
    """Returns the configuration of a BGP instance whose peer is b, over IPv4 and IPv6."""
    four, six = (one.partition("/")[0] for one in with_length("b", number))
    sets = {
        "ipv4": [one for one in networks if ":" not in one],
        "ipv6": [one for one in networks if ":" in one],
    }
    text = f"router bgp {own}{vrf}\n bgp router-id 10.255.0.{own % 256}\n"
    text += " no bgp ebgp-requires-policy\n no bgp network import-check\n"
    for peer in (four, six):
        text += f" neighbor {peer} remote-as {other}\n neighbor {peer} timers 5 120\n"
        text += f" neighbor {peer} timers connect 2\n neighbor {peer} bfd profile patient\n"
    for family, told in sets.items():
        text += f" address-family {family} unicast\n"
        text += f"  no neighbor {four} activate\n  neighbor {six} activate\n" * (family == "ipv6")
        text += f"  no neighbor {six} activate\n" * (family == "ipv4")
        text += "".join(f"  network {network}\n" for network in told)
        text += " exit-address-family\n"
    return text + "exit\n"


BFD = "bfd\n profile patient\n  detect-multiplier 20\n exit\nexit\n"
"""Detection time of six seconds, enough for an emulated machine."""


def link_state(interface: str, vrf: str = "", *, number: int) -> str:
    """Returns the configuration of OSPF, OSPFv3 and IS-IS on the link to b."""
    return (
        f"interface {interface}{vrf}\n ip ospf area 0\n ip ospf network point-to-point\n"
        " ip ospf hello-interval 2\n ip ospf dead-interval 120\n"
        " ipv6 ospf6 area 0\n ipv6 ospf6 network point-to-point\n"
        " ipv6 ospf6 hello-interval 2\n ipv6 ospf6 dead-interval 120\n"
        " ip router isis sites\n ipv6 router isis sites\n isis network point-to-point\n"
        " isis hello-interval 2\n isis hello-multiplier 60\nexit\n"
        f"router ospf{vrf}\n ospf router-id 10.255.0.{number}\nexit\n"
        f"router ospf6{vrf}\n ospf6 router-id 10.255.0.{number}\nexit\n"
        f"router isis sites{vrf}\n net 49.0001.0000.0000.{number:04}.00\n"
        " is-type level-2-only\nexit\n"
    )


def router_config(named: Mapping[str, str]) -> str:
    """Returns FRR's configuration for router r, with all protocols in each VRF of `named`.

    `named` maps a VRF to its name in FRR; "" is FRR's default VRF.
    """
    text = f"frr defaults traditional\nhostname r\n{ZEBRA}{BFD}"
    for vrf, name in named.items():
        of_vrf = f" vrf {name}" if name else ""
        text += link_state(f"eth{interface_of(vrf, 'b')}", of_vrf, number=9)
        text += bgp(65001, 65002, 2, of_vrf, networks=("10.1.0.0/24", "2001:db8:1::/64"))
    return text


def neighbor_config(vrf: str) -> str:
    """Returns FRR's configuration for router b in a VRF."""
    networks = ["10.9.0.0/24", "2001:db8:9::/64"]
    if vrf == "default":
        networks.append(f"{ELSEWHERE}/32")
    return (
        f"frr defaults traditional\nhostname {vrf}-b\n{BFD}"
        + link_state("eth0", number=8)
        + "interface site\n ip ospf area 0\n ipv6 ospf6 area 0\n ipv6 ospf6 passive\nexit\n"
        + "interface far\n ip router isis sites\n ipv6 router isis sites\n isis passive\nexit\n"
        + bgp(65002, 65001, 1, networks=networks)
    )


def policy_of(vrf: str) -> dict[str, Any]:
    """Returns an SPD that discards UDP to one port on the link to b. Everything else passes."""
    everything = {"name": "everything", "action": "bypass"}
    ports = [DISCARDED[vrf]]
    secret = {"name": "no", "action": "discard", "protocol": "udp", "destination_ports": ports}
    return {"name": vrf, "inbound": [everything], "outbound": [secret, everything]}


class IsolatedVrfs(ThreeVrfs):
    """Holds the running network."""

    def __init__(self, lab: Lab, stack: ExitStack, isolation: Isolation) -> None:
        super().__init__(lab, stack)
        self.isolation = isolation
        if isolation == "device" and not has_vrf_devices(self.place):
            pytest.skip(f"kernel {os.uname().release} has no VRF devices (make prove-vrfs)")
        self.stacks = dict.fromkeys(VRFS, self.place)
        """Network namespace of each VRF's host stack."""
        self.names: dict[str, str] = {}
        keys: dict[str, dict[str, str]] = {vrf: {"isolation": isolation} for vrf in VRFS}
        if isolation == "namespace":
            for vrf in ("red", "blue"):
                self.stacks[vrf] = lab.namespace(f"r-{vrf}")
                self.names[vrf] = self.stacks[vrf].path.name
                keys[vrf]["namespace"] = self.names[vrf]
        named = {vrf: "" if vrf == "default" else vrf for vrf in VRFS}
        self.start_router(
            router_config({"default": ""} if self.names else named),
            vrfs=keys,
            spds={(vrf, "b"): vrf for vrf in DISCARDED},
            policies=[policy_of(vrf) for vrf in DISCARDED],
        )
        self.frrs = dict.fromkeys(VRFS, self.router.frr)
        for vrf in self.names:
            self.frrs[vrf] = Frr(
                *(f"r-{vrf}", self.stacks[vrf], router_config({vrf: ""}) + STATIC),
                *(lab.directory, lab.supervisor),
                fpm=True,
            )
            self.frrs[vrf].start()
        for vrf in VRFS:
            self.start_host(vrf, "a")
            self._start_neighbor(vrf, lab)

    def _start_neighbor(self, vrf: str, lab: Lab) -> None:
        end = self.ends[vrf, "b"]
        for name, number in (("site", 8), ("far", 7)):
            veth(end, name, end, f"{name}end")
            end.add_address(name, f"10.{number}.0.1/24", f"2001:db8:{number}::1/64")
        end.add_address("lo", *(f"{one}/{8 * (4, 16)[':' in one]}" for one in BGP_SITE.values()))
        if vrf == "default":
            end.add_address("lo", f"{ELSEWHERE}/32")
        config = neighbor_config(vrf)
        place = Router(f"{vrf}-b", RouterKind.LINUX, Path())
        addresses = {"eth0": list(with_length("b", 2))}
        LinuxRouter(
            place, end, lab.directory, lab.supervisor, addresses=addresses, frr_config=config
        ).start()

    def legs(self, vrf: str, prefix: str) -> list[str] | None:
        """Returns the egress interfaces of a route in a VRF, or None if the VRF has no such
        route.
        """
        routes = self.routes(vrf, prefix)
        return [leg["interface"] for leg in routes[0]["nexthops"]] if routes else None

    def sessions(self, vrf: str) -> dict[str, str]:
        """Returns the state of each BGP session of a VRF, by peer address."""
        of_vrf = "" if vrf == "default" or self.names else f" vrf {vrf}"
        peers = self.frrs[vrf].json(f"show bgp{of_vrf} neighbors json")
        return {peer: found["bgpState"] for peer, found in peers.items() if isinstance(found, dict)}

    def apart(self) -> dict[str, str | None]:
        """Returns what isolates each VRF, as the controller reports it: the name of its VRF device
        or network namespace, or None.
        """
        status = self.router.controller.ask(command="show", what="status")
        return {vrf["name"]: vrf[self.isolation] for vrf in status["vrfs"]}

    def fpm_peer(self, vrf: str) -> str | None:
        """Returns the FPM peer that sends only this VRF's routes, or None if there is none."""
        status = self.router.controller.ask(command="show", what="status")
        peers: dict[str, str | None] = {one["name"]: one["fpm"] for one in status["vrfs"]}
        return peers[vrf]

    def refused(self) -> int:
        """Returns the number of FPM connections that the controller has refused."""
        status = self.router.controller.ask(command="show", what="status")
        return int(status["fpm"]["refused"])

    def establishments(self, vrf: str) -> int:
        """Returns how often the BGP sessions of a VRF have come up."""
        of_vrf = "" if vrf == "default" or self.names else f" vrf {vrf}"
        peers = self.frrs[vrf].json(f"show bgp{of_vrf} neighbors json")
        found = [peer for peer in peers.values() if isinstance(peer, dict)]
        return sum(int(peer["connectionsEstablished"]) for peer in found)

    @property
    def expected(self) -> dict[str, str | None]:
        """Returns the result of `apart` that a network without faults must have."""
        return {"default": None} | (self.names or {"red": "red", "blue": "blue"})

    def bfd_states(self, vrf: str) -> list[str]:
        """Returns the state of each BFD session of a VRF.

        With one FRR per VRF, FRR is asked without a VRF name.
        """
        of_vrf = "" if self.names else f" vrf {vrf}"
        peers = self.frrs[vrf].json(f"show bfd{of_vrf} peers json")
        return [peer["status"] for peer in peers]

    def is_up(self, vrf: str) -> bool:
        """Returns whether both BGP sessions of a VRF are up."""
        return set(self.sessions(vrf).values()) == {"Established"}

    def server(self, vrf: str, version: int) -> socket.socket:
        """Opens a UDP socket of the router that receives in a VRF. In the default VRF, it is bound
        to no device.
        """
        family = socket.AF_INET6 if version == 6 else socket.AF_INET
        opened = self.stacks[vrf].socket(family, socket.SOCK_DGRAM)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # all VRFs use the same port
        if vrf != "default" and self.isolation == "device":
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, vrf.encode())
        opened.bind(("", SERVICE))
        opened.settimeout(patient(10))
        return opened
