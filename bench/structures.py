# SPDX-License-Identifier: Apache-2.0
"""Compares the switch's lookup structures with those of other libraries: `make bench-NAME`.

    python -m bench.structures NAME [--rounds N] [--quick]

Runs sluice-bench (switch/crates/bench) or, for multipath, the native engine's own benchmark. These
programs measure all structures in one process, in turn, and print every round. This module computes
medians and ratios, compares them with the bars and writes bench/results/NAME.json. BGP_TABLE names
a file with a real routing table.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench import command
from bench.bars import compare_with_bars
from sluice_testkit import where
from sluice_testkit.bench import BenchCase, write_results

NAMES = ("lpm4-full", "lpm6-full", "lpm-auto", "exact", "ternary", "multipath")
BY_DEFAULT = 7  # rounds
OF_THE_NATIVE_ENGINE = {"multipath": "multipath", "spd-cache": "spd_cache"}
"""Names of the benchmarks in switch/crates/native/benches, by the names of the results."""


def peers_library() -> Path | None:
    """Returns the library compiled from bench/peers/dpdk.c; None if there is none."""
    path = where.repository() / "build" / "bench" / "peers_dpdk.so"
    return path if path.exists() else None


def program() -> Path:
    """Returns the path of sluice-bench: SLUICE_BENCH, or cargo's release build."""
    named = os.environ.get("SLUICE_BENCH")
    path = Path(named) if named else where.sluice_switch().with_name("sluice-bench")
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: run `make bench-NAME`")
    return path


def command_of(name: str) -> list[str]:
    """Returns the command that runs a benchmark."""
    if name in OF_THE_NATIVE_ENGINE:
        workspace = str(where.repository() / "switch" / "Cargo.toml")
        bench = ["cargo", "bench", "--quiet", "--locked", "--manifest-path", workspace]
        return [*bench, "--package", "sluice-native", "--bench", OF_THE_NATIVE_ENGINE[name], "--"]
    command = [str(program()), name]
    table = os.environ.get("BGP_TABLE")
    command += ["--table", table] if table else []
    library = peers_library()
    command += ["--dpdk", str(library)] if library else []
    return command


def measured(name: str, rounds: int, quick: bool) -> dict[str, Any]:
    """Runs a benchmark. Returns the program's report with all rounds."""
    command = [*command_of(name), "--rounds", str(rounds)]
    command += ["--quick"] if quick else []
    # All structures get huge pages, because DPDK's always have them.
    environment = os.environ | {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
    report = json.loads(done.stdout)
    assert isinstance(report, dict)
    return report


def as_cases(report: dict[str, Any]) -> list[BenchCase]:
    """Converts the report's cases for `write_results`."""
    return [
        BenchCase(
            case["workload"],
            ours=case["ours"],
            peers=case["peers"],
            details={"kind": case["kind"], **case["details"]},
        )
        for case in report["cases"]
    ]


def memory_cases(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the memory, in bytes, of each of our structures and of the structures it is compared
    with.

    `ratio` is the other structure's bytes divided by ours: more than 1 means that ours is smaller.
    """
    return [
        {
            "workload": memory["workload"],
            "unit": "bytes",
            "ours": memory["ours"],
            "peers": memory["peers"],
            "ratio": {peer: size / memory["ours"] for peer, size in memory["peers"].items()},
            "details": {"kind": "memory"},
        }
        for memory in report["memory"]
    ]


def main() -> int:
    """Measures, writes the results and prints whether the bars are met."""
    parser = argparse.ArgumentParser(prog="structures", description=__doc__.split("\n")[0])
    parser.add_argument("name", choices=NAMES)
    parser.add_argument(
        "--rounds", type=int, default=BY_DEFAULT, help=f"number of rounds (default: {BY_DEFAULT})"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a short run, to see whether the benchmark works; writes no results",
    )
    arguments = command.parsed(parser)
    report = measured(arguments.name, arguments.rounds, arguments.quick)
    cases, memory = as_cases(report), memory_cases(report)
    verdicts = compare_with_bars(arguments.name, [*(case.as_dict() for case in cases), *memory])
    if not arguments.quick:
        more = {
            "bars": [verdict.as_dict() for verdict in verdicts],
            "memory": memory,
            "missing": report["missing"],
            "input": report["input"],
            "versions": report["versions"],
        }
        print(write_results(arguments.name, report["unit"], cases, more=more))
    for peer, why in report["missing"].items():
        print(f"{arguments.name}: peer {peer} is missing: {why}")
    for verdict in verdicts:
        print(f"{arguments.name}: {verdict}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
