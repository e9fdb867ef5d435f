# SPDX-License-Identifier: Apache-2.0
"""Records on disk which engine received which key, before the switch uses the key's SA.

Invariant: a key that has encrypted on one engine is never used on another. The other engine would
start its sequence numbers at 1, and so repeat nonces. For this reason the record is on disk and
outlives the controller. It also says which SAs have expired, because a restarted engine would start
their lifetimes again. It holds fingerprints of keys, not the keys.

The file consists of JSON lines and is append-only. Each start rewrites the file with one line for
each key. A partial last line is ignored: the machine stopped while the line was being written, so
no engine has used its key. Any other damage prevents the start. Depends on durable and
state.sa_table.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from errno import EBADF, ENOSPC
from pathlib import Path
from typing import Any

from sluice.durable import FILE_MODE, boot_id
from sluice.state.sa_table import Clocks, KeyUse

FILE_NAME = "sa-keys"
LAST_NUMBER = 0xFFFFFFFF


def read_clocks() -> Clocks:
    """Reads the machine's clocks. Raises OSError without /proc."""
    return Clocks(time.time(), boot_id(), time.clock_gettime(time.CLOCK_BOOTTIME))


class SaStoreError(Exception):
    """Reports that a file about SAs cannot be read or written, or that its content is damaged."""


class SaUses:
    """Holds the record. `uses` maps fingerprints to uses; `next_number` is for the next outbound
    SA."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self.uses: dict[str, KeyUse] = {}
        self.next_number = 1
        self._file: int | None = None
        # Fingerprints of keys of expired SAs that are recorded in memory but not yet on disk.
        self._unwritten: dict[str, None] = {}

    def open(self) -> None:
        """Reads the file, or creates it. Raises SaStoreError."""
        try:
            text = self.path.read_bytes() if self.path.exists() else b""
        except OSError as error:
            raise SaStoreError(f"{self.path}: {error.strerror}") from None
        lines = text.split(b"\n")[:-1]
        for at, line in enumerate(lines, 1):
            try:
                self._take(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise SaStoreError(
                    f"{self.path}:{at}: damaged ({error!r}), so it is not known which engine has"
                    " used which key; give all SAs new keys, then remove the file"
                ) from None
        self._rewrite()

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def record_use(self, engine: int, keys: Iterable[tuple[str, int]], now: Clocks) -> None:
        """Records that an engine receives keys at `now`. Each item is (fingerprint, SA number).

        The record is on disk on return. Raises SaStoreError.
        """
        self._append(_given(key, number, engine, now) for key, number in keys)

    @property
    def has_unwritten(self) -> bool:
        """Whether the disk still lacks expired SAs because `expire` failed. If so, call `expire`
        again."""
        return bool(self._unwritten)

    def expire(self, keys: Iterable[str]) -> None:
        """Records that the SAs with these keys have expired: in memory, and on disk unless the call
        raises.

        A call also writes the keys that earlier calls could not write. Raises SaStoreError.
        """
        for key in keys:
            self._unwritten[key] = None
            self._take({"key": key, "expired": True})
        self._append({"key": key, "expired": True} for key in self._unwritten)
        self._unwritten.clear()

    def number(self) -> int:
        """Returns a number that no outbound SA has had. Raises SaStoreError if none is left."""
        found = self.next_number
        if found > LAST_NUMBER:
            raise SaStoreError(f"{self.path}: all numbers of outbound SAs have been used")
        self.next_number += 1
        return found

    def _take(self, entry: dict[str, Any]) -> None:
        key = str(entry["key"])
        known = self.uses.get(key)
        if entry.get("expired"):
            self.uses[key] = (known or KeyUse(0, Clocks(0.0)))._replace(is_expired=True)
        else:
            engine, uptime = int(entry["engine"]), float(entry.get("uptime", 0.0))
            since = Clocks(float(entry["since"]), str(entry.get("boot", "")), uptime)
            self.uses[key] = KeyUse(engine, since if known is None else known.since)
            if known is not None:
                self.uses[key] = self.uses[key]._replace(is_expired=known.is_expired)
            self.next_number = max(self.next_number, int(entry["number"]) + 1)

    def _append(self, entries: Iterable[dict[str, Any]]) -> None:
        known = list(entries)
        text = "".join(json.dumps(entry) + "\n" for entry in known).encode()
        try:
            if self._file is None:
                raise OSError(EBADF, "not open")
            end = os.fstat(self._file).st_size
            try:
                _write(self._file, text)
            except OSError:
                os.ftruncate(self._file, end)
                raise
        except OSError as error:
            raise SaStoreError(f"{self.path}: {error.strerror}") from None
        for entry in known:
            self._take(entry)

    def _rewrite(self) -> None:
        beside = self.path.with_suffix(".new")
        last = self.next_number - 1
        lines = [
            json.dumps(_given(key, last, use.engine, use.since)) for key, use in self.uses.items()
        ]
        lines += [
            json.dumps({"key": key, "expired": True})
            for key, use in self.uses.items()
            if use.is_expired
        ]
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        try:
            self.close()
            self._file = os.open(beside, flags, FILE_MODE)
            _write(self._file, "".join(f"{line}\n" for line in lines).encode())
            beside.replace(self.path)
            directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise SaStoreError(f"{self.path}: {error.strerror}") from None


def _given(key: str, number: int, engine: int, since: Clocks) -> dict[str, Any]:
    """Returns the record's line for a key that an engine has."""
    of_boot = {"boot": since.boot, "uptime": since.uptime}
    return {"key": key, "number": number, "engine": engine, "since": since.wall} | of_boot


def _write(file: int, text: bytes) -> None:
    """Appends text and syncs it to disk. Raises OSError."""
    if os.write(file, text) != len(text):
        raise OSError(ENOSPC, os.strerror(ENOSPC))
    os.fsync(file)
