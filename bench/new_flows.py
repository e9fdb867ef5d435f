# SPDX-License-Identifier: Apache-2.0
"""Measures new flows per second through a router with the real controller, against BMv2.

    python -m bench.new_flows [--seconds N] [--rounds N] [--look]

Each packet belongs to a new flow. The packet misses the flow cache and is punted. The controller
searches the SPD, installs the flow and re-injects the packet with the verdict. Packets depart at
random times (Poisson arrivals), independently of the router.

A rate is sustained if at most 0.1 % of the packets are lost and 99 % arrive within 50 ms. If the
first attempt at a rate fails, there is a second one. The benchmark searches the highest sustained
rate in steps of 6 %. For comparison it measures the same packets when their flows are in the cache
already. There are two results, each the median of all rounds, with both targets in turn:

    new-flows       sustained new flows per second; for cached flows, packets per second
    new-flows-cpu   CPU time of the controller for a first packet, in µs: at 500 per second,
                    where each packet wakes the controller, and at the highest rate, where
                    packets come in batches

With `--look`, only one round is measured and no results are written. The flow caches hold all
flows, and no flow becomes idle. So the benchmark measures the installation of flows, not their
removal.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from bench import command
from bench.cpu import process_seconds
from sluice_testkit import where
from sluice_testkit.bench import BenchCase, write_results
from sluice_testkit.controller import Controller
from sluice_testkit.namespaces import Lab, Namespace, veth
from sluice_testkit.target import Target, TargetUnavailable, binary
from sluice_testkit.wait import wait_until

OURS, PEER = "sluice-switch", "bmv2"
MOST_LOST, LONGEST_P99_US = 0.001, 50_000.0
COARSE, FINE = 1.25, 1.06  # steps of the search
MOST_TRIALS = 5  # attempts at one rate
LOWEST, HIGHEST = 50.0, 400_000.0
EASY_RATE = 500.0  # first packets per second when CPU time is measured
FEW_RULES, MANY_RULES = 10, 1000
SOURCE_PORTS = 60_000
CACHED_FLOWS = 256
_CACHED = ("--sport", f"1024+{CACHED_FLOWS}", "--dport", "65535")
HOST_MAC = "02:bb:00:00:00:%02x"
PORT_MAC = "02:00:00:00:01:%02x"


@dataclass(frozen=True)
class Workload:
    """Describes packets from the host at port `enters` to the host at port `leaves`."""

    name: str
    enters: int
    leaves: int
    cached: bool = False


# Ports 1 to 4 are eth1 to eth4, with 10.1.0.0/24 to 10.4.0.0/24. `configuration` defines their
# SPDs.
WORKLOADS = (
    Workload(f"first packets, {FEW_RULES} rules", 1, 2),
    Workload(f"first packets, {MANY_RULES} rules", 1, 3),
    Workload(f"first packets, {FEW_RULES} rules inbound and {FEW_RULES} outbound", 4, 2),
    Workload("cached flows", 1, 2, cached=True),
)


@dataclass(frozen=True)
class Trial:
    """Holds the result of one attempt at one rate. `cpu` is the controller's CPU time in seconds
    per packet.
    """

    sustained: bool
    cpu: float
    sender_late: bool = False


def rules(number: int) -> list[dict[str, Any]]:
    """Returns an ordered list of rules. Only the last rule matches the benchmark's packets."""
    others = [
        {
            "name": f"rule-{i}",
            "action": "discard",
            "source": f"172.{16 + i // 256}.{i % 256}.0/24",
            "protocol": "udp",
            "destination_ports": [1 + i],
        }
        for i in range(number - 1)
    ]
    return [*others, {"name": "rest", "action": "bypass"}]


def configuration(target: str) -> dict[str, Any]:
    """Returns the configuration of a router with four interfaces. Three have an SPD with few or
    many rules, and one has none.
    """
    guards = {1: "none", 2: "few", 3: "many", 4: "few"}
    cache = {"size": 500_000, "idle_timeout": 86_400}
    sizes = {"few": FEW_RULES, "many": MANY_RULES}
    return {
        "router": "bench",
        "switch": {"target": target, "address": "127.0.0.1:9559", "device_id": 1, "cpu_port": 510},
        "fpm": {"listen": "127.0.0.1:2620"},
        "spds": [
            {"name": name, "flow_cache": cache, "inbound": rules(size), "outbound": rules(size)}
            for name, size in sizes.items()
        ],
        "punt_rates": {
            reason: {"rate": 1_000_000, "burst": 100_000}
            for reason in ("INBOUND_MISS", "OUTBOUND_MISS")
        },
        "interfaces": [
            {
                "name": f"eth{port}",
                "port": port,
                "device": f"port{port}",
                "mac": PORT_MAC % port,
                "mtu": 1500,
                "addresses": [f"10.{port}.0.1/24"],
                "spd": spd,
            }
            for port, spd in guards.items()
        ],
    }


@dataclass
class Router:
    """Runs one switch (the target) with its controller. The two share a namespace of their own."""

    namespace: Namespace
    target: Target
    controller: Controller
    fresh: Iterator[int] = field(default_factory=lambda: count(1))  # destination ports

    def attempt(self, workload: Workload, rate: float, seconds: float) -> Trial:
        """Sends a workload at a rate and returns the result. The flows of each attempt are new."""
        packets = max(50, round(rate * seconds))
        flows = _CACHED if workload.cached else self._new_flows(packets)
        before = process_seconds(self.controller.pid)
        seen = self._send(workload, [*flows, "--count", str(packets), "--rate", f"{rate:.1f}"])
        if self.has_died():
            self.revive(workload)
            return Trial(False, 0.0)
        spent = process_seconds(self.controller.pid) - before
        sent = int(seen["sent"]["packets"])
        latency = seen["received"]["latency_us"]
        in_time = bool(latency) and latency["p99"] <= LONGEST_P99_US
        kept = in_time and seen["lost"] <= MOST_LOST * sent
        if sys.stderr.isatty():
            what = f"{self.target.name}, {workload.name}: {rate:,.0f} a second"
            print(f"\r\x1b[K{what}", end="\r", file=sys.stderr)
        late = seen["sent"]["worst_lag_us"] > LONGEST_P99_US / 2
        return Trial(kept, spent / sent, late)

    def _new_flows(self, packets: int) -> list[str]:
        """Returns options of sluice-traffic for packets that belong to new flows."""
        needed = -(-packets // SOURCE_PORTS)
        ports = [next(self.fresh) for _ in range(needed)]
        return ["--sport", f"1024+{SOURCE_PORTS}", "--dport", f"{ports[0]}+{needed}"]

    def send_new_flows(self, workload: Workload, packets: int, rate: float) -> int:
        """Sends packets of new flows at a rate. Returns the number of packets that arrived."""
        size = ["--count", str(packets), "--rate", f"{rate:.1f}"]
        seen = self._send(workload, [*self._new_flows(packets), *size])
        return int(seen["sent"]["packets"]) - int(seen["lost"])

    def sustain(self, workload: Workload, rate: float, seconds: float) -> Trial | None:
        """Returns the first attempt that sustained the rate, or None after two failed attempts.

        The second attempt is needed because a single failure may be due to a stall of the machine.
        An attempt in which the sender was late does not count as a failure.
        """
        failed = 0
        for _ in range(MOST_TRIALS):
            trial = self.attempt(workload, rate, seconds)
            if trial.sustained:
                return trial
            failed += not trial.sender_late
            if failed == 2:
                break
        return None

    def has_died(self) -> bool:
        """Returns whether the switch process has ended.

        In BMv2 1.15, an assertion in the sweep for idle entries may end the process.
        """
        return self.target.process is None or not self.target.process.running()

    def revive(self, workload: Workload) -> None:
        """Starts the switch again. The controller reconnects and programs it."""
        print(f"{workload.name}: {self.target.name} has ended and is started again", flush=True)
        self.target.start()
        self.wait_for_routes()
        if workload.cached:
            self.warm(workload)

    def wait_for_routes(self) -> None:
        """Waits until the switch has the routes to all hosts."""
        wanted = {f"10.{port}.0.2/32" for port in self.target.ports}

        def reachable() -> bool:
            routes = self.controller.show("routes")
            return wanted <= {route["prefix"] for route in routes if route["installed"]}

        wait_until(reachable, 20, "routes to the hosts", interval=0.1)

    def warm(self, workload: Workload) -> None:
        """Sends packets of all flows of a workload until all flows are in the flow cache."""
        size = ["--count", str(CACHED_FLOWS), "--rate", "500", "--pick", "round-robin"]

        def all_hit() -> bool:
            before = self.punted()
            self._send(workload, [*_CACHED, *size])
            return self.punted() == before

        wait_until(all_hit, 20, "all flows to be cached")

    def punted(self) -> int:
        """Returns the number of first packets that the switch has punted.

        Waits while the controller has no session to read the counter.
        """

        def counted() -> list[int]:
            count = self.controller.show("punts")["reasons"]["OUTBOUND_MISS"]["to_cpu"]
            return [] if count is None else [int(count)]

        return wait_until(counted, 20, "the switch's count of first packets")[0]

    def _send(self, workload: Workload, words: list[str]) -> dict[str, Any]:
        way = ["--tx", f"host{workload.enters}", "--rx", f"host{workload.leaves}"]
        way += ["--dst-mac", PORT_MAC % workload.enters]
        way += ["--src", f"10.{workload.enters}.0.2", "--dst", f"10.{workload.leaves}.0.2"]
        command = [str(where.sluice_traffic()), "run", *way, "--arrivals", "poisson", *words]
        found = json.loads(self.namespace.run(*command).stdout)
        assert isinstance(found, dict)
        return found


@contextlib.contextmanager
def started(lab: Lab, name: str, config: dict[str, Any] | None = None) -> Iterator[Router]:
    """Starts switch and controller, with four hosts on veth pairs and their neighbour entries. The
    default of `config` is `configuration`.
    """
    namespace = lab.namespace(name)
    ports = {port: f"port{port}" for port in range(1, 5)}
    for port, device in ports.items():
        veth(namespace, device, namespace, f"host{port}")
        namespace.silence(f"host{port}")
    target = Target(namespace, ports, lab.supervisor, name=name, label=f"{name}-switch")
    controller = Controller(
        *(name, namespace, config or configuration(name), lab.directory, lab.supervisor),
        target=name,
    )
    target.start()
    controller.start()
    for port in ports:
        entry = (f"10.{port}.0.2", "lladdr", HOST_MAC % port, "nud", "permanent")
        namespace.run("ip", "neighbor", "replace", *entry, "dev", f"eth{port}")

    router = Router(namespace, target, controller)
    router.wait_for_routes()
    yield router


def highest_rate(
    router: Router, workload: Workload, start: float, seconds: float
) -> tuple[float, Trial]:
    """Returns the highest sustained rate, to within one fine step, and the result at that rate."""
    if workload.cached:
        router.warm(workload)
    rate, good, bad = start, 0.0, 0.0
    kept: Trial | None = None
    while kept is None or not bad or bad / good > FINE:
        if not LOWEST <= rate <= HIGHEST:
            raise RuntimeError(
                f"{router.target.name}, {workload.name}: every rate up to {rate:.0f}/s is sustained"
            )
        trial = router.sustain(workload, rate, seconds)
        if trial is not None:
            kept, good = trial, rate
        else:
            bad = rate
        one_sided = rate * COARSE if good else rate / COARSE
        rate = (good * bad) ** 0.5 if good and bad else one_sided
    return good, kept


def compare(routers: dict[str, Router], seconds: float, rounds: int) -> dict[str, list[BenchCase]]:
    """Measures all workloads on both targets in turn."""
    results = {"rate": list[BenchCase](), "cpu": list[BenchCase]()}
    for workload in WORKLOADS:
        names = (
            f"{workload.name}, a second",
            f"{workload.name}, at {EASY_RATE:.0f} a second",
            f"{workload.name}, at the highest rate",
        )
        cases = [BenchCase(name, peers={PEER: []}) for name in names]
        starts = dict.fromkeys(routers, 20_000.0 if workload.cached else 1_000.0)
        for _ in range(rounds):
            for name, router in routers.items():
                found, kept = highest_rate(router, workload, starts[name], seconds)
                starts[name] = found
                easy = router.attempt(workload, EASY_RATE, seconds)
                for case, value in zip(cases, (found, easy.cpu * 1e6, kept.cpu * 1e6), strict=True):
                    (case.ours if name == OURS else case.peers[PEER]).append(value)
        rate, *cpu = cases
        tell(rate, "")
        results["rate"].append(rate)
        if not workload.cached:  # the controller never sees packets of cached flows
            for case in cpu:
                tell(case, " µs of the controller's CPU each")
            results["cpu"] += cpu
    return results


def tell(case: BenchCase, unit: str) -> None:
    """Prints the medians of one case."""
    shown = case.as_dict()
    ours, peer, ratio = shown["ours"], shown["peers"][PEER], shown["ratio"][PEER]
    print(f"{case.workload}: {ours:,.0f}{unit}, {PEER} {peer:,.0f}, ratio {ratio:.2f}", flush=True)


def main() -> int:
    """Parses the command line, measures and writes the results."""
    parser = command.parser("new_flows", "Measures new flows per second", seconds=1.0)
    parser.add_argument(
        "--look", action="store_true", help="measure one round and write no results"
    )
    arguments = command.parsed(parser)
    try:
        binary(PEER)
    except TargetUnavailable as missing:
        parser.error(str(missing))
    rounds = 1 if arguments.look else arguments.rounds
    with Lab() as lab, started(lab, OURS) as ours, started(lab, PEER) as peer:
        results = compare({OURS: ours, PEER: peer}, arguments.seconds, rounds)
    if not arguments.look:
        print(write_results("new-flows", "new flows (cached: packets) per second", results["rate"]))
        unit = "microseconds of the controller's CPU per first packet"
        print(write_results("new-flows-cpu", unit, results["cpu"], more_is_better=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
