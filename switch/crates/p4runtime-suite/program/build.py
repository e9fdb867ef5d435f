#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the P4Runtime test suite's program.

Needs p4c on PATH. Writes program/build/ and its manifest. With --check, compiles nothing, and fails
if a committed file is stale.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[3] / "p4src"))

import build  # noqa: E402  (the tool lives beside the router's sources)

SUITE = build.Program(
    name="suite",
    root=HERE,
    main=HERE / "suite.p4",
    sources=(HERE / "suite.p4",),
    out=HERE / "build",
)

if __name__ == "__main__":
    sys.exit(build.main(HERE / "build", [SUITE]))
