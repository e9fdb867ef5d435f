# SPDX-License-Identifier: Apache-2.0
"""Writes verdicts as text and JSON, and decides whether the run has failed.

Depends on corpus and verdict. differences.toml lists the tests in which sluice-switch differs from
BMv2 on purpose, each with the reason. If a listed test no longer differs, or fails in another way,
the run fails too.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sluice_conformance.corpus import Test
from sluice_conformance.verdict import GOOD, Result, Verdict

KEPT = Path(__file__).resolve().parent.parent / "differences.toml"
# The targets under test: sluice-switch with machine code, and with its interpreter. The report
# shows REFERENCE beside them.
SUBJECTS = ("sluice-switch", "interpreter")
SUBJECT = SUBJECTS[0]
REFERENCE = "bmv2"
_HARMLESS = GOOD | {Result.EXPECTED_FAILURE, Result.NOT_COMPILED, Result.STANDS}


@dataclass(frozen=True)
class Row:
    """A test and its verdict on each target."""

    test: Test
    verdicts: Mapping[str, Verdict]


def kept_differences(path: Path = KEPT) -> dict[str, str]:
    """Returns the tests that differ on purpose: test name to reason."""
    entries = tomllib.loads(path.read_text(encoding="utf-8"))
    return {str(name): str(entry["because"]) for name, entry in entries.items()}


def with_kept(name: str, verdict: Verdict, kept: Mapping[str, str]) -> Verdict:
    """Returns the verdict on a target under test. If the test is listed as different on purpose,
    the verdict is changed accordingly.
    """
    if name not in kept:
        return verdict
    if verdict.result is Result.DIFFERS:
        return Verdict(Result.STANDS, f"{kept[name]} ({verdict.reason})", verdict.seconds)
    reason = f"differences.toml says that this differs, and it is: {verdict.result}"
    return Verdict(Result.UNEXPECTED_PASS, f"{reason} {verdict.reason}".strip(), verdict.seconds)


def counts(rows: list[Row], target: str) -> dict[str, int]:
    """Returns how often each result occurs, the most frequent first."""
    found = Counter(row.verdicts[target].result.value for row in rows if target in row.verdicts)
    return dict(found.most_common())


def failures(rows: list[Row]) -> list[Row]:
    """Returns the tests that make the run fail (README.md, "When it fails")."""
    return [row for row in rows if any(bad.result not in _HARMLESS for bad in ours(row))]


def ours(row: Row) -> list[Verdict]:
    """Returns the verdicts on those targets under test that were run."""
    return [row.verdicts[name] for name in SUBJECTS if name in row.verdicts]


def behind(rows: list[Row]) -> list[Row]:
    """Returns the tests that BMv2 passes and sluice-switch fails, except those that differ on
    purpose.
    """
    return [
        row
        for row in rows
        if REFERENCE in row.verdicts
        and row.verdicts[REFERENCE].result in GOOD
        and any(mine.result not in GOOD | {Result.STANDS} for mine in ours(row))
    ]


def as_json(rows: list[Row], about: Mapping[str, str]) -> dict[str, Any]:
    """Returns all results as JSON data."""
    targets = _targets(rows)
    return {
        "about": dict(about),
        "counts": {target: counts(rows, target) for target in targets},
        "behind_bmv2": [row.test.name for row in behind(rows)],
        "tests": [
            {
                "name": row.test.name,
                "suite": row.test.suite,
                "script": row.test.script is not None,
                "results": {
                    target: {
                        "result": verdict.result.value,
                        "reason": verdict.reason,
                        "seconds": verdict.seconds,
                    }
                    for target, verdict in row.verdicts.items()
                },
            }
            for row in rows
        ],
    }


def as_text(rows: list[Row], about: Mapping[str, str]) -> str:
    """Returns all results as text: each test, then the counts of all targets side by side."""
    targets = _targets(rows)
    lines = [f"{key}: {value}" for key, value in about.items()] + [""]
    for row in rows:
        results = " ".join(f"{row.verdicts[target].result.value:<17}" for target in targets)
        lines.append(f"{results} {row.test.name}")
        reasons = {verdict.reason: target for target, verdict in reversed([*row.verdicts.items()])}
        lines += [f"    {target}: {reason}" for reason, target in reasons.items() if reason]
    return "\n".join([*lines, "", *summary(rows)]) + "\n"


def summary(rows: list[Row]) -> list[str]:
    """Returns the counts by suite and result, with the targets side by side."""
    targets = _targets(rows)
    lines = [f"{'suite':<10} {'result':<18}" + "".join(f"{target:>15}" for target in targets)]
    for suite in sorted({row.test.suite for row in rows}):
        chosen = [row for row in rows if row.test.suite == suite]
        for result in Result:
            numbers = [counts(chosen, target).get(result.value, 0) for target in targets]
            if any(numbers):
                cells = "".join(f"{number:>15}" for number in numbers)
                lines.append(f"{suite:<10} {result.value:<18}{cells}")
    return lines


def _targets(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(target for row in rows for target in row.verdicts))
