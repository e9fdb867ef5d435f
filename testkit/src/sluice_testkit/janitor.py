# SPDX-License-Identifier: Apache-2.0
"""Cleans up after its owner, whether the owner exits or is killed.

The janitor is a small process in its own session. It holds the reading end of a pipe. The owner
writes one line when it creates a resource, and another line when it has removed the resource. When
the owner dies, even by SIGKILL, the kernel closes the pipe. The janitor then ends the remaining
process groups and deletes the remaining namespaces and directories.

The signal of PR_SET_PDEATHSIG is not enough, for three reasons. The signal is tied to the thread
that forked. It does not reach grandchildren. The kernel cancels it when a daemon changes its user,
as FRR's daemons do.

Protocol: one line for each event, `+KIND VALUE` or `-KIND VALUE`. KIND is `group`, `netns` or
`directory`. The value of a group is `PID START`: PID and start time of the group's leader.
"""

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import TextIO

from sluice_testkit import owner

GRACE_SECONDS = 3.0


class Janitor:
    """Writes to the janitor's pipe. `add` reports a new resource, `remove` one that the owner has
    removed.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sluice_testkit.janitor"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            env=environment,
        )
        atexit.register(self._close)

    def add(self, kind: str, value: str) -> None:
        """Makes the janitor clean up `value` if this process ends before it calls `remove`."""
        self._write(f"+{kind} {value}\n")

    def remove(self, kind: str, value: str) -> None:
        """Tells the janitor that `value` has been cleaned up."""
        self._write(f"-{kind} {value}\n")

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        os.write(self._process.stdin.fileno(), line.encode())

    def _close(self) -> None:
        if self.pid == os.getpid() and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()


_janitor: Janitor | None = None


def janitor() -> Janitor:
    """Returns the janitor of this process. A forked child gets a janitor of its own."""
    global _janitor
    if _janitor is None or _janitor.pid != os.getpid():
        _janitor = Janitor()
    return _janitor


def signal_group(leader: int, start: int, signal_number: int) -> bool:
    """Signals a process group. Returns whether the group existed.

    `start` is the leader's start time. If the process with the PID `leader` has another start time,
    the PID was reused by a foreign process, and nothing is signalled. If no process has the PID,
    the signal is sent: the kernel does not reuse a PID while a process group has this number. So
    the group is either the wanted one, whose leader has ended, or it does not exist.
    """
    now = owner.start_time(leader)
    if now is not None and now != start:
        return False
    try:
        os.killpg(leader, signal_number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _end_groups(groups: Iterable[tuple[int, int]]) -> None:
    left = [group for group in groups if signal_group(*group, signal.SIGTERM)]
    end = time.monotonic() + GRACE_SECONDS
    while left and time.monotonic() < end:
        time.sleep(0.05)
        left = [group for group in left if signal_group(*group, 0)]
    for group in left:
        signal_group(*group, signal.SIGKILL)


def _read_until_closed(lines: TextIO) -> list[tuple[str, str]]:
    """Reads until the owner closes the pipe. Returns the resources left, in order of creation."""
    left: dict[tuple[str, str], None] = {}
    for line in lines:
        kind, _, value = line[1:].rstrip("\n").partition(" ")
        if line[0] == "+":
            left[kind, value] = None
        else:
            left.pop((kind, value), None)
    return list(left)


def main() -> None:
    """Runs the janitor's process: waits until the owner has ended, then cleans up."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    left = _read_until_closed(sys.stdin)
    groups = []
    for kind, value in reversed(left):
        if kind == "group":
            leader, start = value.split()
            groups.append((int(leader), int(start)))
    _end_groups(groups)
    for kind, value in reversed(left):
        with contextlib.suppress(OSError):
            if kind == "netns":
                owner.delete_namespace(value)
            elif kind == "directory":
                shutil.rmtree(value, ignore_errors=True)


if __name__ == "__main__":
    main()
