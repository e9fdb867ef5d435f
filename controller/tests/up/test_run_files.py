# SPDX-License-Identifier: Apache-2.0
"""Tests the files of a takeover: a takeover counts as running only while its supervisor holds the
lock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_directory_is_made_for_all_to_read(tmp_path: Path) -> None:
    files = RunFiles("r", tmp_path / "made")
    before = os.umask(0o077)
    try:
        files.make_directories()
    finally:
        os.umask(before)
    assert files.directory.stat().st_mode & 0o777 == 0o755
    assert RunFiles().directory == Path("/run/sluice-up")


@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_directory_that_others_may_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    for use in (RunFiles("r", tmp_path).take, RunFiles("r", tmp_path).processes):
        with pytest.raises(PermissionError, match="other users may write"):
            use()
    assert list(tmp_path.iterdir()) == []


def test_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12345)
    with pytest.raises(PermissionError, match="other users may write"):
        RunFiles("r", tmp_path).take()


def test_links_are_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    files = RunFiles("r", tmp_path / "run")
    files.make_directories()
    for path, use in ((files.lock, files.take), (files.log, files.open_log)):
        path.symlink_to(target)
        with pytest.raises(OSError, match="symbolic links"):
            use()
    assert not target.exists()
    files = RunFiles("s", files.directory)
    target.mkdir()
    files.private.symlink_to(target)
    with pytest.raises(NotADirectoryError):
        files.take()
    assert list(target.iterdir()) == []
