# SPDX-License-Identifier: Apache-2.0
"""Edits an ordered list: adds, deletes and moves single rules.

Pure; depends on model and state.common_ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import indexOf, itemgetter

from sluice.policy.model import Rule
from sluice.state.common_ends import spliced

_NAME: Callable[[Rule], str] = itemgetter(Rule._fields.index("name"))


class EditError(Exception):
    """Raised when a list cannot be edited as requested. The text has the reason."""


class InsertAt(Enum):
    """Selects where to insert a rule: at an end of the list, or before or after another rule."""

    FIRST = "first"
    LAST = "last"
    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class InsertionPoint:
    """Describes where to insert a rule. For BEFORE and AFTER, `name` is the name of the other
    rule."""

    at: InsertAt = InsertAt.LAST
    name: str = ""

    def index(self, rules: Sequence[Rule]) -> int:
        """Returns the list index at which to insert. Raises EditError if rule `name` is missing."""
        if self.at is InsertAt.FIRST:
            return 0
        if self.at is InsertAt.LAST:
            return len(rules)
        return find(rules, self.name) + (self.at is InsertAt.AFTER)


def find(rules: Sequence[Rule], name: str) -> int:
    """Returns the index of the rule with this name. Raises EditError if the list lacks it."""
    try:
        return indexOf(map(_NAME, rules), name)
    except ValueError:
        raise EditError(f"the list has no rule {name!r}") from None


def add(rules: Sequence[Rule], rule: Rule, to: InsertionPoint) -> tuple[Rule, ...]:
    """Returns the list with a new rule. Raises EditError if the name is taken."""
    if rule.name in map(_NAME, rules):
        raise EditError(f"the list has a rule {rule.name!r} already; give the new one another name")
    at = to.index(rules)
    return spliced(tuple(rules), at, at, [rule])


def delete(rules: Sequence[Rule], name: str) -> tuple[Rule, ...]:
    """Returns the list without the rule `name`. Raises EditError if there is no such rule."""
    at = find(rules, name)
    return spliced(tuple(rules), at, at + 1, [])


def move(rules: Sequence[Rule], name: str, to: InsertionPoint) -> tuple[Rule, ...]:
    """Returns the list with the rule `name` moved. Raises EditError if a rule that is named does
    not exist."""
    if to.name == name:
        raise EditError(f"rule {name!r} cannot go next to itself; name another rule")
    rule = rules[find(rules, name)]
    rest = delete(rules, name)
    at = to.index(rest)
    return spliced(rest, at, at, [rule])
