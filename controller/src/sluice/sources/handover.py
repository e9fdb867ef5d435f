# SPDX-License-Identifier: Apache-2.0
"""What the controller leaves to its stand-in, and which process stands in for whom.

`Handover` is memory that the keeper of the TAPs shares (`sources.tap_keeper`). The controller keeps
in it the tables of the fast path for as long as packets pass between switch and host. A controller
that is killed leaves them there; one that ends by itself, or that has no session with the switch,
leaves nothing. What was being written at the moment of death does not count.

A process that stands in holds a lock for each TAP, beside the claims of `sources.device`. By the
lock it is found, and ended, by who takes its place. Linux only; the standard library alone, so that
the keeper stays small.
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
"""One for the host: a claim's file is named after the network namespace and the interface."""
ENDING_SECONDS = 5.0
# Length and checksum of what follows.
HEADER = Struct("=QI")
# struct flock: type, whence, start, length, process
FLOCK = Struct("@hhqqi0q")

Tables: TypeAlias = dict[str, Any]
"""See `sluice.fast_path`, which makes them, and `sources.stand_in`, which uses them."""


class Handover:
    """The controller's side."""

    def __init__(self) -> None:
        self.file = os.memfd_create("sluice-handover", os.MFD_CLOEXEC)

    def give(self, tables: Tables) -> None:
        """Leaves these tables to the stand-in, in the place of those before."""
        self.withdraw()
        body = marshal.dumps(tables)
        os.pwrite(self.file, HEADER.pack(len(body), zlib.crc32(body)) + body, 0)

    def withdraw(self) -> None:
        """Leaves nothing, keys neither: nobody is to stand in."""
        os.ftruncate(self.file, 0)

    def close(self) -> None:
        """Leaves nothing, for good."""
        self.withdraw()
        os.close(self.file)


def left_in(file: int) -> Tables | None:
    """What the controller has left; None where that is nothing, or not whole."""
    header = os.pread(file, HEADER.size, 0)
    if len(header) < HEADER.size:
        return None
    length, checksum = HEADER.unpack(header)
    body = os.pread(file, length, HEADER.size)
    if not length or len(body) != length or zlib.crc32(body) != checksum:
        return None
    # This program wrote it, into memory that only it and its keeper have open.
    tables: Tables = marshal.loads(body)  # noqa: S302
    return tables


class StandInLocks:
    """The locks of one stand-in, for the TAPs in the network namespace of the calling thread."""

    def __init__(self, names: Sequence[str], claims: Path = CLAIMS) -> None:
        self._paths = [_path(name, claims) for name in names]
        self._files: list[int] = []

    def take(self) -> None:
        """Takes all locks for this process. Raises BlockingIOError where another has one."""
        try:
            for path in self._paths:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._files.append(os.open(path, flags, 0o600))
                fcntl.lockf(self._files[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        """Gives up all locks. The files stay: who removed one could remove another's."""
        for file in self._files:
            os.close(file)
        self._files.clear()


def holder(name: str, claims: Path = CLAIMS) -> int | None:
    """The process that stands in at this TAP; None: nobody does."""
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
    """Ends whoever stands in at one of these TAPs; returns when it is gone, with its queues and its
    sessions. Raises OSError when it cannot be ended."""
    for name in names:
        pid = holder(name, claims)
        while pid is not None:
            _end(name, pid, claims)
            pid = holder(name, claims)


def _end(name: str, pid: int, claims: Path) -> None:
    with suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            if holder(name, claims) != pid:  # the number may be another's by now
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
    # The claims of controllers begin with the namespace's number.
    return claims / f"stand-in-{Path('/proc/thread-self/ns/net').stat().st_ino}-{name}"
