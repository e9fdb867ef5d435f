# SPDX-License-Identifier: Apache-2.0
"""Reports the findings of a campaign: progress, a summary, reproducers, bench/results/leaks.json.

A reproducer is a YAML file in build/prove/. It contains the rules of both SPDs and the frames of
one datagram: in hexadecimal, in sending order, with their ingress port.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from sluice_testkit import where
from sluice_testkit.bench import machine

from .campaign import Campaign
from .checker import Finding

MOST_REPRODUCERS = 20
KINDS = ("leak", "lost")


def progress(campaign: Campaign) -> None:
    """Prints the campaign's progress to stderr. Overwrites the line of the previous call.

    Prints nothing if stderr is not a terminal.
    """
    if sys.stderr.isatty():
        totals, findings = campaign.totals, Counter(f.kind for f in campaign.checker.findings)
        rate = totals.packets / max(totals.seconds, 0.001)
        print(
            f"\r{totals.packets:,} packets, {totals.datagrams:,} datagrams, "
            f"{totals.rounds} policies, {rate:,.0f} packets/s: "
            f"{findings['leak']} leaks, {findings['lost']} lost ",
            end="",
            file=sys.stderr,
            flush=True,
        )


def summary(campaign: Campaign, seed: int, target: str) -> str:
    """Returns the campaign's result as text."""
    totals, found = campaign.totals, _by_shape(campaign)
    lines = [
        f"{target}, seed {seed}: {totals.packets:,} packets in {totals.datagrams:,} datagrams, "
        f"{totals.rounds} policies, {totals.seconds:.0f} s",
        f"{'shape':38} {'datagrams':>10} {'leaks':>7} {'lost':>7}",
    ]
    lines += [
        f"{shape:38} {totals.shapes[shape]:10,} {leaks:7,} {lost:7,}"
        for shape, (leaks, lost) in sorted(found.items())
    ]
    leaks, lost = (sum(1 for f in campaign.checker.findings if f.kind == kind) for kind in KINDS)
    seen = ", ".join(f"{name} {count:,}" for name, count in sorted(campaign.checker.seen.items()))
    commits = ", ".join(f"{name} {count:,}" for name, count in totals.invalidation.items())
    ends = [f"seen: {seen}", f"commits: {commits}", f"{leaks} leaks, {lost} lost"]
    return "\n".join([*lines, *ends])


def _by_shape(campaign: Campaign) -> dict[str, tuple[int, int]]:
    counts = Counter((f.shape, f.kind) for f in campaign.checker.findings)
    shapes = set(campaign.totals.shapes) | {f.shape for f in campaign.checker.findings}
    return {shape: (counts[shape, "leak"], counts[shape, "lost"]) for shape in shapes}


def save_reproducers(campaign: Campaign, seed: int, directory: Path | None = None) -> list[Path]:
    """Writes a reproducer for the first finding of each kind and shape.

    Each reproducer says whether the finding occurs again if its datagram is sent alone.
    """
    directory = directory or where.repository() / "build" / "prove"
    directory.mkdir(parents=True, exist_ok=True)
    chosen: dict[tuple[str, str], Finding] = {}
    for finding in campaign.checker.findings:
        chosen.setdefault((finding.kind, finding.shape), finding)
    paths = []
    for finding in list(chosen.values())[:MOST_REPRODUCERS]:
        again = campaign.replay(finding)
        name = f"{finding.kind}-{finding.shape.replace(' ', '-')}-{seed}.yaml"
        path = directory / name
        text = reproducer(campaign, seed, finding) | {"shows_again_alone": again}
        path.write_text(yaml.safe_dump(text, sort_keys=False, width=100), encoding="utf-8")
        paths.append(path)
    return paths


def reproducer(campaign: Campaign, seed: int, finding: Finding) -> dict[str, Any]:
    """Returns the contents of a reproducer."""
    text: dict[str, Any] = {"seed": seed, "finding": str(finding), "seen": finding.frame.hex()}
    case = finding.case
    policy = campaign.policies[(finding.round if case is None else case.round) - 1]
    text["policy"] = [spd.as_text() for spd in policy.spds.values()]
    if case is None:
        return text
    return text | {
        "enters": case.datagram.entry.port,
        "frames": [frame.hex() for frame in case.datagram.frames()],
        "allowed": [
            sorted(" ".join(map(str, outcome)).strip() for outcome in allowed)
            for allowed in case.expectation.allowed
        ],
    }


def write_results(campaign: Campaign, seed: int, target: str, bounds: Mapping[str, int]) -> Path:
    """Writes bench/results/leaks.json atomically and returns its path."""
    totals = campaign.totals
    result = {
        "name": "leaks",
        "unit": "leaks and lost datagrams",
        "cases": [
            {
                "workload": shape,
                "ours": leaks + lost,
                "peers": {},
                "ratio": {},
                "spread": 0.0,
                "details": {
                    "datagrams": totals.shapes[shape],
                    "leaks": leaks,
                    "lost": lost,
                },
            }
            for shape, (leaks, lost) in sorted(_by_shape(campaign).items())
        ],
        "ratio": {},
        "target": target,
        "seed": seed,
        "packets": totals.packets,
        "datagrams": totals.datagrams,
        "policies": totals.rounds,
        "seconds": round(totals.seconds, 1),
        "seen": dict(sorted(campaign.checker.seen.items())),
        "invalidation": dict(totals.invalidation),
        "bounds_hit": dict(bounds),
        "machine": machine(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
    }
    name = "leaks" if target == "sluice-switch" else f"leaks-{target}"
    path = where.repository() / "bench" / "results" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)
    return path


def _commit() -> str | None:
    words = "describe", "--always", "--dirty", "--abbrev=12"
    done = subprocess.run(
        ["git", "-C", str(where.repository()), *words], capture_output=True, text=True
    )
    return done.stdout.strip() or None
