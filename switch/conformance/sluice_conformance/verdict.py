# SPDX-License-Identifier: Apache-2.0
"""Defines the possible results of a test, and compares packets with a script.

Depends on stf. The comparison follows p4c's own runner. On each port, number and order of the
packets must match. In a pattern, `*` matches any digit, and more bytes may follow unless the
pattern is whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sluice_conformance import stf


class Result(StrEnum):
    """Result of a test."""

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
    """A result, with its reason unless the result is good."""

    result: Result
    reason: str = ""
    seconds: float = 0.0


def difference(
    expected: Mapping[int, Sequence[stf.Expect]], sent: Mapping[int, Sequence[bytes]]
) -> str | None:
    """Returns the first difference between the packets that have left and the expected ones, or
    None.
    """
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
    """Returns whether a frame matches one `expect` statement."""
    if expect.pattern is None:
        return True
    digits = frame.hex()
    if len(digits) < len(expect.pattern) or (expect.whole and len(digits) > len(expect.pattern)):
        return False
    return all(want in ("*", digit) for want, digit in zip(expect.pattern, digits, strict=False))
