# SPDX-License-Identifier: Apache-2.0
"""Runs p4testgen, which generates a script for each path that it finds through a program.

Depends on corpus. Scripts are cached like compilations, here by the program's text and the
generator's settings. If p4testgen fails for a program, there is no script, and the reason is cached
instead.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from sluice_conformance.corpus import Test

SECONDS = 120.0
SEED = 1


def scripts(test: Test, p4testgen: Path, p4c: Path, most: int, cache: Path) -> list[Path]:
    """Returns at most `most` scripts for a program, in order."""
    folder = cache / _digest(test, p4testgen, most)
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=cache))
        (making / "log").write_text(_run(test, p4testgen, p4c, most, making), encoding="utf-8")
        try:
            making.rename(folder)
        except OSError:  # Another thread or process has made the same folder in the meantime.
            shutil.rmtree(making)
    return sorted(folder.glob("*.stf"))


def _run(test: Test, p4testgen: Path, p4c: Path, most: int, out: Path) -> str:
    argv = [str(p4testgen), "--target", "bmv2", "--arch", "v1model", "--std", "p4-16"]
    argv += ["-I", str(p4c / "p4include"), "--test-backend", "STF"]
    argv += ["--max-tests", str(most), "--seed", str(SEED), "--out-dir", str(out)]
    try:
        done = subprocess.run(
            [*argv, str(test.program)],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"p4testgen did not end within {SECONDS:g} s"
    return done.stdout[-4096:] + done.stderr[-4096:]


def _digest(test: Test, p4testgen: Path, most: int) -> str:
    made = p4testgen.stat()
    digest = hashlib.sha256(f"{made.st_size} {made.st_mtime_ns} {most} {SEED}\0".encode())
    digest.update(test.program.read_bytes())
    return f"{test.program.stem}-{digest.hexdigest()[:16]}"
