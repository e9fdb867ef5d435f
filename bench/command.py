# SPDX-License-Identifier: Apache-2.0
"""Provides the common parts of the benchmark commands: the options for duration and rounds, a
lab in which to measure, and the error for a missing tool.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable

from sluice_testkit.bench import MINIMUM_ROUNDS
from sluice_testkit.namespaces import Lab, Namespace


class ToolMissing(Exception):
    """A required program is not installed, or does not work on this machine."""


def parser(prog: str, description: str, *, seconds: float) -> argparse.ArgumentParser:
    """Returns a parser with `--seconds` (of one measurement) and `--rounds`."""
    made = argparse.ArgumentParser(prog=prog, description=description)
    shown = f"seconds of one measurement (default: {seconds:g})"
    made.add_argument("--seconds", type=float, default=seconds, help=shown)
    shown = f"number of rounds, at least {MINIMUM_ROUNDS} (default: {MINIMUM_ROUNDS})"
    made.add_argument("--rounds", type=int, default=MINIMUM_ROUNDS, help=shown)
    return made


def parsed(
    parser: argparse.ArgumentParser, words: Iterable[str] | None = None
) -> argparse.Namespace:
    """Parses the process's arguments, or `words`. Requires enough rounds for a median."""
    arguments = parser.parse_args(None if words is None else list(words))
    if arguments.rounds < MINIMUM_ROUNDS:
        parser.error(f"a median needs at least {MINIMUM_ROUNDS} rounds")
    return arguments


def in_lab(measure: Callable[[Lab, Namespace], None]) -> None:
    """Measures within a namespace of a new lab.

    gRPC's threads belong to the namespace of the thread that starts them. So all of `measure` runs
    inside.
    """
    with Lab() as lab:
        namespace = lab.namespace("bench")
        namespace.inside(lambda: measure(lab, namespace))
