#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compile the project's P4 programs with p4c, or check that the committed outputs are current.

`build.py` runs p4c from PATH. It writes the outputs of each program, and a manifest.json
with the compiler's version and the SHA-256 digests of all sources and outputs.
`build.py --check` needs no compiler. It fails if a source or an output differs from the
manifest, is missing, or is not listed.

A `Program` describes one P4 program. Other folders with P4 programs (the tests of the
switch) import this module and pass their programs to `main`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
MANIFEST = "manifest.json"


class BuildError(Exception):
    """A program cannot be built. The message says why, in a sentence for the terminal."""


@dataclass(frozen=True)
class Program:
    """One P4 program: its main file, its sources, its outputs.

    `sources` lists every file whose change must rebuild the program; all are below `root`.
    p4c-bm2-ss compiles `main`, and writes `outputs` to the folder `out`.
    """

    name: str
    root: Path
    main: Path
    sources: tuple[Path, ...]
    out: Path
    include: tuple[Path, ...] = ()

    @property
    def json(self) -> Path:
        """The path of the BMv2 JSON, which the switch loads."""
        return self.out / f"{self.name}.json"

    @property
    def p4info(self) -> Path:
        """The path of the P4Info in text format, which P4Runtime clients read."""
        return self.out / f"{self.name}.p4info.txtpb"

    @property
    def outputs(self) -> tuple[Path, ...]:
        """The paths of all files that p4c generates from the program."""
        return (self.json, self.p4info)


def router() -> Program:
    """Returns the router's program for v1model (sluice-switch, BMv2)."""
    shared = sorted(HERE.glob("*.p4"))
    arch = sorted((HERE / "v1model").glob("*.p4"))
    return Program(
        name="router",
        root=HERE,
        main=HERE / "v1model" / "main.p4",
        sources=tuple(shared + arch),
        out=HERE / "build" / "v1model",
        include=(HERE / "v1model", HERE),
    )


def digest(path: Path) -> str:
    """Returns the SHA-256 of a file in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def digests(paths: Iterable[Path], root: Path) -> dict[str, str]:
    """Returns the SHA-256 of each file, by its path relative to `root`."""
    return {path.relative_to(root).as_posix(): digest(path) for path in paths}


def compiler_version(compiler: str) -> str:
    """Returns the version line of a compiler. Raises BuildError if it is not on PATH."""
    if shutil.which(compiler) is None:
        raise BuildError(
            f"{compiler} is not on PATH: install p4c to rebuild (the committed outputs need no p4c)"
        )
    result = subprocess.run([compiler, "--version"], check=True, capture_output=True, text=True)
    text = result.stdout + result.stderr
    return next(line for line in text.splitlines() if "ersion" in line).strip()


def compile_program(program: Program) -> None:
    """Compiles a program with p4c-bm2-ss. Runs it in `root`, so that source paths in the JSON are
    relative.

    The warning uninitialized-use is off: a packet-in header is invalid until it is set. Raises
    BuildError if the compiler fails.
    """
    program.out.mkdir(parents=True, exist_ok=True)
    relative = program.main.relative_to(program.root)
    command = ["p4c-bm2-ss", "--arch", "v1model", "--Wdisable=uninitialized-use"]
    for folder in program.include:
        command += ["-I", folder.relative_to(program.root).as_posix() or "."]
    command += [
        "--p4runtime-files",
        str(program.p4info),
        "-o",
        str(program.json),
        relative.as_posix(),
    ]
    result = subprocess.run(command, cwd=program.root, capture_output=True, text=True)
    if result.returncode != 0:
        raise BuildError(f"p4c-bm2-ss failed on {relative}:\n{result.stderr}")
    if result.stderr.strip():
        print(result.stderr, file=sys.stderr)


def write_manifest(out: Path, programs: Sequence[Program]) -> None:
    """Writes the manifest of `out`: compiler version, digests of sources and of outputs."""
    manifest = {
        "compiler": f"p4c-bm2-ss {compiler_version('p4c-bm2-ss')}",
        "programs": {
            program.name: {
                "sources": digests(program.sources, program.root),
                "outputs": digests(program.outputs, program.root),
            }
            for program in programs
        },
    }
    (out / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")


def stale(out: Path, programs: Sequence[Program]) -> list[str]:
    """Returns a sentence for each difference from the manifest in `out`."""
    path = out / MANIFEST
    if not path.is_file():
        return [f"{path} is missing"]
    recorded = json.loads(path.read_text())["programs"]
    problems = [
        f"{path} lists {name}, which is no longer a program"
        for name in recorded.keys() - {p.name for p in programs}
    ]
    for program in programs:
        entry = recorded.get(program.name, {"sources": {}, "outputs": {}})
        for kind, paths in (("sources", program.sources), ("outputs", program.outputs)):
            now = digests((p for p in paths if p.is_file()), program.root)
            for name in sorted(now.keys() | entry[kind].keys()):
                if now.get(name) != entry[kind].get(name):
                    problems.append(
                        f"{program.name}: {name} does not have the digest in {path.name}"
                    )
    return problems


def main(out: Path, programs: Sequence[Program]) -> int:
    """Builds or checks `programs`, as the command line says. Returns the exit code."""
    parser = argparse.ArgumentParser(
        description=(sys.modules["__main__"].__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument(
        "--check", action="store_true", help="compile nothing; fail if a committed file is stale"
    )
    arguments = parser.parse_args()
    if arguments.check:
        problems = stale(out, programs)
        for problem in problems:
            print(f"stale: {problem}; run `make p4`", file=sys.stderr)
        return 1 if problems else 0
    try:
        for program in programs:
            compile_program(program)
        write_manifest(out, programs)
    except BuildError as error:
        print(f"build.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    only = router()
    sys.exit(main(only.out, [only]))
