# SPDX-License-Identifier: Apache-2.0
"""Appends lines to a file that may be rotated. A write error raises no exception.

If the path names another file, as after `logrotate`, the file is reopened. So `logrotate` need not
signal the program. A line is written whole or not at all. Lines that cannot be written are counted.
The program's own log reports the first lost line, and reports when writing works again. Symbolic
links are not followed.
"""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

log = logging.getLogger(__name__)

MODE = 0o600
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class AuditFile:
    """Appends lines to the file at `path`. `lost` counts the lines that could not be written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lost = 0
        self._descriptor: int | None = None
        self._lost_since = 0
        """Lines lost since the last successful write; 0 while writing works."""

    def append(self, line: str) -> bool:
        """Appends a line. Returns whether the line was written. Never raises an exception."""
        try:
            self._write(self._current(), line.encode() + b"\n")
        except OSError as error:
            self.lost += 1
            self._lost_since += 1
            if self._lost_since == 1:
                reason = error.strerror or str(error)
                log.error("audit log %s: %s: events are lost until the file can be written: free"
                          " disk space, or set audit.file", self.path, reason)  # fmt: skip
            self.close()
            return False
        if self._lost_since:
            log.warning(
                "audit log %s: written again; %d events were lost", self.path, self._lost_since
            )
            self._lost_since = 0
        return True

    def close(self) -> None:
        """Closes the file. The next `append` opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _current(self) -> int:
        """Returns a descriptor of the file that the path names now. Opens it again after a
        rotation."""
        if self._descriptor is not None and not self._is_current(self._descriptor):
            self.close()
        if self._descriptor is None:
            self._descriptor = os.open(self.path, _FLAGS, MODE)
        return self._descriptor

    def _is_current(self, descriptor: int) -> bool:
        try:
            named = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(named, os.fstat(descriptor))

    @staticmethod
    def _write(descriptor: int, line: bytes) -> None:
        written = os.write(descriptor, line)
        if written < len(line):  # no room on the disk for the rest of the line
            os.ftruncate(descriptor, os.lseek(descriptor, 0, os.SEEK_END) - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
