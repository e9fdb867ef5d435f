# SPDX-License-Identifier: Apache-2.0
"""What can come of a test, and how packets are compared with what a script expects.

Depends on stf. The comparison is that of p4c's own runner: on each port the
number and the order of packets count; `*` stands for any digit, and unless a
pattern is whole, more bytes may follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sluice_conformance import stf


class Result(StrEnum):
    """What came of a test."""

    PASS = "pass"
    LOADS = "loads"
    EXPECTED_FAILURE = "expected failure"
    UNEXPECTED_PASS = "unexpected pass"
    NOT_COMPILED = "not compiled"
    REFUSED = "refused"
    INTERPRETED = "interpreted"
    DIFFERS = "differs"
    STANDS = "stands"
    SCRIPT = "bad script"


GOOD = frozenset({Result.PASS, Result.LOADS})


@dataclass(frozen=True)
class Verdict:
    """A result and, unless it is good, why."""

    result: Result
    reason: str = ""
    seconds: float = 0.0


def difference(
    expected: Mapping[int, Sequence[stf.Expect]], sent: Mapping[int, Sequence[bytes]]
) -> str | None:
    """The first thing in which a switch did not do what its script expects; None if it did."""
    for port in sorted(expected.keys() | sent.keys()):
        wanted, seen = expected.get(port, ()), sent.get(port, ())
        for index, (want, frame) in enumerate(zip(wanted, seen, strict=False)):
            if not matches(want, frame):
                pattern = f"{want.pattern}{'' if want.whole else '...'}"
                return f"port {port}, packet {index}: {frame.hex()} is not {pattern}"
        if len(wanted) != len(seen):
            return f"port {port}: {len(seen)} packets where {len(wanted)} are expected"
    return None


def matches(expect: stf.Expect, frame: bytes) -> bool:
    """True if a frame is what one `expect` says."""
    if expect.pattern is None:
        return True
    digits = frame.hex()
    if len(digits) < len(expect.pattern) or (expect.whole and len(digits) > len(expect.pattern)):
        return False
    return all(want in ("*", digit) for want, digit in zip(expect.pattern, digits, strict=False))
