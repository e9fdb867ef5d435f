# SPDX-License-Identifier: Apache-2.0
"""Tests errors of the `sluice` command: its exit codes, and messages that say what to do."""

from pathlib import Path

import yaml

from sluice_testkit import where
from sluice_testkit.namespaces import Lab, veth
from sluice_testkit.process import run
from sluice_testkit.target import Target
from sluice_topo.description import two_sites
from sluice_topo.routers import P4Router

FAILED, USAGE, NO_DAEMON = 1, 2, 3


def sluice(*words: str) -> tuple[int, str]:
    """Runs the command. Returns its exit status and stderr."""
    done = run([str(where.sluice()), *words], check=False)
    return done.returncode, done.stderr


def test_no_daemon_is_said_so(tmp_path: Path) -> None:
    socket = tmp_path / "absent.sock"
    status, said = sluice("show", "routes", "--socket", str(socket))
    assert status == NO_DAEMON
    assert str(socket) in said
    assert "Traceback" not in said


def test_wrong_usage() -> None:
    assert sluice("show", "nonsense")[0] == USAGE
    assert sluice("no-such-command")[0] == USAGE


def test_version_and_completion() -> None:
    assert run([str(where.sluice()), "--version"]).stdout.strip()
    for shell in ("bash", "zsh", "fish"):
        assert "sluice" in run([str(where.sluice()), "completion", shell]).stdout


def test_every_problem_of_a_configuration_is_named_at_once(tmp_path: Path) -> None:
    config = two_sites().router("r1").sluice_config()
    config["swich"] = {}
    config["interfaces"][0]["mtu"] = "large"
    config["interfaces"][1]["port"] = config["interfaces"][2]["port"]
    config["interfaces"][2]["addresses"] = ["10.0.2.1/40"]
    path = tmp_path / "r1.yaml"
    path.write_text(yaml.safe_dump(config))
    status, said = sluice("run", str(path))
    assert status == FAILED
    for word in (str(path), "swich", "mtu", "port", "10.0.2.1/40"):
        assert word in said, said
    assert "Traceback" not in said


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    status, said = sluice("run", str(tmp_path / "absent.yaml"))
    assert status == FAILED
    assert "absent.yaml" in said
    assert "Traceback" not in said


def test_a_controller_waits_for_its_switch(lab: Lab) -> None:
    place = lab.namespace("r1")
    for port in (1, 2, 3):
        veth(place, f"port{port}", place, f"peer{port}")
    router = P4Router(two_sites().router("r1"), place, lab.directory, lab.supervisor)
    process = router.controller.launch()
    process.wait_for_log(router.target.grpc)  # the controller logs the address for which it waits
    assert process.running()
    assert isinstance(router.target, Target)
    router.target.start()
    process.wait_for_log("sluice: ready")
    router.controller.wait_synced()
