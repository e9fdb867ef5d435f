# SPDX-License-Identifier: Apache-2.0
"""Reads the recordings of real zebra streams that record_fpm.py made."""

from __future__ import annotations

from pathlib import Path

DIRECTORY = Path(__file__).parent / "goldens" / "fpm"
NAMES = sorted(path.stem for path in DIRECTORY.glob("*.fpm"))


def steps(name: str) -> list[tuple[str, list[bytes]]]:
    """(what was done, the FPM frames that zebra sent), in order."""
    found: list[tuple[str, list[bytes]]] = []
    for line in (DIRECTORY / f"{name}.fpm").read_text().splitlines():
        if line.startswith("== "):
            found.append((line[3:], []))
        elif line and not line.startswith("#"):
            found[-1][1].append(bytes.fromhex(line))
    return found


def stream(name: str) -> bytes:
    """All frames of a recording, one after another."""
    return b"".join(frame for _, frames in steps(name) for frame in frames)
