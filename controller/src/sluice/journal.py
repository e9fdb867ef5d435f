# SPDX-License-Identifier: Apache-2.0
"""Logs to systemd's journal if standard error is connected to it. Otherwise logs lines of text to
standard error.

Uses the journal's native protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL): each record is one
datagram. Fields are MESSAGE, PRIORITY, SYSLOG_IDENTIFIER, CODE_FILE, CODE_LINE, CODE_FUNC,
SLUICE_LOGGER and SLUICE_ROUTER (after `name_router`). Depends only on the standard library.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import sys
from collections.abc import Mapping
from pathlib import Path

JOURNAL = Path("/run/systemd/journal/socket")
LENGTH = struct.Struct("<Q")
LARGEST = 100_000
"""Maximum size of one value, in bytes. Longer values are truncated, since the size of datagrams is
limited."""

# syslog(3)
PRIORITIES = (
    (logging.CRITICAL, 2),
    (logging.ERROR, 3),
    (logging.WARNING, 4),
    (logging.INFO, 6),
    (logging.DEBUG, 7),
)


class JournalHandler(logging.Handler):
    """Sends records to the journal. Raises OSError if no journal is reachable."""

    def __init__(self, journal: Path = JOURNAL) -> None:
        super().__init__()
        self.router: str | None = None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            self._socket.connect(str(journal))
        except OSError:
            self._socket.close()
            raise

    def emit(self, record: logging.LogRecord) -> None:
        """Sends one record. If it cannot be sent, prints its message to standard error."""
        fields = {
            "MESSAGE": self.format(record),
            "PRIORITY": str(_priority(record.levelno)),
            "SYSLOG_IDENTIFIER": "sluice",
            "CODE_FILE": record.pathname,
            "CODE_LINE": str(record.lineno),
            "CODE_FUNC": record.funcName or "",
            "SLUICE_LOGGER": record.name,
        }
        if self.router is not None:
            fields["SLUICE_ROUTER"] = self.router
        try:
            self._socket.send(encode(fields))
        except OSError:
            print(fields["MESSAGE"], file=sys.stderr)

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()
        super().close()


def start(environment: Mapping[str, str] = os.environ, journal: Path = JOURNAL) -> None:
    """Configures the process's logging, from level INFO on."""
    if _leads_to_journal(environment.get("JOURNAL_STREAM", "")):
        try:
            # Time and level are left out of the text, because they are fields of the record.
            logging.basicConfig(
                level=logging.INFO, handlers=[JournalHandler(journal)], format="%(message)s"
            )
        except OSError:  # no journal: log lines of text
            pass
        else:
            return
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )


def name_router(name: str) -> None:
    """Adds the router's name to the fields of later records."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, JournalHandler):
            handler.router = name


def encode(fields: Mapping[str, str]) -> bytes:
    """Encodes one record. The length of a value is written in front of it if the value has line
    feeds."""
    parts = []
    for name, value in fields.items():
        data = value.encode(errors="surrogateescape")[:LARGEST]
        if b"\n" in data:
            parts.append(name.encode() + b"\n" + LENGTH.pack(len(data)) + data + b"\n")
        else:
            parts.append(name.encode() + b"=" + data + b"\n")
    return b"".join(parts)


def _priority(level: int) -> int:
    return next((priority for least, priority in PRIORITIES if level >= least), 7)


def _leads_to_journal(named: str) -> bool:
    """Returns whether standard error is the stream that JOURNAL_STREAM names (systemd.exec(5))."""
    try:
        found = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return named == f"{found.st_dev}:{found.st_ino}"
