# SPDX-License-Identifier: Apache-2.0
"""Runs goldens, which are stored cases with their outcomes, against any target. BMv2 is not needed.

    python -m sluice_ptf.differential.golden --address HOST:PORT --build DIR

A file of ptf-tests/goldens/ holds a case and the canonical outcome of each of its packets. The
outcome comes from BMv2, or from the specification where BMv2 was wrong. With
SLUICE_RENEW_GOLDENS=1, nothing is checked: the outcomes of the target under test replace those in
the files. Review the diff before you commit it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sluice_ptf.cabling import far_ends
from sluice_ptf.differential.canonical import Canonical, canonical
from sluice_ptf.differential.case import (
    DifferentialCase,
    SwitchUnderTest,
    case_from_json,
    case_to_json,
)
from sluice_ptf.probe import Probe
from sluice_ptf.runtime import RuntimeClient
from sluice_ptf.schema import Schema
from sluice_ptf.wire import PacketPorts

GOLDENS = Path(__file__).resolve().parents[2] / "goldens"


def read(path: Path) -> tuple[DifferentialCase, list[Canonical]]:
    """Reads a golden. Returns its case and the expected outcome of each packet."""
    data = json.loads(path.read_text())
    return case_from_json(data), [Canonical(tuple(one["outcome"])) for one in data["packets"]]


def write(path: Path, case: DifferentialCase, outcomes: Sequence[Canonical]) -> None:
    """Writes a golden, one line for each entry and each packet."""
    data = case_to_json(case)
    for packet, outcome in zip(data["packets"], outcomes, strict=True):
        packet["outcome"] = list(outcome.lines)
    lines = [f' "description": {json.dumps(data["description"])}']
    for key in ("earlier", "entries", "groups", "packets"):
        rows = ",\n".join("  " + json.dumps(row) for row in data[key])
        lines.append(f' "{key}": [\n{rows}\n ]')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def check(subject: SwitchUnderTest, path: Path) -> list[str]:
    """Runs a golden. Returns the differences, packet by packet."""
    case, expected = read(path)
    outcomes = [canonical(outcome, case.state) for outcome in subject.run_each(case)]
    if os.environ.get("SLUICE_RENEW_GOLDENS"):
        write(path, case, outcomes)
        return []
    found = []
    for packet, wanted, outcome in zip(case.packets, expected, outcomes, strict=True):
        if difference := wanted.difference(outcome):
            found.append(f"{path.name}: {packet}\n{difference}")
    return found


def _arguments() -> Any:
    parser = argparse.ArgumentParser(prog="golden", description="Runs the goldens on a target")
    parser.add_argument("--address", required=True, help="address of the target's P4Runtime server")
    parser.add_argument("--build", type=Path, required=True, help="directory of router.json")
    parser.add_argument("goldens", nargs="*", type=Path, help="golden files (default: all)")
    return parser.parse_args()


def main() -> int:
    """Runs all goldens. Returns 1 if an outcome differs."""
    arguments = _arguments()
    paths = arguments.goldens or sorted(GOLDENS.glob("*.json"))
    schema = Schema.load(arguments.build)
    with RuntimeClient(arguments.address, schema) as client, PacketPorts(far_ends()) as ports:
        client.set_pipeline(arguments.build / "router.json")
        subject = SwitchUnderTest("target", client, Probe(client, ports))
        found = [difference for path in paths for difference in check(subject, path)]
    for difference in found:
        print(difference)
    print(f"{len(paths)} goldens, {len(found)} packets differ")
    return 1 if found or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
