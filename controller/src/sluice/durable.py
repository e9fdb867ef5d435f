# SPDX-License-Identifier: Apache-2.0
"""Replaces files atomically: after a crash there is either the old file or the new one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
FILE_MODE = 0o600


def replace_json(
    path: Path, document: Any, *, replacing: Callable[[], None] = lambda: None
) -> None:
    """Replaces a file by a JSON document; see `replace_text`. Raises OSError."""
    replace_text(path, json.dumps(document, sort_keys=True), replacing=replacing)


def replace_text(path: Path, text: str, *, replacing: Callable[[], None] = lambda: None) -> None:
    """Replaces a file by a text; see `replace_bytes`. Raises OSError."""
    replace_bytes(path, text.encode(), replacing=replacing)


def replace_bytes(path: Path, data: bytes, *, replacing: Callable[[], None] = lambda: None) -> None:
    """Replaces a file by a new file with these bytes and mode 0600. They are durable on return.

    `replacing` is called when the new file is written but has not replaced the old file. From then
    on, a restart may find either file. Raises OSError. If it does so before `replacing` is called,
    the old file stays.
    """
    beside = path.with_suffix(".new")
    try:
        beside.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(beside, flags, FILE_MODE), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        replacing()
        beside.replace(path)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError:
        with suppress(OSError):  # frees space on the disk for the next attempt
            beside.unlink(missing_ok=True)
        raise


def boot_id() -> str:
    """Returns the kernel's random id of the current boot. Raises OSError without /proc."""
    return BOOT_ID.read_text(encoding="ascii").strip()
