# SPDX-License-Identifier: Apache-2.0
"""One router between a BGP speaker and many gateways, which the benchmarks of routes measure.

    peer --- port1 [ router: bgpd, zebra, controller, sluice-switch ] port2 ... --- gateways

All far ends are in one namespace without a stack of its own, but for the speaker's, which is in
`peer`. Gateways are permanent neighbours, so that no figure contains their resolution.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.cpu import process_seconds
from sluice_testkit.controller import READY, Controller
from sluice_testkit.frr import Frr
from sluice_testkit.namespaces import Lab, veth
from sluice_testkit.target import Target
from sluice_testkit.wait import wait_until

PORT_MAC = "02:00:00:00:01:%02x"
GATEWAY_MAC = "02:bb:00:00:%02x:%02x"
FPM_PORT = 2620
ROUTER_AS, PEER_AS = 65000, 65001
PEER = "10.1.0.2"
PROGRAMS = ("bgpd", "zebra", "controller", "switch")
QUIET_SECONDS = 1.0
POLL = 0.05
"""Seconds between two looks at the controller's status: finer ones would be part of the load."""
FAR, POLL_FAR = 100_000, 0.5
"""So many routes take a second or more: until fewer are left, it looks every `POLL_FAR` seconds."""

FRR = """frr defaults traditional
hostname r
{groups}
fpm address 127.0.0.1 port {fpm}
{static}
router bgp {own}
 bgp router-id 10.1.0.1
 no bgp ebgp-requires-policy
 no bgp network import-check
 bgp graceful-restart preserve-fw-state
 neighbor {peer} remote-as {remote}
 neighbor {peer} timers 60 180
 neighbor {peer} timers connect 1
{neighbor} address-family ipv6 unicast
  neighbor {peer} activate
"""
WITHOUT_GROUPS = "no zebra nexthop kernel enable\nno fpm use-next-hop-groups"


def network(port: int, host: int, version: int = 4) -> str:
    """The address of a host of a port's network, without its length."""
    if version == 4:
        return f"10.{port}.{host >> 8}.{host & 255}"
    return f"2001:db8:{port}::{host:x}"


def configuration(ports: int) -> dict[str, Any]:
    """Returns the configuration that the router's operator would write."""
    return {
        "router": "r",
        "switch": {"device_id": 1},
        "fpm": {"listen": f"127.0.0.1:{FPM_PORT}", "quiet_seconds": QUIET_SECONDS},
        "punt_rates": {"ROUTING_PROTOCOL": {"rate": 1_000_000, "burst": 100_000}},
        "interfaces": [
            {
                "name": f"eth{port}",
                "port": port,
                "device": f"port{port}",
                "mac": PORT_MAC % port,
                "addresses": [network(port, 1) + "/16", network(port, 1, 6) + "/64"],
                "spd": "none",
            }
            for port in range(1, ports + 1)
        ],
    }


class EdgeRouter:
    """The router, from `start` on, with one speaker's namespace and `ports` ports."""

    def __init__(
        self,
        lab: Lab,
        ports: int,
        *,
        neighbor: Sequence[str] = (),
        static: Sequence[str] = (),
        groups: bool = False,
    ):
        """`neighbor` and `static` are lines of FRR's configuration; with `groups` zebra sends its
        next-hop groups over FPM."""
        self.lab = lab
        self.ports = ports
        self.namespace = lab.namespace("r")
        self.peer = lab.namespace("peer")
        self.far = lab.namespace("far")
        veth(self.peer, "eth0", self.namespace, "port1")
        self.peer.add_address("eth0", f"{PEER}/16", network(1, 2, 6) + "/64")
        for port in range(2, ports + 1):
            veth(self.far, f"far{port}", self.namespace, f"port{port}")
            self.far.silence(f"far{port}")
        address = f"unix:{lab.directory}/p4rt.sock"
        config = configuration(ports)
        config["switch"]["address"] = address
        self.target = Target(
            self.namespace,
            {port: f"port{port}" for port in range(1, ports + 1)},
            lab.supervisor,
            name="sluice-switch",
            address=address,
        )
        self.controller = Controller(
            "r", self.namespace, config, lab.directory, lab.supervisor, target="sluice-switch"
        )
        text = FRR.format(
            groups="" if groups else WITHOUT_GROUPS,
            fpm=FPM_PORT,
            static="\n".join(static),
            own=ROUTER_AS,
            peer=PEER,
            remote=PEER_AS,
            neighbor="".join(f" neighbor {PEER} {line}\n" for line in neighbor),
        )
        self.frr = Frr("r", self.namespace, text, lab.directory, lab.supervisor, fpm=True)

    def start(self, gateways: Iterable[tuple[int, int]]) -> None:
        """Start everything; `gateways` are (port, host), each a neighbour of both versions."""
        self.namespace.sysctl(ipv4__ip_forward=0, ipv6__conf__all__forwarding=0)
        self.target.start()
        self.controller.start()
        lines = [
            f"neighbor replace {network(port, host, version)} lladdr "
            f"{GATEWAY_MAC % (port, host & 255)} nud permanent dev eth{port}\n"
            for port, host in gateways
            for version in (4, 6)
        ]
        self.namespace.run("ip", "-batch", "-", stdin="".join(lines))
        self.frr.start()

    # -- what the controller says of itself

    def status(self) -> dict[str, Any]:
        """`sluice show status`, without a process for it."""
        found = self.controller.ask(command="show", what="status")
        assert isinstance(found, dict)
        return found

    def wait_status(
        self, holds: Callable[[dict[str, Any]], object], deadline: float, what: str
    ) -> float:
        """Wait until the status is such; the moment at which it was. A controller that does not
        answer yet is waited for."""

        def seen() -> bool:
            with suppress(OSError):
                return bool(holds(self.status()))
            return False

        wait_until(seen, deadline, what, interval=POLL)
        return time.monotonic()

    def wait_routes(self, count: int, deadline: float) -> float:
        """Wait until the routing daemon has sent `count` routes and the switch holds them."""

        def there(status: dict[str, Any]) -> bool:
            routes = int(status["fpm"]["routes"])
            if abs(routes - count) > FAR:
                time.sleep(POLL_FAR)
            return routes == count and bool(status["synced"])

        try:
            return self.wait_status(there, deadline, f"{count:,} routes in the switch")
        except AssertionError as error:
            error.add_note(str(self.status()))
            raise

    def ready(self) -> bool:
        """Whether the controller that was started last has said that it is."""
        process = self.controller.process
        assert process is not None
        process.check()
        return READY in process.log()[self._log_from :]

    def launch_controller(self) -> float:
        """Start the controller once more; the moment. `ready` tells of this start."""
        path = self.lab.supervisor.directory / "r-sluice.log"
        self._log_from = len(path.read_text(encoding="utf-8"))
        began = time.monotonic()
        self.controller.launch()
        return began

    _log_from = 0

    # -- what it costs

    def pids(self) -> dict[str, int]:
        """Process ids of what has a part in a route's way."""
        return {
            "bgpd": self.frr.processes["bgpd"].pid,
            "zebra": self.frr.processes["zebra"].pid,
            "controller": self.controller.pid,
            "switch": self.target.pid,
        }

    def cpu(self) -> dict[str, float]:
        """CPU seconds that each has taken since it began."""
        return {name: process_seconds(pid) for name, pid in self.pids().items()}

    def resident(self, name: str) -> tuple[int, int]:
        """Resident memory of one of them now and at most, in bytes."""
        text = Path(f"/proc/{self.pids()[name]}/status").read_text()
        found = dict(re.findall(r"(VmRSS|VmHWM):\s+(\d+) kB", text))
        return int(found["VmRSS"]) * 1024, int(found["VmHWM"]) * 1024

    def send_fpm_to(self, port: int) -> None:
        """Have zebra connect to another FPM server; it replays all it knows to it."""
        self.frr.configure(f"fpm address 127.0.0.1 port {port}")


def address(text: str) -> bytes:
    """An address in network order."""
    return socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)
