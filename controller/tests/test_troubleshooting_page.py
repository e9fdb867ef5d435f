# SPDX-License-Identifier: Apache-2.0
"""Tests that docs/how-to/troubleshooting.md explains each drop counter and each warning that occurs
in the source code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.audit_log import DROPS
from sluice.state.fragments import FragmentRefusal

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/troubleshooting.md").read_text(encoding="utf-8")
SECTIONS = {
    section.split("\n", 1)[0]: section for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)
}
CONTROLLER = sorted((ROOT / "controller/src/sluice").rglob("*.py"))
SWITCH = sorted((ROOT / "switch/crates").glob("*/src/**/*.rs"))


def named(section: str) -> set[str]:
    """Returns the names in backquotes in the first column of a section's table."""
    rows = [line for line in SECTIONS[section].splitlines() if line.startswith("| `")]
    cells = [row.split(" | ")[0].removeprefix("| ") for row in rows]
    return {name.strip() for cell in cells for _, name in re.findall(r"(`+) ?(.+?) ?\1(?!`)", cell)}


def covers(entries: set[str], text: str) -> bool:
    """Returns whether an entry covers the text. `…` in the entry covers any text."""
    patterns = (".*".join(re.escape(part) for part in entry.split("…")) for entry in entries)
    return any(re.fullmatch(pattern, text, re.DOTALL) for pattern in patterns)


def test_each_drop_reason_of_the_pipeline_has_a_row_and_nothing_else_has() -> None:
    source = (ROOT / "p4src/types.p4").read_text(encoding="utf-8")
    (members,) = re.findall(r"enum bit<8> drop_reason_t \{(.*?)\}", source, re.DOTALL)
    reasons = set(re.findall(r"^ +([A-Z_]+) += [0-9]+", members, re.MULTILINE)) - {"NONE"}
    assert set(DROPS) < reasons
    assert named("Drops in the pipeline") == reasons


def counts_of(tree: ast.AST) -> Iterator[str]:
    """Yields the counters of a module: the keys of `counters[...]`, with `…` for variable parts."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Attribute)
            and node.value.attr == "counters"
        ):
            yield _text(node.slice)


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(p.value) if isinstance(p, ast.Constant) else "…" for p in node.values)
    return "…"


DROPPED = re.compile("dropped|refused|malformed|forgotten|not installed|^(from|to)_host_|not reset")


def test_each_drop_of_the_controller_has_a_row() -> None:
    counted = {
        text
        for path in CONTROLLER
        for text in counts_of(ast.parse(path.read_text(encoding="utf-8")))
        if DROPPED.search(text)
    }
    assert len(counted) > 30
    entries = named("Drops in the controller")
    # The entry "dropped: …" is meant for the names of unreadable headers only. Every other counter
    # needs an entry of its own.
    others = entries - {"dropped: …"}
    for text in counted | {f"dropped: {refusal.value}" for refusal in FragmentRefusal}:
        assert text in entries or covers(others, text), text


def test_each_counter_of_the_switch_has_a_row() -> None:
    engine = (ROOT / "switch/crates/engine/src/counters.rs").read_text(encoding="utf-8")
    counted = set(re.findall(r'\("([a-z_]+)", self\.', engine))
    device = (ROOT / "switch/crates/device/src/counters.rs").read_text(encoding="utf-8")
    (declared,) = re.findall(r"^counters! \{(.*?)^\}", device, re.DOTALL | re.MULTILINE)
    counted |= set(re.findall(r"^    ([a-z_]+),$", declared, re.MULTILINE))
    assert len(counted) > 20
    assert named("Drops in sluice-switch") == counted


def warnings_of(tree: ast.AST) -> Iterator[str]:
    """Yields the messages of `log.warning` and `log.error`, with `…` for their arguments."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("warning", "error", "exception", "critical")
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "log"
        ):
            yield re.sub(r"%[a-z]", "…", _text(node.args[0]))


@pytest.mark.parametrize("path", CONTROLLER, ids=lambda path: path.stem)
def test_each_warning_of_the_controller_has_a_row(path: Path) -> None:
    entries = named("Warnings in the controller's log")
    for text in warnings_of(ast.parse(path.read_text(encoding="utf-8"))):
        # A message without constant text repeats a problem of `show status`. The page says so.
        assert text == "…" or covers(entries, text), text


def test_each_warning_of_the_switch_has_a_row() -> None:
    call = re.compile(r'tracing::(?:warn|error)!\(\s*(?:[^"]*?,\s*)?"((?:[^"\\]|\\.)*)"', re.DOTALL)
    told = {
        text
        for path in SWITCH
        if path.parts[-3] != "bench"
        for text in call.findall(path.read_text(encoding="utf-8"))
    }
    assert len(told) > 25
    entries = named("Warnings in the logs of sluice-switch and sluice-esp") | {"{said}"}
    for text in told:
        assert covers(entries, text), text
