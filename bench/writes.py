# SPDX-License-Identifier: Apache-2.0
"""Measures table writes over P4Runtime, sluice-switch against BMv2: `make bench-writes`.

    python -m bench.writes [--rounds N] [--seconds N] [--batch N] [--divisor N]

Both targets run the router program with the same entries: 1,000,000 IPv4 routes, 200,000 IPv6
routes and 1,000,000 flows with idle timeouts. The updates are encoded before the measurement.
p4runtime-load sends them over one connection, and keeps a few requests outstanding. The benchmark
has three parts:

    updates     updates per second, from the first request to the last answer: a part of each
                table is deleted, inserted again and modified (routes get another next hop),
                on both targets in turn
    forwarding  packets per second between ports in memory, alone and while flows are modified
                at 400,000 updates per second; a bar limits their ratio
    memory      resident memory of the whole switch with all tables filled

From second to second, the machine's speed varies more than updates change the forwarding rate. So a
round alternates in short pieces between forwarding with and without updates. On a machine with few
processors, client and workers share the processors.
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from p4.v1 import p4runtime_pb2

from bench import bulk, command, p4_cpu
from bench.bars import compare_with_bars
from bench.cpu import thread_seconds
from bench.frames import Flow
from sluice_ptf.cabling import plug
from sluice_ptf.runtime import ELECTION_ID, RuntimeClient, update
from sluice_ptf.schema import Schema
from sluice_testkit import where
from sluice_testkit.bench import BenchCase, write_results
from sluice_testkit.namespaces import Lab, Namespace
from sluice_testkit.process import run
from sluice_testkit.target import Target

OURS, PEER = p4_cpu.OURS, p4_cpu.PEER
FULL = {"IPv4 routes": 1_000_000, "IPv6 routes": 200_000, "flows": 1_000_000}
PART = 50_000  # entries of each table that are deleted and inserted again
KINDS = ("DELETE", "INSERT", "MODIFY")
RATE = 400_000  # updates per second while forwarding is measured
PIECES = 4  # pieces of a round of forwarding
PARTS = 3  # parts of the flows, modified in turn; each takes a little longer than a piece
RATE_BATCH = 4_000  # updates per request at RATE; large requests wake fewer threads
LIMIT_MB = 512
TIMEOUT_NS = 30 * 10**9
WINDOW = 4  # outstanding requests
IPV6_LENGTH = 48


@dataclass(frozen=True)
class Entries:
    """Holds the entries of one table: an example entry with marker values (`marks`), and for each
    entry the values that replace them.
    """

    entity: p4runtime_pb2.Entity
    marks: Sequence[bytes]
    values: Sequence[Sequence[bytes]]
    lengths: Sequence[int] | None = None
    modified: Sequence[Sequence[bytes]] | None = None  # values for MODIFY, if they differ

    def encoded(self, kind: str, part: slice) -> bytes:
        """Returns the encoded updates of one kind (INSERT, MODIFY or DELETE) for a part of the
        entries.
        """
        templates: dict[int | None, bulk.Template] = {}
        encoded = []
        all_values = self.modified if kind == "MODIFY" and self.modified else self.values
        lengths = self.lengths[part] if self.lengths else [None] * len(all_values[part])
        for length, values in zip(lengths, all_values[part], strict=True):
            if length not in templates:
                entity = p4runtime_pb2.Entity()
                entity.CopyFrom(self.entity)
                if length is not None:
                    entity.table_entry.match[-1].lpm.prefix_len = length
                templates[length] = bulk.Template(entity, self.marks, kind)
            encoded.append(templates[length].fill(*values))
        return b"".join(encoded)


def next_hop(index: int) -> bytes:
    """Returns the id of one of the few next hops."""
    return p4_cpu.NEXTHOPS[index % len(p4_cpu.NEXTHOPS)].to_bytes(2)


def to_next_hops(prefixes: Iterable[bytes], shift: int) -> list[tuple[bytes, bytes]]:
    """Pairs the prefixes with the next hops in turn.

    With a different `shift`, every prefix gets another next hop.
    """
    return [(prefix, next_hop(index + shift)) for index, prefix in enumerate(prefixes)]


def ipv4_routes(schema: Schema, routes: Collection[tuple[int, int]]) -> Entries:
    """Returns IPv4 routes to the given (address, length) pairs."""
    match: dict[str, Any] = {"vrf": 0, "dst_addr": "193.210.227.0/24"}
    entry = schema.entry("ipv4_fib", match, "set_nexthop", nexthop_id=0xB5C6)
    marks = bytes.fromhex("c1d2e300"), bytes.fromhex("b5c6")
    addresses = [address.to_bytes(4) for address, _ in routes]
    lengths = [length for _, length in routes]
    entity = p4runtime_pb2.Entity(table_entry=entry)
    return Entries(entity, marks, to_next_hops(addresses, 0), lengths, to_next_hops(addresses, 1))


def ipv6_routes(schema: Schema, count: int) -> Entries:
    """Returns IPv6 routes with length /48, the length of half of the Internet's IPv6 routes."""
    match: dict[str, Any] = {"vrf": 0, "dst_addr": "20c1:d2e3:f4a5::/48"}
    entry = schema.entry("ipv6_fib", match, "set_nexthop", nexthop_id=0xB5C6)
    marks = bytes.fromhex("20c1d2e3f4a5"), bytes.fromhex("b5c6")
    chance = random.Random(7)
    found: dict[bytes, None] = {}
    while len(found) < count:
        found[b"\x20" + chance.randbytes(5)] = None
    entity = p4runtime_pb2.Entity(table_entry=entry)
    values, modified = to_next_hops(found, 0), to_next_hops(found, 1)
    return Entries(entity, marks, values, modified=modified)


def flows(schema: Schema, all_flows: Sequence[Flow]) -> Entries:
    """Returns entries of the flow cache, with idle timeouts."""
    key: dict[str, Any] = dict.fromkeys(("fragment", "is_local", "bundle"), 0)
    key |= {"list_id": p4_cpu.LIST_ID, "src_addr": 0xA1B2C3D4, "dst_addr": 0xA5B6C7D8}
    key |= {"protocol": 17, "src_port": 0x91E2, "dst_port": 0x93E4}
    verdict: dict[str, Any] = {
        "epoch": p4_cpu.EPOCH,
        "rule": 3,
        "verdict": "BYPASS",
        "sa_bundle": 0,
    }
    entry = schema.entry("outbound.ipv4_flow", key, "outbound.set_ipv4_flow", **verdict)
    entry.idle_timeout_ns = TIMEOUT_NS
    marks = [bytes.fromhex(mark) for mark in ("a1b2c3d4", "a5b6c7d8", "91e2", "93e4")]
    values = [
        (
            flow.source.to_bytes(4),
            flow.destination.to_bytes(4),
            flow.source_port.to_bytes(2),
            flow.destination_port.to_bytes(2),
        )
        for flow in all_flows
    ]
    return Entries(p4runtime_pb2.Entity(table_entry=entry), marks, values)


def files(folder: Path, tables: Mapping[str, Entries]) -> dict[tuple[str, str], Path]:
    """Writes files of encoded updates.

    Each table has a file of all its inserts ("fill"). For a part of its entries, the table also has
    one file for each kind of update.
    """
    written = {}
    for name, entries in tables.items():
        some = slice(0, min(PART, len(entries.values)))
        contents = {kind: (kind, some) for kind in KINDS} | {"fill": ("INSERT", slice(None))}
        for label, (kind, part) in contents.items():
            path = folder / f"{name.replace(' ', '-')}-{label}"
            path.write_bytes(entries.encoded(kind, part))
            written[name, label] = path
    return written


def parts(folder: Path, entries: Entries) -> list[Path]:
    """Divides the flows among several files. The updates of a file modify its flows."""
    written = []
    for part in range(PARTS):
        path = folder / f"flows-part-{part}"
        path.write_bytes(entries.encoded("MODIFY", slice(part, None, PARTS)))
        written.append(path)
    return written


class Switch:
    """Runs a target with the pipeline and filled tables."""

    def __init__(self, target: Target, batch: int):
        self.target = target
        self._batch = batch
        self._election_id = ELECTION_ID

    def command(self, file: Path, *more: str, batch: int | None = None) -> list[str]:
        """Returns the command that writes a file of updates."""
        self._election_id += 1  # the latest client becomes the primary
        words = [str(where.sluice_switch().with_name("p4runtime-load"))]
        words += ["--server", self.target.grpc, "--device-id", str(self.target.device_id)]
        words += ["--election-id", str(self._election_id), "--pid", str(self.target.pid)]
        words += ["--batch", str(batch or self._batch), "--window", str(WINDOW)]
        return [*words, *more, str(file)]

    def write(self, file: Path) -> dict[str, Any]:
        """Sends a file of updates as fast as possible."""
        report = json.loads(run(self.command(file), timeout=600).stdout)
        assert isinstance(report, dict)
        return report

    def resident_mb(self) -> float:
        """Returns the resident memory of the switch, in MB."""
        for line in Path(f"/proc/{self.target.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024 / 1e6
        raise LookupError("the switch's /proc/PID/status has no VmRSS")


@contextlib.contextmanager
def running(
    lab: Lab, namespace: Namespace, name: str, batch: int, options: Sequence[str]
) -> Iterator[Switch]:
    """Starts a target with the pipeline, and with the entries of all small tables that packets
    need.
    """
    target = Target(
        namespace,
        plug(namespace, f"w{name[:3]}"),
        lab.supervisor,
        name=name,
        label=name,
        grpc_port=p4_cpu.GRPC_PORTS[name],
        options=options,
    )
    target.start()
    schema = Schema.load(where.pipeline())
    with RuntimeClient(target.grpc, schema, target.device_id) as client:
        client.set_pipeline(where.pipeline() / "router.json")
        entries = [*p4_cpu.few_entries(schema), *p4_cpu.next_hops(schema, p4_cpu.MEMORY_OUT)]
        client.write(update("INSERT", entry) for entry in entries)
    yield Switch(target, batch)


def fill(switch: Switch, updates: Mapping[tuple[str, str], Path]) -> None:
    """Fills all tables."""
    for name in FULL:
        report = switch.write(updates[name, "fill"])
        rate, resident = report["updates_per_second"], switch.resident_mb()
        print(f"{switch.target.name}: {report['updates']:,} {name} inserted,", end=" ")
        print(f"{rate:,.0f} a second, {resident:,.0f} MB resident", flush=True)


def measure_updates(
    switches: Mapping[str, Switch], updates: Mapping[tuple[str, str], Path], rounds: int
) -> list[BenchCase]:
    """Measures every kind of update of every table, on all switches in turn."""
    cases = {(name, kind): BenchCase(f"{name}, {kind}") for name in FULL for kind in KINDS}
    for _ in range(rounds):
        for (name, kind), case in cases.items():
            for switch_name, switch in switches.items():
                report = switch.write(updates[name, kind])
                rate = report["updates_per_second"]
                if switch_name == OURS:
                    case.ours.append(rate)
                    cpu = report["server"]["cpu_seconds"] / report["updates"]
                    case.details.setdefault("server_cpu_us", []).append(round(cpu * 1e6, 3))
                    case.details["longest_request_ms"] = report["milliseconds"]["longest"]
                else:
                    case.peers.setdefault(switch_name, []).append(rate)
    for case in cases.values():
        case.details["kind"] = "updates"
        print(f"{case.workload}: {case.as_dict()['ours']:,.0f} a second", flush=True)
    return list(cases.values())


@dataclass(frozen=True)
class Forwarded:
    """Holds packets forwarded per second, and per CPU-second of the workers."""

    per_second: float
    per_cpu_second: float


def forwarded(switch: Switch, ctl: p4_cpu.Ctl, seconds: float) -> Forwarded:
    """Measures the forwarding rate for `seconds` seconds."""
    spent = thread_seconds(switch.target.pid, "worker-")
    start, before = time.monotonic(), ctl.frames()[1]
    time.sleep(seconds)
    came, took = ctl.frames()[1] - before, time.monotonic() - start
    return Forwarded(came / took, came / (thread_seconds(switch.target.pid, "worker-") - spent))


def measure_forwarding(
    switch: Switch, ctl: p4_cpu.Ctl, traffic: Path, flow_parts: Sequence[Path], arguments: Any
) -> BenchCase:
    """Measures forwarding in turn without updates and during updates."""
    case = BenchCase(f"64 B, flows modified at {RATE:,} a second", peers={"alone": []})
    reached = []
    workers: dict[str, list[float]] = {"alone": [], "beside": []}
    ctl.ask("add-port", f"{p4_cpu.MEMORY_IN}@replay:{traffic}")
    seconds = arguments.seconds / PIECES
    try:
        forwarded(switch, ctl, arguments.seconds)  # fills the CPU caches
        for piece in range(arguments.rounds * PIECES):
            alone = forwarded(switch, ctl, seconds)
            case.peers["alone"].append(alone.per_second)
            workers["alone"].append(alone.per_cpu_second)
            part = flow_parts[piece % len(flow_parts)]
            writing = switch.command(part, "--rate", str(RATE), batch=RATE_BATCH)
            with subprocess.Popen(writing, stdout=subprocess.PIPE, text=True) as load:
                time.sleep(0.2)  # the client reads its file
                beside = forwarded(switch, ctl, seconds)
                case.ours.append(beside.per_second)
                workers["beside"].append(beside.per_cpu_second)
                output, _ = load.communicate(timeout=120)
            reached.append(json.loads(output)["updates_per_second"])
    finally:
        ctl.ask("remove-port", str(p4_cpu.MEMORY_IN))
    case.details |= {
        "kind": "forwarding",
        "updates_per_second": reached,
        "batch": RATE_BATCH,
        "packets_per_worker_cpu_second": workers,
    }
    shown = case.as_dict()
    print(
        f"forwarding: {shown['peers']['alone']:,.0f} packets a second alone, {shown['ours']:,.0f}"
        f" during at least {min(reached):,.0f} updates a second",
        flush=True,
    )
    return case


def compare(arguments: Any, lab: Lab, namespace: Namespace) -> None:
    """Measures everything, writes the results and prints whether the bars are met."""
    schema = Schema.load(where.pipeline())
    counts = {name: count // arguments.divisor for name, count in FULL.items()}
    content = p4_cpu.content(counts["IPv4 routes"], counts["flows"])
    tables = {
        "IPv4 routes": ipv4_routes(schema, content.routes),
        "IPv6 routes": ipv6_routes(schema, counts["IPv6 routes"]),
        "flows": flows(schema, content.flows),
    }
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        traffic = p4_cpu.captures(folder, content.flows)["64 B"]
        updates = files(folder, tables)
        admin = f"unix:{folder}/admin"
        options = ["--admin", admin]
        ours = stack.enter_context(running(lab, namespace, OURS, arguments.batch, options))
        switches = {OURS: ours}
        if p4_cpu.installed():
            peer = running(lab, namespace, PEER, arguments.batch, [])
            switches[PEER] = stack.enter_context(peer)
        for switch in switches.values():
            fill(switch, updates)
        resident = ours.resident_mb()
        cases = measure_updates(switches, updates, arguments.rounds)
        ctl = p4_cpu.Ctl(admin)
        ctl.ask("add-port", f"{p4_cpu.MEMORY_OUT}@discard:out")
        flow_parts = parts(folder, tables["flows"])
        forwarding = measure_forwarding(ours, ctl, traffic, flow_parts, arguments)
    memory = {
        "workload": "resident memory of the switch, "
        + ", ".join(f"{count:,} {name}" for name, count in counts.items()),
        "unit": "MB",
        "ours": resident,
        "peers": {"limit": LIMIT_MB},
        "ratio": {"limit": LIMIT_MB / resident},
        "details": {"kind": "memory"},
    }
    every_case = [*cases, forwarding]
    verdicts = compare_with_bars("writes", [*(case.as_dict() for case in every_case), memory])
    more = {
        "bars": [verdict.as_dict() for verdict in verdicts],
        "memory": [memory],
        "missing": {} if PEER in switches else {PEER: "simple_switch_grpc is not on PATH"},
        "batch": arguments.batch,
    }
    if arguments.divisor == 1:
        unit = "updates a second; packets a second where forwarding is measured"
        print(write_results("writes", unit, every_case, more=more))
    for verdict in verdicts:
        print(verdict)


def main(words: Iterable[str] | None = None) -> int:
    """Parses the command line, measures and writes the results."""
    parser = command.parser("writes", "Measures updates over P4Runtime", seconds=1.5)
    parser.add_argument(
        "--batch", type=int, default=1000, help="updates in one request (default: 1,000)"
    )
    parser.add_argument(
        "--divisor",
        type=int,
        default=1,
        help="divides the sizes of the tables; above 1, writes no results",
    )
    arguments = command.parsed(parser, words)
    command.in_lab(lambda lab, namespace: compare(arguments, lab, namespace))
    return 0


if __name__ == "__main__":
    sys.exit(main())
