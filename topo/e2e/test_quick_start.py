# SPDX-License-Identifier: Apache-2.0
"""docs/index.md: its commands, unchanged, build a router that forwards."""

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
# The page's namespaces and sockets have plain names: a separate /run isolates them.
SCRIPT = """
mount -t tmpfs tmpfs /run
mkdir -p /run/sluice
{build}
{start}
wait
"""


@pytest.fixture
def router(tmp_path: Path, shown: Shown) -> Iterator[Process]:
    """The page's router; its process has the mounts and the network of the router."""
    (configuration,) = (one.text for one in blocks(PAGE) if one.language == "yaml")
    (tmp_path / "quick.yaml").write_text(configuration)
    script = SCRIPT.format(build=taken(shown, BUILD), start=taken(shown, START))
    with Supervisor(tmp_path) as supervisor:
        command = ["unshare", "--mount", "--net", "bash", "-euc", f"cd {tmp_path}\n{script}"]
        process = supervisor.start("quick-start", command, env=environment())
        process.wait_for_log("sluice: ready", deadline=30)
        yield process


def taken(shown: Shown, starts: tuple[str, ...]) -> str:
    """The page's commands that begin so, as a script."""
    return "\n".join(shown.take(start).text for start in starts)


def environment() -> dict[str, str]:
    """An environment in which the programs have the page's names."""
    programs = f"{where.sluice_switch().parent}:{where.sluice().parent}"
    return os.environ | {"PATH": f"{programs}:{os.environ['PATH']}:/usr/sbin:/sbin"}


@pytest.mark.executes(PAGE, *BUILD, *START, *LOOK)
def test_the_commands_of_the_page_make_a_router(router: Process, shown: Shown) -> None:
    enter = ["nsenter", f"--target={router.pid}", "--mount", "--net"]
    looked = run([*enter, "bash", "-euc", taken(shown, LOOK)], env=environment())
    assert "3 received, 0% packet loss" in looked.stdout
    assert re.search(r"^eth1 +1 +default +up", looked.stdout, re.MULTILINE)
    assert re.search(r"^10\.1\.0\.2 +eth1", looked.stdout, re.MULTILINE)
