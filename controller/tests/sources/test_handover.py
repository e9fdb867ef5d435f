# SPDX-License-Identifier: Apache-2.0
"""Tests the memory in which a controller leaves tables for its stand-in. Also tests the locks by
which a controller finds a stand-in and ends it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.sources.handover import (
    HEADER,
    Handover,
    StandInLocks,
    end_stand_ins,
    holder,
    tables_in,
)

TABLES = {"rules": {"icmp": {(1, 8)}}, "interfaces": ([(11, b"\2" * 6, (1, 2))], {0: [b"abcd"]})}
HOLD = """
import sys
from pathlib import Path
from sluice.sources.handover import StandInLocks
StandInLocks(sys.argv[2:], Path(sys.argv[1])).take()
print("holds", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def handover() -> Iterator[Handover]:
    handover = Handover()
    yield handover
    os.close(handover.file)


def test_nothing_is_left_before_something_is_given(handover: Handover) -> None:
    assert tables_in(handover.file) is None


def test_the_last_tables_are_left_until_they_are_withdrawn(handover: Handover) -> None:
    handover.publish({"rules": "a longer text than that of what follows" * 10})
    handover.publish(TABLES)
    assert tables_in(handover.file) == TABLES
    handover.withdraw()
    assert tables_in(handover.file) is None


def test_a_write_that_was_cut_off_leaves_nothing(handover: Handover) -> None:
    """Checks that interrupted writes of the tables are detected: the result must not count as valid
    tables.

    A controller that is killed during a write leaves a mix of new and old bytes.
    """
    handover.publish({"rules": "other" * 100})
    before = os.pread(handover.file, 10_000, 0)
    handover.publish(TABLES)
    after = os.pread(handover.file, 10_000, 0)
    torn = 0
    for written in range(1, HEADER.size + len(TABLES)):
        os.pwrite(handover.file, after[:written] + before[written:], 0)
        torn += tables_in(handover.file) is None
    assert torn == HEADER.size + len(TABLES) - 1
    os.ftruncate(handover.file, HEADER.size + 4)
    os.pwrite(handover.file, after[: HEADER.size + 4], 0)
    assert tables_in(handover.file) is None


def another(claims: Path, *names: str) -> subprocess.Popen[bytes]:
    """Starts another process that holds the locks of these TAPs."""
    argv = [sys.executable, "-c", HOLD, str(claims), *names]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"holds\n"
    return process


def test_who_stands_in_is_found_and_ended(tmp_path: Path) -> None:
    with another(tmp_path, "eth1", "eth2") as process:
        assert [holder(name, tmp_path) for name in ("eth1", "eth2", "eth3")] == [
            process.pid,
            process.pid,
            None,
        ]
        with pytest.raises(BlockingIOError):
            StandInLocks(["eth3", "eth2"], tmp_path).take()
        end_stand_ins(["eth2"], tmp_path)
        assert process.wait(0) == -9
    assert holder("eth1", tmp_path) is None
    locks = StandInLocks(["eth3", "eth2"], tmp_path)
    locks.take()
    locks.release()


def test_nobody_is_ended_where_nobody_stands_in(tmp_path: Path) -> None:
    with another(tmp_path, "eth1") as process:
        end_stand_ins(["eth2"], tmp_path)
        assert process.poll() is None
        process.kill()


def test_a_lock_that_could_not_be_had_leaves_none(tmp_path: Path) -> None:
    with another(tmp_path, "eth2") as process:
        with pytest.raises(BlockingIOError):
            StandInLocks(["eth1", "eth2"], tmp_path).take()
        with another(tmp_path, "eth1") as second:
            assert holder("eth1", tmp_path) == second.pid
            second.kill()
        process.kill()
