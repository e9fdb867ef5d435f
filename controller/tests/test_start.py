# SPDX-License-Identifier: Apache-2.0
"""Tests the start of the daemon.

While the daemon starts, BFD gets no packets. So the daemon must not load packages that it does not
need. If it cannot start, it must give the reason in one sentence.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_namespace import network_namespace
from sluice.config import load_config
from sluice.yamlreader import SHOWN, ConfigError

NOT_NEEDED = {"finsy", "grpc", "rich"}
"""Packages that other packages would import. They take a fifth of the time of all imports."""


def test_the_daemon_imports_no_client_and_no_tables_for_people() -> None:
    program = "import sys, sluice.cli.main, sluice.app; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "sluice.p4messages" in loaded
    assert loaded & NOT_NEEDED == set()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_an_address_that_another_program_has_is_named_once(tmp_path: Path) -> None:
    """Checks the error message if another program listens on the address of FPM already.

    The sentence must name the configuration key and the address once, without error numbers of the
    kernel.
    """
    with network_namespace(), socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        config = tmp_path / "r1.yaml"
        config.write_text(
            f"router: r1\nstate_dir: {tmp_path}\nfpm: {{listen: {address}}}\n"
            f"switch: {{address: unix:{tmp_path}/switch.sock}}\n"
            f"api: {{socket: {tmp_path}/r1.sock}}\n"
            "interfaces: [{name: eth11, port: 1, mac: '02:00:00:00:01:01'}]\n"
        )
        command = [sys.executable, "-c", "from sluice.cli.main import main; main()"]
        done = subprocess.run(
            [*command, "run", str(config)],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert said == f"sluice: fpm.listen: listening for FPM on {address}: Address already in use"


def test_a_long_list_of_problems_is_cut(tmp_path: Path) -> None:
    config = tmp_path / "r1.yaml"
    config.write_text("router: r1\n" + "".join(f"key{n}: 1\n" for n in range(50)))
    with pytest.raises(ConfigError) as caught:
        load_config(config)
    assert len(caught.value.problems) > 50
    lines = str(caught.value).splitlines()
    assert len(lines) == SHOWN + 1
    assert lines[-1] == f"and {len(caught.value.problems) - SHOWN} more problems"
