# SPDX-License-Identifier: Apache-2.0
"""Renders rules for operators: a rule as a line of text, a commit as a list of differences.

`describe` serves `sluice show spd`, and `diff` serves `sluice spd diff`. Pure; depends on model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import Enum

from sluice.policy.model import (
    OPAQUE,
    PROTOCOLS,
    AddressRange,
    Opaque,
    Rule,
    Scope,
    icmp_text,
    range_text,
)

_PROTOCOL_NAMES = {number: name for name, number in PROTOCOLS.items()}


# -- one rule as text


def describe(rule: Rule) -> str:
    """Formats a rule as one line: `protect(branch) tcp 10.1.0.0/16 -> any dport 80,443`."""
    words = [rule.action.name.lower() + (f"({rule.bundle})" if rule.bundle else "")]
    if rule.protocol is not None:
        words.append(_protocols(rule.protocol))
    words += [_ranges(rule.source), "->", _ranges(rule.destination)]
    for name, numbers, text in (
        ("sport", rule.source_port, str),
        ("dport", rule.destination_port, str),
        ("icmp", rule.icmp, icmp_text),
        ("mobility-type", rule.mobility_type, str),
    ):
        if numbers is not None:
            words += [name, "opaque" if numbers is OPAQUE else ",".join(map(text, numbers))]
    if rule.scope is not Scope.ANY:
        words.append("this router's" if rule.scope is Scope.OWN else "transit")
    if rule.from_packet:
        words += ["from-packet", ",".join(rule.from_packet)]
    if rule.audit:
        words.append("audit")
    if rule.reject:
        words.append("reject")
    return " ".join(words)


def _protocols(protocols: tuple[int, ...] | Opaque) -> str:
    if protocols is OPAQUE:
        return "opaque"
    return ",".join(_PROTOCOL_NAMES.get(one, str(one)) for one in protocols)


def _ranges(ranges: tuple[AddressRange, ...] | None) -> str:
    return "any" if ranges is None else ",".join(map(range_text, ranges))


# -- two lists compared


class RuleChangeKind(Enum):
    """Ways in which a rule can differ between two lists. Rules with the same name are compared."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    MOVED = "moved"


@dataclass(frozen=True, slots=True)
class RuleChange:
    """Describes the change of one rule between two lists. Positions count from 1.

    If a list lacks the rule, the rule and its position in this list are None. A rule that was both
    moved and changed is CHANGED.
    """

    change: RuleChangeKind
    name: str
    position_before: int | None
    position_after: int | None
    before: Rule | None
    after: Rule | None


def diff(before: Sequence[Rule], after: Sequence[Rule]) -> list[RuleChange]:
    """Returns the differences between two lists of rules.

    Removed rules come first, then all other differences in the order of `after`. A rule is
    identified by its name. difflib finds the rules that kept their relative order. Other unchanged
    rules are reported as moved.
    """
    old = {rule.name: (at, rule) for at, rule in enumerate(before, 1)}
    new = {rule.name: (at, rule) for at, rule in enumerate(after, 1)}
    stayed = _in_order([name for name in old if name in new], [name for name in new if name in old])
    changes = [
        RuleChange(RuleChangeKind.REMOVED, name, at, None, rule, None)
        for name, (at, rule) in old.items()
        if name not in new
    ]
    for name, (at, rule) in new.items():
        if name not in old:
            changes.append(RuleChange(RuleChangeKind.ADDED, name, None, at, None, rule))
            continue
        was_at, was = old[name]
        if was != rule:
            changes.append(RuleChange(RuleChangeKind.CHANGED, name, was_at, at, was, rule))
        elif name not in stayed:
            changes.append(RuleChange(RuleChangeKind.MOVED, name, was_at, at, was, rule))
    return changes


def _in_order(before: list[str], after: list[str]) -> set[str]:
    """Returns the names that kept their relative order."""
    blocks = SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    return {name for block in blocks for name in before[block.a : block.a + block.size]}
