# SPDX-License-Identifier: Apache-2.0
"""Loads full tables through bgpd and zebra into the switch: `make bench-route-load`.

    python -m bench.route_load [--ipv4 N] [--ipv6 N] [--rounds N] [--seconds N] [--look]

A BGP speaker announces 1,000,000 IPv4 and 200,000 IPv6 routes over 200 gateways. The environment
variable BGP_TABLE may name a file with a real table. If it has too few routes, the benchmark
generates the others with the distribution of that table. The routes pass bgpd, zebra, FPM, the
controller and P4Runtime. The packets of the BGP session itself pass the switch and the controller.
The benchmark measures:

    load        routes per second, from the first update to the switch's last acknowledgement.
                The peer `null-fpm` is the same router, but its zebra sends to a server that
                drops all routes. Sluice and the peer are measured in turn
    withdrawal  the same for the withdrawal of all routes
    memory      resident bytes of the controller per route, after the load and after its restart
    changes     at 10,000 changes per second: time from an update to the change in the switch
    controller  restart with a full table: seconds until it is ready, and until it has compared
                all routes
    switch      restart with a full table: seconds until a packet passes between connected
                hosts, and until the whole table is installed

With `--look`, only one round is measured. With `--look` or other table sizes, no results are
written.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bench import bgp, command
from bench.bars import compare_with_bars
from bench.changes import Changes, RouteReader
from bench.edge_router import (
    FPM_PORT,
    GATEWAY_MAC,
    PEER,
    PEER_AS,
    PORT_MAC,
    EdgeRouter,
    address,
    network,
)
from bench.null_fpm import NullFpm
from bench.probe_packets import Probe, frames
from bench.routing_table import Table, table
from sluice_testkit.bench import BenchCase, write_results
from sluice_testkit.namespaces import Lab
from sluice_testkit.wait import wait_until

FULL = (1_000_000, 200_000)
GATEWAYS = 200
NULL_PORT = 2621
DEADLINE = 600.0
QUIET = 3.0  # seconds without data after which `NullFpm` counts a table as complete
NULL = "null-fpm"
LIMITS = {
    "bytes": 500.0,
    "lag": 0.5,
    "ready": 3.0,
    "settled": 10.0,
    "connected": 0.5,
    "table": 4.0,
}
CHANGES_A_SECOND = 10_000.0


@dataclass
class CpuWork:
    """Holds a routing table, and the BGP updates that load and withdraw it."""

    table: Table
    load: bytes
    withdrawal: bytes

    @classmethod
    def of(cls, found: Table) -> CpuWork:
        """Encodes the updates of a table. Next hops are the gateways in the network of port 1."""
        return cls(
            found,
            bgp.announcements(found.ipv4, gateways(4), PEER_AS)
            + bgp.announcements(found.ipv6, gateways(6), PEER_AS),
            bgp.withdrawals(found.ipv4) + bgp.withdrawals(found.ipv6),
        )


def gateway_hosts() -> range:
    """Returns the host numbers of the gateways in the network of port 1."""
    return range(256, 256 + GATEWAYS)


def gateways(version: int) -> list[bytes]:
    """Returns the addresses of the gateways."""
    return [address(network(1, host, version)) for host in gateway_hosts()]


def between_hosts(router: EdgeRouter) -> Probe:
    """Returns a probe from a host at port 2 to a host at port 3. The host at port 3 is a resolved
    neighbour.
    """
    macs = PORT_MAC % 2, GATEWAY_MAC % (2, 2)
    some = frames(macs, network(2, 2), [network(3, 2)], 1)
    return Probe((router.far, "far2"), [(router.far, "far3")], some, 0.005)


@dataclass
class Bench:
    """Runs the router, and holds the results measured on it."""

    router: EdgeRouter
    speaker: bgp.Speaker
    null: NullFpm
    work: CpuWork
    own: int  # routes that the speaker does not announce
    cases: list[BenchCase] = field(default_factory=list)
    limits: list[dict[str, Any]] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)

    def loaded(self) -> int:
        """Returns how many routes the controller has when the full table is loaded."""
        return self.own + len(self.work.table)

    # -- load and withdrawal, compared with `NullFpm`

    def throughput(self, rounds: int) -> None:
        """Measures load and withdrawal in turn with the controller and with the server that drops
        all routes.
        """
        count = len(self.work.table)
        named = f"{len(self.work.table.ipv4):,} IPv4 and {len(self.work.table.ipv6):,} IPv6 routes"
        cases = {
            kind: BenchCase(f"{named}, {kind}", peers={NULL: []}, details={"kind": kind})
            for kind in ("load", "withdrawal")
        }
        work = {"load": self.work.load, "withdrawal": self.work.withdrawal}
        ends = {
            "load": partial(self.in_switch, self.loaded()),
            "withdrawal": partial(self.in_switch, self.own),
        }
        for _ in range(rounds):
            for kind, case in cases.items():
                seconds, cpu = self.timed(work[kind], ends[kind])
                case.ours.append(count / seconds)
                tell_cpu(case, "ours", cpu, count)
                print(f"{kind}: {count / seconds:,.0f} routes a second {cpu}", flush=True)
            self.hand_over()
            for kind, case in cases.items():
                ended = partial(self.quiet, time.monotonic())
                seconds, cpu = self.timed(work[kind], ended)
                case.peers[NULL].append(count / seconds)
                tell_cpu(case, NULL, cpu, count)
                print(f"{kind}: {NULL} {count / seconds:,.0f} routes a second {cpu}", flush=True)
            self.router.send_fpm_to(FPM_PORT)
            self.router.wait_routes(self.own, DEADLINE)
        self.cases += cases.values()

    def hand_over(self) -> None:
        """Makes zebra send its routes to the server that drops them (`NullFpm`)."""
        before = self.null.connections
        self.router.send_fpm_to(NULL_PORT)
        wait_until(lambda: self.null.connections > before, 30, "zebra at the null reader")
        self.quiet()

    def quiet(self, after: float = 0.0) -> float:
        """Waits until `NullFpm` has received data after the time `after`, then for a pause.

        Returns the time of the last byte.
        """
        return self.null.wait_quiet(QUIET, DEADLINE, after)

    def in_switch(self, count: int) -> float:
        """Waits until the switch holds `count` routes. Returns the time."""
        return self.router.wait_routes(count, DEADLINE)

    def timed(self, updates: bytes, ended: Callable[[], float]) -> tuple[float, dict[str, float]]:
        """Sends updates. Returns the seconds until the time that `ended` returns, and the CPU
        seconds of each program meanwhile.
        """
        before, began = self.router.cpu(), time.monotonic()
        self.speaker.send(updates)
        seconds = ended() - began
        after = self.router.cpu()
        return seconds, {name: after[name] - before[name] for name in after}

    # -- single values, each with an upper limit

    def limit(self, kind: str, workload: str, values: Sequence[float], unit: str) -> None:
        """Records a result that has an upper limit. Its value is the median of its rounds."""
        median, limit = statistics.median(values), LIMITS[kind]
        self.limits.append(
            {
                "workload": workload,
                "unit": unit,
                "ours": median,
                "rounds": list(values),
                "peers": {"limit": limit},
                "ratio": {"limit": limit / median},
                "details": {"kind": kind},
            }
        )
        print(f"{workload}: {median:,.3g} {unit} (limit {limit:,.3g})", flush=True)

    def load_for_memory(self, empty: int) -> None:
        """Loads the table and records the memory. `empty`: resident bytes without the table."""
        seconds, _ = self.timed(self.work.load, lambda: self.in_switch(self.loaded()))
        self.notes["load before memory"] = round(seconds, 2)
        self.memory("after the load", empty)

    def memory(self, when: str, empty: int) -> None:
        """Records by how much the controller's resident memory exceeds `empty`, its memory without
        routes.
        """
        now, most = self.router.resident("controller")
        count = len(self.work.table)
        self.notes[f"controller {when}, MB"] = {"now": now / 1e6, "at most": most / 1e6}
        self.limit("bytes", f"controller's memory {when}", [(now - empty) / count], "bytes a route")

    def changes(self, seconds: float) -> None:
        """Changes the gateways of routes at a fixed rate, and records the lag from BGP to the
        switch.
        """
        reader = RouteReader(self.router.target.grpc, self.router.target.device_id)
        work = Changes(self.work.table.ipv4, gateways(4), PEER_AS, reader)
        work.run(self.speaker, CHANGES_A_SECOND, seconds)
        self.in_switch(self.loaded())
        self.notes["changes"] = work.report()
        what = f"{CHANGES_A_SECOND:,.0f} changes a second, 99th percentile of the lag"
        self.limit("lag", what, [work.percentile(0.99)], "s")

    def restart_controller(self, rounds: int, empty: int) -> None:
        """Restarts the controller while the switch and zebra hold a full table."""
        found: dict[str, list[float]] = {"ready": [], "settled": []}
        for _ in range(rounds):
            self.router.controller.kill()
            began = self.router.launch_controller()
            wait_until(self.router.ready, DEADLINE, "the controller to be ready", interval=0.02)
            found["ready"].append(time.monotonic() - began)
            ended = self.router.wait_status(
                lambda status: (
                    status["fpm"]["settled"]
                    and status["fpm"]["routes"] == self.loaded()
                    and status["synced"]
                ),
                DEADLINE,
                "the controller to have compared all routes",
            )
            found["settled"].append(ended - began)
            print(f"ready {found['ready'][-1]:.2f} s, settled {found['settled'][-1]:.2f} s")
            assert not self.speaker.lost
        for kind, values in found.items():
            self.limit(kind, f"controller restarted with a full table: {kind}", values, "s")
        self.memory("after its restart", empty)

    def restart_switch(self, rounds: int) -> None:
        """Restarts the switch. Records when packets pass again, and when the table is complete."""
        found: dict[str, list[float]] = {"connected": [], "table": []}
        for _ in range(rounds):
            with between_hosts(self.router) as probe:
                probe.wait_arrival(time.monotonic(), 10)
                self.router.target.stop()
                began = time.monotonic()
                self.router.target.start()
                listening = time.monotonic() - began
                found["connected"].append(probe.wait_arrival(began, DEADLINE) - began)
                ended = self.in_switch(self.loaded())
                found["table"].append(ended - began)
            print(
                f"switch listens {listening:.2f} s, connected {found['connected'][-1]:.2f} s,"
                f" table {found['table'][-1]:.2f} s",
                flush=True,
            )
        for kind, values in found.items():
            self.limit(kind, f"switch restarted with a full table: {kind}", values, "s")


def tell_cpu(case: BenchCase, reader: str, cpu: dict[str, float], count: int) -> None:
    """Adds each program's CPU time, in microseconds per route, to the case's details."""
    shown = {name: round(seconds / count * 1e6, 2) for name, seconds in cpu.items()}
    case.details.setdefault("cpu_us_a_route", {}).setdefault(reader, []).append(shown)


def measure(arguments: Any, lab: Lab) -> None:
    """Measures everything, writes the results and prints whether the bars are met."""
    work = CpuWork.of(table(arguments.ipv4, arguments.ipv6))
    print(f"table: {work.table.source}; {len(work.load) / 1e6:.1f} MB of updates", flush=True)
    rounds = 1 if arguments.look else arguments.rounds
    router = EdgeRouter(lab, 3)
    with (
        bgp.Speaker(router.peer, PEER, PEER_AS) as speaker,
        NullFpm(router.namespace, NULL_PORT) as null,
    ):
        router.start([*((1, host) for host in gateway_hosts()), (3, 2)])
        speaker.connect(30)
        router.wait_status(
            lambda status: status["fpm"]["settled"] and status["synced"], 60, "an empty table"
        )
        empty, _ = router.resident("controller")
        bench = Bench(router, speaker, null, work, int(router.status()["fpm"]["routes"]))
        bench.load_for_memory(empty)
        bench.changes(arguments.seconds)
        bench.restart_controller(rounds, empty)
        bench.restart_switch(rounds)
        speaker.send(work.withdrawal)
        bench.in_switch(bench.own)
        bench.throughput(rounds)
        bench.notes["stalls"] = router.status()["loop"]
    verdicts = compare_with_bars(
        "route-load", [*(case.as_dict() for case in bench.cases), *bench.limits]
    )
    more = {
        "bars": [verdict.as_dict() for verdict in verdicts],
        "limits": bench.limits,
        "table": work.table.source,
        "notes": bench.notes | {"load average": Path("/proc/loadavg").read_text().split()[:3]},
    }
    if not arguments.look and (arguments.ipv4, arguments.ipv6) == FULL:
        print(write_results("route-load", "routes a second", bench.cases, more=more))
    else:
        print(more["notes"])
    for verdict in verdicts:
        print(verdict)


def main(words: Iterable[str] | None = None) -> int:
    """Parses the command line, measures and writes the results."""
    parser = command.parser("route_load", "Measures full tables through FRR", seconds=60.0)
    parser.add_argument(
        "--ipv4", type=int, default=FULL[0], help="number of IPv4 routes (default: 1,000,000)"
    )
    parser.add_argument(
        "--ipv6", type=int, default=FULL[1], help="number of IPv6 routes (default: 200,000)"
    )
    parser.add_argument(
        "--look", action="store_true", help="measure one round and write no results"
    )
    arguments = command.parsed(parser, words)
    with Lab() as lab:
        measure(arguments, lab)
    return 0


if __name__ == "__main__":
    sys.exit(main())
