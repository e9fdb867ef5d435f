# SPDX-License-Identifier: Apache-2.0
"""Runs p4c's v1model tests: `make conformance P4C=<path of p4c's tree>`.

    python -m sluice_conformance --p4c TREE [--target NAME]... [--p4testgen PROGRAM] [PATTERN...]

Without --target, each test runs on both engines of sluice-switch, and on BMv2 if it is on PATH.
PATTERN selects tests by a part of their name. The report goes to build/conformance/report.txt and
.json. Exit status 1: sluice-switch fails a test (README.md, "When it fails"). Exit status 2: no
test could run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sluice_conformance import compiler, corpus, generate, report, runner, target
from sluice_conformance.corpus import Test
from sluice_conformance.report import SUBJECTS, Row
from sluice_conformance.verdict import GOOD
from sluice_testkit import where


def arguments() -> argparse.Namespace:
    """Parses the command line."""
    out = where.repository() / "build" / "conformance"
    parser = argparse.ArgumentParser(prog="sluice_conformance", description="p4c's v1model tests")
    parser.add_argument("--p4c", type=Path, required=True, help="p4c's source tree")
    parser.add_argument("--target", action="append", choices=target.NAMES, help="target to test")
    parser.add_argument("--suite", action="append", choices=corpus.SUITES, help="suite to run")
    parser.add_argument("--scripted", action="store_true", help="leave out programs without script")
    parser.add_argument("--p4testgen", type=Path, help="generate scripts with this p4testgen")
    parser.add_argument("--most", type=int, default=10, help="maximum of scripts per program")
    parser.add_argument("--out", type=Path, default=out, help="directory for the report")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="concurrent tests")
    parser.add_argument("patterns", nargs="*", help="parts of test names")
    return parser.parse_args()


def chosen(options: argparse.Namespace) -> list[Test]:
    """Returns the tests that the command line selects."""
    tests = corpus.find(options.p4c)
    if options.p4testgen is not None:
        tests += generated(options, tests)
    return [
        test
        for test in tests
        if (not options.suite or test.suite in options.suite)
        and (not options.scripted or test.script is not None)
        and (not options.patterns or any(part in test.name for part in options.patterns))
    ]


def generated(options: argparse.Namespace, tests: list[Test]) -> list[Test]:
    """Generates tests with p4testgen from the P4_16 programs of the selected suites."""
    suites = options.suite or corpus.SUITES
    programs = [
        test
        for test in tests
        if test.suite in suites and not test.p4_14 and not test.expected_failure
    ]
    cache = options.out / "p4testgen"
    doubtful = corpus.doubtful_generation(options.p4c)

    def of(test: Test) -> list[Test]:
        found = generate.scripts(test, options.p4testgen, options.p4c, options.most, cache)
        return [corpus.with_script(test, script, doubtful) for script in found]

    with ThreadPoolExecutor(options.jobs) as pool:
        return [made for found in pool.map(of, programs) for made in found]


def run_all(tests: list[Test], names: list[str], jobs: int, cache: Path) -> list[Row]:
    """Runs every test on every target. Returns the results in the order of the tests."""
    kept = report.kept_differences()

    def one(test: Test) -> Row:
        compiled = compiler.compile_program(test, cache)
        verdicts = {name: runner.run(test, compiled, name) for name in names}
        for name in verdicts.keys() & set(SUBJECTS):
            verdicts[name] = report.with_kept(test.name, verdicts[name], kept)
        row = Row(test, verdicts)
        if report.failures([row]):
            for name, verdict in verdicts.items():
                print(f"{test.name}: {name}: {verdict.result}: {verdict.reason}", flush=True)
        return row

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(one, tests))


def main() -> int:
    """Runs the tests and writes the report. Returns the exit status."""
    options = arguments()
    os.nice(5)
    names = options.target or target.available()
    try:
        tests = chosen(options)
        about = {"p4c": compiler.version(), "tree": str(options.p4c), "targets": ", ".join(names)}
    except (corpus.NotACorpus, compiler.CompilerMissing) as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 2
    if not tests:
        print("conformance: no test matches the command line", file=sys.stderr)
        return 2
    rows = run_all(tests, names, options.jobs, options.out / "p4c")
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "report.txt").write_text(report.as_text(rows, about), encoding="utf-8")
    document = json.dumps(report.as_json(rows, about), indent=1)
    (options.out / "report.json").write_text(document + "\n", encoding="utf-8")
    print("\n".join(report.summary(rows)))
    bad = report.failures(rows)
    behind = report.behind(rows)
    print(f"{len(rows)} tests, {len(bad)} failures, {len(behind)} that only BMv2 passes")
    print(f"report: {options.out / 'report.txt'}")
    if not any(verdict.result in GOOD for row in rows for verdict in row.verdicts.values()):
        print("conformance: no test passed: is p4c built from this tree?", file=sys.stderr)
        return 2
    return 1 if bad or behind else 0


if __name__ == "__main__":
    sys.exit(main())
