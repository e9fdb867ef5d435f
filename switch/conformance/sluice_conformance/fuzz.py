# SPDX-License-Identifier: Apache-2.0
"""Sends random packets through the switch's own programs, on sluice-switch and on BMv2.

    python -m sluice_conformance.fuzz [--packets N] [--seed N] [PROGRAM...]

Depends on target, client and program. The programs are those of switch/programs, without table
entries. The first byte of a packet selects the operation. Both targets get the same packets and
must send the same. Some packets crash BMv2 (an index beyond a header stack, an assertion). Then
only the packets that BMv2 sent before the crash are compared, and the output says so. Exit status
1: a result differs.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sluice_conformance.client import Client
from sluice_conformance.program import Program
from sluice_conformance.report import REFERENCE, SUBJECT
from sluice_conformance.runner import QUIET_SECONDS, wait_for_silence
from sluice_conformance.target import DEVICE_ID, Target, TargetDied
from sluice_testkit import where
from sluice_testkit.wait import Timeout

PORTS = (0, 1)
# Packets sent at once. BMv2's queues hold 64 packets and drop the rest.
BURST = 32
# Programs that cannot be compared: they depend on time or chance, or differ from BMv2 on purpose
# (programs/README.md).
LEFT_OUT = {
    "again": "passes without end, which BMv2 does not bound",
    "digests": "random, and assertions, which BMv2 does not survive",
    "parser_calls": "assertions",
    "replication": "copies without end",
    "spread": "chance; BMv2 refuses the hash algorithm",
    "standard_metadata": "time",
    "priority": "time",
    "queue_metadata": "time",
    "parser_select": "a select without a matching case (programs/README.md)",
}


@dataclass(frozen=True)
class Seen:
    """The packets that a target sent, by port. If the target crashed, `died` says why."""

    frames: dict[int, list[bytes]]
    died: str | None


def packets(source: random.Random, count: int) -> list[bytes]:
    """Returns random packets: about half are long enough for any header, and in most the first byte
    is below 24.
    """
    made = []
    for _ in range(count):
        length = source.choice((source.randrange(1, 24), source.randrange(24, 80)))
        first = source.randrange(24) if source.random() < 0.9 else source.randrange(256)
        made.append(bytes([first]) + source.randbytes(length - 1))
    return made


def run(target_name: str, json: Path, p4info: Path, sent: list[bytes]) -> Seen:
    """Sends packets to a program without table entries. Returns the target's packets."""
    program = Program.load(json, p4info)
    with (
        tempfile.TemporaryDirectory(prefix="sluice-fuzz-") as folder,
        Target(target_name, PORTS, Path(folder)) as target,
    ):
        died = None
        try:
            with Client(target.address, DEVICE_ID) as client:
                client.load(program.p4info, json.read_bytes())
                target.close_input(PORTS[1])
                for index, packet in enumerate(sent):
                    target.send(PORTS[0], packet)
                    if index % BURST == BURST - 1:
                        wait_for_silence(target, QUIET_SECONDS)
                target.close_input(PORTS[0])
                wait_for_silence(target, 4 * QUIET_SECONDS)
                target.check()
        except (TargetDied, Timeout) as error:
            died = str(error)
        return Seen(target.sent(), died)


def differences(mine: Seen, reference: Seen) -> list[str]:
    """Describes where the targets differ. If the reference crashed, only the packets before that
    count.
    """
    found = [f"{SUBJECT} died: {mine.died}"] if mine.died else []
    for port in PORTS:
        ours, theirs = mine.frames[port], reference.frames[port]
        for index, (our, their) in enumerate(zip(ours, theirs, strict=False)):
            if our != their:
                found.append(f"port {port}, packet {index}: {our.hex()}, BMv2 {their.hex()}")
        if len(ours) != len(theirs) and reference.died is None:
            found.append(f"port {port}: {len(ours)} packets, BMv2 {len(theirs)}")
    return found


def main() -> int:
    """Runs the selected programs and prints the differences."""
    parser = argparse.ArgumentParser(prog="sluice_conformance.fuzz", description="random packets")
    parser.add_argument("--packets", type=int, default=200, help="packets per program")
    parser.add_argument("--seed", type=int, default=1, help="seed of the packets")
    parser.add_argument("programs", nargs="*", help="names in switch/programs; default: all")
    options = parser.parse_args()
    build = where.repository() / "switch" / "programs" / "build"
    known = [path.name.removesuffix(".p4info.txtpb") for path in build.glob("*.p4info.txtpb")]
    names = options.programs or sorted(set(known) - LEFT_OUT.keys())
    failed = 0
    for name in names:
        sent = packets(random.Random(f"{options.seed} {name}"), options.packets)
        files = (build / f"{name}.json", build / f"{name}.p4info.txtpb")
        mine, reference = run(SUBJECT, *files, sent), run(REFERENCE, *files, sent)
        found = differences(mine, reference)
        failed += bool(found)
        compared = sum(len(frames) for frames in reference.frames.values())
        died = "; BMv2 died" if reference.died else ""
        print(f"{name}: {compared} packets compared, {len(found)} differ{died}", flush=True)
        for line in found[:5]:
            print(f"    {line}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
