# SPDX-License-Identifier: Apache-2.0
"""Measures the router program with an ESP engine, end to end in memory: part of `make bench-esp`.

    python -m bench.esp_router [--seconds N] [--rounds N] [--quick]

One sluice-switch has an ESP engine inside, ports in memory, 100,000 routes and 10,000 cached flows
of an interface with an SPD. The switch routes each packet and finds its verdict in the flow cache.
One SA (AES-128-GCM, ESN) encrypts the packet, and the switch routes the result by its outer
address. The comparison (`bypass` in the results) is the same switch with another SPD list, whose
verdict for the same flows is bypass. The two lists are measured in turn. CPU-seconds are those of
all threads of the switch.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import bulk, command, p4_cpu
from bench.frames import udp, write_pcap
from bench.p4_cpu import LIST_ID, MEMORY_OUT, Ctl, Switch, TableContent
from sluice_ptf.schema import Schema
from sluice_testkit.bench import BenchCase, write_results
from sluice_testkit.namespaces import Lab, Namespace

ETHERNET = 14
IMIX = (64, 64, 64, 64, 64, 64, 64, 576, 576, 576, 576, 1350)
WORKLOADS = {f"{size} bytes": (size,) for size in (64, 256, 576, 1350)} | {"IMIX": IMIX}
"""Lengths of the IP packets, which repeat in this order."""
ROUTES, FLOWS, FRAMES = 100_000, 10_000, 1 << 16
ENGINE, ENGINE_PORT, BUNDLE, SA, SPI = 1, 9, 3, 7, 0x1001
PROTECTED = LIST_ID + 1
"""Id of the list that protects the flows. The list LIST_ID bypasses them."""
LOCAL, REMOTE = "192.0.2.1", "192.0.2.2"
BYPASS = "bypass"


def engine_entries(schema: Schema) -> Iterator[Any]:
    """Yields the entries of the engine and of the route to the remote peer."""
    door: dict[str, Any] = {"ingress_port": ENGINE_PORT, "vlan_id": 0}
    yield schema.entry("l3_interface", door, "set_l3_interface", l3_if=900, vrf=0, role="ENGINE")
    yield schema.entry("engine", {"engine": ENGINE}, "set_engine", port=ENGINE_PORT)
    peer: dict[str, Any] = {"vrf": 0, "dst_addr": f"{REMOTE}/32"}
    yield schema.entry("ipv4_fib", peer, "set_nexthop", nexthop_id=p4_cpu.NEXTHOPS[0])


def bundle_entries(schema: Schema, bundle: int = BUNDLE, sa: int = SA) -> Iterator[Any]:
    """Yields the entries of a bundle with one outbound SA."""
    key: dict[str, Any] = {"vrf": 0, "bundle": bundle}
    to: dict[str, Any] = {"engine": ENGINE, "sa": sa, "path_mtu": 1500, "overhead": 57}
    yield schema.entry("outbound_sa", key, "encrypt", **to)
    yield schema.entry("esp_source_ipv4", key | {"src_addr": LOCAL}, "from_bundle")


def outbound_sa(
    bundle: int = BUNDLE, sa: int = SA, algorithm: str = "aes-128-gcm", **keys: str
) -> Mapping[str, Any]:
    """Returns the outbound SA in the engine's input format. `keys` are needed for an algorithm
    other than AES-128-GCM.
    """
    return {
        "direction": "out",
        "sa": sa,
        "spi": SPI + sa - SA,
        "bundle": bundle,
        "mode": "tunnel",
        "algorithm": algorithm,
        **(keys or {"key": "42" * 20}),
        "esn": True,
        "local": LOCAL,
        "remote": REMOTE,
    }


def add_sas(ctl: Ctl, folder: Path, sas: Sequence[Mapping[str, Any]]) -> None:
    """Adds SAs to the engine, from a file that only this user can read."""
    path = folder / "sas.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps(sas), encoding="utf-8")
    ctl.ask("esp", "add", str(path))


def check_against_list(switch: Switch, list_id: int) -> None:
    """Binds the list to the egress interface. The switch then searches its flow cache for each
    packet.
    """
    guarded = {"l3_if": MEMORY_OUT}
    bound = switch.schema.entry("outbound_binding", guarded, "check_outbound", list_id=list_id)
    switch.write("MODIFY", [bound])


def captures(folder: Path, tables: TableContent) -> dict[str, Path]:
    """Writes a capture file for each workload, and returns the paths. The frames of a file use all
    flows in turn.
    """
    macs = bytes.fromhex(p4_cpu.IN_MAC.replace(":", "") + "06" * 6)
    paths = {}
    for name, sizes in WORKLOADS.items():
        paths[name] = folder / f"{name.replace(' ', '')}.pcap"
        flows = (tables.flows[at % FLOWS] for at in range(FRAMES))
        frames = (
            udp(flow, macs, ETHERNET + sizes[at % len(sizes)]) for at, flow in enumerate(flows)
        )
        write_pcap(paths[name], frames)
    return paths


@contextlib.contextmanager
def with_engine(
    lab: Lab, namespace: Namespace, folder: Path, tables: TableContent
) -> Iterator[tuple[Switch, Ctl]]:
    """Starts a switch with an engine inside, whose packets leave by a port in memory."""
    admin = f"unix:{folder}/admin"
    engine = [f"--engine-port={ENGINE_PORT}", f"--engine-state-directory={folder}/state"]
    with p4_cpu.loaded(lab, namespace, p4_cpu.OURS, tables, admin, engine) as switch:
        ctl = Ctl(admin)
        ctl.ask("add-port", f"{MEMORY_OUT}@discard:out")
        switch.leave_by(MEMORY_OUT)
        switch.write("INSERT", engine_entries(switch.schema))
        yield switch, ctl


@contextlib.contextmanager
def protecting(
    lab: Lab, namespace: Namespace, folder: Path, tables: TableContent
) -> Iterator[tuple[Switch, Ctl]]:
    """Starts a switch with two lists for the same flows: the verdict of one is bypass, of the other
    protect.
    """
    with with_engine(lab, namespace, folder, tables) as (switch, ctl):
        updates = p4_cpu.flow_updates(switch.schema, tables.flows, PROTECTED, "PROTECT", BUNDLE)
        bulk.write(switch.target.grpc, bulk.requests(updates, switch.target.device_id))
        switch.write("INSERT", [p4_cpu.list_state(switch.schema, PROTECTED)])
        switch.write("INSERT", bundle_entries(switch.schema))
        add_sas(ctl, folder, [outbound_sa()])
        yield switch, ctl


def encrypted(ctl: Ctl) -> int:
    """Returns the number of packets that all SAs have encrypted."""
    return sum(int(sa["counters"]["packets"]) for sa in ctl.ask("esp", "show")["sas"])


def measure(arguments: Any, lab: Lab, namespace: Namespace) -> None:
    """Measures all workloads with each list in turn, and writes the results."""
    tables = p4_cpu.content(ROUTES, FLOWS)
    cases = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        traffic = captures(folder, tables)
        with protecting(lab, namespace, folder, tables) as (switch, ctl):
            for workload, capture in traffic.items():
                case = BenchCase(workload, peers={BYPASS: []})
                for _ in range(arguments.rounds):
                    check_against_list(switch, PROTECTED)
                    before = encrypted(ctl)
                    case.ours.append(p4_cpu.in_memory(switch, ctl, capture, arguments.seconds))
                    if encrypted(ctl) - before < case.ours[-1] * arguments.seconds / 2:
                        raise RuntimeError(
                            "the list protects all flows, but some packets were not encrypted"
                        )
                    check_against_list(switch, LIST_ID)
                    before = encrypted(ctl)
                    clear = p4_cpu.in_memory(switch, ctl, capture, arguments.seconds)
                    case.peers[BYPASS].append(clear)
                    if encrypted(ctl) != before:
                        raise RuntimeError(
                            "the list bypasses all flows, but packets were encrypted"
                        )
                cases.append(case)
                show(case)
    if arguments.quick:
        return
    unit = "packets per CPU-second of the switch"
    about = {"routes": ROUTES, "flows": FLOWS, "algorithm": "aes-128-gcm"}
    print(write_results("esp-router", unit, cases, more={"input": about}))


def show(case: BenchCase) -> None:
    """Prints the results of a workload."""
    found = case.as_dict()
    print(
        f"{case.workload}: {found['ours']:,.0f} packets a CPU-second encrypted,"
        f" {found['peers'][BYPASS]:,.0f} in clear, ratio {found['ratio'][BYPASS]:.3f}",
        flush=True,
    )


def main() -> int:
    """Parses the command line, measures and writes the results."""
    parser = command.parser(
        "esp_router", "Measures the router program with and without encryption", seconds=1.0
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a short run, to see whether the benchmark works; writes no results",
    )
    arguments = command.parsed(parser)
    if arguments.quick:
        arguments.seconds = 0.1
    command.in_lab(lambda lab, namespace: measure(arguments, lab, namespace))
    return 0


if __name__ == "__main__":
    sys.exit(main())
