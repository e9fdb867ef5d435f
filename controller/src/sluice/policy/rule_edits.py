# SPDX-License-Identifier: Apache-2.0
"""Edits an ordered list: adds, deletes and moves single rules. Pure; depends on model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from sluice.policy.model import Rule


class EditError(Exception):
    """Tells why a list cannot be edited as requested: a missing rule, or a name used twice."""


class InsertAt(Enum):
    """Names an end of the list, or a side of another rule."""

    FIRST = "first"
    LAST = "last"
    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class InsertionPoint:
    """Tells where a rule is inserted. BEFORE and AFTER need the `name` of the rule next to it."""

    at: InsertAt = InsertAt.LAST
    name: str = ""

    def index(self, rules: Sequence[Rule]) -> int:
        """Returns the index in the list. Raises EditError if the named rule is missing."""
        if self.at is InsertAt.FIRST:
            return 0
        if self.at is InsertAt.LAST:
            return len(rules)
        return find(rules, self.name) + (self.at is InsertAt.AFTER)


def find(rules: Sequence[Rule], name: str) -> int:
    """Returns the index of the rule with this name. Raises EditError if the list lacks it."""
    for at, rule in enumerate(rules):
        if rule.name == name:
            return at
    raise EditError(f"the list has no rule {name!r}")


def add(rules: Sequence[Rule], rule: Rule, to: InsertionPoint) -> tuple[Rule, ...]:
    """Returns the list with a new rule. Raises EditError if the name is taken."""
    if any(one.name == rule.name for one in rules):
        raise EditError(f"the list has a rule {rule.name!r} already; give the new one another name")
    at = to.index(rules)
    return (*rules[:at], rule, *rules[at:])


def delete(rules: Sequence[Rule], name: str) -> tuple[Rule, ...]:
    """Returns the list without a rule. Raises EditError."""
    at = find(rules, name)
    return (*rules[:at], *rules[at + 1 :])


def move(rules: Sequence[Rule], name: str, to: InsertionPoint) -> tuple[Rule, ...]:
    """Returns the list with a rule moved. Raises EditError."""
    if to.name == name:
        raise EditError(f"rule {name!r} cannot go next to itself; name another rule")
    rule = rules[find(rules, name)]
    rest = delete(rules, name)
    at = to.index(rest)
    return (*rest[:at], rule, *rest[at:])
