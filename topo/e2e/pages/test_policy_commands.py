# SPDX-License-Identifier: Apache-2.0
"""Tests the commands about policy. The configuration and the SPD are those of
docs/how-to/policy.md.
"""

import re
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.pages.machine import Machine, block
from sluice_testkit.pages import Shown
from sluice_testkit.process import Process, Supervisor

PAGE = "docs/how-to/policy.md"
SWITCH = (
    "sluice-switch --no-p4 --device-id 1 -i 1@port1 -i 2@port2 -i 9@port9 --cpu-port 510"
    " --grpc-server-addr unix:/run/sluice/r1-p4rt.sock"
)
FRR = """\
router bgp 65001
 neighbor 10.0.1.2 remote-as 65101
exit
"""
PRINTS = {
    "sluice spd check": r"^corp: \d+ inbound rules?, \d+ outbound rules?: fine$",
    "sluice spd check --config": r"^warning: corp: the BGP session 10\.0\.1\.1 - 10\.0\.1\.2 ",
    "sluice spd diff": r"^corp outbound:",
    "sluice spd diff --configured": r"^corp inbound:",
    "sluice spd commit": r"corp",
    "sluice spd add": r"^in force after ",
    "sluice spd move": r"^in force after ",
    "sluice spd delete": r"^in force after ",
    "sluice spd log": r"\bdelete ssh\b",
    "sluice spd diff --commit": r"^corp outbound:",
    "sluice spd rollback": r"corp",
    "sluice explain": r"^packet .*(?s:.*)^model and switch agree$",
    "sluice spd export": r"\A\Z",
    "sluice show spd": r"^  auto: cache\+rules, all \d+ rules in the tables$",
    "sluice show spd corp": r"\bsite\b",
    "sluice show flows": r"^no flows$|\bpackets +bytes\b",
    "sluice show flows corp --top 10 --rate 2": r"^no flows$|\bpackets/s +bytes/s\b",
    "sluice show flows --list outbound --by source": r"^no flows$|^source +flows +packets +bytes\b",
    "sluice show flows corp --by rule": r"^no flows$|^SPD +list +rule +flows +packets/s +bytes/s\b",
    "sluice show status": r"^auditor: policy +\d+ entr",
    "sluice flow-cache show": r"\bcorp\b",
    "sluice flow-cache off": r"",
    "sluice flow-cache on": r"",
    "sluice flow-cache clear": r"",
}

# A capture file with two equal frames. The page's command explains the second one.
FRAME = bytes.fromhex(
    "02000000010102000000000108004500001c00000000400165d50a01000a0a0001020800f7ff00000000"
)
CAPTURE = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
CAPTURE += 2 * (struct.pack("<IIII", 0, 0, len(FRAME), len(FRAME)) + FRAME)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with Supervisor(tmp_path / "log") as supervisor:
        machine = Machine(tmp_path / "here", supervisor)
        machine.links("port1", "port2", "port9")
        machine.write(
            "r1.yaml",
            "router: r1\n" + block(PAGE, "yaml", "# in the router's configuration\nspds:"),
        )
        machine.write("corp.yaml", block(PAGE, "yaml", "# corp.yaml"))
        (machine.frr / "frr.conf").write_text(FRR)
        (machine.directory / "capture.pcap").write_bytes(CAPTURE)
        yield machine


@pytest.fixture
def controller(machine: Machine) -> Process:
    machine.start(SWITCH)
    return machine.start("sluice run r1.yaml")


def prints(machine: Machine, command: object, text: str) -> None:
    """Runs a command and checks its output by the pattern in PRINTS."""
    start = max((one for one in PRINTS if str(command).startswith(one)), key=len)
    printed = machine.type(text)
    assert re.search(PRINTS[start], printed, re.MULTILINE), f"{command}\n{printed}"


@pytest.mark.executes("README.md", "sluice spd", "sluice show spd", "sluice show flows")
@pytest.mark.executes(PAGE)
def test_commands_about_policy(machine: Machine, controller: Process, shown: Shown) -> None:
    again = shown.take("sluice run --configured-policy")
    with_frr = shown.take("sluice spd check --config")
    for command in shown.rest():
        prints(machine, command.words, command.text)
    assert "spd: corp" in (machine.directory / "corp.yaml").read_text()
    # If the SPD has no rules, the check warns about each BGP session.
    machine.write("corp.yaml", "spd: corp\noutbound: []\n")
    prints(machine, with_frr.words, with_frr.text)
    machine.write("corp.yaml", block(PAGE, "yaml", "# corp.yaml"))
    assert controller.stop() == 0
    machine.start(again.text.replace("CONFIG", "r1.yaml").split("#")[0])
    prints(machine, "sluice show spd corp", "sluice show spd corp")
