# SPDX-License-Identifier: Apache-2.0
"""Tests log records: they have fields if there is a systemd journal, else they are lines of
text."""

from __future__ import annotations

import logging
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice import journal


def decode(data: bytes) -> dict[str, str]:
    """Decodes a record as the journal does. Returns its fields."""
    fields = {}
    while data:
        line, data = data.split(b"\n", 1)
        if b"=" in line:
            name, value = line.split(b"=", 1)
        else:
            name, (length,) = line, struct.unpack_from("<Q", data)
            value, data = data[8 : 8 + length], data[8 + length + 1 :]
        fields[name.decode()] = value.decode()
    return fields


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.settimeout(10)
        made.bind(str(tmp_path / "journal"))
        yield made


def test_a_record_has_fields(listener: socket.socket) -> None:
    handler = journal.JournalHandler(Path(listener.getsockname()))
    handler.router = "r1"
    log = logging.Logger("sluice.test")
    log.addHandler(handler)
    log.warning("port %d is\nabsent", 3)
    handler.close()
    fields = decode(listener.recv(65536))
    assert fields["MESSAGE"] == "port 3 is\nabsent"
    assert fields["PRIORITY"] == "4"
    assert fields["SYSLOG_IDENTIFIER"] == "sluice"
    assert fields["SLUICE_LOGGER"] == "sluice.test"
    assert fields["SLUICE_ROUTER"] == "r1"
    assert fields["CODE_FILE"] == __file__
    assert fields["CODE_FUNC"] == "test_a_record_has_fields"


def test_a_journal_that_is_gone_loses_no_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as gone:
        gone.bind(str(tmp_path / "journal"))
        handler = journal.JournalHandler(tmp_path / "journal")
    log = logging.Logger("sluice.test")
    log.addHandler(handler)
    log.error("still told")
    handler.close()
    assert "still told" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("level", "priority"),
    [("CRITICAL", 2), ("ERROR", 3), ("WARNING", 4), ("INFO", 6), ("DEBUG", 7)],
)
def test_levels_are_syslog_s(listener: socket.socket, level: str, priority: int) -> None:
    handler = journal.JournalHandler(Path(listener.getsockname()))
    log = logging.Logger("sluice.test")
    log.addHandler(handler)
    log.log(logging.getLevelName(level), "x")
    handler.close()
    assert decode(listener.recv(65536))["PRIORITY"] == str(priority)


def test_standard_error_that_is_the_journal_gets_records(
    listener: socket.socket, tmp_path: Path
) -> None:
    program = (
        "import logging, os, sys; from pathlib import Path; from sluice import journal;"
        "found = os.fstat(2); stream = f'{found.st_dev}:{found.st_ino}';"
        "journal.start({'JOURNAL_STREAM': stream}, Path(sys.argv[1]));"
        "journal.name_router('r1'); logging.getLogger('sluice.x').info('a line')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, listener.getsockname()],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stderr == ""
    fields = decode(listener.recv(65536))
    assert (fields["MESSAGE"], fields["SLUICE_ROUTER"]) == ("a line", "r1")


def test_standard_error_that_is_no_journal_gets_lines() -> None:
    program = "import logging; from sluice import journal; journal.start(); logging.info('a line')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path), "JOURNAL_STREAM": "1:2"},
    )
    assert done.stderr.endswith("INFO a line\n")
