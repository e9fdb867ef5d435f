# SPDX-License-Identifier: Apache-2.0
"""Searches for differences: sends random packets through random tables of sluice-switch and BMv2.

    python -m sluice_ptf.differential [--seed N] [--seconds N] [--packets N] [--found DIR]
                                      [--reference bmv2|interpreter]
    python -m sluice_ptf.differential --corpus [KIND...]

A case is a set of tables and packets. The seed and the case's number determine the case, so a
difference can be reproduced. If the two targets differ in a case, its packets are sent again one by
one. The packets whose results differ are written to DIR (default: build/differential) with BMv2's
outcome, as a candidate for a golden. Once it is clear which target is right, the golden goes to
ptf-tests/goldens/. The exit code is 1 if any result differed.

With --reference interpreter, the interpreter of sluice-switch takes the place of BMv2.

--corpus writes the basic set of goldens, with the reference's outcomes: one for each KIND of packet
(default: all kinds).
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from sluice_ptf.cabling import far_ends, plug
from sluice_ptf.differential import golden, policies
from sluice_ptf.differential.canonical import canonical
from sluice_ptf.differential.case import DifferentialCase, SwitchUnderTest, TableState
from sluice_ptf.differential.packets import Generator
from sluice_ptf.differential.policy_packets import PolicyPackets
from sluice_ptf.differential.states import changed, random_state
from sluice_ptf.probe import Probe
from sluice_ptf.runtime import RuntimeClient
from sluice_ptf.schema import Schema
from sluice_ptf.wire import PacketPorts
from sluice_testkit import where
from sluice_testkit.namespaces import Lab, Namespace
from sluice_testkit.target import Target

OURS = "sluice-switch"
OPTIONS = {"bmv2": [], OURS: [], "interpreter": ["--engine", "interpreter"]}
GRPC_PORTS = {"bmv2": 9559, OURS: 9560, "interpreter": 9561}
CORPUS_SEED = 20261120
CORPUS_PACKETS = 40
CORPUS_FRAME_BYTES = 700


@contextlib.contextmanager
def running(lab: Lab, namespace: Namespace, name: str) -> Iterator[SwitchUnderTest]:
    """Starts a target with its own gRPC port and interfaces, and loads the pipeline. The name
    `interpreter` stands for sluice-switch with this engine.
    """
    target = Target(
        namespace,
        plug(namespace, name[:4]),
        lab.supervisor,
        name="bmv2" if name == "bmv2" else OURS,
        label=name,
        grpc_port=GRPC_PORTS[name],
        options=OPTIONS[name],
    )
    target.start()
    build = where.pipeline()
    schema = Schema.load(build)
    with (
        RuntimeClient(target.grpc, schema, target.device_id) as client,
        PacketPorts(far_ends(name[:4])) as ports,
    ):
        client.set_pipeline(build / "router.json")
        yield SwitchUnderTest(name, client, Probe(client, ports))


def draw_case(seed: int, number: int, packets: int) -> DifferentialCase:
    """Returns the case that the seed and the number determine."""
    draw = Random(f"{seed}/{number}")
    earlier = []
    state = random_state(draw)
    with_policy = draw.random() < 0.75
    state = policies.guarded(draw, state) if with_policy else policies.unguarded(state)
    for _ in range(draw.choice((0, 1, 1, 2))):
        earlier.append(state)
        state = policies.changed(draw, changed(draw, state))
    generator = Generator(draw, state)
    if with_policy:
        generator.add_kinds(**PolicyPackets(draw, state).kinds)
    description = f"seed {seed}, case {number}"
    return DifferentialCase(description, state, generator.any(packets), earlier)


def compare(
    case: DifferentialCase, reference: SwitchUnderTest, ours: SwitchUnderTest, found: Path
) -> int:
    """Runs a case on both targets. Returns the number of packets whose results differ.

    Writes these packets as a golden.
    """
    runs = [subject.run(case) for subject in (reference, ours)]
    outcomes = [canonical(outcome, case.state) for outcome, _counts in runs]
    counts = [counts for _outcome, counts in runs]
    if not outcomes[0].difference(outcomes[1]) and counts[0] == counts[1]:
        return 0
    for key in counts[0]:
        if counts[0][key] != counts[1][key]:
            print(
                f"{case.description}: {key}: {reference.name} counted {counts[0][key]}, "
                f"{ours.name} {counts[1][key]}"
            )
    each = [
        [canonical(outcome, case.state) for outcome in subject.run_each(case)]
        for subject in (reference, ours)
    ]
    rows = list(zip(case.packets, *each, strict=True))
    differing = [row for row in rows if row[1].difference(row[2])]
    for packet, theirs, own in differing[:5]:
        print(f"{case.description}: {packet}\n{theirs.difference(own)}", flush=True)
    if not differing:
        print(
            f"{case.description}: the results differ only when all packets are sent together\n"
            f"{outcomes[0].difference(outcomes[1])}"
        )
    kept = differing or rows
    name = case.description.replace(", ", "-").replace(" ", "-")
    small = replace(case, packets=[row[0] for row in kept])
    golden.write(found / f"{name}.json", small, [row[1] for row in kept])
    return len(kept)


def search(arguments: Any, reference: SwitchUnderTest, ours: SwitchUnderTest) -> int:
    """Compares cases until the time is up. Returns the number of packets whose results differed."""
    end = time.monotonic() + arguments.seconds
    number = sent = differing = 0
    while time.monotonic() < end or number == 0:
        case = draw_case(arguments.seed, number, arguments.packets)
        differing += compare(case, reference, ours, arguments.found)
        number, sent = number + 1, sent + len(case.packets)
        if sys.stdout.isatty():
            print(f"\r{number} states, {sent} packets, {differing} differ", end="", flush=True)
    print(f"\nseed {arguments.seed}: {number} states, {sent} packets, {differing} differ")
    return differing


def write_corpus(reference: SwitchUnderTest, wanted: Sequence[str]) -> None:
    """Writes the basic set of goldens, with the reference's outcomes: one for each wanted kind of
    packet. If no kind is wanted, writes one for every kind.
    """
    empty = TableState()
    routing = list(Generator(Random(0), empty).kinds)
    for kind in wanted or (*routing, *PolicyPackets(Random(0), empty).kinds):
        draw = Random(f"{CORPUS_SEED}/{kind}")
        state = random_state(draw)
        state = policies.unguarded(state) if kind in routing else policies.guarded(draw, state)
        generator = Generator(draw, state)
        generator.add_kinds(**PolicyPackets(draw, state).kinds)
        drawn = generator.of_kind(kind, 2 * CORPUS_PACKETS)
        packets = [one for one in drawn if len(one.frame) <= CORPUS_FRAME_BYTES][:CORPUS_PACKETS]
        case = DifferentialCase(f"base corpus: {kind}", state, packets)
        outcomes = [canonical(outcome, state) for outcome in reference.run_each(case)]
        golden.write(golden.GOLDENS / f"corpus-{kind}.json", case, outcomes)


def _arguments() -> Any:
    parser = argparse.ArgumentParser(
        prog="differential",
        description="Compares sluice-switch with BMv2 on random tables and packets",
    )
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="seed of all cases (default: the time)"
    )
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="duration of the search (default: 60)"
    )
    parser.add_argument(
        "--packets", type=int, default=300, help="packets for each state (default: 300)"
    )
    found = where.repository() / "build" / "differential"
    parser.add_argument("--found", type=Path, default=found, help="directory for the findings")
    parser.add_argument(
        "--reference",
        choices=("bmv2", "interpreter"),
        default="bmv2",
        help="the switch to compare with (default: bmv2)",
    )
    parser.add_argument(
        "--corpus",
        metavar="KIND",
        nargs="*",
        help="write the base corpus of goldens, with the reference's outcomes (default: all kinds)",
    )
    return parser.parse_args()


def main() -> int:
    """Searches, or writes the corpus."""
    arguments = _arguments()
    with Lab() as lab:
        namespace = lab.namespace("differential")
        # gRPC's threads belong to the namespace of the thread that starts them. So everything runs
        # in the namespace.
        return namespace.inside(lambda: run(arguments, lab, namespace))


def run(arguments: Any, lab: Lab, namespace: Namespace) -> int:
    """Runs the cases that the arguments select, inside the namespace of the targets."""
    with running(lab, namespace, arguments.reference) as reference:
        if arguments.corpus is not None:
            write_corpus(reference, arguments.corpus)
            return 0
        with running(lab, namespace, OURS) as ours:
            return 1 if search(arguments, reference, ours) else 0


if __name__ == "__main__":
    sys.exit(main())
