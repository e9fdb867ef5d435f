# SPDX-License-Identifier: Apache-2.0
"""Tests the queues of a port, on sluice-switch and on BMv2.

The test compares only results that do not depend on races: which packets find a queue full, how
many packets each finds in the queue, and which priorities exist. The queue's rate is so low that
all packets arrive before the first queued packet leaves.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from sluice_conformance import target as targets
from sluice_conformance.client import Client
from sluice_conformance.program import Program
from sluice_conformance.target import DEVICE_ID, Target
from sluice_testkit import where

PORTS = (0, 1)
DEPTH = 3
SECONDS = 30.0
BMV2_CLI = "simple_switch_CLI"


def packet(priority: int, number: int) -> bytes:
    """Returns a packet for the program `priority`, with room for the data that the program
    writes.
    """
    return bytes([priority, *bytes(14), number])


def limit_queues(target: Target, folder: Path) -> None:
    """Limits port 1 to one packet per second and to a short queue."""
    depth, rate = [str(DEPTH), "1"], ["1", "1"]
    if target.name == "bmv2":
        words = [BMV2_CLI, "--thrift-port", str(target.thrift_port)]
        lines = [["set_queue_depth", *depth], ["set_queue_rate", *rate]]
        text = "".join(" ".join(line) + "\n" for line in lines)
        subprocess.run(words, input=text, text=True, capture_output=True, check=True)
        return
    words = [str(where.sluice_switch()), "ctl", "--admin", f"unix:{folder}/admin"]
    for line in (["set-queue-depth", *depth], ["set-queue-rate", *rate]):
        subprocess.run([*words, *line], capture_output=True, check=True)


@pytest.mark.parametrize("name", targets.NAMES)
def test_a_queue_that_is_full_and_empties_slowly(name: str, tmp_path: Path) -> None:
    if name not in targets.available():
        pytest.skip(f"{name} is not on this machine")
    options = ["--priority-queues", "2"]
    if name == "bmv2":
        if shutil.which(BMV2_CLI) is None:
            pytest.skip(f"{BMV2_CLI} is not on PATH")
    else:
        options += ["--admin", f"unix:{tmp_path}/admin"]
    build = where.repository() / "switch" / "programs" / "build"
    program = Program.load(build / "priority.json", build / "priority.p4info.txtpb")
    with Target(name, PORTS, tmp_path, options) as target:
        with Client(target.address, DEVICE_ID) as client:
            client.load(program.p4info, (build / "priority.json").read_bytes())
        target.close_input(PORTS[1])
        limit_queues(target, tmp_path)
        # After these packets have left, the next ones have to wait in the queue for a second.
        target.send(PORTS[0], packet(0, 10))
        target.send(PORTS[0], packet(1, 20))
        assert target.wait_for_frames(2, SECONDS)
        for number in range(11, 16):
            target.send(PORTS[0], packet(0, number))
            target.send(PORTS[0], packet(1, 10 + number))
            target.send(PORTS[0], packet(2, 20 + number))
        assert target.wait_for_frames(2 + 2 * DEPTH, SECONDS)
        left = target.sent()[1]
    for priority in (0, 1):
        first = 10 + 10 * priority
        seen = [
            (frame[15], int.from_bytes(frame[9:12]), int.from_bytes(frame[12:15]))
            for frame in left
            if frame[0] == priority
        ]
        assert seen == [(first, 0, 0), (first + 1, 0, 2), (first + 2, 1, 1), (first + 3, 2, 0)]
    assert len(left) == 2 + 2 * DEPTH
