# SPDX-License-Identifier: Apache-2.0
"""Tests supervised processes: that they end in every case, their logs, and the wait until ready."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from sluice_testkit import owner
from sluice_testkit.process import CommandFailed, ProcessDied, Supervisor, run
from sluice_testkit.wait import Timeout, wait_until


def test_a_failed_command_says_everything() -> None:
    with pytest.raises(CommandFailed, match=r"exit status 3\nout\nerr"):
        run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert run(["sh", "-c", "exit 3"], check=False).returncode == 3


def test_a_command_has_no_terminal_and_a_time_limit() -> None:
    assert run(["cat"]).stdout == ""
    assert run(["cat"], stdin="text").stdout == "text"
    with pytest.raises(CommandFailed, match=r"not done after 0\.1 s"):
        run(["sleep", "60"], timeout=0.1)


def test_waits_for_a_line_of_the_log(tmp_path: Path) -> None:
    with Supervisor(tmp_path) as supervisor:
        process = supervisor.start("daemon", ["sh", "-c", "echo ready; exec sleep 60"])
        process.wait_for_log("ready")
        assert process.running()
    assert process.exit_status() == -signal.SIGTERM


def test_one_that_dies_while_awaited_is_reported_at_once_with_its_log(tmp_path: Path) -> None:
    with Supervisor(tmp_path) as supervisor:
        process = supervisor.start("daemon", ["sh", "-c", "echo cannot bind; exit 1"])
        with pytest.raises(ProcessDied, match="cannot bind"):
            process.wait_for_log("ready", deadline=30)


def test_one_that_ignores_sigterm_is_killed_with_its_children(tmp_path: Path) -> None:
    script = "trap '' TERM; sleep 60 & echo child $!; while :; do wait; done"
    with Supervisor(tmp_path) as supervisor:
        process = supervisor.start("stubborn", ["sh", "-c", script])
        process.wait_for_log("child")
        child = int(process.log().split()[1])
        assert process.stop(grace=0.2) == -signal.SIGKILL
    wait_until(lambda: owner.start_time(child) is None, 5, "the child to be gone")


def test_an_error_inside_carries_the_logs(tmp_path: Path) -> None:
    with pytest.raises(Timeout) as caught, Supervisor(tmp_path) as supervisor:
        supervisor.start("daemon", ["sh", "-c", "echo the reason; sleep 60"]).wait_for_log("reason")
        wait_until(lambda: False, 0)
    assert "the reason" in "".join(caught.value.__notes__)


def has_ended(pid: int) -> bool:
    return owner.start_time(pid) is None


ORPHAN = """
import sys
from sluice_testkit.namespaces import Lab
lab = Lab()
place = lab.namespace("orphan")
one = lab.supervisor.start("one", place.argv(["sleep", "600"]))
# The leader ends, its child stays behind in the group.
two = lab.supervisor.start("two", ["sh", "-c", "sleep 600 & echo $!"])
two.wait(10)
print(one.pid, two.log().strip(), place.path, lab.directory, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
def test_nothing_is_left_when_the_owner_is_killed() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", ORPHAN],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    with parent.stdin, parent.stdout:
        one, two, namespace, directory = parent.stdout.readline().split()
        parent.kill()
        parent.wait()
    for pid in (one, two):
        wait_until(partial(has_ended, int(pid)), 10, f"{pid} to be gone")
    wait_until(lambda: not Path(namespace).exists(), 10, "the namespace to be gone")
    wait_until(lambda: not Path(directory).exists(), 10, "the run directory to be gone")
