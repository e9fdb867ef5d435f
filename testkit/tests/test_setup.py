# SPDX-License-Identifier: Apache-2.0
"""Tests the checks that `make setup` makes before it downloads anything, and the notices that it
prints before long builds.
"""

import os
from pathlib import Path

import pytest

from sluice_testkit.process import run
from sluice_testkit.where import repository

CHECK = repository() / "switch/check-toolchain"
TIMED = repository() / "switch/timed"


def rust(directory: Path, version: str) -> dict[str, str]:
    """Returns an environment in which rustc and cargo report this version."""
    for name in ("rustc", "cargo"):
        program = directory / name
        program.write_text(f"#!/bin/sh\necho {name} {version} '(a commit)'\n")
        program.chmod(0o755)
    return {"PATH": f"{directory}:{os.environ['PATH']}", "HOME": str(directory)}


@pytest.mark.parametrize("version", ["1.65.0", "1.94.9", "0.99.0"])
def test_old_rust_is_named_with_what_to_do(tmp_path: Path, version: str) -> None:
    done = run([str(CHECK), str(tmp_path), "1"], check=False, env=rust(tmp_path, version))
    assert done.returncode == 1
    assert f"{tmp_path}/rustc is Rust {version}, too old: install Rust 1.95 or later" in done.stderr


@pytest.mark.parametrize("version", ["1.95.0", "1.100.1", "2.0.0", "1.97.0-nightly"])
def test_new_rust_will_do(tmp_path: Path, version: str) -> None:
    done = run([str(CHECK), str(tmp_path), "1"], env=rust(tmp_path, version))
    assert done.stdout + done.stderr == ""


def test_too_small_a_disk_is_named(tmp_path: Path) -> None:
    argv = [str(CHECK), str(tmp_path), "999999999"]
    done = run(argv, check=False, env=rust(tmp_path, "1.95.0"))
    assert done.returncode == 1
    assert f"MB are free for {tmp_path}" in done.stderr


def test_the_toolchain_is_looked_at_before_packages(tmp_path: Path) -> None:
    environment = rust(tmp_path, "1.65.0") | {"CARGO_TARGET_DIR": str(tmp_path), "MAKEFLAGS": ""}
    stamps = tmp_path / "stamps"
    argv = ["make", "-C", str(repository()), f"STAMPS={stamps}", f"{stamps}/apt"]
    done = run(argv, check=False, env=environment)
    assert done.returncode == 2
    assert "too old" in done.stderr
    assert "packages" not in done.stdout
    assert not list(stamps.iterdir())


def test_a_first_build_is_announced_once(tmp_path: Path) -> None:
    environment = {"CARGO_TARGET_DIR": str(tmp_path)}
    argv = [str(TIMED), "the switch", "true"]
    assert run(argv, env=environment).stdout == "build: the switch: minutes the first time\n"
    assert run(argv, env=environment).stdout == ""


def test_a_failed_build_stays_a_failure(tmp_path: Path) -> None:
    environment = {"CARGO_TARGET_DIR": str(tmp_path)}
    argv = [str(TIMED), "the switch", "sh", "-c", "exit 3"]
    assert run(argv, check=False, env=environment).returncode == 3
    assert "first time" in run(argv, check=False, env=environment).stdout
