# SPDX-License-Identifier: Apache-2.0
"""Tests the comparison of the switch's tables with the entries that the controller has recorded,
and the report of differences for operators.
"""

from __future__ import annotations

from sluice.state.audit import KEPT_REPAIRS, AuditReport, Repair, TableComparison


def repair(number: int) -> Repair:
    return Repair(float(number), f"route {number}", "nothing", "next hop 7")


def test_keys_that_differ_are_those_with_another_value_and_those_without_record() -> None:
    comparison = TableComparison()
    found = {1: "a", 2: "b", 3: "c"}
    assert comparison.differing("route", found, {1: "a", 2: "other", 4: "d"}) == [2, 3]
    assert comparison.compared == 3


def test_recorded_keys_that_no_part_of_the_table_had_are_missing() -> None:
    comparison = TableComparison()
    comparison.differing("route", {1: "a"}, {})
    comparison.add_found("route", [2])
    assert comparison.missing("route", [1, 2, 3]) == [3]
    assert comparison.compared == 2


def test_a_key_of_one_table_is_not_found_in_another() -> None:
    comparison = TableComparison()
    comparison.add_found("route", [1])
    assert comparison.missing("next hop", [1]) == [1]


def test_a_complete_round_replaces_the_last_one_and_its_problem() -> None:
    report = AuditReport()
    report.completed(10, 0.5, 100.0)
    report.problem = "the switch is not connected"
    report.completed(12, 0.25, 200.0)
    assert (report.rounds, report.compared, report.seconds) == (2, 12, 0.25)
    assert report.completed_at == 200.0
    assert not report.problem


def test_repairs_are_counted_by_kind_and_the_last_ones_are_kept() -> None:
    report = AuditReport()
    for number in range(KEPT_REPAIRS + 5):
        report.repaired("route", repair(number))
    report.repaired("flow", repair(99))
    assert report.repairs == {"route": KEPT_REPAIRS + 5, "flow": 1}
    assert len(report.last) == KEPT_REPAIRS
    assert str(report.last[-1]) == "route 99: found nothing, put next hop 7"
    assert report.last[0] == repair(6)
