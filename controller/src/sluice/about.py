# SPDX-License-Identifier: Apache-2.0
"""Provides Sluice's version and commit, and the digest of the switch pipeline.

In an installed wheel, the commit is in the file `BUILT_FROM`. In a checkout, git supplies the
commit. This module imports no other module of Sluice, and so neither protobuf nor finsy. So `sluice
--version` starts fast.
"""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from sluice import __version__

PACKAGE = Path(__file__).resolve().parent
BUILT_FROM = "built_from.txt"
"""File in the package that holds the commit; packaging/wheel writes it."""
DEVICE_CONFIG_FILE = "router.json"
SHOWN = 12
"""Number of characters shown of a digest or commit, as in `sluice-switch --version`."""


def default_pipeline() -> Path:
    """Returns the directory of the compiled pipeline.

    Uses the pipeline in the installed package, or else the one in the checkout.
    """
    installed = PACKAGE / "pipeline"
    if installed.is_dir():
        return installed
    return PACKAGE.parents[2] / "p4src" / "build" / "v1model"


def version() -> str:
    """Returns `0.1.0 (commit COMMIT, pipeline DIGEST)`.

    COMMIT is `unknown` if there is neither `BUILT_FROM` nor a git checkout. DIGEST is `absent` if
    there is no compiled pipeline.
    """
    return f"{__version__} (commit {_commit()}, pipeline {_pipeline()})"


def _pipeline() -> str:
    try:
        content = (default_pipeline() / DEVICE_CONFIG_FILE).read_bytes()
    except OSError:
        return "absent"
    return hashlib.sha256(content).hexdigest()[:SHOWN]


def _commit() -> str:
    try:
        return (PACKAGE / BUILT_FROM).read_text(encoding="utf-8").strip()
    except OSError:
        return _commit_of_checkout() or "unknown"


def _commit_of_checkout() -> str | None:
    try:
        done = subprocess.run(  # noqa: S603 - no argument comes from outside
            ["git", "-C", str(PACKAGE), "rev-parse", f"--short={SHOWN}", "HEAD"],  # noqa: S607
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
