# SPDX-License-Identifier: Apache-2.0
"""Files that are replaced whole: after a crash there is the old one or the new one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

FILE_MODE = 0o600


def replace_json(
    path: Path, document: Any, *, replacing: Callable[[], None] = lambda: None
) -> None:
    """Puts a JSON document in a file's place, for its owner only; survives a crash on return.

    `replacing` is called once the new file is written, before it takes the old one's place: from
    then on a restart finds the one or the other. Raises OSError; before that the old file stays.
    """
    beside = path.with_suffix(".new")
    try:
        beside.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(beside, flags, FILE_MODE), "w", encoding="utf-8") as file:
            json.dump(document, file, sort_keys=True)
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
        with suppress(OSError):  # room for the next try
            beside.unlink(missing_ok=True)
        raise
