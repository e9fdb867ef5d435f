# SPDX-License-Identifier: Apache-2.0
"""Hands the fast path's tables to a stand-in: a process that forwards for a controller that was
killed. Finds the stand-in of a TAP.

`Handover` is memory that the controller shares with the process that keeps the TAPs
(`sources.tap_keeper`). While the controller passes packets between switch and host, the memory
contains the fast path's tables. So a controller that is killed leaves the tables there. A
controller that ends by itself, or has no session with the switch, leaves no tables. If a controller
is killed while it writes the tables, the checksum is wrong.

A stand-in process holds a lock for each TAP, in the directory that also has the claims of
`sources.device`. The next controller finds the process by this lock, and ends it. Linux only. Uses
the standard library alone, so that the keeper stays small.
"""

from __future__ import annotations

import errno
import fcntl
import marshal
import os
import select
import signal
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Any, TypeAlias

CLAIMS = Path("/run/sluice/interfaces")
"""Directory of claims and locks, one for the host. The file name of a claim contains network
namespace and interface."""
ENDING_SECONDS = 5.0
# Header: length and checksum of the tables that follow.
HEADER = Struct("=QI")
# struct flock: type, whence, start, length, process
FLOCK = Struct("@hhqqi0q")

Tables: TypeAlias = dict[str, Any]
"""Tables of the fast path. `sluice.fast_path` makes them, `sources.stand_in` uses them."""


class Handover:
    """Writes the shared memory, as the controller does."""

    def __init__(self) -> None:
        self.file = os.memfd_create("sluice-handover", os.MFD_CLOEXEC)

    def publish(self, tables: Tables) -> None:
        """Replaces the tables for the stand-in."""
        self.withdraw()
        body = marshal.dumps(tables)
        os.pwrite(self.file, HEADER.pack(len(body), zlib.crc32(body)) + body, 0)

    def withdraw(self) -> None:
        """Removes the tables and the keys in them. Without tables, no process stands in."""
        os.ftruncate(self.file, 0)

    def close(self) -> None:
        """Removes the tables and closes the memory."""
        self.withdraw()
        os.close(self.file)


def tables_in(file: int) -> Tables | None:
    """Returns the tables that the controller has left. Returns None if there are none or they are
    incomplete."""
    header = os.pread(file, HEADER.size, 0)
    if len(header) < HEADER.size:
        return None
    length, checksum = HEADER.unpack(header)
    body = os.pread(file, length, HEADER.size)
    if not length or len(body) != length or zlib.crc32(body) != checksum:
        return None
    # marshal trusts its input. Here only this program and its keeper can write to the memory.
    tables: Tables = marshal.loads(body)  # noqa: S302
    return tables


class StandInLocks:
    """Holds the locks of one stand-in, one lock for each TAP in the calling thread's namespace."""

    def __init__(self, names: Sequence[str], claims: Path = CLAIMS) -> None:
        self._paths = [_path(name, claims) for name in names]
        self._files: list[int] = []

    def take(self) -> None:
        """Takes all locks for this process. Raises BlockingIOError if another process holds one of
        them."""
        try:
            for path in self._paths:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._files.append(os.open(path, flags, 0o600))
                fcntl.lockf(self._files[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        """Releases all locks. The files stay: another process may have locked one of them."""
        for file in self._files:
            os.close(file)
        self._files.clear()


def holder(name: str, claims: Path = CLAIMS) -> int | None:
    """Returns the id of the process that forwards at this TAP as a stand-in, or None."""
    try:
        file = os.open(_path(name, claims), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        asked = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))
    finally:
        os.close(file)
    return None if kind == fcntl.F_UNLCK else pid


def end_stand_ins(names: Sequence[str], claims: Path = CLAIMS) -> None:
    """Kills each process that forwards at one of these TAPs as a stand-in.

    Waits until these processes have ended, so that their queues and sessions are closed. Raises
    OSError if a process does not end.
    """
    for name in names:
        pid = holder(name, claims)
        while pid is not None:
            _end(name, pid, claims)
            pid = holder(name, claims)


def _end(name: str, pid: int, claims: Path) -> None:
    with suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            if holder(name, claims) != pid:  # The pid may meanwhile belong to another process.
                return
            signal.pidfd_send_signal(process, signal.SIGKILL)
            waiting = select.poll()
            waiting.register(process, select.POLLIN)
            if not waiting.poll(ENDING_SECONDS * 1000):
                message = f"process {pid}, which stands in at {name}, does not end"
                raise OSError(errno.EBUSY, message)
        finally:
            os.close(process)


def _path(name: str, claims: Path) -> Path:
    # The file name of a claim begins with the number of a namespace. So the name of a lock differs
    # from all of them.
    return claims / f"stand-in-{Path('/proc/thread-self/ns/net').stat().st_ino}-{name}"
