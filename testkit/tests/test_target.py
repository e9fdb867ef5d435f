# SPDX-License-Identifier: Apache-2.0
"""Tests how a target is selected, its command line, and the error if its program is missing."""

from pathlib import Path

import pytest

from sluice_testkit import where
from sluice_testkit.namespaces import Namespace
from sluice_testkit.process import Supervisor
from sluice_testkit.target import (
    Target,
    TargetUnavailable,
    bmv2_available,
    p4runtime_address,
    target_name,
)

NOWHERE = Namespace("nowhere", Path("/nowhere"), ())


def test_the_environment_names_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TARGET", raising=False)
    assert target_name() == "sluice-switch"
    monkeypatch.setenv("TARGET", "bmv2")
    assert target_name() == "bmv2"
    assert target_name("sluice-switch") == "sluice-switch"


def test_an_unknown_target_is_refused_by_name() -> None:
    with pytest.raises(TargetUnavailable, match="tofino"):
        target_name("tofino")


def test_a_missing_bmv2_is_an_error_that_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BMV2", str(tmp_path / "absent"))
    assert not bmv2_available()
    target = Target(NOWHERE, {1: "port1"}, Supervisor(tmp_path), name="bmv2")
    with pytest.raises(TargetUnavailable, match="behavioral-model"):
        target.start()


@pytest.mark.parametrize("name", ["sluice-switch", "bmv2"])
def test_both_take_the_same_flags(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    program.touch()
    monkeypatch.setenv("BMV2", str(program))
    monkeypatch.setenv("SLUICE_SWITCH", str(program))
    words = Target(NOWHERE, {1: "port1"}, Supervisor(tmp_path), name=name).argv()
    for flag in ("--no-p4", "1@port1", "--grpc-server-addr", "127.0.0.1:9559", "510"):
        assert flag in words


def test_a_router_reaches_its_switch_by_a_unix_socket(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    program.touch()
    monkeypatch.setenv("SLUICE_SWITCH", str(program))
    address = p4runtime_address("sluice-switch", tmp_path, "r1")
    assert address == f"unix:{tmp_path}/r1-p4rt.sock"
    target = Target(NOWHERE, {}, Supervisor(tmp_path), name="sluice-switch", address=address)
    assert address in target.argv()
    assert p4runtime_address("bmv2", tmp_path, "r1") == "127.0.0.1:9559"


def test_a_missing_build_says_what_to_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SLUICE_SWITCH", str(tmp_path / "absent"))
    with pytest.raises(FileNotFoundError, match="make setup"):
        where.sluice_switch()
