# SPDX-License-Identifier: Apache-2.0
"""Measures the router program in packets per CPU-second, against BMv2: `make bench-p4-cpu`.

    python -m bench.p4_cpu [--seconds N] [--rounds N] [--routes N] [--flows N]

Both targets run the same compiled program (JSON) with the same tables. The prefix lengths of the
routes are distributed as in the Internet. The flow cache of an outbound SPD holds every flow of the
traffic (verdict: bypass). Both targets get the same frames. Each frame belongs to a different flow.
Frames have 64 bytes including frame check sequence, or are an IMIX (7 of 64, 4 of 594, 1 of 1518).

sluice-switch (its native engine) reads the frames from a port in memory (`replay:FILE`). So the
benchmark measures the program, and not the kernel's sockets. The rate of sluice-switch over veth is
also reported, but no limit applies to it. BMv2 gets the frames over veth. Their rate is the one at
which BMv2 forwards most packets per CPU-second, among the rates with at most 1 % loss. CPU-seconds
are those of all threads of the switch's process, including system time. The output states which
fraction of BMv2's CPU time is system time.

Before the measurement, a sample of the frames goes over veth through three switches: BMv2, and
sluice-switch with its native engine and with its interpreter. All must produce the same frames in
the same order. During a measurement of sluice-switch, as many frames must leave as enter.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from p4.v1 import p4runtime_pb2

from bench import bulk, command
from bench.bars import compare_with_bars
from bench.cpu import process_seconds, system_share
from bench.frames import Flow, read_pcap, udp, write_pcap
from sluice_ptf.cabling import far_ends, plug
from sluice_ptf.runtime import RuntimeClient, update
from sluice_ptf.schema import Schema
from sluice_testkit import where
from sluice_testkit.bench import BenchCase, write_results
from sluice_testkit.capture import Capture
from sluice_testkit.namespaces import Lab, Namespace
from sluice_testkit.process import run
from sluice_testkit.target import Target, TargetUnavailable, binary
from sluice_testkit.wait import wait_until

OURS, PEER, ORACLE = "sluice-switch", "bmv2", "oracle"
GRPC_PORTS = {OURS: 9560, PEER: 9559, ORACLE: 9561}
ENGINES = {OURS: "native", ORACLE: "interpreter"}
RATES = (2_500.0, 5_000.0, 10_000.0, 20_000.0, 40_000.0)
LEAST_DELIVERED = 0.99
BATCH = 256 * 4  # frames that may be in flight between two reads of the counters
MEMORY_IN, MEMORY_OUT = 101, 102  # numbers of the ports in memory
VETH_IN, VETH_OUT = 1, 2  # an interface's id is the number of its port
IN_MAC, OUT_MAC = "02:00:00:00:01:01", "02:00:00:00:01:02"
NEXTHOPS = range(0x101, 0x111)  # ids of two bytes; the first byte is not 0 (see bulk)
LIST_ID, EPOCH, GENERATION = 12, 0x10004, 0x20006
SIZES = {"64 B": (60,), "IMIX": (60,) * 7 + (590,) * 4 + (1514,)}
FRAMES = 1 << 20
SAMPLE = 500  # frames whose results are compared between targets
# Number of IPv4 prefixes of a full table, by length from 16 to 24.
LENGTHS = {
    16: 13490,
    17: 8235,
    18: 13798,
    19: 24870,
    20: 42611,
    21: 50750,
    22: 108623,
    23: 96510,
    24: 537698,
}


@dataclass(frozen=True)
class TableContent:
    """Holds the content of the large tables. `routes` maps (address, length) to a next hop."""

    routes: dict[tuple[int, int], int]
    flows: list[Flow]

    def needed_by(self, flows: list[Flow]) -> TableContent:
        """Returns the entries that packets of `flows` need: the flows, and all routes that match
        their destinations.
        """
        prefixes = [
            (flow.destination >> (32 - length) << (32 - length), length)
            for flow in flows
            for length in LENGTHS
        ]
        return TableContent(
            {one: self.routes[one] for one in prefixes if one in self.routes}, flows
        )


def content(routes: int, flows: int) -> TableContent:
    """Returns random but reproducible content: distinct routes, and flows that have a route."""
    chance = random.Random(5)
    lengths = chance.choices(list(LENGTHS), list(LENGTHS.values()), k=2 * routes)
    found: dict[tuple[int, int], None] = {}
    for length in lengths:
        address = chance.randrange(1 << 24, 224 << 24) >> (32 - length) << (32 - length)
        if address >> 24 != 127:
            found[address, length] = None
        if len(found) == routes:
            break
    known = list(found)
    made: dict[Flow, None] = {}
    while len(made) < flows:
        address, length = known[chance.randrange(len(known))]
        destination = address + chance.randrange(1, (1 << (32 - length)) - 1)
        source = 10 << 24 | chance.randrange(1, 1 << 24)
        ports = chance.randrange(1024, 65536), chance.randrange(1024, 65536)
        made[Flow(source, destination, *ports)] = None
    routed = {prefix: NEXTHOPS[index % len(NEXTHOPS)] for index, prefix in enumerate(known)}
    return TableContent(routed, list(made))


def few_entries(schema: Schema) -> Iterator[Any]:
    """Yields the entries of the interfaces (on veth and in memory), and of the SPD of the egress
    interfaces.
    """
    for port in (VETH_IN, MEMORY_IN):
        door = {"ingress_port": port, "vlan_id": 0}
        to: dict[str, Any] = {"l3_if": port, "vrf": 0, "role": "ROUTER"}
        yield schema.entry("l3_interface", door, "set_l3_interface", **to)
        yield schema.entry("router_mac", {"l3_if": port, "dst_mac": IN_MAC}, "admit_unicast")
        yield schema.entry("inbound_binding", {"l3_if": port}, "no_inbound_policy")
    for port in (VETH_OUT, MEMORY_OUT):
        way: dict[str, Any] = {"port": port, "vlan_id": 0, "src_mac": OUT_MAC, "mtu": 1500}
        yield schema.entry("egress_interface", {"l3_if": port}, "set_egress", **way)
        bound = {"l3_if": port}
        yield schema.entry("outbound_binding", bound, "check_outbound", list_id=LIST_ID)
    yield list_state(schema, LIST_ID)


def list_state(schema: Schema, list_id: int) -> Any:
    """Returns the entry with the epoch of an outbound list. The list has no rules in the switch."""
    state = {"epoch": EPOCH, "generation": GENERATION, "rule_set": 0}
    return schema.entry("outbound.list_state", {"list_id": list_id}, "outbound.set_list", **state)


def next_hops(schema: Schema, l3_if: int) -> Iterator[Any]:
    """Yields next hops with resolved neighbours, all on one interface."""
    for nexthop in NEXTHOPS:
        to: dict[str, Any] = {"l3_if": l3_if, "dst_mac": f"02:bb:00:00:00:{nexthop & 0xFF:02x}"}
        yield schema.entry("nexthop", {"nexthop_id": nexthop}, "set_neighbor", **to)


def _entity(entry: p4runtime_pb2.TableEntry) -> p4runtime_pb2.Entity:
    return p4runtime_pb2.Entity(table_entry=entry)


def many_updates(schema: Schema, tables: TableContent) -> Iterator[bytes]:
    """Yields encoded inserts of all routes, and of all flows with the verdict bypass."""
    prefix, nexthop = bytes.fromhex("c1d2e300"), bytes.fromhex("b5c6")
    templates = {}
    for length in LENGTHS:
        match: dict[str, Any] = {"vrf": 0, "dst_addr": "193.210.227.0/24"}
        entry = schema.entry("ipv4_fib", match, "set_nexthop", nexthop_id=0xB5C6)
        entry.match[-1].lpm.prefix_len = length
        templates[length] = bulk.Template(_entity(entry), (prefix, nexthop))
    for (address, length), to in tables.routes.items():
        yield templates[length].fill(address.to_bytes(4), to.to_bytes(2))
    yield from flow_updates(schema, tables.flows, LIST_ID, "BYPASS")


def flow_updates(
    schema: Schema,
    flows: Iterable[Flow],
    list_id: int,
    verdict: str,
    bundle: int = 0,
    rule: int = 3,
) -> Iterator[bytes]:
    """Yields encoded inserts of flows into an outbound list's cache, all with the verdict of one
    rule.
    """
    marks = [bytes.fromhex(mark) for mark in ("a1b2c3d4", "a5b6c7d8", "91e2", "93e4")]
    key: dict[str, Any] = dict.fromkeys(("fragment", "is_local", "bundle"), 0)
    key |= {"list_id": list_id, "src_addr": 0xA1B2C3D4, "dst_addr": 0xA5B6C7D8}
    key |= {"protocol": 17, "src_port": 0x91E2, "dst_port": 0x93E4}
    answer: dict[str, Any] = {"epoch": EPOCH, "rule": rule, "verdict": verdict}
    answer["sa_bundle"] = bundle
    entry = schema.entry("outbound.ipv4_flow", key, "outbound.set_ipv4_flow", **answer)
    template = bulk.Template(_entity(entry), marks)
    for flow in flows:
        yield template.fill(
            flow.source.to_bytes(4),
            flow.destination.to_bytes(4),
            flow.source_port.to_bytes(2),
            flow.destination_port.to_bytes(2),
        )


def captures(folder: Path, flows: Sequence[Flow]) -> dict[str, Path]:
    """Writes the frames of each workload to a file, and returns the paths. Each frame belongs to a
    different flow.

    The frames of the sample come first; the others are in random order.
    """
    chance = random.Random(6)
    macs = bytes.fromhex(IN_MAC.replace(":", "") + "06" * 6)
    paths = {}
    for name, sizes in SIZES.items():
        some = [*flows[:SAMPLE], *flows[SAMPLE:FRAMES]]
        rest = some[SAMPLE:]
        chance.shuffle(rest)
        some[SAMPLE:] = rest
        paths[name] = folder / f"{name.replace(' ', '')}.pcap"
        frames = (udp(flow, macs, sizes[i % len(sizes)]) for i, flow in enumerate(some))
        write_pcap(paths[name], frames)
    return paths


class Switch:
    """Runs a target with the pipeline and its tables."""

    def __init__(self, target: Target, client: RuntimeClient, schema: Schema, prefix: str):
        self.target = target
        self.ends = far_ends(prefix)
        self._client = client
        self.schema = schema
        self._kind = "INSERT"

    def leave_by(self, port: int) -> None:
        """Changes all next hops so that packets leave by `port`."""
        self.write(self._kind, next_hops(self.schema, port))
        self._kind = "MODIFY"

    def write(self, kind: str, entries: Iterable[Any]) -> None:
        """Inserts, modifies or deletes entries, as `kind` says."""
        self._client.write(update(kind, entry) for entry in entries)


@dataclass(frozen=True)
class SteadyRate:
    """Holds the result at one rate: packets per CPU-second, and the fraction of packets that were
    forwarded.
    """

    per_second: float
    delivered: float


def over_veth(
    switch: Switch, sender: subprocess.Popen[str], rate: float, seconds: float
) -> SteadyRate:
    """Sends frames at a rate and measures the forwarded frames."""
    before = _forwarded(switch)
    cpu = process_seconds(switch.target.pid)
    assert sender.stdin is not None
    assert sender.stdout is not None
    print(f"{rate} {seconds}", file=sender.stdin, flush=True)
    sent = int(sender.stdout.readline())
    came = _settled(switch) - before
    assert switch.target.process is not None
    switch.target.process.check()  # an assertion of BMv2 may end the switch under load
    spent = process_seconds(switch.target.pid) - cpu
    return SteadyRate(came / spent, came / sent)


def _forwarded(switch: Switch) -> int:
    """Returns the number of frames that have left by the port of the next hops."""
    end = switch.ends[VETH_OUT]
    for line in Path("/proc/thread-self/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == end:
            return int(counts.split()[1])
    raise LookupError(f"no interface {end}")


def _settled(switch: Switch) -> int:
    seen = [-1]

    def quiet() -> bool:
        seen.append(_forwarded(switch))
        return seen[-1] == seen[-2]

    wait_until(quiet, 20, f"{switch.target.name} to finish", interval=0.05)
    return seen[-1]


class Ctl:
    """Runs `sluice-switch ctl` on our target."""

    def __init__(self, address: str):
        self._words = [str(where.sluice_switch()), "ctl", "--admin", address, "--json"]

    def ask(self, *words: str) -> Any:
        """Runs one command and returns its JSON output."""
        return json.loads(run([*self._words, *words]).stdout or "null")

    def frames(self) -> tuple[int, int]:
        """Returns two counts: frames received at the input port in memory, and frames sent at the
        output port in memory.
        """
        ports = {found["number"]: found["statistics"] for found in self.ask("ports")["ports"]}
        return int(ports[MEMORY_IN]["rx_packets"]), int(ports[MEMORY_OUT]["tx_packets"])


def in_memory(switch: Switch, ctl: Ctl, capture: Path, seconds: float) -> float:
    """Returns packets per CPU-second of a switch whose ports are in memory."""
    ctl.ask("add-port", f"{MEMORY_IN}@replay:{capture}")
    try:
        time.sleep(0.2 * seconds)  # fills the CPU caches
        cpu, (received, sent) = process_seconds(switch.target.pid), ctl.frames()
        time.sleep(seconds)
        spent, (came, left) = process_seconds(switch.target.pid) - cpu, ctl.frames()
    finally:
        ctl.ask("remove-port", str(MEMORY_IN))
    if abs((came - received) - (left - sent)) > BATCH:
        raise RuntimeError(f"the switch received {came - received} frames, but sent {left - sent}")
    return (left - sent) / spent


def outputs(switch: Switch, frames: Sequence[bytes]) -> list[bytes]:
    """Sends frames to a switch over veth. Returns the frames that leave, in order."""
    switch.leave_by(VETH_OUT)
    with (
        Capture(switch.target.namespace, switch.ends[VETH_OUT]) as capture,
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as output,
    ):
        output.bind((switch.ends[VETH_IN], 0))
        for frame in frames:
            output.send(frame)
            time.sleep(0.001)
        wait_until(lambda: capture.count() >= len(frames), 20, f"{len(frames)} frames")
        return [frame.data for frame in capture.frames()]


def compare_outputs(switches: Sequence[Switch], frames: Sequence[bytes]) -> None:
    """Checks that all switches produce the same frames, and that no frame leaves unchanged."""
    made = [outputs(switch, frames) for switch in switches]
    if any(frame in made[0] for frame in frames):
        raise RuntimeError("a frame left the switch unchanged")
    for switch, others in zip(switches[1:], made[1:], strict=True):
        if others != made[0]:
            name = switch.target.name
            raise RuntimeError(f"{name} and {switches[0].target.name} produce different frames")


def best_rate(measure: Callable[[float], SteadyRate]) -> float:
    """Returns the rate with most packets per CPU-second, among rates with at least 99 %
    delivered.
    """
    trials = [(measure(rate), rate) for rate in RATES]
    kept = [
        (trial.per_second, rate) for trial, rate in trials if trial.delivered >= LEAST_DELIVERED
    ]
    if not kept:
        raise RuntimeError(f"{PEER} loses over 1 % of the packets at every rate: {trials}")
    return max(kept)[1]


@contextlib.contextmanager
def loaded(
    lab: Lab,
    namespace: Namespace,
    name: str,
    tables: TableContent,
    admin: str = "none",
    more: Sequence[str] = (),
) -> Iterator[Switch]:
    """Starts a target with the pipeline and its tables. `more` are options of sluice-switch."""
    prefix = name[:4]
    ports = plug(namespace, prefix)
    own = name in ENGINES
    options = ["--admin", admin, "--engine", ENGINES[name], *more] if own else []
    if own:
        options.append("--writes-from-any-connection")  # bulk.write() opens a connection of its own
    target = Target(
        namespace,
        ports,
        lab.supervisor,
        name=OURS if own else name,
        label=name,
        grpc_port=GRPC_PORTS[name],
        options=options,
    )
    target.start()
    build = where.pipeline()
    schema = Schema.load(build)
    with RuntimeClient(target.grpc, schema, target.device_id) as client:
        client.set_pipeline(build / "router.json")
        client.write(update("INSERT", entry) for entry in few_entries(schema))
        start = time.monotonic()
        bulk.write(target.grpc, bulk.requests(many_updates(schema, tables), target.device_id))
        took = time.monotonic() - start
        count = len(tables.routes) + len(tables.flows)
        print(f"{name}: {count} entries in {took:.1f} s", flush=True)
        yield Switch(target, client, schema, prefix)


@contextlib.contextmanager
def sender(interface: str, capture: Path) -> Iterator[subprocess.Popen[str]]:
    """Starts a process that sends the frames of a capture."""
    words = [sys.executable, "-m", "bench.sender", interface, str(capture)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, **pipes, cwd=where.repository()) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.stdin.close()


def measure_workload(
    name: str, capture: Path, ours: Switch, peer: Switch | None, ctl: Ctl, arguments: Any
) -> tuple[BenchCase, BenchCase]:
    """Measures in turn sluice-switch in memory, sluice-switch over veth, and BMv2 over veth."""
    memory, veth = BenchCase(name), BenchCase(f"{name}, over veth")
    if peer is not None:
        memory.peers[PEER], veth.peers[PEER] = [], []
    with contextlib.ExitStack() as stack:
        ours_sender = stack.enter_context(sender(ours.ends[VETH_IN], capture))
        rate = RATES[-1]
        if peer is not None:
            peer_sender = stack.enter_context(sender(peer.ends[VETH_IN], capture))
            seconds = arguments.seconds
            rate = best_rate(lambda one: over_veth(peer, peer_sender, one, seconds))
        for _ in range(arguments.rounds):
            ours.leave_by(MEMORY_OUT)
            memory.ours.append(in_memory(ours, ctl, capture, arguments.seconds))
            ours.leave_by(VETH_OUT)
            veth.ours.append(over_veth(ours, ours_sender, rate, arguments.seconds).per_second)
            if peer is not None:
                one = over_veth(peer, peer_sender, rate, arguments.seconds).per_second
                memory.peers[PEER].append(one)
                veth.peers[PEER].append(one)
    show(name, rate, memory, veth, peer)
    return memory, veth


def show(name: str, rate: float, memory: BenchCase, veth: BenchCase, peer: Switch | None) -> None:
    """Adds BMv2's rate and its fraction of system time to the cases, and prints the results."""
    if peer is not None:
        how = {"bmv2_rate": rate, "bmv2_system_share": system_share(peer.target.pid)}
        memory.details, veth.details = how, how
    ours, beside = memory.as_dict(), veth.as_dict()["ours"]
    print(f"{name}: {ours['ours']:,.0f} packets a CPU-second in memory, {beside:,.0f} over veth")
    if peer is None:
        return
    share = memory.details["bmv2_system_share"]
    print(
        f"  {PEER} {ours['peers'][PEER]:,.0f} at {rate:,.0f} a second, {share:.0%} of its time "
        f"in the kernel: ratio {ours['ratio'][PEER]:.1f}",
        flush=True,
    )


def compare(arguments: Any, lab: Lab, namespace: Namespace) -> None:
    """Measures both workloads, and writes the results."""
    tables = content(arguments.routes, arguments.flows)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        traffic = captures(folder, tables.flows)
        admin = f"unix:{folder}/admin"
        ours = stack.enter_context(loaded(lab, namespace, OURS, tables, admin))
        ctl = Ctl(admin)
        engine = ctl.ask("show")["engine"]
        if engine != ENGINES[OURS]:
            raise RuntimeError(f"{engine} runs the program, not {ENGINES[OURS]}")
        ctl.ask("add-port", f"{MEMORY_OUT}@discard:out")
        peer, missing = None, {}
        if installed():
            peer = stack.enter_context(loaded(lab, namespace, PEER, tables))
            peer.leave_by(VETH_OUT)
        else:
            missing[PEER] = "simple_switch_grpc is not on PATH"
        sample = tables.needed_by(tables.flows[:SAMPLE])
        with loaded(lab, namespace, ORACLE, sample) as oracle:
            switches = [oracle, ours, *([peer] if peer is not None else [])]
            for capture in traffic.values():
                compare_outputs(switches, read_pcap(capture)[:SAMPLE])
        cases = [
            measure_workload(name, capture, ours, peer, ctl, arguments)
            for name, capture in traffic.items()
        ]
    unit = "packets per CPU-second of the switch"
    verdicts = compare_with_bars("p4-cpu", [memory.as_dict() for memory, _ in cases])
    more = {
        "bars": [verdict.as_dict() for verdict in verdicts],
        "missing": missing,
        "input": {
            "engine": engine,
            "routes": len(tables.routes),
            "flows": len(tables.flows),
            "frames": min(FRAMES, len(tables.flows)),
        },
    }
    print(write_results("p4-cpu", unit, [memory for memory, _ in cases], more=more))
    print(
        write_results("p4-cpu-veth", unit, [veth for _, veth in cases], more={"missing": missing})
    )
    for verdict in verdicts:
        print(f"p4-cpu: {verdict}")
    for name, why in missing.items():
        print(f"p4-cpu: peer {name} is missing: {why}")


def installed() -> bool:
    """Returns whether BMv2 is installed on this machine."""
    try:
        binary(PEER)
    except TargetUnavailable as missing:
        print(missing, file=sys.stderr)
        return False
    return True


def main(words: Iterable[str] | None = None) -> int:
    """Parses the command line, measures and writes the results."""
    parser = command.parser("p4_cpu", "Measures packets per CPU-second", seconds=2.0)
    parser.add_argument(
        "--routes", type=int, default=1_000_000, help="number of routes (default: 1,000,000)"
    )
    parser.add_argument(
        "--flows", type=int, default=1 << 20, help="number of flows (default: 2^20)"
    )
    arguments = command.parsed(parser, words)
    command.in_lab(lambda lab, namespace: compare(arguments, lab, namespace))
    return 0


if __name__ == "__main__":
    sys.exit(main())
