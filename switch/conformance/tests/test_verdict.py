# SPDX-License-Identifier: Apache-2.0
"""Tests the comparison of packets with a script, and when a run counts as failed."""

from pathlib import Path

import pytest

from sluice_conformance import report
from sluice_conformance.corpus import Test as Case
from sluice_conformance.report import Row
from sluice_conformance.stf import Expect
from sluice_conformance.verdict import Result, Verdict, difference, matches


@pytest.mark.parametrize(
    ("pattern", "whole", "frame", "same"),
    [
        ("0102", False, "0102", True),
        ("0102", False, "010203", True),
        ("0102", True, "010203", False),
        ("0102", True, "0102", True),
        ("0102", False, "01", False),
        ("01*2", False, "01f2", True),
        ("01*2", False, "01f3", False),
        (None, False, "", True),
    ],
)
def test_a_frame_and_a_pattern(pattern: str | None, whole: bool, frame: str, same: bool) -> None:
    assert matches(Expect(0, pattern, whole), bytes.fromhex(frame)) is same


def test_order_and_number_count_on_each_port() -> None:
    wanted = {1: [Expect(1, "01", False), Expect(1, "02", False)], 2: [Expect(2, None, False)]}
    assert difference(wanted, {1: [b"\x01", b"\x02"], 2: [b"x"]}) is None
    assert difference(wanted, {1: [b"\x02", b"\x01"], 2: [b"x"]}) is not None
    assert difference(wanted, {1: [b"\x01", b"\x02"], 2: []}) is not None
    assert difference(wanted, {1: [b"\x01", b"\x02"], 2: [b"x", b"y"]}) is not None
    assert difference(wanted, {1: [b"\x01", b"\x02"]}) is not None
    assert difference({}, {3: [b"x"]}) is not None


def row(mine: Result, theirs: Result | None = None) -> Row:
    case = Case("t", "p4_16", Path("t.p4"), None, False)
    verdicts = {report.SUBJECT: Verdict(mine)}
    if theirs is not None:
        verdicts[report.REFERENCE] = Verdict(theirs)
    return Row(case, verdicts)


@pytest.mark.parametrize(
    "result",
    [Result.REFUSED, Result.INTERPRETED, Result.DIFFERS, Result.SCRIPT, Result.UNEXPECTED_PASS],
)
def test_what_fails_a_run(result: Result) -> None:
    assert report.failures([row(result)])


def test_both_engines_have_to_be_right() -> None:
    for wrong in report.SUBJECTS:
        both = {name: Verdict(Result.PASS) for name in (*report.SUBJECTS, report.REFERENCE)}
        case = row(Result.PASS).test
        assert not report.failures([Row(case, both)])
        one_wrong = [Row(case, both | {wrong: Verdict(Result.DIFFERS, "x")})]
        assert report.failures(one_wrong) == report.behind(one_wrong) == one_wrong


@pytest.mark.parametrize(
    "result", [Result.PASS, Result.LOADS, Result.EXPECTED_FAILURE, Result.STANDS]
)
def test_what_does_not(result: Result) -> None:
    assert not report.failures([row(result)])


def test_what_only_bmv2_passes() -> None:
    rows = [row(Result.NOT_COMPILED, Result.PASS), row(Result.PASS, Result.PASS)]
    rows.append(row(Result.STANDS, Result.PASS))
    assert report.behind(rows) == rows[:1]


def test_a_kept_difference_has_to_be_there() -> None:
    kept = {"t": "the specification says so"}
    assert report.with_kept("t", Verdict(Result.DIFFERS, "x"), kept).result is Result.STANDS
    assert report.with_kept("t", Verdict(Result.PASS), kept).result is Result.UNEXPECTED_PASS
    assert report.with_kept("u", Verdict(Result.PASS), kept).result is Result.PASS


def test_every_kept_difference_has_a_reason() -> None:
    assert all(report.kept_differences().values())
