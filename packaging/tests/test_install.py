# SPDX-License-Identifier: Apache-2.0
"""Tests that the programs that `make install` and the wheel install run without the checkout."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sluice_testkit.controller import Controller
from sluice_testkit.namespaces import Lab, veth
from sluice_testkit.pages import Shown
from sluice_testkit.process import run
from sluice_testkit.target import Target, p4runtime_address
from sluice_testkit.wait import wait_until

ROOT = Path(__file__).resolve().parents[2]
VERSION = r"0\.\S+ \(commit [0-9a-f]{12}(-dirty)?, pipeline ([0-9a-f]{12})\)"
# Environment that hides the checkout from the installed programs.
ALONE = {"PYTHONPATH": "", "MAKEFLAGS": "", "SLUICE_PIPELINE": "", "SLUICE_ROOT": ""}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab() as made:
        yield made


PAGE = "docs/how-to/install.md"


def make_install(prefix: Path, destination: str, configuration: Path) -> None:
    """Runs `make install` with the programs that `make test-install` has built."""
    variables = [f"PREFIX={prefix}", f"DESTDIR={destination}", f"SYSCONFDIR={configuration}"]
    run(["make", "-C", str(ROOT), "install", *variables], timeout=900, env={"MAKEFLAGS": ""})


@pytest.fixture(scope="module")
def prefix(lab: Lab) -> Path:
    """Installs by `make install` into a prefix where the programs also run. Returns the prefix."""
    path = lab.directory / "prefix"
    make_install(path, "", lab.directory / "etc")
    return path


@pytest.fixture(scope="module")
def environment(lab: Lab) -> Path:
    """Returns a virtual environment with the wheel and the packages of controller.lock."""
    path = lab.directory / "environment"
    run(["/usr/bin/python3", "-m", "venv", str(path)], timeout=120)
    pip = [str(path / "bin/pip"), "install", "--quiet"]
    run([*pip, "--require-hashes", "-r", str(ROOT / "requirements/controller.lock")], timeout=600)
    (wheel,) = (ROOT / "build/dist").glob("sluice-*.whl")
    run([*pip, "--no-deps", "--no-index", str(wheel)], timeout=120)
    return path


def said(lab: Lab, program: Path) -> str:
    """Runs a program with --version outside of the checkout. Returns the pipeline's digest."""
    words = ["env", f"--chdir={lab.directory}", str(program), "--version"]
    found = re.fullmatch(f"{program.name} {VERSION}", run(words, env=ALONE).stdout.strip())
    assert found, program
    return found[2]


def programs_a_switch(lab: Lab, monkeypatch: pytest.MonkeyPatch, command: Path) -> None:
    """Starts a switch and a controller; waits until they are synced and the router answers."""
    monkeypatch.setenv("SLUICE_COMMAND", str(command))
    for name, value in ALONE.items():
        monkeypatch.setenv(name, value)
    if (switch := command.with_name("sluice-switch")).exists():
        monkeypatch.setenv("SLUICE_SWITCH", str(switch))
    name = command.parent.parent.name
    namespace, host = lab.namespace(name), lab.namespace(f"{name}-host")
    veth(namespace, "port1", host, "eth0")
    host.add_address("eth0", "10.1.0.2/24")
    address = p4runtime_address(None, lab.directory, name)
    target = Target(
        namespace, {1: "port1"}, lab.supervisor, label=f"{name}-switch", address=address
    )
    interface = {"name": "eth1", "port": 1, "device": "port1", "mac": "02:00:00:00:01:01"}
    config = {
        "router": name,
        "switch": {"address": target.grpc, "device_id": 1, "cpu_port": 510},
        "interfaces": [interface | {"addresses": ["10.1.0.1/24"]}],
    }
    controller = Controller(name, namespace, config, lab.directory, lab.supervisor)
    target.start()
    controller.start()
    try:
        controller.wait_synced()
        ping = host.argv(["ping", "-c1", "-W1", "10.1.0.1"])
        wait_until(lambda: run(ping, check=False).returncode == 0, 20, "the router to answer")
    finally:
        controller.stop()
        target.stop()


def test_installed_programs_say_the_same_version(lab: Lab, prefix: Path, environment: Path) -> None:
    programs = (prefix / "bin/sluice", prefix / "bin/sluice-switch", environment / "bin/sluice")
    assert len({said(lab, program) for program in programs}) == 1


def test_installed_router_runs(lab: Lab, prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs_a_switch(lab, monkeypatch, prefix / "bin/sluice")


def test_wheel_runs_with_its_own_pipeline(
    lab: Lab, environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs_a_switch(lab, monkeypatch, environment / "bin/sluice")


def test_units_name_the_prefix(lab: Lab, prefix: Path) -> None:
    etc = lab.directory / "etc/sluice"
    for program, file in (
        ("sluice", "sluice.yaml"),
        ("sluice-switch", "switch.env"),
        ("sluice-esp", "esp.env"),
    ):
        unit = (prefix / f"lib/systemd/system/{program}.service").read_text()
        assert f"ExecStart={prefix}/bin/{program} " in unit
        assert str(etc / file) in unit
        assert "@PREFIX@" not in unit
        assert (etc / file).exists()


def test_configuration_that_is_there_stays(lab: Lab, prefix: Path) -> None:
    configuration = lab.directory / "etc/sluice/sluice.yaml"
    assert yaml.safe_load(configuration.read_text())["interfaces"] == []
    configuration.write_text("router: mine\n")
    make_install(prefix, "", lab.directory / "etc")
    assert configuration.read_text() == "router: mine\n"


def test_destination_is_named_nowhere(lab: Lab, prefix: Path) -> None:
    staged = lab.directory / "staged"
    make_install(Path("/usr/local"), str(staged), Path("/etc"))
    assert os.access(staged / "usr/local/bin/sluice-switch", os.X_OK)
    assert (staged / "usr/local/bin/sluice").readlink() == Path("../lib/sluice/bin/sluice")
    for path in staged.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert str(staged).encode() not in path.read_bytes(), path


def typed(lab: Lab, text: str, *, path: str = "", **environment: str) -> str:
    """Runs a command of the page in the checkout, with `path` first on PATH; returns its output."""
    script = f"cd {ROOT}\nexport PATH={path}:$PATH\n{text}"
    done = run(["bash", "-euc", script], timeout=900, env={"MAKEFLAGS": ""} | environment)
    return done.stdout + done.stderr


@pytest.mark.executes(PAGE, "make install")
def test_the_page_s_install_is_below_its_prefix(lab: Lab, shown: Shown) -> None:
    root = lab.directory / "as-shown"
    command = shown.take("make install").words
    assert command.endswith(" DESTDIR=")
    typed(lab, f"{command}{root}")
    assert os.access(root / "usr/local/bin/sluice-switch", os.X_OK)


@pytest.mark.executes(PAGE, "pip install")
def test_pip_takes_the_wheel(lab: Lab, environment: Path, shown: Shown) -> None:
    pip = str(environment / "bin/pip")
    run([pip, "uninstall", "--quiet", "--yes", "sluice"])
    typed(lab, shown.take("pip install").text, path=str(environment / "bin"))
    assert said(lab, environment / "bin/sluice")


@pytest.mark.executes(PAGE, "cargo install")
def test_cargo_installs_the_switch(lab: Lab, prefix: Path, shown: Shown) -> None:
    """Installs by `cargo install`, in the checkout's target directory to reuse its builds."""
    root = lab.directory / "cargo"
    command = f"{shown.take('cargo install').words} --root {root} --no-track --force --quiet"
    commit = run([str(ROOT / "packaging/version"), "commit"]).stdout.strip()
    target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "switch/target"))
    typed(lab, command, SLUICE_COMMIT=commit, CARGO_TARGET_DIR=target)
    assert said(lab, root / "bin/sluice-switch") == said(lab, prefix / "bin/sluice-switch")
