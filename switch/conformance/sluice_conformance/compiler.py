# SPDX-License-Identifier: Apache-2.0
"""Runs p4c and caches its output.

Depends on corpus. The cache's key is a digest of p4c's version, the program's text and the text of
every file of p4c's tree that the program includes. So a second run over an unchanged tree compiles
nothing.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sluice_conformance.corpus import Test

SECONDS = 180.0
# Error message of p4c if it has copied an action for several tables. Then p4c can make JSON, but no
# P4Info.
_NO_P4INFO = "conflicting control plane name"
_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


class CompilerMissing(Exception):
    """p4c is not installed."""


@dataclass(frozen=True)
class Compiled:
    """Output of p4c for one program. If p4c failed, `error` says why.

    `p4info` may be missing, as p4c cannot make P4Info for every program.
    """

    json: Path
    p4info: Path
    error: str | None


@cache
def compiler() -> str:
    """Returns the path of p4c: P4C_BM2_SS, or p4c-bm2-ss on PATH. Raises CompilerMissing."""
    found = shutil.which(os.environ.get("P4C_BM2_SS", "p4c-bm2-ss"))
    if found is None:
        raise CompilerMissing(
            "p4c-bm2-ss is not on PATH: install p4lang's p4c package or build p4lang/p4c, "
            "or set P4C_BM2_SS to it"
        )
    return found


@cache
def version() -> str:
    """Returns p4c's version, as p4c prints it."""
    done = subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=True)
    words = " ".join((done.stdout + done.stderr).split())
    return words[words.find("Version") :]


@cache
def speaks_p4_14() -> bool:
    """Returns whether this p4c was built with support for P4_14 (SUPPORT_P4_14)."""
    argv = [compiler(), "--std", "p4-14", "--version"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return "Illegal language version" not in done.stderr + done.stdout


def compile_program(test: Test, cache_folder: Path) -> Compiled:
    """Compiles a program, or returns the cached output for the same input."""
    folder = cache_folder / _digest(test)
    if test.p4_14 and not speaks_p4_14():
        return Compiled(folder, folder, "this p4c was built without SUPPORT_P4_14")
    result = Compiled(folder / "program.json", folder / "program.p4info.txtpb", None)
    error = folder / "error.txt"
    if not folder.is_dir():
        cache_folder.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=cache_folder))
        reason = _run(test, making / result.json.name, making / result.p4info.name)
        if reason is not None:
            (making / error.name).write_text(reason, encoding="utf-8")
        try:
            making.rename(folder)
        except OSError:  # Another thread or process has made the same folder in the meantime.
            shutil.rmtree(making)
    if error.is_file():
        return Compiled(result.json, result.p4info, error.read_text(encoding="utf-8"))
    return result


def _run(test: Test, json: Path, p4info: Path) -> str | None:
    standard = ["--std", "p4-14"] if test.p4_14 else []
    argv = [compiler(), *standard, "--arch", "v1model", "-o", str(json)]
    reason = _p4c([*argv, "--p4runtime-files", str(p4info), str(test.program)])
    if reason is not None and _NO_P4INFO in reason:
        p4info.unlink(missing_ok=True)
        reason = _p4c([*argv, str(test.program)])
    return reason


def _p4c(argv: list[str]) -> str | None:
    """Runs p4c. Returns None, or the reason if it failed."""
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"p4c did not end within {SECONDS:g} s"
    if done.returncode == 0:
        return None
    return _reason(done.stderr) or f"p4c ended with status {done.returncode}"


def _reason(stderr: str) -> str:
    """Returns the first line with an error, without the directories of its path."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line or "Compiler Bug" in line] or lines
    return re.sub(r"/\S*/", "", errors[0]) if errors else ""


def _digest(test: Test) -> str:
    digest = hashlib.sha256(f"{version()}\0{test.suite}\0".encode())
    for path in sorted(_with_includes(test.program)):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:32]


def _with_includes(program: Path) -> set[Path]:
    found: set[Path] = set()
    waiting = [program]
    while waiting:
        path = waiting.pop()
        if path in found or not path.is_file():
            continue
        found.add(path)
        text = path.read_text(encoding="utf-8", errors="replace")
        waiting += [(path.parent / name).resolve() for name in _INCLUDE.findall(text)]
    return found
