#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the switch's own P4 programs, one for each feature of the language.

Needs p4c on PATH. Writes build/NAME.json, build/NAME.p4info.txtpb and the manifest. With --check,
compiles nothing, and fails if a committed file is stale.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "p4src"))

import build  # noqa: E402  (the tool lives beside the router's sources)


def programs() -> list[build.Program]:
    """Returns every program of this folder."""
    shared = Path(HERE / "frame.p4")
    mains = sorted(path for path in HERE.glob("*.p4") if path != shared)
    return [
        build.Program(
            name=main.stem,
            root=HERE,
            main=main,
            sources=(main, shared),
            out=HERE / "build",
        )
        for main in mains
    ]


if __name__ == "__main__":
    sys.exit(build.main(HERE / "build", programs()))
