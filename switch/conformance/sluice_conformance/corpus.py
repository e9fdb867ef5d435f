# SPDX-License-Identifier: Apache-2.0
"""Finds the tests in p4c's tree, and the tests that p4c expects to fail.

Needs only the standard library. The selection is that of backends/bmv2/CMakeLists.txt: the P4_16
samples named *-bmv2.p4 that include v1model.p4, all P4_14 samples, and the programs in the
directories of larger samples. The programs in p4testgen's own tests form the suite `testgen`. The
scripts that p4testgen generates (generate.py) form the suite `generated`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CMAKE = Path("backends/bmv2/CMakeLists.txt")
TESTGEN = Path("backends/p4tools/modules/testgen/targets/bmv2/test/p4-programs")
SUITES = ("p4_16", "p4_14", "testgen", "generated")
LARGE_P4_16 = ("dash/*-bmv2.p4", "fabric_*/fabric.p4", "omec/*.p4", "pins/*.p4")
_INCLUDES_V1MODEL = re.compile(r"include.*v1model\.p4")
_XFAIL_LIST = re.compile(
    r"(?:set\s*\(\s*|list\s*\(\s*APPEND\s+)XFAIL_TESTS\b(.*?)^\s*\)", re.S | re.M
)


class NotACorpus(Exception):
    """The given directory is not p4c's source tree."""


@dataclass(frozen=True)
class Test:
    """A program, and the script that tests it, if there is one. `name` is unique; `suite` is one of
    SUITES.

    `expected_failure`: p4c expects this test to fail. `may_fail`: p4c expects some of the scripts
    that p4testgen generates for this program to fail.
    """

    name: str
    suite: str
    program: Path
    script: Path | None
    expected_failure: bool
    may_fail: bool = False

    @property
    def p4_14(self) -> bool:
        """Returns whether the program is written in P4_14."""
        return self.suite == "p4_14"


def find(p4c: Path) -> list[Test]:
    """Returns all tests of a tree, by suite and name. Raises NotACorpus."""
    if not (p4c / CMAKE).is_file() or not (p4c / "testdata").is_dir():
        raise NotACorpus(f"{p4c} is not p4c's source tree: it has no {CMAKE} or no testdata/")
    expected = expected_failures((p4c / CMAKE).read_text(encoding="utf-8"))
    tests = [
        Test(
            name=program.relative_to(p4c / "testdata").with_suffix("").as_posix(),
            suite=suite,
            program=program,
            script=script if (script := program.with_suffix(".stf")).is_file() else None,
            expected_failure=program.relative_to(p4c).as_posix() in expected,
        )
        for suite, program in _programs(p4c / "testdata")
    ]
    tests += [
        Test(f"testgen/{program.stem}", "testgen", program, None, False)
        for program in sorted((p4c / TESTGEN).glob("*.p4"))
    ]
    return tests


def with_script(test: Test, script: Path, doubtful: frozenset[str] = frozenset()) -> Test:
    """Returns a test of the program with a generated script."""
    may_fail = test.program.name in doubtful
    return Test(f"generated/{script.stem}", "generated", test.program, script, False, may_fail)


def doubtful_generation(p4c: Path) -> frozenset[str]:
    """Returns the file names of the programs for which p4c expects generated scripts to fail."""
    path = p4c / TESTGEN.parent / "BMV2STFXfail.cmake"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    words = (word for line in text.splitlines() for word in line.split("#")[0].split())
    return frozenset(word for word in words if word.endswith(".p4"))


def expected_failures(cmake: str) -> frozenset[str]:
    """Returns the paths in XFAIL_TESTS, without those in comments."""
    found: set[str] = set()
    for block in _XFAIL_LIST.findall(cmake):
        for line in block.splitlines():
            found.update(word for word in line.split("#")[0].split() if word.endswith(".p4"))
    return frozenset(found)


def _programs(testdata: Path) -> Iterator[tuple[str, Path]]:
    samples = testdata / "p4_16_samples"
    for program in sorted(samples.glob("*-bmv2.p4")):
        if _INCLUDES_V1MODEL.search(program.read_text(encoding="utf-8", errors="replace")):
            yield "p4_16", program
    for pattern in LARGE_P4_16:
        for program in sorted(samples.glob(pattern)):
            yield "p4_16", program
    for program in sorted((testdata / "p4_14_samples").glob("*.p4")):
        yield "p4_14", program
    for program in sorted((testdata / "p4_14_samples").glob("switch_*/switch.p4")):
        yield "p4_14", program
