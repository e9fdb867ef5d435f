# SPDX-License-Identifier: Apache-2.0
"""Tests the commands of the documentation that only query a router. They run on r1 of the two-site
network, which has routes from FRR.
"""

import re

import pytest

from sluice_testkit import where
from sluice_testkit.pages import Command, Shown
from sluice_testkit.process import run
from sluice_topo.network import Network
from sluice_topo.routers import P4Router

# For each command: a pattern that its output must match. A key is the beginning of the command; if
# several keys fit, the longest one applies.
PRINTS = {
    "sluice show status": r"^synced +yes",
    "sluice show status --check": r"\A\Z",
    "sluice show interfaces": r"^eth1 +1 +default +up",
    "sluice show interfaces eth1": r"^state +up",
    "sluice show routes": r"^10\.2\.0\.0/24 .*bgp",
    "sluice show route ": r"10\.2\.0\.0/24",
    "sluice show nexthops": r"eth2",
    "sluice show neighbors": r"^10\.0\.1\.2 +eth2",
    "sluice show punts": r"^ROUTING_PROTOCOL",
    "sluice show counters": r"\w",
    "sluice show sas": r"^no SAs",
    "sluice clear counters": r"",
    "sluice metrics": r'^sluice_role\{.*router="r1"',
    "sluice reload": r"",
    "source <(sluice completion bash)": r"\A\Z",
    'vtysh -c "show bgp summary"': r"10\.0\.1\.2",
    'vtysh -c "show bfd peers brief"': r"10\.0\.1\.2",
    'vtysh -c "show ip route"': r"^B>\* 10\.2\.0\.0/24",
    "echo '{": r'^\{"data": \[\{.*"ok": true\}$',
}


def typed(router: P4Router, command: Command) -> str:
    """Runs a page's command in the router's namespace. Replaces the sockets of the page by those of
    the router.
    """
    assert router.frr is not None
    directory = router.frr.directory
    vtysh = f"vtysh --vty_socket={directory} --config_dir={directory}"
    text = re.sub(r"^vtysh", vtysh, command.text)
    text = text.replace("/run/sluice/r1.sock", str(router.controller.socket))
    programs = f"{where.sluice_switch().parent}:{where.sluice().parent}"
    script = f"export PATH={programs}:$PATH SLUICE_SOCKET={router.controller.socket}\n{text}"
    done = run(router.namespace.argv(["bash", "-euo", "pipefail", "-c", script]))
    return done.stdout


@pytest.mark.executes("docs/how-to/configure.md", "sluice show", "sluice clear", "sluice metrics")
@pytest.mark.executes("docs/how-to/configure.md", "sluice reload", "source ")
@pytest.mark.executes("docs/how-to/frr-recipes.md")
@pytest.mark.executes("docs/how-to/api.md")
def test_commands_that_look(network: Network, shown: Shown) -> None:
    router = network.p4_router("r1")
    assert router.frr is not None
    router.frr.start_daemon("bfdd")  # the recipes have BFD, the network's configuration does not
    router.frr.configure("bfd", "peer 10.0.1.2 local-address 10.0.1.1 interface eth2", "exit")
    wrong = []
    for command in shown.rest():
        printed = typed(router, command)
        start = max((one for one in PRINTS if command.words.startswith(one)), key=len)
        if not re.search(PRINTS[start], printed, re.MULTILINE):
            wrong.append(f"{command}\n{printed}")
    assert not wrong, "\n".join(wrong)
