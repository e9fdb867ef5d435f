# SPDX-License-Identifier: Apache-2.0
"""The daemon loads no package that it does not need: while it starts, BFD hears nothing."""

import subprocess
import sys

NOT_NEEDED = {"finsy", "grpc", "rich"}
"""Packages that others bring along. They cost a fifth of the time of all imports."""


def test_the_daemon_imports_no_client_and_no_tables_for_people() -> None:
    program = "import sys, sluice.cli.main, sluice.app; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "sluice.p4messages" in loaded
    assert loaded & NOT_NEEDED == set()
