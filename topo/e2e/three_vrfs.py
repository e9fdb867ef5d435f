# SPDX-License-Identifier: Apache-2.0
"""Builds a router with three VRFs that have the same addresses, for all tests of VRFs.

In each VRF, host a (10.1.0.2) and host b (10.2.0.2) have a link to the router. All six links are
captured.
"""

import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sluice_testkit.capture import Capture
from sluice_testkit.namespaces import Lab, Namespace, veth
from sluice_testkit.packet import Frame
from sluice_testkit.wait import wait_until
from sluice_topo import probes
from sluice_topo.description import Host, Router, RouterKind
from sluice_topo.routers import HostNode, P4Router

VRFS = {"default": 254, "red": 100, "blue": 200}
NETWORKS = {4: "10.{}.0.{}/24", 6: "2001:db8:{}::{}/64"}
SERVICE = 7000
VERSIONS = pytest.mark.parametrize("version", [4, 6])
EACH_VRF = pytest.mark.parametrize("vrf", VRFS)


def interface_of(vrf: str, host: str) -> int:
    """Returns the number of the switch port, TAP and link of a host. In the default VRF, the
    numbers are 1 and 2.
    """
    return 1 + 2 * list(VRFS).index(vrf) + "ab".index(host)


def with_length(host: str, number: int) -> tuple[str, ...]:
    return tuple(form.format("ab".index(host) + 1, number) for form in NETWORKS.values())


def address(host: str, version: int = 4) -> str:
    return with_length(host, 2)[version == 6].partition("/")[0]


def router_address(host: str, version: int = 4) -> str:
    return with_length(host, 1)[version == 6].partition("/")[0]


class ThreeVrfs:
    """Holds the links, the hosts' namespaces and the captures. The router is started by
    `start_router`.
    """

    router: P4Router

    def __init__(self, lab: Lab, stack: ExitStack) -> None:
        self.lab = lab
        self.place = lab.namespace("r")
        self.ends: dict[tuple[str, str], Namespace] = {}
        self.seen: dict[tuple[str, str], Capture] = {}
        for vrf in VRFS:
            for host in "ab":
                end = self.ends[vrf, host] = lab.namespace(f"{vrf}-{host}")
                veth(end, "eth0", self.place, f"port{interface_of(vrf, host)}")
                self.seen[vrf, host] = stack.enter_context(Capture(end, "eth0"))

    def start_router(
        self,
        frr_config: str,
        *,
        vrfs: Mapping[str, Mapping[str, Any]],
        spds: Mapping[tuple[str, str], str] | None = None,
        policies: Sequence[dict[str, Any]] = (),
        **config: Any,
    ) -> None:
        """Starts switch, controller and FRR.

        `vrfs` adds keys to the configuration of a VRF. `spds` maps a link to the name of its SPD,
        and `policies` is the list of these SPDs. `config` adds sections to the configuration.
        """
        guards = spds or {}
        self.router = P4Router(
            Router("r", RouterKind.P4, Path()),
            self.place,
            self.lab.directory,
            self.lab.supervisor,
            target=os.environ.get("TARGET"),
            config={
                "router": "r",
                "switch": {"device_id": 1},
                "vrfs": {
                    vrf: {"table": table, **vrfs.get(vrf, {})}
                    for vrf, table in VRFS.items()
                    if vrf != "default"
                },
                "interfaces": [
                    {
                        "name": f"eth{number}",
                        "port": number,
                        "device": f"port{number}",
                        "mac": f"02:00:00:00:01:{number:02x}",
                        "addresses": list(with_length(host, 1)),
                        "vrf": vrf,
                        "spd": guards.get((vrf, host), "none"),
                    }
                    for vrf in VRFS
                    for host in "ab"
                    for number in (interface_of(vrf, host),)
                ],
                **({"spds": list(policies)} if policies else {}),
                **config,
            },
            frr_config=frr_config,
        )
        self.router.start()

    def start_host(self, vrf: str, host: str) -> None:
        """Sets a host's addresses and default routes."""
        gateways = tuple(router_address(host, version) for version in NETWORKS)
        description = Host(f"{vrf}-{host}", with_length(host, 2), gateways)
        HostNode(description, self.ends[vrf, host]).start()

    def routes(self, vrf: str, prefix: str) -> list[dict[str, Any]]:
        """Returns the routes of a VRF to a prefix, as in `sluice show routes`."""
        number = list(VRFS).index(vrf)
        routes = self.router.controller.ask(command="show", what="routes", prefix=prefix)
        return [route for route in routes if route["vrf"] == number]

    def send(self, vrf: str, to: str, port: int, data: bytes) -> None:
        """Sends a UDP datagram from host a of a VRF."""
        family = socket.AF_INET6 if ":" in to else socket.AF_INET
        with closing(self.ends[vrf, "a"].socket(family, socket.SOCK_DGRAM)) as sender:
            sender.sendto(data, (to, port))

    def links_with(self, mark: bytes) -> set[tuple[str, str]]:
        """Returns the links on which a packet that contains these bytes was captured, in either
        direction.
        """
        has_mark = partial(_has, mark)
        return {link for link, capture in self.seen.items() if capture.count(has_mark)}

    def settle(self, vrf: str) -> None:
        """Waits until the router has forwarded all earlier datagrams: datagrams sent later must
        arrive, and they do not overtake others.
        """
        for number in range(2):
            mark = f"last {number} of {vrf} {os.urandom(8).hex()}".encode()
            self.send(vrf, address("b"), SERVICE, mark)
            wait_until(lambda: (vrf, "b") in self.links_with(mark), 10, f"{vrf}'s last")  # noqa: B023

    def reaches(self, vrf: str, to: str) -> bool:
        """Returns whether a ping from host a of a VRF is answered."""
        return probes.ping(self.ends[vrf, "a"], to, count=1).received == 1


def _has(mark: bytes, frame: Frame) -> bool:
    return mark in frame.data
