# SPDX-License-Identifier: Apache-2.0
"""Reads the TLS keys for a connection to the switch, and checks the owner of the switch's socket.

The files are read again for every connection, so renewed certificates need no restart. If a file
cannot be used, the connection fails and is retried, as for any other error. Depends on
connection_config.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from sluice.connection_config import SwitchConfig, TlsConfig, UnixAddress
from sluice.p4runtime.session import FAILED_PRECONDITION, PERMISSION_DENIED, P4RuntimeError

MAXIMUM_PEM = 1 << 20

TlsCredentials = tuple[bytes, bytes, bytes]
"""CA certificate, own certificate with its chain, own key. All are PEM."""


def prepare(switch: SwitchConfig) -> TlsCredentials | None:
    """Returns the TLS keys for the next connection, or None without TLS.

    For a Unix socket, also checks the socket's owner. Raises P4RuntimeError.
    """
    if isinstance(switch.address, UnixAddress):
        _check_owner(switch.address.path)
    return None if switch.tls is None else _read_keys(switch.tls)


def _check_owner(path: Path) -> None:
    """Raises P4RuntimeError unless the socket belongs to root or to this process's user.

    Does nothing if the socket is missing, because the client reports that.
    """
    try:
        found = path.stat()
    except OSError:
        return
    if stat.S_ISSOCK(found.st_mode) and found.st_uid not in (0, os.geteuid()):
        raise P4RuntimeError(
            PERMISSION_DENIED,
            f"{path} belongs to user {found.st_uid}, not to the switch (root, or user"
            f" {os.geteuid()}); remove the socket and restart the switch",
        )


def _read_keys(tls: TlsConfig) -> TlsCredentials:
    key = _read(tls.key)
    try:
        mode = stat.S_IMODE(tls.key.stat().st_mode)
    except OSError as error:
        raise _unreadable(tls.key, error) from error
    if mode & 0o007:
        raise P4RuntimeError(
            PERMISSION_DENIED,
            f"tls.key: {tls.key} can be read by every user (mode {mode:04o}); set mode 0600",
        )
    return _read(tls.ca), _read(tls.certificate), key


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAXIMUM_PEM)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> P4RuntimeError:
    return P4RuntimeError(FAILED_PRECONDITION, f"tls: {path}: {error.strerror}")
