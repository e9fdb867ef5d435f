# SPDX-License-Identifier: Apache-2.0
"""Reports the progress of a change of rules, for `sluice spd progress` and `sluice spd commit`.

Imports only the standard library.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import NamedTuple


class ChangeStep(StrEnum):
    """Steps of a change of rules, in their order."""

    READING = "reading rules"
    PLANNING = "comparing with the rules in force"
    RULE_TABLES = "compiling for the rule tables"
    SAVING = "writing to disk"
    COUNTERS = "resetting rule counters"
    FLOWS = "looking for flows that change"
    SWITCH = "writing to the switch"
    HISTORY = "in force; writing the history"
    WARNINGS = "in force; looking for warnings"


class Progress(NamedTuple):
    """A step, and the number of rules for which it is done. `of` is the number of all its rules, or
    0 if the rules are not counted."""

    step: ChangeStep
    done: int = 0
    of: int = 0


class ChangeSteps:
    """Holds the progress of the latest change. `now` is None while there is no change."""

    def __init__(self) -> None:
        self.now: Progress | None = None

    @contextmanager
    def during(self, step: ChangeStep, of: int = 0) -> Iterator[None]:
        """Context manager: reports a step with `of` rules while the `with` block runs."""
        self.now = Progress(step, 0, of)
        try:
            yield
        finally:
            self.now = None

    def report(self, done: int) -> None:
        """Reports the number of rules that the step has done."""
        if self.now is not None:
            self.now = self.now._replace(done=done)
