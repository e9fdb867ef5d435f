# SPDX-License-Identifier: Apache-2.0
"""Tests the make commands of the documentation that run a part of a test suite, or run a suite on
any server.
"""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.pages.machine import Machine
from sluice_testkit import where
from sluice_testkit.pages import Shown
from sluice_testkit.process import Supervisor

SUITE = "switch/crates/p4runtime-suite/README.md"
SERVER = "127.0.0.1:9559"
SWITCH = (
    f"sluice-switch --no-p4 --device-id 1 --cpu-port 510 --grpc-server-addr {SERVER}"
    " --writes-from-any-connection"
)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with Supervisor(tmp_path / "log") as supervisor:
        yield Machine(tmp_path / "here", supervisor)


def make(machine: Machine, text: str) -> str:
    """Runs a make command in the checkout and returns its output. It does not inherit the variables
    of the make process that runs this test.
    """
    kept = {
        name: os.environ[name] for name in ("RUSTUP_HOME", "CARGO_HOME") if name in os.environ
    } | {"HOME": str(Path.home())}  # the Rust toolchain is there
    exports = " ".join(f"{name}={shlex.quote(value)}" for name, value in kept.items())
    return machine.type(
        f"unset MAKEFLAGS TARGET ARGS ADDR\nexport {exports}\n{text}",
        directory=where.repository(),
        timeout=600,
    )


@pytest.mark.executes("docs/develop/ptf-test.md", "make ptf ARGS")
@pytest.mark.executes("ptf-tests/README.md", "make ptf ARGS")
def test_parts_of_the_ptf_suite(machine: Machine, shown: Shown) -> None:
    for text in dict.fromkeys(command.words for command in shown.rest()):
        assert "PTF on sluice-switch: passed" in make(machine, text), text


@pytest.mark.executes(SUITE, "make p4runtime-suite$", "make p4runtime-suite A")
def test_the_p4runtime_suite(machine: Machine, shown: Shown) -> None:
    assert " 0 failed, 0 skipped" in make(machine, shown.take("make p4runtime-suite$").words)
    machine.start(SWITCH)
    on_a_server = shown.take("make p4runtime-suite ADDR")
    text = on_a_server.words.replace("HOST:PORT", SERVER)
    assert " 0 failed, " in make(machine, text)
    printed = make(machine, shown.take("make p4runtime-suite ARGS").words)
    assert '"passed"' in printed, printed
