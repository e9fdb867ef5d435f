# SPDX-License-Identifier: Apache-2.0
"""Runs one router between a BGP speaker and many gateways, for the benchmarks that load or change
routes.

    peer --- port1 [ router: bgpd, zebra, controller, sluice-switch ] port2 ... --- gateways

The speaker is in the namespace `peer`, at the far end of port1. The far ends of all other ports
share one namespace and have no addresses. The gateways are permanent neighbours, so no result
includes neighbour resolution.
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
"""Seconds between two requests for the controller's status. More requests would add load."""
FAR, POLL_FAR = 100_000, 0.5
"""If more routes than `FAR` are missing, the status is requested every `POLL_FAR` seconds."""

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
    """Returns the address of the host with number `host` in a port's network, without prefix
    length.
    """
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
    """Runs the router with `ports` ports, and creates a namespace for its BGP speaker."""

    def __init__(
        self,
        lab: Lab,
        ports: int,
        *,
        neighbor: Sequence[str] = (),
        static: Sequence[str] = (),
        groups: bool = False,
    ):
        """`neighbor` and `static` are lines of FRR's configuration.

        With `groups`, zebra sends its next-hop groups over FPM.
        """
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
        """Starts all programs.

        `gateways` are pairs (port, host). Each becomes an IPv4 and an IPv6 neighbour.
        """
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

    # -- the controller's status

    def status(self) -> dict[str, Any]:
        """Returns the output of `sluice show status`, without starting a process."""
        found = self.controller.ask(command="show", what="status")
        assert isinstance(found, dict)
        return found

    def wait_status(
        self, holds: Callable[[dict[str, Any]], object], deadline: float, what: str
    ) -> float:
        """Waits until the controller's status satisfies `holds`. Returns the time of that moment.

        Also waits while the controller does not answer yet.
        """

        def seen() -> bool:
            with suppress(OSError):
                return bool(holds(self.status()))
            return False

        wait_until(seen, deadline, what, interval=POLL)
        return time.monotonic()

    def wait_routes(self, count: int, deadline: float) -> float:
        """Waits until FRR has sent `count` routes and the switch holds them. Returns the time."""

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
        """Returns whether the controller has logged that it is ready, since its latest start."""
        process = self.controller.process
        assert process is not None
        process.check()
        return READY in process.log()[self._log_from :]

    def launch_controller(self) -> float:
        """Starts the controller again and returns the time. `ready` then refers to this start."""
        path = self.lab.supervisor.directory / "r-sluice.log"
        self._log_from = len(path.read_text(encoding="utf-8"))
        began = time.monotonic()
        self.controller.launch()
        return began

    _log_from = 0

    # -- CPU time and memory

    def pids(self) -> dict[str, int]:
        """Returns the PIDs of the programs that a route passes from BGP to the switch."""
        return {
            "bgpd": self.frr.processes["bgpd"].pid,
            "zebra": self.frr.processes["zebra"].pid,
            "controller": self.controller.pid,
            "switch": self.target.pid,
        }

    def cpu(self) -> dict[str, float]:
        """Returns each program's CPU seconds since its start."""
        return {name: process_seconds(pid) for name, pid in self.pids().items()}

    def resident(self, name: str) -> tuple[int, int]:
        """Returns a program's resident memory, current and peak, in bytes."""
        text = Path(f"/proc/{self.pids()[name]}/status").read_text()
        found = dict(re.findall(r"(VmRSS|VmHWM):\s+(\d+) kB", text))
        return int(found["VmRSS"]) * 1024, int(found["VmHWM"]) * 1024

    def send_fpm_to(self, port: int) -> None:
        """Makes zebra connect to another FPM server. zebra then sends all its routes there."""
        self.frr.configure(f"fpm address 127.0.0.1 port {port}")


def address(text: str) -> bytes:
    """Returns an address in network byte order."""
    return socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)
