# SPDX-License-Identifier: Apache-2.0
"""Writes benchmark results to bench/results/NAME.json. All benchmarks use this format.

A peer is another program that Sluice is compared with. A case is one workload: Sluice and its peers
are measured in turn, in at least five rounds. A measured value is the median over the rounds. A
case's ratio is Sluice's median divided by the peer's median, from the same run. `spread` is
(largest - smallest) / median, over Sluice's rounds.

A benchmark's ratio to a peer is the worst ratio of its cases: the lowest where more is better, the
highest where less is better.
"""

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sluice_testkit import where

MINIMUM_ROUNDS = 5


@dataclass
class BenchCase:
    """Holds the measured values of one workload: for Sluice and for each peer, one value per
    round.
    """

    workload: str
    ours: list[float] = field(default_factory=list)
    peers: dict[str, list[float]] = field(default_factory=dict)
    # Further facts about the measurement, such as the algorithm. If empty, the results file omits
    # them.
    details: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Returns the case as it is written to the results file: medians, ratios and spread."""
        median = statistics.median(self.ours)
        peers = {name: statistics.median(values) for name, values in self.peers.items()}
        shown = {
            "workload": self.workload,
            "ours": median,
            "peers": peers,
            "ratio": {name: median / value for name, value in peers.items()},
            "spread": (max(self.ours) - min(self.ours)) / median,
        }
        return shown | ({"details": self.details} if self.details else {})


def measure(
    workload: str,
    ours: Callable[[], float],
    peers: Mapping[str, Callable[[], float]],
    rounds: int = MINIMUM_ROUNDS,
) -> BenchCase:
    """Measures one workload. Each round measures Sluice once, then each peer once."""
    if rounds < MINIMUM_ROUNDS:
        raise ValueError(f"{rounds} rounds: a median needs at least {MINIMUM_ROUNDS}")
    case = BenchCase(workload, peers={name: [] for name in peers})
    for _ in range(rounds):
        case.ours.append(ours())
        for name, peer in peers.items():
            case.peers[name].append(peer())
    return case


def machine() -> dict[str, Any]:
    """Returns the CPU model, the number of cores and the kernel of this machine."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {"cpu": model, "cores": os.cpu_count(), "kernel": platform.release()}


def write_results(
    name: str,
    unit: str,
    cases: list[BenchCase],
    *,
    more_is_better: bool = True,
    directory: Path | None = None,
    more: Mapping[str, Any] | None = None,
) -> Path:
    """Writes bench/results/NAME.json atomically and returns its path.

    `more` adds top-level keys to the file, such as the thresholds, the memory use or the missing
    peers.
    """
    written = [case.as_dict() for case in cases]
    worst = min if more_is_better else max
    peers = sorted({peer for case in written for peer in case["ratio"]})
    ratios = {
        peer: worst(case["ratio"][peer] for case in written if peer in case["ratio"])
        for peer in peers
    }
    commit = subprocess.run(
        ["git", "-C", str(where.repository()), "describe", "--always", "--dirty", "--abbrev=12"],
        capture_output=True,
        text=True,
    ).stdout.strip()
    result = {
        "name": name,
        "unit": unit,
        "cases": written,
        "ratio": ratios,
        **(more or {}),
        "machine": machine(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit or None,
    }
    directory = directory or where.repository() / "bench" / "results"
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.json"
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)
    return path
