# SPDX-License-Identifier: Apache-2.0
"""Tests that P4Runtime clients of other projects work unmodified with a running switch.

PTF is another such client. It is tested by the tests in ptf-tests, which all use it.
"""

import sys
from pathlib import Path

import pytest

from sluice_testkit import where
from sluice_testkit.namespaces import Lab, veth
from sluice_testkit.target import Target, p4runtime_address
from sluice_topo.shell import shell_argv

SCRIPT = """
entry = table_entry["nexthop"](action="discard_nexthop")
entry.match["nexthop_id"] = "7"
entry.insert()
for entry in table_entry["nexthop"].read(): print("read back:", entry.match["nexthop_id"].exact)

exit
"""


def start(lab: Lab, address: str | None = None) -> Target:
    """Starts a switch to which no pipeline has been loaded."""
    place = lab.namespace("switch")
    veth(place, "port1", place, "test1")
    target = Target(place, {1: "port1"}, lab.supervisor, address=address)
    target.start()
    return target


@pytest.fixture
def target(lab: Lab) -> Target:
    return start(lab)


def test_p4runtime_shell_drives_the_switch(target: Target) -> None:
    run_shell(target, str(where.p4runtime_shell_python()), "-m", "p4runtime_sh", "--no-ssl")


def test_p4runtime_shell_drives_the_switch_over_a_unix_socket(lab: Lab) -> None:
    target = start(lab, p4runtime_address(None, lab.directory, "switch"))
    run_shell(target, *shell_argv(target.grpc, target.device_id))


def run_shell(target: Target, *shell: str) -> None:
    pipeline = where.pipeline()
    done = target.namespace.run(
        *shell,
        *("--grpc-addr", target.grpc, "--device-id", "1", "--election-id", "0,1"),
        *("--config", f"{pipeline}/router.p4info.txtpb,{pipeline}/router.json"),
        stdin=SCRIPT,
    )
    assert "read back" in done.stdout, done.stdout + done.stderr


def test_finsy_drives_the_switch(target: Target) -> None:
    pipeline = where.pipeline()
    done = target.namespace.run(
        *(sys.executable, str(Path(__file__).with_name("finsy_client.py")), target.grpc),
        *(f"{pipeline}/router.p4info.txtpb", f"{pipeline}/router.json"),
    )
    assert "read back: 7" in done.stdout, done.stdout + done.stderr
    assert "packet-in: reason 12 same frame: True" in done.stdout, done.stdout + done.stderr
