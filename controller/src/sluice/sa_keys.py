# SPDX-License-Identifier: Apache-2.0
"""Reads keys from files of hexadecimal digits, which only their owner may access.

Buffers with digits of keys are overwritten when they are no longer needed. No error text quotes a
key file. Depends on sa_model.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from sluice.sa_model import Algorithm, KeyMaterial, KeyUnavailableError

LONGEST = 512
"""Size limit of a key file in bytes (exclusive), including white space."""
DIGITS = frozenset(b"0123456789abcdefABCDEF")
WHITE_SPACE = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class KeyFiles:
    """Names the files with an SA's keys. A path is None if the algorithm has no such key."""

    algorithm: Algorithm
    key: Path | None
    integrity_key: Path | None

    def read(self) -> KeyMaterial:
        """Returns the keys. The caller must erase them. Raises KeyUnavailableError."""
        key = _read(self.key, self.algorithm.key, self.algorithm)
        try:
            integrity_key = _read(
                self.integrity_key, self.algorithm.integrity_key, self.algorithm, "integrity key"
            )
        except KeyUnavailableError:
            _erase(key)
            raise
        return KeyMaterial(key, integrity_key)


def fingerprint(keys: KeyFiles) -> str:
    """Returns the fingerprint of the keys in the files `keys`. Raises KeyUnavailableError."""
    material = keys.read()
    try:
        return material.fingerprint()
    finally:
        material.erase()


def _read(path: Path | None, size: int, algorithm: Algorithm, what: str = "key") -> bytearray:
    if path is None:
        return bytearray()
    text = _private_text(path)
    try:
        digits = _digits(text)
        if digits is None:
            raise KeyUnavailableError(f"{path}: a {what} must consist of hexadecimal digits only")
        if len(digits) != 2 * size:
            count = len(digits)
            _erase(digits)
            salt = ", salt included" if algorithm.integrity_key == 0 else ""
            raise KeyUnavailableError(
                f"{path}: the {what} of {algorithm.name} has {2 * size} hexadecimal digits"
                f" ({size} bytes{salt}), and the file has {count}"
            )
        return digits
    finally:
        _erase(text)


def _private_text(path: Path) -> bytearray:
    """Returns the content of a file. Refuses a file that anybody but its owner may read or
    write."""
    try:
        # O_NONBLOCK, because opening a FIFO would block.
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError as error:
        raise KeyUnavailableError(f"{path}: {_why_denied(path, error)}") from None
    except (OSError, ValueError) as error:
        raise KeyUnavailableError(f"{path}: {getattr(error, 'strerror', error)}") from None
    text = bytearray(LONGEST)
    try:
        _check_private(path, os.fstat(number))
        length = os.readv(number, [text])
    except OSError as error:
        raise KeyUnavailableError(f"{path}: {error.strerror}") from None
    finally:
        os.close(number)
    if length == LONGEST:
        _erase(text)
        raise KeyUnavailableError(f"{path}: the file is too long for a key")
    del text[length:]
    return text


def _why_denied(path: Path, error: PermissionError) -> str:
    """Returns the reason why a key file cannot be opened, and the owner that it must have."""
    user = os.geteuid()
    try:
        owner = path.stat().st_uid
    except OSError:
        return (
            f"{error.strerror}: user {user}, as which the controller runs, may not enter a"
            " directory of the path"
        )
    if owner == user:
        return f"{error.strerror}: its owner, user {user}, may not read the file; chmod 600"
    return (
        f"{error.strerror}: belongs to user {owner}, and the controller runs as user {user};"
        f" chown it to user {user}, chmod 600"
    )


def _check_private(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise KeyUnavailableError(f"{path}: not a regular file")
    if found.st_uid not in (0, os.geteuid()):
        raise KeyUnavailableError(
            f"{path}: belongs to user {found.st_uid}, who could read the key; chown it to"
            f" user {os.geteuid()}"
        )
    if found.st_mode & 0o077:
        mode = f"{stat.S_IMODE(found.st_mode):04o}"
        raise KeyUnavailableError(
            f"{path}: mode {mode} lets other users read or write it; chmod 600"
        )


def _digits(text: bytearray) -> bytearray | None:
    """Returns the digits without surrounding white space and "0x". None if other characters
    remain."""
    first, end = 0, len(text)
    while first < end and text[first] in WHITE_SPACE:
        first += 1
    while end > first and text[end - 1] in WHITE_SPACE:
        end -= 1
    if text[first : first + 2].lower() == b"0x":
        first += 2
    digits = bytearray(end - first)
    digits[:] = memoryview(text)[first:end]
    if not all(digit in DIGITS for digit in digits):
        _erase(digits)
        return None
    return digits


def _erase(buffer: bytearray) -> None:
    buffer[:] = bytes(len(buffer))
