#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the router for TNA (Tofino 1) with p4c's tofino backend, and prints its stages.

The outputs go to build/p4/tna and are not committed: the program needs more stages than the ASIC
has. An installed p4c finds core.p4 and tna.p4 by itself. For a build tree of p4c, name their
folders by `--include`: BUILD/p4include and SOURCE/backends/tofino/bf-p4c/p4include.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
COMPILER = "p4c-barefoot"
STAGES = 12
"""Stages of Tofino 1 in each direction."""
OUT = HERE.parent / "build" / "p4" / "tna"
_STAGE = re.compile(r"^stage (\d+) (ingress|egress):", re.MULTILINE)


class CompileError(Exception):
    """Tells that the program cannot be compiled. The message is a sentence for the terminal."""


def compile_tna(include: Iterable[Path]) -> Path:
    """Compiles the program. Returns the path of the assembly file. Raises CompileError."""
    if shutil.which(COMPILER) is None:
        raise CompileError(
            f"{COMPILER} is not on PATH: build p4c with its tofino backend (ENABLE_TOFINO=ON)"
        )
    OUT.mkdir(parents=True, exist_ok=True)
    folders = ["tna", ".", *map(str, include)]
    command = [COMPILER, "--target", "tofino", "--arch", "tna"]
    command += [word for folder in folders for word in ("-I", folder)]
    command += ["-o", str(OUT), "tna/main.p4"]
    result = subprocess.run(command, cwd=HERE, capture_output=True, text=True)
    assembly = OUT / "pipe" / "main.bfa"
    if result.returncode != 0 or not assembly.exists():
        raise CompileError(f"{COMPILER} failed on tna/main.p4:\n{result.stderr}")
    return assembly


def stages(assembly: str) -> dict[str, int]:
    """Returns the number of stages of each direction in an assembly file."""
    found: dict[str, int] = {}
    for number, direction in _STAGE.findall(assembly):
        found[direction] = max(found.get(direction, 0), int(number) + 1)
    return found


def main() -> int:
    """Compiles and prints. Returns the exit code: 0 if the program compiles."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--include", type=Path, action="append", default=[], help="folder of core.p4 or tna.p4"
    )
    arguments = parser.parse_args()
    try:
        assembly = compile_tna([folder.resolve() for folder in arguments.include])
    except CompileError as error:
        print(f"build_tna.py: {error}", file=sys.stderr)
        return 1
    for direction, count in sorted(stages(assembly.read_text(encoding="utf-8")).items()):
        fits = "fits" if count <= STAGES else f"does not fit: Tofino 1 has {STAGES}"
        print(f"{direction}: {count} stages ({fits})")
    print(f"assembly: {assembly}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
