# SPDX-License-Identifier: Apache-2.0
"""Tests that the demo passes on mininet, and that p4runtime-shell can read a switch while the demo
runs.
"""

import os
import subprocess
from pathlib import Path

import pytest

from sluice_testkit import where
from sluice_testkit.pages import Shown
from sluice_testkit.process import Supervisor
from sluice_testkit.wait import wait_until
from sluice_topo import demo

PYTHON = "/usr/bin/python3"  # Debian's Python, which has mininet
LOOK = 'for entry in table_entry["l3_interface"].read(): print("seen:", entry.action)\n\nexit\n'


def environment() -> dict[str, str]:
    root = where.repository()
    return os.environ | {"PYTHONPATH": f"{root}/topo:{root}/testkit/src"}


def look() -> str:
    """Runs `make shell` for r1's switch, reads a table, and returns the output."""
    argv = [PYTHON, "-m", "sluice_topo.shell", "--router", "r1"]
    done = subprocess.run(argv, input=LOOK, capture_output=True, text=True, env=environment())
    return done.stdout


@pytest.mark.executes("README.md", "make demo")
@pytest.mark.executes("docs/index.md", "make demo")
def test_the_story_comes_true_and_the_shell_can_look_on(tmp_path: Path, shown: Shown) -> None:
    (command,) = {one.words for one in shown.rest()}  # both pages have the same command
    argv = [*command.split(), "-C", str(where.repository())]
    with Supervisor(tmp_path) as supervisor:
        told = supervisor.start("demo", argv, env=environment() | {"MAKEFLAGS": "", "ARGS": ""})
        told.wait_for_log("1. BGP comes up", deadline=60)
        wait_until(lambda: "seen:" in look(), 30, "p4runtime-shell to read a table", interval=0.5)
        assert told.wait(deadline=180) == 0, told.log()
        assert "demo passed" in told.log()
        assert "OSPF" not in told.log()  # this network has no OSPF
        assert "protected, seen in clear on the wire or by h2: 0" in told.log()
        assert "rekey of both directions: packets lost: 0 of" in told.log()
        assert "after expiry: in clear on the links: 0" in told.log()


# Script that replaces `sluice`. It runs the controller until it reports that it is ready, then
# kills it and exits with an error.
FALLS = """#!/usr/bin/python3
import os, subprocess, sys
real = "{real}"
if sys.argv[1] != "run":
    os.execv(real, [real, *sys.argv[1:]])
with subprocess.Popen(
    [real, *sys.argv[1:]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
) as process:
    for line in process.stdout:
        print(line, end="", flush=True)
        if "sluice: ready" in line:
            break
    process.kill()
sys.exit("the sky fell")
"""


def test_the_words_of_a_program_that_ends_are_shown_at_once(tmp_path: Path) -> None:
    falling = tmp_path / "sluice"
    falling.write_text(FALLS.format(real=where.sluice()))
    falling.chmod(0o755)
    with Supervisor(tmp_path / "log") as supervisor:
        changed = environment() | {"SLUICE_COMMAND": str(falling)}
        told = supervisor.start("demo", [PYTHON, "-m", demo.__name__], env=changed)
        assert told.wait(deadline=50) == 1, told.log()  # BGP's own wait is 60 s
        assert "the sky fell" in told.log()
        assert "-sluice (ended with 1;" in told.log()
