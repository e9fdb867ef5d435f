# SPDX-License-Identifier: Apache-2.0
"""Tests the benchmark results: medians, interleaved rounds, and that a benchmark's ratio is the
ratio of its worst case.
"""

import json
from pathlib import Path

import pytest

from sluice_testkit.bench import BenchCase, measure, write_results


def test_everybody_is_measured_in_turn() -> None:
    order: list[str] = []

    def measured(name: str) -> float:
        order.append(name)
        return 1.0

    measure("64 B", lambda: measured("ours"), {"peer": lambda: measured("peer")})
    assert order == ["ours", "peer"] * 5


def test_too_few_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 5"):
        measure("64 B", lambda: 1.0, {}, rounds=3)


def test_the_result_is_the_worst_ratio_of_medians(tmp_path: Path) -> None:
    cases = [
        BenchCase("64 B", [4.0, 2.0, 3.0, 9.0, 3.0], {"peer": [1.5] * 5}),
        BenchCase("1500 B", [1.0] * 5, {"peer": [2.0] * 5}),
    ]
    written = json.loads(write_results("forwarding", "pps", cases, directory=tmp_path).read_text())
    assert written["cases"][0]["ours"] == 3.0
    assert written["cases"][0]["ratio"] == {"peer": 2.0}
    assert written["cases"][0]["spread"] == pytest.approx(7 / 3)
    assert written["ratio"] == {"peer": 0.5}
    fewer = write_results("cost", "us", cases, more_is_better=False, directory=tmp_path)
    assert json.loads(fewer.read_text())["ratio"] == {"peer": 2.0}


def test_a_result_says_what_else_is_known(tmp_path: Path) -> None:
    case = BenchCase("64 B", [1.0] * 5, {"peer": [1.0] * 5}, {"algorithm": "trie"})
    path = write_results("look-up", "1/s", [case], directory=tmp_path, more={"missing": {"x": "y"}})
    written = json.loads(path.read_text())
    assert written["cases"][0]["details"] == {"algorithm": "trie"}
    assert written["missing"] == {"x": "y"}
