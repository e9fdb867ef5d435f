# SPDX-License-Identifier: Apache-2.0
"""Tests that the commands of docs/how-to/takeover.md do what the page says, if they are run
unchanged.
"""

import os

import pytest

from sluice_testkit import where
from sluice_testkit.pages import Shown
from sluice_testkit.process import run
from sluice_topo import probes
from sluice_topo.kernel_router import KernelRouter

PAGE = "docs/how-to/takeover.md"
# The page's name of the takeover is not unique to a run, so it needs a separate /run.
PRIVATE = ("unshare", "--mount", "bash", "-euc")
SCRIPT = """
mount -t tmpfs tmpfs /run
{commands}
"""


@pytest.mark.executes(PAGE)
def test_the_commands_of_the_page(router: KernelRouter, shown: Shown) -> None:
    commands = [one.text for one in shown.rest()]
    *before, down = commands
    before.append(f"ping -c 3 {router.hosts[1].address(4)} >&2")
    script = SCRIPT.format(commands="\n".join([*before, down]))
    programs = f"{where.sluice_switch().parent}:{where.sluice().parent}"
    path = f"{programs}:{os.environ['PATH']}:/usr/sbin:/sbin"
    done = run(router.namespace.argv([*PRIVATE, script]), env={"PATH": path})
    assert "port 1: eth1" in done.stdout
    assert "the switch forwards for eth1, eth2" in done.stdout
    assert "10.0.1.0/24" in done.stdout
    assert done.stdout.endswith("the kernel forwards\n")
    assert probes.ping(router.hosts[0].namespace, router.hosts[1].address(4)).lost == 0
