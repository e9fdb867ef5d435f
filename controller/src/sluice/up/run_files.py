# SPDX-License-Identifier: Apache-2.0
"""Names the files of a takeover, and finds its supervisor.

Only root may write to the directory. Otherwise another user could place links there, which root
would follow.

While the supervisor runs, it holds a lock on a file. The kernel releases the lock when the process
ends. The file contains the ids of the processes.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from sluice.connection_config import P4RUNTIME_SOCKET_END, UP_DIRECTORY

DEFAULT_NAME = "up"
POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Processes:
    """Holds the process ids of a takeover."""

    supervisor: int
    switch: int
    controller: int


class RunFiles(NamedTuple):
    """Names the files of the takeover called `name`, in `directory`."""

    name: str = DEFAULT_NAME
    directory: Path = UP_DIRECTORY

    @property
    def api(self) -> Path:
        """Socket of the controller's API."""
        return self.directory / f"{self.name}.sock"

    @property
    def p4runtime(self) -> Path:
        """Socket of the switch's P4Runtime service."""
        return self.directory / f"{self.name}{P4RUNTIME_SOCKET_END}"

    @property
    def private(self) -> Path:
        """Directory of the files and sockets below."""
        return self.directory / f"{self.name}.up"

    @property
    def log(self) -> Path:
        """Log of all processes."""
        return self.private / "log"

    @property
    def state(self) -> Path:
        """The controller's state directory."""
        return self.private / "state"

    @property
    def admin(self) -> Path:
        """Socket for `sluice-switch ctl`."""
        return self.private / "switch.sock"

    @property
    def lock(self) -> Path:
        """File that the supervisor locks."""
        return self.private / "processes.json"

    def make_directories(self) -> None:
        """Makes the directories. Raises OSError. This includes the case that other users may write
        to one."""
        for path, mode in ((self.directory, 0o755), (self.private, 0o700)):
            try:
                path.mkdir()
                path.chmod(mode)
            except FileExistsError:
                _check_owner(path)

    def open_log(self) -> int:
        """Opens the log to append to it. Raises OSError."""
        return _open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def take(self) -> int | None:
        """Locks the file for this process. Returns its descriptor, or None if another supervisor
        holds the lock.

        Raises OSError.
        """
        self.make_directories()
        file = _open(self.lock, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return None
        os.ftruncate(file, 0)
        return file

    def record(self, file: int, processes: Processes) -> None:
        """Writes the process ids to the locked file."""
        text = json.dumps(asdict(processes)).encode()
        os.pwrite(file, text, 0)
        os.ftruncate(file, len(text))

    def processes(self) -> Processes | None:
        """Returns the processes of a takeover that runs, or None if none runs."""
        try:
            _check_owner(self.directory)
            file = _open(self.lock, os.O_RDWR)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            found = json.loads(os.pread(file, 4096, 0) or b"{}")
            return Processes(**found) if found else None
        finally:
            os.close(file)
        return None

    def running(self) -> list[str]:
        """Returns the names of all takeovers that run with files in this directory."""
        names = sorted(path.stem for path in self.directory.glob("*.up"))
        return [name for name in names if self._replace(name=name).processes() is not None]


def _check_owner(directory: Path) -> None:
    """Raises OSError if a user other than this one may write to a directory."""
    found = os.lstat(directory)
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "is no directory", str(directory))
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        why = "other users may write to this directory; remove it"
        raise PermissionError(errno.EPERM, why, str(directory))


def _open(path: Path, flags: int) -> int:
    """Opens a file that is not a symbolic link. Raises OSError."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
