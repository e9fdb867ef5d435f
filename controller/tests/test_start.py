# SPDX-License-Identifier: Apache-2.0
"""What the daemon loads before it can answer anybody: while it starts, BFD hears nothing."""

import subprocess
import sys

NOT_NEEDED = {"finsy", "grpc", "rich"}
"""What others of its packages bring along; a fifth of the time it takes to import them all."""


def test_the_daemon_imports_no_client_and_no_tables_for_people() -> None:
    program = "import sys, sluice.cli.main, sluice.app; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "sluice.p4messages" in loaded
    assert loaded & NOT_NEEDED == set()
