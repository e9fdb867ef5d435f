# SPDX-License-Identifier: Apache-2.0
"""Reads the recordings of record_fpm.py and record_rtnetlink.py, and compares their decoded events
with golden files.

`REFRESH_GOLDENS=1 pytest` rewrites the golden files. Review them before you commit them.
"""

from __future__ import annotations

import os
from pathlib import Path

GOLDENS = Path(__file__).parent / "goldens"
FPM = sorted((GOLDENS / "fpm").glob("*.fpm"))
RTNETLINK = GOLDENS / "rtnetlink" / "changes.netlink"


def steps(recording: Path) -> list[tuple[str, list[bytes]]]:
    """Returns the steps of a recording in order: the name of each, and its frames or datagrams."""
    found: list[tuple[str, list[bytes]]] = []
    for line in recording.read_text().splitlines():
        if line.startswith("== "):
            found.append((line[3:], []))
        elif line and not line.startswith("#"):
            found[-1][1].append(bytes.fromhex(line))
    return found


def stream(recording: Path) -> bytes:
    """Returns all frames or datagrams of a recording, concatenated."""
    return b"".join(data for _, items in steps(recording) for data in items)


def fpm(name: str) -> Path:
    """Returns the path of the recording of an FPM scenario."""
    return GOLDENS / "fpm" / f"{name}.fpm"


def assert_golden(recording: Path, lines: list[str]) -> None:
    """Checks that the lines equal the golden file (.events) of the recording."""
    golden = recording.with_suffix(".events")
    if os.environ.get("REFRESH_GOLDENS"):
        golden.write_text("\n".join(lines) + "\n")
    assert golden.read_text().splitlines() == lines
