# SPDX-License-Identifier: Apache-2.0
"""Runs the PTF suite and the goldens against one target: `make ptf [TARGET=bmv2]`.

    python -m sluice_ptf [--target sluice-switch|bmv2] [--option=OPTION...] [TEST...]

TEST names a module (`routing`) or a single test (`routing.blackhole`), as for PTF. If a TEST is
given, the goldens do not run. Goldens are stored packets with their expected outcomes
(sluice_ptf.differential). OPTION is added to the target's command line: `--option=--workers=2`. The
switch runs in a network namespace with four ports. PTF runs in the same namespace, at the other
ends of the ports.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from sluice_ptf.cabling import far_ends, plug
from sluice_testkit import where
from sluice_testkit.namespaces import Lab
from sluice_testkit.target import Target

HERE = Path(__file__).resolve().parent.parent


def ptf_command(target: Target, build: Path, logs: Path, specs: list[str]) -> list[str]:
    """Returns the command line of PTF's test runner."""
    parameters = f"address='{target.grpc}';device_id={target.device_id};build='{build}'"
    interfaces = [word for port, end in far_ends().items() for word in ("-i", f"{port}@{end}")]
    runner = str(Path(sys.executable).parent / "ptf")
    options = ["--test-dir", str(HERE / "tests"), "--pypath", str(HERE), "--log-dir", str(logs)]
    options += ["--platform-dir", str(HERE / "platform"), "--platform", "packet_sockets"]
    options += ["--debug", "info", "--fail-skipped"]
    return [runner, *options, "-t", parameters, *interfaces, *specs]


def run_suites(target: Target, build: Path, logs: Path, specs: list[str]) -> bool:
    """Runs PTF, then the goldens; returns whether all passed."""
    environment = os.environ | {"PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1"}
    commands = [ptf_command(target, build, logs, specs)]
    if not specs:
        golden = [sys.executable, "-m", "sluice_ptf.differential.golden"]
        commands.append([*golden, "--address", target.grpc, "--build", str(build)])
    for command in commands:
        done = subprocess.run(target.namespace.argv(command), env=environment, check=False)
        if done.returncode != 0:
            return False
    return True


def main() -> int:
    """Starts the target, runs the suites, and prints the result."""
    parser = argparse.ArgumentParser(
        prog="sluice_ptf", description="Runs the PTF suite and the goldens"
    )
    parser.add_argument("--target", help="sluice-switch or bmv2 (default: the variable TARGET)")
    parser.add_argument("--option", action="append", default=[], help="an option for the target")
    parser.add_argument("tests", nargs="*", help="PTF test specs; default: all tests")
    arguments = parser.parse_args()
    with Lab() as lab:
        namespace = lab.namespace("ptf")
        ports, name = plug(namespace), arguments.target
        target = Target(namespace, ports, lab.supervisor, name=name, options=arguments.option)
        target.start()
        passed = run_suites(target, where.pipeline(), lab.directory / "ptf", arguments.tests)
        if not passed:
            print(lab.supervisor.report(), file=sys.stderr)
        print(f"PTF on {target.name}: {'passed' if passed else 'FAILED'}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
