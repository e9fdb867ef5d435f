# SPDX-License-Identifier: Apache-2.0
"""docs/index.md: its commands build a router that forwards, as they stand there."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice_testkit import where
from sluice_testkit.process import Process, Supervisor, run

PAGE = (where.repository() / "docs/index.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```([a-z]*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
BUILD_NETWORK, START, LOOK = (text for kind, text in BLOCKS[1:] if kind == "")
# The page's namespaces and sockets have plain names: a /run of the test's own keeps them apart.
SCRIPT = f"""
mount -t tmpfs tmpfs /run
mkdir -p /run/sluice
{BUILD_NETWORK}
{START}
wait
"""


@pytest.fixture
def router(tmp_path: Path) -> Iterator[Process]:
    """The page's router; its process has the mounts and the network that it is in."""
    (configuration,) = (text for kind, text in BLOCKS if kind == "yaml")
    (tmp_path / "quick.yaml").write_text(configuration)
    with Supervisor(tmp_path) as supervisor:
        command = ["unshare", "--mount", "--net", "bash", "-euc", f"cd {tmp_path}\n{SCRIPT}"]
        process = supervisor.start("quick-start", command, env=environment())
        process.wait_for_log("sluice: ready", deadline=30)
        yield process


def environment() -> dict[str, str]:
    """The programs by their names, as the page calls them."""
    programs = f"{where.sluice_switch().parent}:{where.sluice().parent}"
    return os.environ | {"PATH": f"{programs}:{os.environ['PATH']}:/usr/sbin:/sbin"}


def test_the_commands_of_the_page_make_a_router(router: Process) -> None:
    enter = ["nsenter", f"--target={router.pid}", "--mount", "--net"]
    looked = run([*enter, "bash", "-euc", LOOK], env=environment())
    assert "3 received, 0% packet loss" in looked.stdout
    assert re.search(r"^eth1 +1 +default +up", looked.stdout, re.MULTILINE)
    assert re.search(r"^10\.1\.0\.2 +eth1", looked.stdout, re.MULTILINE)
