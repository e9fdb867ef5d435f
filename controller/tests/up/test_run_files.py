# SPDX-License-Identifier: Apache-2.0
"""Tests the files of a takeover: only a running supervisor counts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from sluice.up.run_files import Processes, RunFiles

HOLDER = """
import sys
from pathlib import Path
from sluice.up.run_files import Processes, RunFiles
files = RunFiles("r", Path(sys.argv[1]))
file = files.take()
files.record(file, Processes(1, 2, 3))
print("taken", flush=True)
sys.stdin.read()
"""


def test_no_takeover(tmp_path: Path) -> None:
    assert RunFiles("r", tmp_path).processes() is None


def test_takeover_of_another_process(tmp_path: Path) -> None:
    files = RunFiles("r", tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"taken\n"
        assert files.processes() == Processes(1, 2, 3)
        assert files.take() is None
        assert RunFiles("other", tmp_path).processes() is None
        assert RunFiles("other", tmp_path).running() == ["r"]
        holder.kill()
    assert files.processes() is None
    file = files.take()
    assert file is not None
    os.close(file)


def test_files_are_private(tmp_path: Path) -> None:
    files = RunFiles("r", tmp_path)
    file = files.take()
    assert file is not None
    assert files.private.stat().st_mode & 0o777 == 0o700
    assert files.lock.stat().st_mode & 0o777 == 0o600
    os.close(file)


def test_names(tmp_path: Path) -> None:
    files = RunFiles("r", tmp_path)
    assert (files.api.name, files.p4runtime.name) == ("r.sock", "r-p4rt.sock")
    assert {files.log.parent, files.state.parent, files.admin.parent} == {files.private}
