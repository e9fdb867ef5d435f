# SPDX-License-Identifier: Apache-2.0
"""Tests that the commands of docs/index.md build a router that forwards, if they are run
unchanged.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice_testkit import where
from sluice_testkit.pages import Shown, blocks
from sluice_testkit.process import Process, Supervisor, run

PAGE = "docs/index.md"
BUILD = ("ip netns add", "for side", "ip -n router")
START = ("ip netns exec router sluice-switch", "ip netns exec router sluice run")
LOOK = ("ip netns exec h1 ping", "sluice --help", "sluice show interfaces", "sluice show neighbors")
# The page's names of namespaces and sockets are not unique to a run, so they need a separate /run.
SCRIPT = """
mount -t tmpfs tmpfs /run
mkdir -p /run/sluice
{build}
{start}
wait
"""


@pytest.fixture
def router(tmp_path: Path, shown: Shown) -> Iterator[Process]:
    """Runs the page's commands. Yields a process inside the router's mount and network
    namespace.
    """
    (configuration,) = (one.text for one in blocks(PAGE) if one.language == "yaml")
    (tmp_path / "quick.yaml").write_text(configuration)
    script = SCRIPT.format(build=taken(shown, BUILD), start=taken(shown, START))
    with Supervisor(tmp_path) as supervisor:
        command = ["unshare", "--mount", "--net", "bash", "-euc", f"cd {tmp_path}\n{script}"]
        process = supervisor.start("quick-start", command, env=environment())
        process.wait_for_log("sluice: ready", deadline=30)
        yield process


def taken(shown: Shown, starts: tuple[str, ...]) -> str:
    """Returns the page's commands that begin with these texts, as one script."""
    return "\n".join(shown.take(start).text for start in starts)


def environment() -> dict[str, str]:
    """Returns an environment in which PATH contains the programs that the page names."""
    programs = f"{where.sluice_switch().parent}:{where.sluice().parent}"
    return os.environ | {"PATH": f"{programs}:{os.environ['PATH']}:/usr/sbin:/sbin"}


@pytest.mark.executes(PAGE, *BUILD, *START, *LOOK)
def test_the_commands_of_the_page_make_a_router(router: Process, shown: Shown) -> None:
    enter = ["nsenter", f"--target={router.pid}", "--mount", "--net"]
    looked = run([*enter, "bash", "-euc", taken(shown, LOOK)], env=environment())
    assert "3 received, 0% packet loss" in looked.stdout
    assert re.search(r"^eth1 +1 +default +up", looked.stdout, re.MULTILINE)
    assert re.search(r"^10\.1\.0\.2 +eth1", looked.stdout, re.MULTILINE)
