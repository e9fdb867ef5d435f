# SPDX-License-Identifier: Apache-2.0
"""Cleans up after its owner, however the owner ends.

The janitor is a small process in a session of its own that holds the reading
end of a pipe. The owner writes what it makes and what it has taken away again;
when the pipe closes (which the kernel does, also on SIGKILL), the janitor ends
the process groups that are left, deletes the namespaces and the directories.

PR_SET_PDEATHSIG would not do: it is tied to the thread that forked, does not
reach grandchildren, and the kernel clears it when a daemon changes its user,
as FRR's do.

Protocol: one line each, `+KIND VALUE` and `-KIND VALUE`, KIND one of `group`
(`PID START`, the leader and its start time), `netns` and `directory`.
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
    """The owner's end: `add` what was made, `remove` what was taken away again."""

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
        """Have `value` cleaned up should this process end without having done so."""
        self._write(f"+{kind} {value}\n")

    def remove(self, kind: str, value: str) -> None:
        """`value` has been cleaned up."""
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
    """The janitor of this process; a forked child gets one of its own."""
    global _janitor
    if _janitor is None or _janitor.pid != os.getpid():
        _janitor = Janitor()
    return _janitor


def signal_group(leader: int, start: int, signal_number: int) -> bool:
    """Signal a process group unless its number has passed on to others; True if it was there.

    A process number is not given out again while it names a group, so a missing
    leader means: either our group without its leader, or nobody.
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
    """Returns what is left when the owner is gone, in order of creation."""
    left: dict[tuple[str, str], None] = {}
    for line in lines:
        kind, _, value = line[1:].rstrip("\n").partition(" ")
        if line[0] == "+":
            left[kind, value] = None
        else:
            left.pop((kind, value), None)
    return list(left)


def main() -> None:
    """Wait for the owner's end, then clean up."""
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
