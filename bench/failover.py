# SPDX-License-Identifier: Apache-2.0
"""Measures how long packets are lost after a next hop of a group fails: `make bench-failover`.

    python -m bench.failover [--runs N] [--routes N] [--few N] [--look]

100,000 BGP routes have one next hop, which zebra resolves over eight ports. So all routes share a
group of eight next hops, called legs here. 512 flows with 4,000 packets per second together use all
legs. In each run one leg fails; the runs use the ports in turn:

    link        the port's link goes down
    neighbour   the gateway drops all packets while its link stays up, and at the same moment
                the kernel sets the neighbour to FAILED

A run's value is the time from the failure until the last lost packet was sent. A second case has
few routes; it shows that the value does not depend on the number of routes. In a third case, zebra
sends next-hop groups over FPM. Between two runs the leg is restored, and the benchmark waits until
zebra and the switch have no pending updates.

With `--look`, or with other numbers of runs or routes, no results are written.
"""

from __future__ import annotations

import argparse
import fcntl
import socket
import statistics
import struct
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from bench import bgp
from bench.bars import compare_with_bars
from bench.edge_router import (
    GATEWAY_MAC,
    PEER,
    PEER_AS,
    PORT_MAC,
    EdgeRouter,
    address,
    network,
)
from bench.probe_packets import UNDER_WAY, Probe, frames
from bench.routing_table import table
from sluice_testkit.bench import BenchCase, write_results
from sluice_testkit.namespaces import Lab, Namespace
from sluice_testkit.wait import wait_until

LEGS = range(2, 10)
"""Ports of the group. Packets and the BGP session enter by port 1."""
ANCHOR = "10.99.0.1"
"""The next hop of all routes."""
FLOWS = 512
INTERVAL = 0.00025
CALM = 0.3
"""Seconds without loss that are required before and after a failure."""
LIMIT_MS = 50.0
DEADLINE = 120.0
RUNS, ROUTES, FEW = 50, 100_000, 1_000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
REQUEST = struct.Struct("16sh22x")
RTM_NEWNEIGH, NDA_DST, NDA_LLADDR = 28, 1, 2
NLM_FLAGS = 0x505  # REQUEST, ACK, CREATE, REPLACE
NUD_FAILED, NUD_PERMANENT = 0x20, 0x80
NLMSG, NDMSG, ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=B3xiHBB"), struct.Struct("=HH")
STATIC = [f"ip route {ANCHOR}/32 {network(port, 2)}" for port in LEGS]


@dataclass(frozen=True)
class FailoverSetting:
    """Describes one case: the number of routes, and whether FRR sends next-hop groups over FPM."""

    routes: int
    groups: bool = False

    @property
    def name(self) -> str:
        """Name of the case in the results."""
        return f"{self.routes:,} routes" + (", FRR's groups over FPM" if self.groups else "")


def set_up(namespace: Namespace, interface: str, up: bool) -> float:
    """Sets a link up or down. Returns the time just before the change."""

    def change() -> float:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            name = interface.encode()
            found = fcntl.ioctl(one, SIOCGIFFLAGS, REQUEST.pack(name, 0))
            flags = REQUEST.unpack(found)[1]
            flags = flags | IFF_UP if up else flags & ~IFF_UP
            moment = time.monotonic()
            fcntl.ioctl(one, SIOCSIFFLAGS, REQUEST.pack(name, flags))
        return moment

    return namespace.inside(change)


class NexthopGroup:
    """Runs the router with its group of legs, and a probe whose packets use all legs."""

    def __init__(self, router: EdgeRouter, destinations: list[str], routes: int):
        self.router = router
        self.routes = routes
        macs = PORT_MAC % 1, GATEWAY_MAC % (1, 2)
        some = frames(macs, PEER, destinations, FLOWS // len(destinations))
        far_ends = [(router.far, f"far{port}") for port in LEGS]
        self.probe = Probe((router.peer, "eth0"), far_ends, some, INTERVAL)

    def fail_link(self, port: int) -> float:
        """Sets the link at the far end of a port down. Returns the time just before."""
        return set_up(self.router.far, f"far{port}", False)

    def restore_link(self, port: int) -> None:
        """Sets the link at the far end of a port up again."""
        set_up(self.router.far, f"far{port}", True)

    def fail_neighbour(self, port: int) -> float:
        """Makes a gateway drop all packets and sets the neighbour to FAILED. Returns the time."""
        moment = time.monotonic()
        self.probe.deaf = frozenset({f"far{port}"})
        self._neighbour(port, NUD_FAILED)
        return moment

    def restore_neighbour(self, port: int) -> None:
        """Makes a gateway receive packets again and sets the neighbour to permanent."""
        self.probe.deaf = frozenset()
        self._neighbour(port, NUD_PERMANENT)

    def _neighbour(self, port: int, state: int) -> None:
        """Sets a neighbour's state as `ip neighbour replace` does, without starting a process."""
        mac = bytes.fromhex((GATEWAY_MAC % (port, 2)).replace(":", ""))
        there = self.router.namespace
        index = there.inside(lambda: socket.if_nametoindex(f"eth{port}"))
        body = NDMSG.pack(socket.AF_INET, index, state, 0, 0)
        for kind, value in ((NDA_DST, address(network(port, 2))), (NDA_LLADDR, mac)):
            body += ATTRIBUTE.pack(4 + len(value), kind) + value + bytes(-len(value) % 4)
        head = NLMSG.pack(NLMSG.size + len(body), RTM_NEWNEIGH, NLM_FLAGS, 1, 0)
        with there.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as one:
            one.send(head + body)
            (error,) = struct.unpack_from("=i", one.recv(4096), NLMSG.size)
        if error:
            raise OSError(-error, f"neighbour of eth{port}")

    def wait_settled(self, legs: int) -> None:
        """Waits until all routes use one group with this number of working legs.

        FRR and the switch must have no pending updates, and no packet may be lost.
        """

        def settled() -> bool:
            if not self.probe.lost_nothing_for(CALM) or not self.router.status()["synced"]:
                return False
            shown = self.router.controller.ask(command="show", what="nexthops")
            used = [one for one in shown["groups"] if one["used_by"]]
            if len(used) != 1 or used[0]["used_by"] < self.routes:
                return False
            working = [leg for leg in used[0]["members"] if leg["up"] and not leg["silent"]]
            return len(working) == legs

        wait_until(settled, DEADLINE, f"a group of {legs} legs for all routes", interval=0.05)

    def flows_on(self, port: int) -> bool:
        """Returns whether a probe packet leaves by the port within a short time."""
        before = self.probe.carried[f"far{port}"]
        end = time.monotonic() + CALM
        while time.monotonic() < end:
            if self.probe.carried[f"far{port}"] > before:
                return True
            time.sleep(INTERVAL)
        return False

    def outage(
        self, fail: Callable[[int], float], restore: Callable[[int], None], port: int
    ) -> float:
        """Lets the leg at `port` fail and restores it. Returns the seconds from the failure to the
        last lost packet.
        """
        self.wait_settled(len(LEGS))
        assert self.flows_on(port), f"no packet leaves by port {port}: {self.probe.carried}"
        moment = fail(port)
        self.wait_settled(len(LEGS) - 1)
        lost = self.probe.lost(moment, time.monotonic() - UNDER_WAY)
        restore(port)
        self.wait_settled(len(LEGS))
        return max(INTERVAL, lost[-1] - moment) if lost else INTERVAL


def measure(setting: FailoverSetting, runs: int) -> dict[str, list[float]]:
    """Returns the outages of one case, in seconds, by kind of failure."""
    found: dict[str, list[float]] = {"link": [], "neighbour": []}
    prefixes = table(setting.routes, 0).ipv4
    destinations = [socket.inet_ntoa(prefix[0][:3] + b"\x01") for prefix in prefixes[:8]]
    with Lab() as lab:
        router = EdgeRouter(
            lab, LEGS.stop - 1, neighbor=["ebgp-multihop 2"], static=STATIC, groups=setting.groups
        )
        with bgp.Speaker(router.peer, PEER, PEER_AS) as speaker:
            router.start((port, 2) for port in LEGS)
            speaker.connect(30)
            router.wait_status(lambda status: status["fpm"]["settled"], 60, "an empty table")
            own = int(router.status()["fpm"]["routes"])
            speaker.send(bgp.announcements(prefixes, [address(ANCHOR)], PEER_AS))
            router.wait_routes(own + len(prefixes), DEADLINE)
            group = NexthopGroup(router, destinations, len(prefixes))
            ways = {
                "link": (group.fail_link, group.restore_link),
                "neighbour": (group.fail_neighbour, group.restore_neighbour),
            }
            with group.probe:
                for run in range(runs):
                    for what, (fail, restore) in ways.items():
                        seconds = group.outage(fail, restore, LEGS[run % len(LEGS)])
                        found[what].append(seconds)
                        shown = f"{setting.name}, {what}: {seconds * 1000:.1f} ms"
                        print(shown, flush=True)
    return found


def percentile(values: list[float], share: float) -> float:
    """Returns a percentile: the fraction `share` of all values is at most this value."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main(words: Iterable[str] | None = None) -> int:
    """Parses the command line, measures and writes the results."""
    parser = argparse.ArgumentParser(
        prog="failover", description="Measures packet loss after a next hop fails"
    )
    parser.add_argument(
        "--runs", type=int, default=RUNS, help=f"runs of each case (default: {RUNS})"
    )
    parser.add_argument(
        "--routes", type=int, default=ROUTES, help=f"number of routes (default: {ROUTES:,})"
    )
    parser.add_argument(
        "--few", type=int, default=FEW, help=f"routes of the smaller case (default: {FEW:,})"
    )
    parser.add_argument("--look", action="store_true", help="write no results")
    arguments = parser.parse_args(None if words is None else list(words))
    settings = [
        FailoverSetting(arguments.few),
        FailoverSetting(arguments.routes),
        FailoverSetting(arguments.routes, groups=True),
    ]
    outages = {setting: measure(setting, arguments.runs) for setting in settings}
    cases, limits = [], []
    for setting, found in outages.items():
        for what, seconds in found.items():
            name = f"{what}, {setting.name}"
            milliseconds = [one * 1000 for one in seconds]
            p99 = percentile(milliseconds, 0.99)
            few = [one * 1000 for one in outages[settings[0]][what]]
            cases.append(
                BenchCase(name, milliseconds, {"few-routes": few}, {"p99": p99, "kind": what})
            )
            limits.append(
                {
                    "workload": name,
                    "ours": p99,
                    "peers": {"limit": LIMIT_MS},
                    "ratio": {"limit": LIMIT_MS / p99},
                    "details": {"kind": "failover"},
                }
            )
            print(f"{name}: median {statistics.median(milliseconds):.1f} ms, p99 {p99:.1f} ms")
    verdicts = compare_with_bars("failover", limits)
    more = {
        "bars": [verdict.as_dict() for verdict in verdicts],
        "limits": limits,
        "load average": Path("/proc/loadavg").read_text().split()[:3],
    }
    usual = (arguments.runs, arguments.routes, arguments.few) == (RUNS, ROUTES, FEW)
    if usual and not arguments.look:
        unit = "milliseconds from a leg's failure to the last packet that was lost"
        print(write_results("failover", unit, cases, more_is_better=False, more=more))
    for verdict in verdicts:
        print(verdict)
    return 0


if __name__ == "__main__":
    sys.exit(main())
