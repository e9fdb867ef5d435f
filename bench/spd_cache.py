# SPDX-License-Identifier: Apache-2.0
"""Measures outbound policy by position of the matching rule: `make bench-spd-cache`.

    python -m bench.spd_cache [--seconds N] [--rounds N] [--quick] [--part NAME]

VPP has published figures for the same question with its change "flow cache for outbound SPD": how
does the rate depend on the position of the matching rule, with and without a flow cache? The
benchmark has three parts:

    program   The router program in memory on one core, 1 to 1,000,000 flows, rules 1 to 100,000:
              flow cache, rule table, linear search; edits of rules under load
              (switch/crates/native/benches/spd_cache.rs).
    engine    The whole switch, with ports in memory and an ESP engine inside, 10,000 flows in the
              flow cache. The flows bypass IPsec, or are encrypted with NULL or AES-128-GCM.
    punted    Switch and controller over veth, without flow cache: all packets are punted, and the
              controller re-injects them. `cpu` is the rate in packets per CPU-second of both
              processes. It is compared with the bypass rate of the part `engine`, per CPU-second
              of the switch.

The peers without the flow cache are `linear-N` (a linear search in VPP's form that finds rule N),
`compact-linear-N` (the same with smaller rules), `rules-tier` (the rule table) and `cpu`. The peer
`best-position` is the flow cache at the position with the highest rate: the ratio to it is 1 if the
rate does not depend on the position. `clear` is the bypass rate at the same position, and `alone`
is the rate without edits.
"""

from __future__ import annotations

import sys
import tempfile
from argparse import Namespace as Arguments
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import bulk, command, esp_router, new_flows, p4_cpu, structures
from bench.bars import compare_with_bars
from bench.cpu import process_seconds
from bench.frames import udp, write_pcap
from bench.p4_cpu import LIST_ID, OURS, Ctl, Switch, TableContent
from sluice_testkit.bench import BenchCase, write_results
from sluice_testkit.namespaces import Lab, Namespace

NAME = "spd-cache"
ROUNDS = 11
PARTS = ("program", "engine", "punted")
ROUTES, FLOWS, FRAMES, FRAME_BYTES = 1_000, 10_000, 1 << 16, 60
POSITIONS = (1, 1_000)
PUNTED_POSITIONS = (1, 1_000, 10_000)
PUNTED_RATE = 8_000.0  # packets per second; halved as often as packets are lost
LOWEST_PUNTED_RATE = 500.0
MOST_LOST = 0.01
VPP: Mapping[str, Any] = {
    "source": "VPP's change 31694 (flow cache for outbound SPD), Neoverse N1, 64 bytes, one core",
    "unit": "million packets a second",
    "rules": [1, 10, 100, 1_000],
    "linear": [5.2, 4.55, 2.11, 0.33],
    "flow cache": [4.84, 4.84, 4.84, 4.84],
}


@dataclass(frozen=True)
class Verdict:
    """Describes the verdict of the flows of two lists: one for each position in POSITIONS."""

    name: str
    first_list: int
    sa: Mapping[str, Any] | None = None

    def list_id(self, position: int) -> int:
        """Returns the list whose matching rule has this position."""
        return self.first_list + POSITIONS.index(position)


BYPASS = Verdict("bypass", LIST_ID + 1)
VERDICTS = (
    BYPASS,
    Verdict(
        "NULL",
        LIST_ID + 3,
        esp_router.outbound_sa(4, 8, "null-hmac-sha-256-128", integrity_key="43" * 32),
    ),
    Verdict("AES-128-GCM", LIST_ID + 5, esp_router.outbound_sa()),
)


def measure_program(arguments: Arguments) -> tuple[list[BenchCase], Mapping[str, Any]]:
    """Runs the part `program`. Returns its cases and a description of its input."""
    report = structures.measured(NAME, arguments.rounds, arguments.quick)
    cases = structures.as_cases(report)
    for case in cases:
        show(case)
    return cases, report["input"]


def list_updates(switch: Switch, tables: TableContent) -> Iterator[bytes]:
    """Yields encoded inserts of all flows into all lists. A flow has the number of its rule."""
    for verdict in VERDICTS:
        word, bundle = ("BYPASS", 0) if verdict.sa is None else ("PROTECT", verdict.sa["bundle"])
        for position in POSITIONS:
            yield from p4_cpu.flow_updates(
                switch.schema, tables.flows, verdict.list_id(position), word, bundle, position
            )


def prepare(switch: Switch, ctl: Ctl, folder: Path, tables: TableContent) -> Path:
    """Writes lists, flows, bundles and SAs. Returns a capture file with frames of all flows."""
    for verdict in VERDICTS:
        lists = [verdict.list_id(position) for position in POSITIONS]
        switch.write("INSERT", (p4_cpu.list_state(switch.schema, one) for one in lists))
        if verdict.sa is not None:
            bundle, sa = verdict.sa["bundle"], verdict.sa["sa"]
            switch.write("INSERT", esp_router.bundle_entries(switch.schema, bundle, sa))
    esp_router.add_sas(ctl, folder, [one.sa for one in VERDICTS if one.sa is not None])
    bulk.write(
        switch.target.grpc, bulk.requests(list_updates(switch, tables), switch.target.device_id)
    )
    macs = bytes.fromhex(p4_cpu.IN_MAC.replace(":", "") + "06" * 6)
    path = folder / "frames.pcap"
    flows = (tables.flows[at % FLOWS] for at in range(FRAMES))
    write_pcap(path, (udp(flow, macs, FRAME_BYTES) for flow in flows))
    return path


def cached_rate(
    switch: Switch, ctl: Ctl, capture: Path, verdict: Verdict, position: int, seconds: float
) -> float:
    """Returns packets per CPU-second of the switch, if the rule at this position has this verdict.
    The packets must be encrypted if the verdict has an SA, and must not if it has none.
    """
    esp_router.check_against_list(switch, verdict.list_id(position))
    before = esp_router.encrypted(ctl)
    rate = p4_cpu.in_memory(switch, ctl, capture, seconds)
    protected = esp_router.encrypted(ctl) - before
    expected = rate * seconds / 4  # lower bound: the switch may get less than a whole CPU
    if protected < expected if verdict.sa is not None else protected:
        raise RuntimeError(f"{verdict.name}: {protected} packets were encrypted")
    return rate


def configuration() -> dict[str, Any]:
    """Returns the configuration of a router without flow caches. Ports 2 to 4 have outbound lists
    whose last rule matches: rule 1, 1,000 or 10,000.
    """
    config = new_flows.configuration(OURS)
    config["spds"] = [
        {
            "name": f"rule-{position}",
            "mode": "cache",
            "flow_cache": {"enabled": False},
            "inbound": new_flows.rules(1),
            "outbound": new_flows.rules(position),
        }
        for position in PUNTED_POSITIONS
    ]
    spds = ("none", *(spd["name"] for spd in config["spds"]))
    for interface, spd in zip(config["interfaces"], spds, strict=True):
        interface["spd"] = spd
    return config


class PuntedTraffic:
    """Measures packets that are all punted to the controller."""

    def __init__(self, router: new_flows.Router, seconds: float):
        self._router = router
        self._seconds = seconds
        self.rate = PUNTED_RATE

    def per_cpu_second(self, position: int) -> float:
        """Returns packets per CPU-second of switch and controller. Lowers the rate of departure
        until packets are no longer lost.
        """
        leaves = 2 + PUNTED_POSITIONS.index(position)
        workload = new_flows.Workload(f"rule {position}", 1, leaves)
        while self.rate >= LOWEST_PUNTED_RATE:
            packets = round(self.rate * self._seconds)
            pids = (self._router.target.pid, self._router.controller.pid)
            before = sum(map(process_seconds, pids))
            punted = self._router.punted()
            came = self._router.send_new_flows(workload, packets, self.rate)
            spent = sum(map(process_seconds, pids)) - before
            if came >= (1 - MOST_LOST) * packets:
                if self._router.punted() - punted < came:
                    raise RuntimeError("some packets were not punted")
                return came / spent
            self.rate /= 2
        raise RuntimeError(f"over 1 % of the packets are lost at {LOWEST_PUNTED_RATE} a second")


def measure_switch(arguments: Arguments, lab: Lab, namespace: Namespace) -> list[BenchCase]:
    """Runs the parts `engine` and `punted`, all cases in turn."""
    tables = p4_cpu.content(ROUTES, FLOWS)
    engine = {
        (verdict.name, position): BenchCase(
            f"{verdict.name}, rule {position}",
            peers={"clear": []} if verdict.sa is not None else {},
            details={"kind": "engine", "rule": position, "flows": FLOWS},
        )
        for verdict in VERDICTS
        for position in POSITIONS
    }
    punted = {
        position: BenchCase(
            f"punted, rule {position}",
            peers={"cpu": []},
            details={"kind": "punted", "rule": position},
        )
        for position in PUNTED_POSITIONS
    }
    with (
        tempfile.TemporaryDirectory() as name,
        esp_router.with_engine(lab, namespace, Path(name), tables) as (switch, ctl),
        new_flows.started(lab, OURS, configuration()) as router,
    ):
        capture = prepare(switch, ctl, Path(name), tables)
        traffic = PuntedTraffic(router, 2 * arguments.seconds)
        for turn in range(arguments.rounds):
            print(f"{NAME}: round {turn + 1} of {arguments.rounds}", file=sys.stderr)
            clear = dict[int, float]()
            for position in POSITIONS:
                for verdict in VERDICTS:
                    rate = cached_rate(switch, ctl, capture, verdict, position, arguments.seconds)
                    case = engine[verdict.name, position]
                    case.ours.append(rate)
                    if verdict is BYPASS:
                        clear[position] = rate
                    else:
                        case.peers["clear"].append(clear[position])
            for position, case in punted.items():
                # The rate of cached flows is that of the nearest position that was measured.
                case.ours.append(clear[min(position, POSITIONS[-1])])
                case.peers["cpu"].append(traffic.per_cpu_second(position))
        for case in punted.values():
            case.details["rate"] = traffic.rate
    cases = [*engine.values(), *punted.values()]
    for case in cases:
        show(case)
    return cases


def show(case: BenchCase) -> None:
    """Prints the medians of a case."""
    found = case.as_dict()
    ratios = "".join(f", {ratio:.3g} x {peer}" for peer, ratio in sorted(found["ratio"].items()))
    print(
        f"{case.workload}: {found['ours'] / 1e6:.3f} M/s, spread {found['spread']:.0%}{ratios}",
        flush=True,
    )


def main() -> int:
    """Parses the command line, measures and writes the results."""
    parser = command.parser("spd_cache", "Measures outbound policy by rule position", seconds=0.5)
    parser.set_defaults(rounds=ROUNDS)
    parser.add_argument("--part", choices=PARTS, help="one part; writes no results")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a short run, to see whether the benchmark works; writes no results",
    )
    arguments = command.parsed(parser)
    if arguments.quick:
        arguments.seconds = 0.1
    cases: list[BenchCase] = []
    about: Mapping[str, Any] = {}
    if arguments.part in (None, "program"):
        cases, about = measure_program(arguments)
    if arguments.part != "program":
        command.in_lab(
            lambda lab, namespace: cases.extend(measure_switch(arguments, lab, namespace))
        )
    verdicts = compare_with_bars(NAME, (case.as_dict() for case in cases))
    if not arguments.quick and arguments.part is None:
        more = {
            "bars": [verdict.as_dict() for verdict in verdicts],
            "input": about,
            "published": {"VPP": VPP},
        }
        unit = "packets per CPU-second"
        print(write_results(NAME, unit, cases, more=more))
    for verdict in verdicts:
        print(f"{NAME}: {verdict}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
