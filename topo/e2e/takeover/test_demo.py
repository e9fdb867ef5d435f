# SPDX-License-Identifier: Apache-2.0
"""Tests that the demo of `sluice up` passes, with Debian's Python."""

import os
from pathlib import Path

from sluice_testkit import where
from sluice_testkit.process import Supervisor

PYTHON = "/usr/bin/python3"


def test_demo_passes(tmp_path: Path) -> None:
    root = where.repository()
    environment = os.environ | {"PYTHONPATH": f"{root}/topo:{root}/testkit/src"}
    with Supervisor(tmp_path) as supervisor:
        argv = [PYTHON, "-m", "sluice_topo.takeover_demo"]
        told = supervisor.start("demo", argv, env=environment)
        assert told.wait(deadline=180) == 0, told.log()
        assert "packets lost at `sluice up`: 0 of" in told.log()
        assert "packets lost at `sluice down`: 0 of" in told.log()
        assert told.log().endswith("demo passed\n")
