# SPDX-License-Identifier: Apache-2.0
"""Measures the ESP engine: `make bench-esp`.

    python -m bench.esp [--rounds N] [--quick]

sluice-bench measures two things in turn, in one process: the engine, and the bare AEAD of the
crypto library that the engine uses (switch/crates/bench/src/esp.rs). DPDK's crypto performance tool
and strongSwan's libipsec are measured too, if they are installed.
"""

from __future__ import annotations

import argparse
import sys

from bench import command, crypto_perf, libipsec
from bench.bars import compare_with_bars
from bench.command import ToolMissing
from bench.structures import as_cases, measured
from sluice_testkit.bench import BenchCase, write_results
from sluice_testkit.namespaces import Lab

SIZES = (64, 256, 576, 1350)
DPDK, LIBIPSEC = "dpdk-crypto-perf", "libipsec"


def case_of(cases: list[BenchCase], size: int) -> BenchCase:
    """Returns the case with which other programs are compared: encryption by one SA."""
    return next(case for case in cases if case.workload == f"{size} bytes, 1 SA, encrypt")


def add_dpdk_rates(cases: list[BenchCase], rounds: int, missing: dict[str, str]) -> None:
    """Adds DPDK's rates to the cases, or the reason why DPDK could not be measured to `missing`."""
    try:
        for _ in range(rounds):
            for size, (rate, driver) in crypto_perf.best(SIZES).items():
                case = case_of(cases, size)
                case.peers.setdefault(DPDK, []).append(rate)
                case.details["dpdk_driver"] = driver
    except ToolMissing as why:
        missing[DPDK] = str(why)


def add_strongswan_rates(cases: list[BenchCase], rounds: int, missing: dict[str, str]) -> None:
    """Adds strongSwan's rates to the cases, or the reason why it could not be measured to
    `missing`.
    """
    try:
        with Lab() as lab:
            found = libipsec.rates(lab, SIZES, rounds)
    except ToolMissing as why:
        missing[LIBIPSEC] = str(why)
        return
    for size, rates in found.items():
        case = case_of(cases, size)
        case.peers[LIBIPSEC] = [rate.per_second for rate in rates]
        case.details["libipsec_system_share"] = round(rates[-1].system, 2)


def main() -> int:
    """Measures, writes the results and prints whether the bars are met."""
    parser = argparse.ArgumentParser(prog="esp", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7, help="number of rounds (default: 7)")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a short run, to see whether the benchmark works; writes no results",
    )
    arguments = command.parsed(parser)
    report = measured("esp", arguments.rounds, arguments.quick)
    cases, missing = as_cases(report), dict(report["missing"])
    if not arguments.quick:
        add_dpdk_rates(cases, arguments.rounds, missing)
        add_strongswan_rates(cases, arguments.rounds, missing)
    verdicts = compare_with_bars("esp", [case.as_dict() for case in cases])
    if not arguments.quick:
        more = {
            "bars": [verdict.as_dict() for verdict in verdicts],
            "missing": missing,
            "input": report["input"],
        }
        print(write_results("esp", report["unit"], cases, more=more))
    for peer, why in missing.items():
        print(f"esp: peer {peer} is missing: {why}")
    for verdict in verdicts:
        print(f"esp: {verdict}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
