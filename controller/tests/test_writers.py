# SPDX-License-Identifier: Apache-2.0
"""Tests that only the modules named in docs/ARCHITECTURE.md write to the switch."""

import re
from pathlib import Path

import sluice

SOURCE = Path(sluice.__file__).parent
WRITERS = {
    "reconciler.py",
    "readback.py",  # called by the reconciler
    "auditor.py",
    "policy/commit.py",
    "policy/flow_tables.py",
}


def test_no_other_module_writes_to_the_switch() -> None:
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if re.search(r"\bsession\.write\(", path.read_text(encoding="utf-8"))
    }
    assert found == WRITERS
