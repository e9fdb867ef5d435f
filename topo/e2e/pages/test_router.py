# SPDX-License-Identifier: Apache-2.0
"""Tests the commands of pages on which a router is started, from the checkout or from another
directory.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from e2e.pages.machine import Machine, block
from sluice_testkit import where
from sluice_testkit.pages import Shown
from sluice_testkit.process import Supervisor
from sluice_testkit.wait import wait_until

SECURITY = "docs/security.md"
ESP = "docs/esp.md"
BMV2 = "docs/how-to/instead-of-bmv2.md"
KEYS = {"12.key": "00112233445566778899aabbccddeeff01020304", "21.key": "ff" * 20}
"""AES-128-GCM keys: 16 bytes of key and 4 bytes of salt, in hexadecimal."""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with Supervisor(tmp_path / "log") as supervisor:
        yield Machine(tmp_path / "here", supervisor)


@pytest.fixture
def pipeline(machine: Machine) -> None:
    """Links the compiled pipeline into the working directory, for pages that name its files without
    a directory.
    """
    for name in ("router.json", "router.p4info.txtpb"):
        (machine.directory / name).symlink_to(where.pipeline() / name)


@pytest.mark.executes("README.md", "sluice-switch ", "sluice run", "sluice show routes")
@pytest.mark.executes("docs/how-to/failures.md", "ip ")
@pytest.mark.executes("switch/README.md", "tc ")
def test_a_router_with_ports_of_its_own(machine: Machine, shown: Shown) -> None:
    machine.links("port1", "port2", "port3")
    machine.start(shown.take("sluice-switch"), directory=where.repository())
    machine.start(shown.take("sluice run"), directory=where.repository())
    routes = machine.type(shown.take("sluice show routes"))
    assert re.search(r"^Prefix +", routes, re.MULTILINE | re.IGNORECASE), routes
    assert "direct-action" in machine.type(shown.take("tc filter"))
    for command in shown.rest("docs/how-to/failures.md"):
        machine.type(command)
    links = machine.type("ip -brief link show type macvlan")
    assert re.search(r"^vrrp4-1-5@eth1 .* 00:00:5e:00:01:05 ", links, re.MULTILINE), links
    assert re.search(r"^vrrp6-1-5@eth1 .* 00:00:5e:00:02:05 ", links, re.MULTILINE), links


@pytest.mark.executes("docs/how-to/configure.md", "sluice-switch ")
def test_the_switch_is_where_the_example_s_controller_looks(machine: Machine, shown: Shown) -> None:
    machine.links("port1", "port2")
    machine.start(shown.take("sluice-switch"), directory=where.repository())
    machine.write("r1.yaml", block("docs/how-to/configure.md", "yaml", "router: r1"))
    machine.start("sluice run r1.yaml")
    assert "primary" in machine.type("sluice show status")


@pytest.mark.executes("switch/README.md", "sluice-switch ")
@pytest.mark.usefixtures("pipeline")
def test_the_switch_alone(machine: Machine, shown: Shown) -> None:
    machine.links("veth0", "veth1")
    for command in shown.rest():
        switch = machine.start(command)
        assert re.search(r"veth0.*up", machine.type("sluice-switch ctl ports"))
        assert switch.stop() == 0


@pytest.mark.executes(SECURITY)
@pytest.mark.usefixtures("pipeline")
def test_controller_and_switch_with_mutual_tls(machine: Machine, shown: Shown) -> None:
    machine.links("port1")
    machine.type("ip address add 192.0.2.1/32 dev lo")
    start = shown.take("sluice-switch")
    machine.type("\n".join(command.text for command in shown.rest()))
    machine.start(start)
    told = block(SECURITY, "yaml", "switch:").replace("/etc/sluice", str(machine.directory))
    interface = {"name": "eth1", "port": 1, "mac": "02:00:00:00:01:01"}
    config = {"router": "r1", "interfaces": [interface]} | yaml.safe_load(told)
    machine.write("r1.yaml", yaml.safe_dump(config))
    machine.start("sluice run r1.yaml")
    assert "mutual TLS" in machine.type("sluice show status")


@pytest.mark.executes(ESP)
def test_the_engine(machine: Machine, shown: Shown) -> None:
    machine.write("sas.json", block(ESP, "json", "["))
    for name, key in KEYS.items():
        machine.write(name, key)
    machine.type(shown.take("ip link add port9"))
    machine.type("ip link set port9 up; ip link set engine up")
    engine = machine.start(shown.take("sluice-esp --interface"))
    wait_until(lambda: "ready" in engine.log(), 20, "the engine to be ready")
    machine.type(shown.take("sluice-esp ctl add"))
    told = machine.type(shown.take("sluice-esp ctl show"))
    assert re.search(r"^out sa 12 spi 0x1002 bundle 2 .*aes-128-gcm", told, re.MULTILINE), told
    assert re.search(r"^in +sa 21 spi 0x2001 bundle 2 ", told, re.MULTILINE), told


# Checks what every test of the PTF suite needs: the switch's address accepts connections, and the
# parameters arrive.
PTF_TEST = """
import socket

from ptf.base_tests import BaseTest
from ptf.testutils import test_param_get


class Reaches(BaseTest):
    def runTest(self):
        host, port = test_param_get("grpcaddr").split(":")
        with socket.create_connection((host, int(port)), 5):
            pass
        assert test_param_get("p4info") == "x.p4info.txtpb"
"""


@pytest.mark.executes(BMV2)
def test_the_stand_in_for_bmv2_and_ptf(machine: Machine, shown: Shown) -> None:
    machine.links("veth8", "veth9")
    stand_in = "\n".join(shown.take(start).text for start in ("mkdir", "chmod"))
    options = "--no-p4 -i 0@veth8 -i 1@veth9 --thrift-port 9090 --device-id 1"
    machine.type(stand_in)
    switch = machine.start(f"bash -ec '{shown_path(stand_in)}; exec simple_switch_grpc {options}'")
    wait_until(lambda: "sluice-switch: ready" in switch.log(), 20, "the stand-in to be ready")
    switch.stop()
    for here, there in (("veth0", "veth1"), ("veth2", "veth3")):
        machine.type(f"ip link add {here} type veth peer name {there}")
        machine.type(f"ip link set {here} up; ip link set {there} up")
    (machine.directory / "ptf").mkdir()
    machine.write("ptf/reaches.py", PTF_TEST)
    machine.start(shown.take("sluice-switch --no-p4"))
    told = machine.type(shown.take("ptf "))
    assert re.search(r"^OK$", told, re.MULTILINE), told
    assert (machine.directory / "ss-log.txt").exists()


def shown_path(script: str) -> str:
    """Returns the page's command that puts its replacements for BMv2 first on PATH."""
    found = re.search(r"export PATH=\S+", script)
    assert found is not None
    return found[0]
