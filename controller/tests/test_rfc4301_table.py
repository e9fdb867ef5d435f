# SPDX-License-Identifier: Apache-2.0
"""Tests docs/reference/rfc4301.md: each row has a valid status, and names existing tests or gives a
reason.

Unit tests check that the parser finds each kind of wrong row.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple, TypeGuard

import pytest
from sluice_testkit.where import repository

ROOT = repository()
PAGE = (ROOT / "docs/reference/rfc4301.md").read_text(encoding="utf-8")
HEADER = ["section", "word", "requirement", "status", "tests, and reason"]
STATUSES = ("held", "held in part", "not held", "not applicable")
WORDS = ("MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "MAY", "stated")
SECTIONS = (
    *("4.4.1", "4.4.1.1", "4.4.1.2", "4.4.1.3", "5", "5.1", "5.1.1", "5.1.2", "5.1.2.1"),
    *("5.1.2.2", "5.2", "6", "6.1.1", "6.1.2", "6.2", "7.1", "7.2", "7.3", "7.4"),
    *("8.1", "8.2.1", "8.2.2"),
)
"""The sections of the RFC's chapters 4.4.1 and 5 to 8 that have requirements."""
MOST_WORDS = 30
PTF_DECORATORS = ("ptf_test", "bare_ptf_test")
TEST = re.compile(r"`([^`\s:]+)::([^`\s]+)`")
NOTE = re.compile(r"\[Note \d+\]\(#(note-\d+)\)")


class Row(NamedTuple):
    """Holds a row of a table, and its line number in the page."""

    line: int
    section: str
    word: str
    requirement: str
    status: str
    proof: str

    @property
    def tests(self) -> list[tuple[str, str]]:
        """The named tests, as pairs of path and name."""
        return [(path, name) for path, name in TEST.findall(self.proof)]

    @property
    def reason(self) -> str:
        """The text of the last cell, without the names of tests and the references to notes."""
        return NOTE.sub("", TEST.sub("", self.proof)).strip(" ,")


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split(" | ")]


def rows(page: str) -> Iterator[Row]:
    """Yields the rows of all tables that have the header of requirements.

    Raises ValueError for a row with another number of cells.
    """
    is_table = False
    for number, line in enumerate(page.splitlines(), 1):
        if not line.startswith("|"):
            is_table = False
        elif cells(line) == HEADER:
            is_table = True
        elif is_table and not line.startswith("|---"):
            found = cells(line)
            if len(found) != len(HEADER):
                raise ValueError(f"line {number} has {len(found)} cells, not {len(HEADER)}")
            yield Row(number, *found)


def problems(row: Row) -> Iterator[str]:
    """Yields a description of each error in a row."""
    if row.section not in SECTIONS:
        yield f"the page covers no section {row.section!r}"
    if row.word not in WORDS:
        yield f"{row.word!r} is none of {', '.join(WORDS)}"
    if row.status not in STATUSES:
        yield f"the status {row.status!r} is none of {', '.join(STATUSES)}"
    if row.status.startswith("held") and not row.tests:
        yield f"{row.status!r} needs a test: `path::name`"
    if row.status in STATUSES[1:] and not row.reason:
        yield f"{row.status!r} needs a reason"
    if not row.requirement:
        yield "the requirement is missing"
    for name, text in (("requirement", row.requirement), ("reason", row.reason)):
        if len(text.split()) > MOST_WORDS:
            yield f"the {name} has more than {MOST_WORDS} words: use a note"
    yield from _problems_of_tests(row)


def _problems_of_tests(row: Row) -> Iterator[str]:
    if row.proof.count("::") != sum(1 + name.count("::") for _, name in row.tests):
        yield "a test is not written as `path::name`"
    for path, name in row.tests:
        if not (ROOT / path).is_file():
            yield f"there is no file {path}"
        elif name not in names_of_tests(path):
            yield f"{path} has no test {name}"


@cache
def names_of_tests(path: str) -> frozenset[str]:
    """Returns the names of the tests in a Python or Rust file. A method is `Class::method`."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".rs"):
        return frozenset(re.findall(r"#\[test\]\s+(?:#\[[^\]]*\]\s+)*fn (\w+)", text))
    found: set[str] = set()
    for outer in ast.parse(text).body:
        if isinstance(outer, ast.ClassDef) and outer.name.startswith("Test"):
            methods = [one for one in outer.body if _is_test(one)]
            found |= {outer.name, *(f"{outer.name}::{one.name}" for one in methods)}
        elif _is_test(outer):
            found.add(outer.name)
    return frozenset(found)


def _is_test(node: ast.stmt) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Returns whether a function is a test of pytest, or of the PTF suite by its decorator."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    decorators = {one.id for one in node.decorator_list if isinstance(one, ast.Name)}
    return node.name.startswith("test_") or not decorators.isdisjoint(PTF_DECORATORS)


def counts(page: str) -> dict[str, int]:
    """Returns the numbers of rows that the page's first table has for each status."""
    found = re.findall(rf"^\| ({'|'.join(STATUSES)}) \| .* \| (\d+) \|$", page, re.MULTILINE)
    return {status: int(number) for status, number in found}


ROWS = list(rows(PAGE))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.section}-line-{row.line}")
def test_a_row_has_a_status_and_its_tests_or_a_reason(row: Row) -> None:
    found = [*problems(row)]
    assert not found, f"docs/reference/rfc4301.md:{row.line}: {'; '.join(found)}"


def test_each_section_has_a_row() -> None:
    assert {row.section for row in ROWS} == {*SECTIONS}


def test_the_page_counts_its_rows() -> None:
    assert counts(PAGE) == dict.fromkeys(STATUSES, 0) | Counter(r.status for r in ROWS)


def test_each_note_is_there_and_used() -> None:
    used = {note for row in ROWS for note in NOTE.findall(row.proof)}
    headings = re.findall(r"^### (Note \d+)$", PAGE, re.MULTILINE)
    assert used == {one.lower().replace(" ", "-") for one in headings}


# -- the parser itself

THIS = "controller/tests/test_rfc4301_table.py"
RUST = "switch/crates/esp/tests/engine/modes.rs"
CLASS = "controller/tests/test_punts.py::TestTooBig"
GOOD = f"`{THIS}::test_each_section_has_a_row`"


def row_of(**changes: str) -> Row:
    """Returns the row that the parser reads from a page with one row."""
    good = {"section": "5.2", "word": "MUST", "requirement": "It works.", "status": "held"}
    line = " | ".join((good | {"proof": GOOD} | changes).values())
    table = f"| {' | '.join(HEADER)} |\n|---|---|---|---|---|\n| {line} |\n"
    (row,) = rows(f"# A page\n\n| other | table |\n|---|---|\n| a | b |\n\n{table}")
    return row


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"proof": f"{GOOD}, `{CLASS}` Some reason. [Note 1](#note-1)"},
        {"proof": f"`{CLASS}::test_ipv6_is_told`"},
        {"proof": "`ptf-tests/tests/inbound_policy.py::discard`"},
        {"proof": f"`{RUST}::esp_in_udp`"},
        {"status": "held in part", "proof": f"{GOOD} A part is missing."},
        {"status": "not held", "proof": "It is missing."},
        {"status": "not applicable", "proof": "There is no such function."},
    ],
)
def test_a_good_row_has_no_problem(changes: dict[str, str]) -> None:
    row = row_of(**changes)
    assert row.line == 9
    assert [*problems(row)] == []


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"section": "5.3"}, "the page covers no section '5.3'"),
        ({"word": "must"}, "'must' is none of MUST, MUST NOT"),
        ({"requirement": ""}, "the requirement is missing"),
        ({"requirement": "word " * 31}, "the requirement has more than 30 words"),
        ({"status": "done"}, "the status 'done' is none of held, held in part"),
        ({"proof": "It is so."}, "'held' needs a test"),
        ({"status": "held in part", "proof": GOOD}, "'held in part' needs a reason"),
        ({"status": "held in part", "proof": "Partly."}, "'held in part' needs a test"),
        ({"status": "not held", "proof": ""}, "'not held' needs a reason"),
        ({"status": "not held", "proof": GOOD}, "'not held' needs a reason"),
        ({"status": "not held", "proof": "[Note 1](#note-1)"}, "'not held' needs a reason"),
        ({"status": "not held", "proof": "word " * 31}, "the reason has more than 30 words"),
        ({"proof": "`controller/tests/absent.py::test_a`"}, "no file controller/tests/absent.py"),
        ({"proof": f"`{THIS}::test_absent`"}, f"{THIS} has no test test_absent"),
        ({"proof": f"`{THIS}::rows`"}, f"{THIS} has no test rows"),
        ({"proof": f"`{CLASS}::test_absent`"}, "test_punts.py has no test TestTooBig::test_absent"),
        ({"proof": f"`{RUST}::esp_in`"}, f"{RUST} has no test esp_in"),
        ({"proof": f"`{RUST}::amended`"}, f"{RUST} has no test amended"),
        ({"proof": f"{GOOD}, {THIS}::rows"}, "a test is not written as `path::name`"),
    ],
)
def test_a_wrong_row_is_found(changes: dict[str, str], problem: str) -> None:
    (found,) = problems(row_of(**changes))
    assert problem in found


def test_a_row_with_a_missing_cell_is_found() -> None:
    page = f"| {' | '.join(HEADER)} |\n|---|---|---|---|---|\n| 5.2 | MUST | It works. | held |\n"
    with pytest.raises(ValueError, match="line 3 has 4 cells, not 5"):
        list(rows(page))


def test_counts_are_read_from_the_page() -> None:
    assert counts("| held | Yes, and tested | 3 |\n| not held | No | 14 |\n") == {
        "held": 3,
        "not held": 14,
    }
