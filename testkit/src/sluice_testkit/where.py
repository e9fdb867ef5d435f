# SPDX-License-Identifier: Apache-2.0
"""Finds the programs under test. If one is missing, the error says how to build it.

Each program has an environment variable that may name its path. The default is the program that
`make setup` has built in this checkout.
"""

import os
import shutil
from pathlib import Path


def repository() -> Path:
    """Returns the root of the checkout: SLUICE_ROOT, otherwise the nearest parent directory that
    contains `p4src/`.
    """
    named = os.environ.get("SLUICE_ROOT")
    if named:
        return Path(named)
    for start in (Path(__file__).resolve(), Path.cwd()):
        for folder in (start, *start.parents):
            if (folder / "p4src").is_dir() and (folder / "testkit").is_dir():
                return folder
    raise FileNotFoundError("no Sluice checkout found: set SLUICE_ROOT to the path of one")


def _find(variable: str, default: Path, remedy: str) -> Path:
    named = os.environ.get(variable)
    path = Path(named) if named else default
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: {remedy}, or set {variable}")
    return path


def _release(binary: str) -> Path:
    target = os.environ.get("CARGO_TARGET_DIR", str(repository() / "switch" / "target"))
    return Path(target) / "release" / binary


def sluice_switch() -> Path:
    """Returns the path of the switch's program: SLUICE_SWITCH, otherwise cargo's release build."""
    return _find("SLUICE_SWITCH", _release("sluice-switch"), "run `make setup`")


def sluice_esp() -> Path:
    """Returns the path of the ESP engine's program: SLUICE_ESP, otherwise cargo's release build."""
    return _find("SLUICE_ESP", _release("sluice-esp"), "run `make setup`")


def sluice_traffic() -> Path:
    """Returns the path of the traffic generator's program: SLUICE_TRAFFIC, otherwise cargo's
    release build.
    """
    return _find("SLUICE_TRAFFIC", _release("sluice-traffic"), "run `make setup`")


def sluice() -> Path:
    """Returns the path of the `sluice` command: SLUICE_COMMAND, otherwise the command in the
    controller's environment.
    """
    default = repository() / ".venv" / "controller" / "bin" / "sluice"
    return _find("SLUICE_COMMAND", default, "run `make setup`")


def controller_python() -> Path:
    """Returns the Python interpreter of the controller's environment."""
    return sluice().with_name("python")


def p4runtime_shell_python() -> Path:
    """Returns the Python interpreter of the environment in which p4runtime-shell is installed."""
    default = repository() / ".venv" / "shell" / "bin" / "python"
    return _find("SLUICE_SHELL_PYTHON", default, "run `make setup`")


def pipeline() -> Path:
    """Returns the directory of the compiled pipeline (router.json, router.p4info.txtpb)."""
    default = repository() / "p4src" / "build" / "v1model"
    return _find("SLUICE_PIPELINE", default, "run `make p4`")


def bmv2() -> Path | None:
    """Returns the path of simple_switch_grpc: BMV2, otherwise the program on PATH. None if it is
    missing.
    """
    found = os.environ.get("BMV2") or shutil.which("simple_switch_grpc")
    return Path(found) if found and Path(found).exists() else None
