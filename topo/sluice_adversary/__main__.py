# SPDX-License-Identifier: Apache-2.0
"""Attacks a running router and checks which packets leave it.

    python -m sluice_adversary --packets 1000000 --seed 1 --target sluice-switch

Exit status 0: nothing leaked and nothing was lost. Exit status 1: a packet leaked or was lost. The
status is also 1 if a queue, a meter or a capture buffer was full, because the run then proves
nothing. Exit status 2: wrong usage.
"""

import argparse
import os
import secrets
import sys

from sluice_testkit import where
from sluice_testkit.namespaces import Lab
from sluice_testkit.target import NAMES, TargetUnavailable, binary, target_name

from . import report
from .campaign import Campaign
from .network import Arena
from .peer import WithEngine
from .reference import Reference


def main() -> int:
    """Parses the command line, attacks, and prints the report."""
    parser = argparse.ArgumentParser(prog="python -m sluice_adversary", description=__doc__)
    parser.add_argument(
        "--packets", type=int, default=1_000_000, help="least number of packets to send"
    )
    parser.add_argument(
        "--seed",
        type=int,
        help="seed of rules and datagrams (default: a new seed, which is printed)",
    )
    parser.add_argument(
        "--target", choices=NAMES, default=None, help="default: the variable TARGET"
    )
    parser.add_argument(
        "--engine",
        action="store_true",
        help="attack a switch with the ESP engine inside; captures then see ESP",
    )
    parser.add_argument(
        "--mode",
        choices=("auto", "cache", "rules", "cache+rules"),
        default="cache",
        help="tables of the switch that give verdicts (default: cache)",
    )
    parser.add_argument(
        "--no-results", action="store_true", help="write no result under bench/results"
    )
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print("sluice_adversary: run it as root, which network namespaces need", file=sys.stderr)
        return 2
    try:
        target = target_name(arguments.target)
        binary(target)
        where.sluice()
    except (TargetUnavailable, FileNotFoundError) as missing:
        print(f"sluice_adversary: {missing}", file=sys.stderr)
        return 2
    if arguments.engine and target != "sluice-switch":
        print("sluice_adversary: --engine needs --target sluice-switch", file=sys.stderr)
        return 2
    seed = secrets.randbelow(1 << 32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", flush=True)
    special = arguments.engine or arguments.mode != "cache"
    results = not (arguments.no_results or special)
    return attack(arguments.packets, seed, target, results, arguments.engine, arguments.mode)


def attack(packets: int, seed: int, target: str, results: bool, engine: bool, mode: str) -> int:
    """Runs one campaign: builds the network, attacks it, and reports. Returns the exit status."""
    with Lab() as lab:
        arena = Arena(lab, target, engine, mode)
        try:
            arena.start()
            campaign = Campaign(arena, seed, WithEngine if engine else Reference)
            campaign.run(packets, report.progress)
            bounds, taken = arena.bounds_hit(), arena.wrongly_accepted()
            print(f"\n{report.summary(campaign, seed, target)}")
            if arena.peer is not None:
                print(arena.peer.summary(arena.engine_status()))
            for path in report.save_reproducers(campaign, seed):
                print(f"reproducer: {path}")
        finally:
            arena.close()
    for name, count in bounds.items():
        print(
            f"the run proves nothing, because a limit was reached: {name}: {count}", file=sys.stderr
        )
    for text in taken:
        print(f"the engine accepted packets that it must refuse: {text}", file=sys.stderr)
    if results:
        print(f"written: {report.write_results(campaign, seed, target, bounds)}")
    return 1 if campaign.checker.findings or bounds or taken else 0


if __name__ == "__main__":
    sys.exit(main())
