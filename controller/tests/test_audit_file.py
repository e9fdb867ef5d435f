# SPDX-License-Identifier: Apache-2.0
"""Tests the audit log's file.

After the file was rotated, the log writes to the new file without a signal. A failed write raises
no error.
"""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

import pytest

from sluice.audit_file import AuditFile


def test_lines_are_appended_to_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text("earlier\n")
    assert AuditFile(path).append("one")
    assert AuditFile(path).append("two")
    assert path.read_text() == "earlier\none\ntwo\n"
    fresh = AuditFile(tmp_path / "fresh.log")
    assert fresh.append("one")
    assert stat.S_IMODE((tmp_path / "fresh.log").stat().st_mode) == 0o600


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_after_a_rotation_lines_go_to_the_new_file(tmp_path: Path, is_made_anew: bool) -> None:
    path = tmp_path / "audit.log"
    file = AuditFile(path)
    file.append("one")
    path.rename(tmp_path / "audit.log.1")
    if is_made_anew:
        path.touch()
    file.append("two")
    assert (tmp_path / "audit.log.1").read_text() == "one\n"
    assert path.read_text() == "two\n"


def test_a_file_that_is_emptied_in_place_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = AuditFile(path)
    file.append("one")
    os.truncate(path, 0)
    file.append("two")
    assert path.read_text() == "two\n"


def test_a_full_disk_is_said_once_and_leaves_no_part_of_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "audit.log"
    file = AuditFile(path)
    file.append("one")
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda descriptor, line: write(descriptor, line[:2]))
        assert not file.append("two")
        assert not file.append("three")
    assert path.read_text() == "one\n"
    assert file.lost == 2
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "No space left on device" in caplog.text
    assert file.append("four")
    assert path.read_text() == "one\nfour\n"
    assert "written again; 2 events were lost" in caplog.text


def test_no_directory_no_link_and_no_fifo(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine\n")
    (tmp_path / "link").symlink_to(elsewhere)
    os.mkfifo(tmp_path / "fifo")
    for name in ("absent/audit.log", "link", "fifo"):
        file = AuditFile(tmp_path / name)
        assert not file.append("one")
        assert file.lost == 1
    assert elsewhere.read_text() == "mine\n"
