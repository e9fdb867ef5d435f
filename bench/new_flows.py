# SPDX-License-Identifier: Apache-2.0
"""Measures new flows per second through a router with the real controller, against BMv2.

    python -m bench.new_flows [--seconds N] [--rounds N] [--look]

Each packet belongs to a new flow. The packet misses the flow cache and is punted. The controller
searches the SPD, installs the flow and re-injects the packet with the verdict. Packets depart at
random times (Poisson arrivals), independently of the router.

A rate is sustained if at most 0.1 % of the packets are lost and 99 % arrive within 50 ms. If the
first attempt at a rate fails, there is a second one. The benchmark searches the highest sustained
rate in steps of 6 %. For comparison it measures the same packets when their flows are in the cache
already. There are four results, each the median of all rounds, with both targets in turn:

    new-flows           sustained new flows per second; for cached flows, packets per second
    new-flows-latency   time from sending a first packet to receiving it, at half of the highest
                        rate, in µs: median and 99th percentile
    new-flows-fairness  the 99th percentile of the same time for the first packets of 50 hosts, in
                        µs: alone, and while another host on the same link opens flows at twice the
                        highest rate
    new-flows-cpu       CPU time of controller and switch for a first packet, in µs: at 500 per
                        second, where each packet wakes them, and at the highest rate, where packets
                        come in batches

With `--look`, only one round is measured and no results are written. Each workload and round has
a new switch and controller. So the flow caches hold all flows, and no flow becomes idle: the
benchmark measures the installation of flows, not their removal. Without BMv2, only sluice-switch
is measured, and the results name the missing peer.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from bench import command
from bench.bars import compare_with_bars
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
EASY_RATE = 500.0  # first packets per second of the CPU time measurement at a low rate
LATENCY_LIMIT_US = 5_000.0  # bar of the 99th percentile at half of the highest rate
OTHERS, OTHERS_RATE = 50, 500.0  # hosts beside the flooding host; their new flows a second in all
FLOOD = 2.0  # new flows a second of the flooding host, as a multiple of the highest rate
FEW_RULES, MANY_RULES = 10, 1000
SOURCE_PORTS = 60_000
# Sizes of the flow caches of the SPDs. The pipeline's tables hold 1,048,576 flows.
ALL_FLOWS, FEW_FLOWS = 1_000_000, 10_000
EQUAL_CACHES = {"few": 500_000, "many": 500_000}
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
    spd: str = "few"
    cached: bool = False
    kind: str = "one list"


# Ports 1 to 4 are eth1 to eth4, with 10.1.0.0/24 to 10.4.0.0/24. `configuration` defines their
# SPDs.
WORKLOADS = (
    Workload(f"first packets, {FEW_RULES} rules", 1, 2),
    Workload(f"first packets, {MANY_RULES} rules", 1, 3, "many"),
    Workload(
        f"first packets, {FEW_RULES} rules inbound and {FEW_RULES} outbound",
        4,
        2,
        kind="two lists",
    ),
    Workload("cached flows", 1, 2, cached=True, kind="cached"),
)


@dataclass(frozen=True)
class Trial:
    """Holds the result of one attempt at one rate.

    `cpu` and `switch_cpu` are the CPU times of controller and switch in seconds per packet. `p50`
    and `p99` are percentiles of the latency in µs; infinite if no packet arrived. `lost` is the
    fraction of packets that were lost.
    """

    sustained: bool
    cpu: float
    sender_late: bool = False
    switch_cpu: float = 0.0
    p50: float = float("inf")
    p99: float = float("inf")
    lost: float = 1.0


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


def configuration(target: str, caches: Mapping[str, int] = EQUAL_CACHES) -> dict[str, Any]:
    """Returns the configuration of a router with four interfaces. Three have an SPD with few or
    many rules, and one has none. `caches` has the size of each SPD's flow caches.
    """
    guards = {1: "none", 2: "few", 3: "many", 4: "few"}
    sizes = {"few": FEW_RULES, "many": MANY_RULES}
    return {
        "router": "bench",
        "switch": {"target": target, "address": "127.0.0.1:9559", "device_id": 1, "cpu_port": 510},
        "fpm": {"listen": "127.0.0.1:2620"},
        "spds": [
            {
                "name": name,
                "mode": "cache",
                "flow_cache": {"size": caches[name], "idle_timeout": 86_400},
                "inbound": rules(size),
                "outbound": rules(size),
            }
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
        words = [*flows, "--count", str(packets), "--rate", f"{rate:.1f}"]
        return self._measure(workload, words, rate)

    def flood(self, rate: float, seconds: float) -> tuple[Trial, Trial]:
        """Measures the first packets of `OTHERS` hosts: alone, and while another host floods.

        All hosts send into the same port. The flood leaves by another port than the others'
        packets, so that the receiver counts only the others.
        """
        others, flooding = WORKLOADS[0], WORKLOADS[1]
        alone = self._others(others, seconds)
        packets = round(rate * (seconds + 1.0))
        words = self._new_flows(packets)
        words += ["--count", str(packets), "--rate", f"{rate:.1f}"]
        argv = self.namespace.argv(self._command(flooding, words))
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
            beside = self._others(others, seconds)
            process.terminate()
        return alone, beside

    def _others(self, workload: Workload, seconds: float) -> Trial:
        packets = round(OTHERS_RATE * seconds)
        port = next(self.fresh)
        words = ["--sport", f"1024+{-(-packets // OTHERS)}", "--dport", str(port)]
        words += ["--count", str(packets), "--rate", f"{OTHERS_RATE:.1f}"]
        hosts = f"10.{workload.enters}.0.100+{OTHERS}"
        return self._measure(workload, [*words, "--src", hosts], OTHERS_RATE)

    def _measure(self, workload: Workload, words: list[str], rate: float) -> Trial:
        before = process_seconds(self.controller.pid)
        switch_before = process_seconds(self.target.pid)
        seen = self._send(workload, words)
        if self.has_died():
            self.revive(workload)
            return Trial(False, 0.0)
        spent = process_seconds(self.controller.pid) - before
        switch_spent = process_seconds(self.target.pid) - switch_before
        sent = int(seen["sent"]["packets"])
        latency = seen["received"]["latency_us"]
        in_time = bool(latency) and latency["p99"] <= LONGEST_P99_US
        kept = in_time and seen["lost"] <= MOST_LOST * sent
        if sys.stderr.isatty():
            what = f"{self.target.name}, {workload.name}: {rate:,.0f} a second"
            print(f"\r\x1b[K{what}", end="\r", file=sys.stderr)
        late = seen["sent"]["worst_lag_us"] > LONGEST_P99_US / 2
        trial = Trial(kept, spent / sent, late, switch_spent / sent, lost=seen["lost"] / sent)
        if not latency:
            return trial
        return replace(trial, p50=latency["p50"], p99=latency["p99"])

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

    def send_cached_flows(self, workload: Workload, packets: int, rate: float) -> int:
        """Sends packets of the cached flows. Returns the number of packets that arrived."""
        seen = self._send(workload, [*_CACHED, "--count", str(packets), "--rate", f"{rate:.1f}"])
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
        found = json.loads(self.namespace.run(*self._command(workload, words)).stdout)
        assert isinstance(found, dict)
        return found

    def _command(self, workload: Workload, words: list[str]) -> list[str]:
        way = ["--tx", f"host{workload.enters}", "--rx", f"host{workload.leaves}"]
        way += ["--dst-mac", PORT_MAC % workload.enters, "--dst", f"10.{workload.leaves}.0.2"]
        if "--src" not in words:
            way += ["--src", f"10.{workload.enters}.0.2"]
        return [str(where.sluice_traffic()), "run", *way, "--arrivals", "poisson", *words]


def cache_sizes(workload: Workload) -> dict[str, int]:
    """Returns the sizes of the flow caches that hold all flows of a workload."""
    return dict.fromkeys(EQUAL_CACHES, FEW_FLOWS) | {workload.spd: ALL_FLOWS}


@contextlib.contextmanager
def started(lab: Lab, name: str, config: dict[str, Any]) -> Iterator[Router]:
    """Starts switch and controller, with four hosts on veth pairs and their neighbour entries."""
    namespace = lab.namespace(name)
    ports = {port: f"port{port}" for port in range(1, 5)}
    for port, device in ports.items():
        veth(namespace, device, namespace, f"host{port}")
        namespace.silence(f"host{port}")
    target = Target(namespace, ports, lab.supervisor, name=name, label=f"{name}-switch")
    controller = Controller(
        *(name, namespace, config, lab.directory, lab.supervisor),
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


def case_of(name: str, targets: Sequence[str], kind: str) -> BenchCase:
    """Returns an empty case with a peer for each further target."""
    peers = {target: list[float]() for target in targets if target != OURS}
    return BenchCase(name, peers=peers, details={"kind": kind})


def add(case: BenchCase, target: str, value: float) -> None:
    """Adds a target's value to a case."""
    (case.ours if target == OURS else case.peers[target]).append(value)


@dataclass
class Results:
    """Holds the cases of all results."""

    rate: list[BenchCase] = field(default_factory=list)
    latency: list[BenchCase] = field(default_factory=list)
    fairness: list[BenchCase] = field(default_factory=list)
    cpu: list[BenchCase] = field(default_factory=list)

    def bars(self) -> list[dict[str, Any]]:
        """Returns the cases for the bars. A 99th percentile is compared with its limit."""
        limited = [
            case.as_dict()
            for case in (*self.latency, *self.fairness)
            if case.details["kind"] in ("latency", "fairness")
        ]
        limits = [
            {
                "workload": case["workload"],
                "details": case["details"],
                "ratio": {"limit": LATENCY_LIMIT_US / case["ours"]},
            }
            for case in limited
        ]
        return [*(case.as_dict() for case in self.rate), *limits]


def compare(targets: Sequence[str], seconds: float, rounds: int) -> Results:
    """Measures all workloads on all targets in turn."""
    results = Results()
    for workload in WORKLOADS:
        rate = case_of(f"{workload.name}, a second", targets, workload.kind)
        half = [
            case_of(f"{workload.name}, {what} at half of the highest rate", targets, kind)
            for what, kind in (("median", "median"), ("99th percentile", "latency"))
        ]
        cpu = [
            case_of(f"{workload.name}, {who}, {when}", targets, workload.kind)
            for when in (f"at {EASY_RATE:.0f} a second", "at the highest rate")
            for who in ("controller", "switch")
        ]
        starts = dict.fromkeys(targets, 20_000.0 if workload.cached else 1_000.0)
        for name in [*targets] * rounds:
            config = configuration(name, cache_sizes(workload))
            with Lab() as lab, started(lab, name, config) as router:
                found, kept = highest_rate(router, workload, starts[name], seconds)
                starts[name] = found
                add(rate, name, found)
                if workload.cached:  # the controller never sees packets of cached flows
                    continue
                calm = router.attempt(workload, found / 2, seconds)
                for case, value in zip(half, (calm.p50, calm.p99), strict=True):
                    add(case, name, value)
                easy = router.attempt(workload, EASY_RATE, seconds)
                spent = (easy.cpu, easy.switch_cpu, kept.cpu, kept.switch_cpu)
                for case, value in zip(cpu, spent, strict=True):
                    add(case, name, value * 1e6)
        tell(rate, "")
        results.rate.append(rate)
        if not workload.cached:
            for case in half:
                tell(case, " µs")
            for case in cpu:
                tell(case, " µs of CPU each")
            results.latency += half
            results.cpu += cpu
    floods = {name: FLOOD * highest(results.rate[1], name) for name in targets}
    results.fairness = measure_fairness(floods, seconds, rounds)
    return results


def highest(case: BenchCase, target: str) -> float:
    """Returns a target's highest value in a case."""
    return max(case.ours if target == OURS else case.peers[target])


def measure_fairness(floods: Mapping[str, float], seconds: float, rounds: int) -> list[BenchCase]:
    """Measures the first packets of `OTHERS` hosts: alone, and while another host opens `floods`
    flows a second.

    `floods` has a rate for each target.
    """
    what = f"first packets of {OTHERS} hosts, 99th percentile"
    alone = case_of(f"{what}, alone", [*floods], "alone")
    beside = case_of(f"{what}, beside a host that floods", [*floods], "fairness")
    lost: dict[str, list[float]] = {name: [] for name in floods}
    for name in [*floods] * rounds:
        with Lab() as lab, started(lab, name, configuration(name)) as router:
            for case, trial in zip(
                (alone, beside), router.flood(floods[name], seconds), strict=True
            ):
                add(case, name, trial.p99)
            lost[name].append(trial.lost)
    beside.details |= {
        "flood": dict(floods),
        "lost": {name: max(found) for name, found in lost.items()},
    }
    for case in (alone, beside):
        tell(case, " µs")
    unfair = max(lost[OURS])
    print(f"lost beside a host that floods: {unfair:.2%} at most", flush=True)
    return [alone, beside]


def tell(case: BenchCase, unit: str) -> None:
    """Prints the medians of one case."""
    shown = case.as_dict()
    ours, peers, ratio = shown["ours"], shown["peers"], shown["ratio"]
    beside = "".join(f", {name} {peers[name]:,.0f}, ratio {ratio[name]:.2f}" for name in peers)
    print(f"{case.workload}: {ours:,.0f}{unit}{beside}", flush=True)


def main() -> int:
    """Parses the command line, measures and writes the results."""
    parser = command.parser("new_flows", "Measures new flows per second", seconds=1.0)
    parser.add_argument(
        "--look", action="store_true", help="measure one round and write no results"
    )
    arguments = command.parsed(parser)
    names, missing = [OURS], dict[str, str]()
    try:
        binary(PEER)
        names.append(PEER)
    except TargetUnavailable as why:
        missing[PEER] = str(why)
        print(f"{PEER} is not measured: {why}", flush=True)
    rounds = 1 if arguments.look else arguments.rounds
    results = compare(names, arguments.seconds, rounds)
    verdicts = compare_with_bars("new-flows", results.bars())
    for verdict in verdicts:
        print(verdict, flush=True)
    if arguments.look:
        return 0
    more = {"bars": [verdict.as_dict() for verdict in verdicts], "missing": missing}
    unit = "new flows (cached: packets) per second"
    print(write_results("new-flows", unit, results.rate, more=more))
    for name, unit, cases in (
        ("new-flows-latency", "microseconds from sending to receiving", results.latency),
        ("new-flows-fairness", "microseconds from sending to receiving", results.fairness),
        ("new-flows-cpu", "microseconds of CPU per first packet", results.cpu),
    ):
        print(write_results(name, unit, cases, more_is_better=False, more={"missing": missing}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
