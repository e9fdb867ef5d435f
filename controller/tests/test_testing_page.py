# SPDX-License-Identifier: Apache-2.0
"""Checks that all tests that docs/TESTING.md names exist, and that the page names all end-to-end
and PTF tests.
"""

import re
from pathlib import Path

from sluice_testkit.where import repository

ROOT = repository()
TEXT = (ROOT / "docs" / "TESTING.md").read_text(encoding="utf-8")
SHORT = {
    "ct": "controller/tests",
    "sc": "switch/crates",
    "ptf": "ptf-tests/tests",
    "e2e": "topo/e2e",
}


def named() -> list[Path]:
    """Returns the paths that the page names."""
    paths = re.findall(r"`((?:ct|sc|ptf|e2e|topo|switch|packaging)/[\w./-]*)`", TEXT)
    parts = (path.split("/", 1) for path in paths)
    return [ROOT / SHORT.get(first, first) / rest for first, rest in parts]


def test_what_it_names_exists() -> None:
    assert not [path for path in named() if not path.exists()]


def test_it_leaves_none_out() -> None:
    known = {path.name for path in named()}
    tests = [
        *(ROOT / SHORT["ptf"]).glob("*.py"),
        *(ROOT / SHORT["e2e"]).glob("test_*.py"),
    ]
    assert not [path.name for path in tests if path.name not in known]
