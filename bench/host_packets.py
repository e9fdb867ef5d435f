# SPDX-License-Identifier: Apache-2.0
"""Measures the delay of packets for the router's host while routes are read or announced.

    python -m bench.host_packets [--routes N] [--seconds N]

A neighbour pings the router every 5 ms. The packets pass sluice-switch, packet-in, TAP, the kernel,
TAP and packet-out, like those of BFD and BGP. Three situations are measured: the controller is
idle, a client reads all routes in a loop, and all routes are announced again. The output is the
delay in milliseconds (median, 99th percentile and maximum) and the number of lost packets.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import statistics
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sluice_testkit import where
from sluice_testkit.controller import Controller
from sluice_testkit.namespaces import Lab, Namespace, veth
from sluice_testkit.target import Target
from sluice_testkit.wait import wait_until

INTERVAL = 0.005
FPM_PORT = 2620
HOST_MAC, PORT_MAC = "02:bb:00:00:00:01", "02:00:00:00:01:01"
RTM_NEWROUTE, NLM_F_REQUEST, NLM_F_CREATE, NLM_F_REPLACE = 24, 0x1, 0x400, 0x100
RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_PRIORITY = 1, 4, 5, 6
MAIN_TABLE, RTPROT_BGP, UNICAST = 254, 186, 1
READ_ALL = """
import json, socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
while True:
    connection.sendall(json.dumps({"command": "show", "what": "routes"}).encode() + b"\\n")
    end = b""
    while end[-1:] != b"\\n":
        end = connection.recv(1 << 20)
        if not end:
            sys.exit()
"""


def configuration() -> dict[str, Any]:
    """Returns the configuration of a router with one interface and high limits for local
    packets.
    """
    return {
        "router": "bench",
        "switch": {
            "target": "sluice-switch",
            "address": "127.0.0.1:9559",
            "device_id": 1,
            "cpu_port": 510,
        },
        "fpm": {"listen": f"127.0.0.1:{FPM_PORT}"},
        "punt_rates": {"LOCAL": {"rate": 10_000, "burst": 1_000}},
        "interfaces": [
            {
                "name": "eth1",
                "port": 1,
                "device": "port1",
                "mac": PORT_MAC,
                "mtu": 1500,
                "addresses": ["10.1.0.1/24"],
            }
        ],
    }


def attribute(kind: int, value: bytes) -> bytes:
    """Returns one netlink attribute."""
    return struct.pack("=HH", 4 + len(value), kind) + value


def announcement(number: int, ifindex: int) -> bytes:
    """Returns the FPM frame with which zebra would announce the n-th /24."""
    destination = ((1 << 24) + (number << 8)).to_bytes(4, "big")
    body = struct.pack("=8BI", 2, 24, 0, 0, MAIN_TABLE, RTPROT_BGP, 0, UNICAST, 0)
    body += attribute(RTA_DST, destination) + attribute(RTA_PRIORITY, struct.pack("=I", 20))
    body += attribute(RTA_GATEWAY, bytes((10, 1, 0, 2)))
    body += attribute(RTA_OIF, struct.pack("=I", ifindex))
    flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_REPLACE
    message = struct.pack("=IHHII", 16 + len(body), RTM_NEWROUTE, flags, number, 0) + body
    return struct.pack("!BBH", 1, 1, 4 + len(message)) + message


class Bench:
    """Runs a router with a routing table, and a neighbour that pings the router."""

    def __init__(self, router: Namespace, host: Namespace, controller: Controller) -> None:
        self.router, self.host, self.controller = router, host, controller
        self.fpm = router.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.fpm.connect(("127.0.0.1", FPM_PORT))
        found = json.loads(router.run("ip", "-json", "link", "show", "eth1").stdout)
        self.ifindex = int(found[0]["ifindex"])

    def announce(self, count: int) -> None:
        """Announces the first `count` routes as fast as the controller reads them."""
        for start in range(0, count, 256):
            numbers = range(start, min(start + 256, count))
            self.fpm.sendall(b"".join(announcement(n, self.ifindex) for n in numbers))

    def routes(self) -> int:
        """Returns how many routes the switch holds, or 0 while the switch is not in sync."""
        status = self.controller.show("status")
        return int(status["switch"]["installed"]["route"]) if status["synced"] else 0

    @contextmanager
    def looked_at(self) -> Iterator[None]:
        """Makes another process read all routes in a loop while the context is open."""
        command = [sys.executable, "-c", READ_ALL, str(self.controller.socket)]
        reader = subprocess.Popen(command)
        try:
            yield
        finally:
            reader.kill()
            reader.wait()

    def natively(self) -> dict[str, int]:
        """Returns the fast path's packet counts. The result is empty if there is no fast path."""
        counters: dict[str, dict[str, int]] = self.controller.show("counters")["controller"]
        return counters.get("fast_path", {})

    def measure(self, name: str, seconds: float) -> dict[str, float]:
        """Pings the router. Prints and returns delays and losses."""
        count = int(seconds / INTERVAL)
        command = ["ping", "-n", "-i", str(INTERVAL), "-c", str(count), "-W", "2", "10.1.0.1"]
        output = self.host.run(*command, check=False).stdout
        times = sorted(float(found) for found in re.findall(r"time=([0-9.]+)", output))
        cuts = statistics.quantiles(times, n=100)
        found = {"median": cuts[49], "p99": cuts[98], "max": times[-1], "lost": count - len(times)}
        print(f"{name}: " + ", ".join(f"{key} {value:.2f}" for key, value in found.items()))
        return found


@contextmanager
def started(lab: Lab) -> Iterator[Bench]:
    """Starts switch, controller and neighbour."""
    router, host = lab.namespace("router"), lab.namespace("host")
    veth(router, "port1", host, "host1")
    router.silence("port1")
    host.run("ip", "link", "set", "host1", "address", HOST_MAC)
    host.run("ip", "address", "add", "10.1.0.2/24", "dev", "host1")
    target = Target(router, {1: "port1"}, lab.supervisor, name="sluice-switch")
    controller = Controller(
        "r1", router, configuration(), lab.directory, lab.supervisor, target="sluice-switch"
    )
    target.start()
    controller.start()
    bench = Bench(router, host, controller)
    try:
        yield bench
    finally:
        bench.fpm.close()


def during(work: Callable[[], None]) -> threading.Thread:
    """Runs `work` in a thread while the pings run."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--routes", type=int, default=300_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    print(f"controller: {where.sluice()}", file=sys.stderr)
    with Lab() as lab, started(lab) as bench:
        bench.announce(arguments.routes)
        wait_until(lambda: bench.routes() >= arguments.routes, 300, "the routes", interval=0.5)
        results: dict[str, Any] = {"idle": bench.measure("idle", arguments.seconds)}
        with bench.looked_at():
            results["show routes"] = bench.measure("show routes", arguments.seconds)
        announcing = during(lambda: bench.announce(arguments.routes))
        results["routes anew"] = bench.measure("routes anew", arguments.seconds)
        announcing.join()
        results["passed natively"] = bench.natively()
    print(json.dumps(results))


if __name__ == "__main__":
    main()
