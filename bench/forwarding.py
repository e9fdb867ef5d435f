# SPDX-License-Identifier: Apache-2.0
"""Measures forwarding through the whole switch, sluice-switch against BMv2: `make bench`.

    python -m bench.forwarding [--seconds N] [--rounds N]

Both targets run the same compiled program (JSON) with the same tables and packets. One run measures
them in turn. Small frames enter port 1 and leave ports 2 and 3. Steady workloads are sent at a rate
that BMv2 can forward, saturated ones as fast as possible. There are three results, each the median
of all rounds:

    forwarding-cpu       packets per CPU-second of the switch, including system time
    forwarding-machine   packets per CPU-second of the switch, the sender and the kernel's
                         softirq threads together
    forwarding-rate      packets per second that leave under saturation
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from p4.v1 import p4runtime_pb2

from bench import command
from bench.cpu import Meter
from sluice_ptf.cabling import far_ends, plug
from sluice_ptf.network import Interface, Nexthop
from sluice_ptf.runtime import RuntimeClient, update
from sluice_ptf.schema import Schema
from sluice_testkit import where
from sluice_testkit.bench import BenchCase, write_results
from sluice_testkit.namespaces import Lab, Namespace
from sluice_testkit.process import run
from sluice_testkit.target import Target, TargetUnavailable, binary
from sluice_testkit.wait import wait_until

OURS, PEER = "sluice-switch", "bmv2"
GRPC_PORTS = {OURS: 9560, PEER: 9559}
STEADY = 8_000.0
BURST = 8
LEAST_DELIVERED = 0.99  # share of a steady load that must arrive; a lower share is reported
ROUTES = 10_000
WARM_UP_SECONDS = 0.3

IN = Interface(id=1, port=1, mac="02:00:00:00:01:01")
OUT = (
    Nexthop(12, Interface(id=2, port=2, mac="02:00:00:00:01:02"), "02:bb:00:00:00:02"),
    Nexthop(13, Interface(id=3, port=3, mac="02:00:00:00:01:03"), "02:bb:00:00:00:03"),
)
GROUP = 5


@dataclass(frozen=True)
class Workload:
    """Holds the options with which sluice-traffic generates flows, and the rate in packets per
    second (None: as fast as possible).
    """

    name: str
    flows: Sequence[str]
    rate: float | None


@dataclass(frozen=True)
class Measured:
    """Holds the result of one round on one target."""

    per_switch_second: float
    per_machine_second: float
    rate: float


class Switch:
    """Runs a target under load."""

    def __init__(self, target: Target, prefix: str):
        self.target = target
        self.ends = far_ends(prefix)

    def forwarded(self) -> int:
        """Returns the number of frames that have left all ports."""
        lines = Path("/proc/thread-self/net/dev").read_text().splitlines()
        received = {name.strip(): counts.split()[1] for name, _, counts in _columns(lines)}
        return sum(int(received[end]) for end in self.ends.values())

    def settled(self) -> int:
        """Waits until no more frames leave. Returns the number of frames that have left."""
        seen = [-1]

        def quiet() -> bool:
            seen.append(self.forwarded())
            return seen[-1] == seen[-2]

        wait_until(quiet, 10, f"{self.target.name} to finish", interval=0.05)
        return seen[-1]

    def measure(self, workload: Workload, seconds: float) -> Measured:
        """Sends a workload, and returns the forwarded frames per second and per CPU-second."""
        self.offer(workload, WARM_UP_SECONDS)
        before = self.settled()
        meter = Meter(self.target.pid)
        sent = self.offer(workload, seconds)
        came = self.settled() - before
        switch, machine = meter.seconds()
        if workload.rate is not None and came < LEAST_DELIVERED * sent:
            print(f"{self.target.name}, {workload.name}: only {came} of {sent} packets left")
        return Measured(came / switch, came / machine, came / seconds)

    def offer(self, workload: Workload, seconds: float) -> int:
        """Sends a workload for `seconds` seconds. Returns the number of packets sent."""
        words = [str(where.sluice_traffic()), "gen", "--tx", self.ends[IN.port]]
        words += ["--dst-mac", IN.mac, "--pick", "random", *workload.flows]
        if workload.rate is not None:
            words += ["--rate", str(workload.rate), "--burst", str(BURST)]
        done = run([*words, "--duration", f"{seconds:g}"])
        return int(json.loads(done.stdout)["sent"]["packets"])


def _columns(lines: Sequence[str]) -> list[tuple[str, str, str]]:
    return [line.partition(":") for line in lines if ":" in line]


def entries(schema: Schema) -> Iterator[Any]:
    """Yields the table entries: three interfaces without SPD, two next hops, a group of both, and
    10,000 routes.
    """
    door = {"ingress_port": IN.port, "vlan_id": 0}
    yield schema.entry("l3_interface", door, "set_l3_interface", l3_if=IN.id, vrf=0, role="ROUTER")
    yield schema.entry("router_mac", {"l3_if": IN.id, "dst_mac": IN.mac}, "admit_unicast")
    for interface in (IN, *(nexthop.interface for nexthop in OUT)):
        for list_of in ("inbound", "outbound"):
            bound = {"l3_if": interface.id}
            yield schema.entry(f"{list_of}_binding", bound, f"no_{list_of}_policy")
    profile = schema.profiles["nexthop_selector"].preamble.id
    group = p4runtime_pb2.ActionProfileGroup(action_profile_id=profile, group_id=GROUP, max_size=2)
    for nexthop in OUT:
        out = nexthop.interface
        way: dict[str, Any] = {"port": out.port, "vlan_id": 0, "src_mac": out.mac, "mtu": 1500}
        yield schema.entry("egress_interface", {"l3_if": out.id}, "set_egress", **way)
        to: dict[str, Any] = {"l3_if": out.id, "dst_mac": nexthop.mac}
        yield schema.entry("nexthop", {"nexthop_id": nexthop.id}, "set_neighbor", **to)
        call = schema.action_call("set_group_nexthop", {"nexthop_id": nexthop.id})
        yield p4runtime_pb2.ActionProfileMember(
            action_profile_id=profile, member_id=nexthop.id, action=call
        )
        group.members.add(member_id=nexthop.id, weight=1)
    yield group
    selects = schema.entry("nexthop_group", {"group_id": GROUP})
    selects.action.action_profile_group_id = GROUP
    yield selects
    shared = {"ipv4_fib": "172.16.0.0/12", "ipv6_fib": "2001:db8:ffff::/48"}
    for table, prefix in shared.items():
        match: dict[str, Any] = {"vrf": 0, "dst_addr": prefix}
        yield schema.entry(table, match, "set_nexthop_group", group_id=GROUP)
    for index in range(ROUTES // 2):
        nexthop_id = OUT[index % 2].id
        match = {"vrf": 0, "dst_addr": f"10.{index >> 8 & 255}.{index & 255}.0/24"}
        yield schema.entry("ipv4_fib", match, "set_nexthop", nexthop_id=nexthop_id)
        match = {"vrf": 0, "dst_addr": f"2001:db8:1::{index >> 8:x}:{index & 255:x}00/120"}
        yield schema.entry("ipv6_fib", match, "set_nexthop", nexthop_id=nexthop_id)


def workloads() -> list[Workload]:
    """Returns workloads with small frames of many flows.

    The workload with two equal paths uses a group of two next hops. The others use all routes.
    """
    ports = ["--sport", "1024+8"]
    ipv4 = ["--src", "10.200.0.1", "--dst", f"10.0.0.9+{ROUTES // 2 * 256}", *ports]
    ipv6 = [
        "--src",
        "2001:db8:a::1",
        "--dst",
        f"2001:db8:1::9+{ROUTES // 2 * 256}",
        "--size",
        "100",
        *ports,
    ]
    ecmp = ["--src", "10.200.0.1+16", "--dst", "172.16.1.9+16", *ports]
    return [
        Workload("IPv4, 60 bytes, 5000 routes, steady", ipv4, STEADY),
        Workload("IPv6, 100 bytes, 5000 routes, steady", ipv6, STEADY),
        Workload("IPv4, 60 bytes, two equal paths, steady", ecmp, STEADY),
        Workload("IPv4, 60 bytes, 5000 routes, saturated", ipv4, None),
        Workload("IPv6, 100 bytes, 5000 routes, saturated", ipv6, None),
    ]


@contextlib.contextmanager
def loaded(lab: Lab, namespace: Namespace, name: str) -> Iterator[Switch]:
    """Starts a target with the pipeline and its tables."""
    prefix = name[:4]
    ports = plug(namespace, prefix)
    target = Target(
        namespace, ports, lab.supervisor, name=name, label=name, grpc_port=GRPC_PORTS[name]
    )
    target.start()
    build = where.pipeline()
    schema = Schema.load(build)
    with RuntimeClient(target.grpc, schema, target.device_id) as client:
        client.set_pipeline(build / "router.json")
        client.write(update("INSERT", entity) for entity in entries(schema))
        yield Switch(target, prefix)


def compare(arguments: Any, lab: Lab, namespace: Namespace) -> None:
    """Measures all workloads on both targets in turn, and writes the results."""
    results = {name: list[BenchCase]() for name in ("cpu", "machine", "rate")}
    with loaded(lab, namespace, OURS) as ours, loaded(lab, namespace, PEER) as peer:
        for workload in workloads():
            cases = {name: BenchCase(workload.name, peers={PEER: []}) for name in results}
            for _ in range(arguments.rounds):
                for switch in (ours, peer):
                    one = switch.measure(workload, arguments.seconds)
                    measured = {
                        "cpu": one.per_switch_second,
                        "machine": one.per_machine_second,
                        "rate": one.rate,
                    }
                    for name, value in measured.items():
                        case = cases[name]
                        (case.ours if switch is ours else case.peers[PEER]).append(value)
            for name, case in cases.items():
                if name != "rate" or workload.rate is None:
                    results[name].append(case)
            shown = cases["cpu"].as_dict()
            print(
                f"{workload.name}: {shown['ours']:.0f} against {shown['peers'][PEER]:.0f} "
                f"packets per CPU-second, ratio {shown['ratio'][PEER]:.2f}",
                flush=True,
            )
    units = {
        "cpu": "packets per CPU-second of the switch",
        "machine": "packets per CPU-second of switch, sender and kernel",
        "rate": "packets per second",
    }
    for name, unit in units.items():
        print(write_results(f"forwarding-{name}", unit, results[name]))


def main() -> int:
    """Parses the command line, measures and writes the results."""
    parser = command.parser(
        "forwarding", "Measures the forwarding of sluice-switch and BMv2", seconds=2.0
    )
    arguments = command.parsed(parser)
    try:
        binary(PEER)
    except TargetUnavailable as missing:
        parser.error(str(missing))
    command.in_lab(lambda lab, namespace: compare(arguments, lab, namespace))
    return 0


if __name__ == "__main__":
    sys.exit(main())
