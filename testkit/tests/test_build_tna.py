# SPDX-License-Identifier: Apache-2.0
"""Tests `p4src/build_tna.py` with a program that stands in for p4c's tofino backend."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sluice_testkit import where

COMPILER = """\
#!/bin/sh
while [ $# -gt 0 ]; do
  case "$1" in -o) out=$2;; esac
  shift
done
mkdir -p "$out/pipe"
printf 'stage 0 ingress:\\nstage %s ingress:\\nstage 2 egress:\\n' "$LAST" > "$out/pipe/main.bfa"
echo "what is wrong" >&2
exit "$STATUS"
"""


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Returns a folder with build_tna.py and a compiler in `bin`."""
    (tmp_path / "p4src" / "tna").mkdir(parents=True)
    shutil.copy(where.repository() / "p4src" / "build_tna.py", tmp_path / "p4src")
    compiler = tmp_path / "bin" / "p4c-barefoot"
    compiler.parent.mkdir()
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    return tmp_path


def build(sources: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs build_tna.py."""
    path = f"{sources / 'bin'}:{os.environ['PATH']}"
    return subprocess.run(
        [sys.executable, str(sources / "p4src" / "build_tna.py"), "--include", "/x"],
        env={"PATH": path, "LAST": "9", "STATUS": "0"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ("11", "ingress: 12 stages (fits)"),
        ("12", "ingress: 13 stages (does not fit: Tofino 1 has 12)"),
    ],
)
def test_the_stages_of_each_direction_are_printed(sources: Path, last: str, said: str) -> None:
    done = build(sources, LAST=last)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == ["egress: 3 stages (fits)", said]


def test_a_missing_backend_is_named(sources: Path) -> None:
    done = build(sources, PATH="/nowhere")
    assert done.returncode == 1
    assert "p4c-barefoot is not on PATH: build p4c with its tofino backend" in done.stderr


def test_errors_of_the_compiler_are_shown(sources: Path) -> None:
    done = build(sources, STATUS="1")
    assert done.returncode == 1
    assert "p4c-barefoot failed on tna/main.p4:\nwhat is wrong" in done.stderr
