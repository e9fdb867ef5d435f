# SPDX-License-Identifier: Apache-2.0
"""Tests edits of an ordered list."""

from __future__ import annotations

import pytest

from sluice.policy.model import Action, Rule
from sluice.policy.rule_edits import EditError, InsertAt, InsertionPoint, add, delete, move

RULES = tuple(Rule(name, Action.BYPASS) for name in "abc")
NEW = Rule("new", Action.DISCARD)


def names(rules: tuple[Rule, ...]) -> str:
    return " ".join(rule.name for rule in rules)


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        (InsertionPoint(), "a b c new"),
        (InsertionPoint(InsertAt.FIRST), "new a b c"),
        (InsertionPoint(InsertAt.BEFORE, "b"), "a new b c"),
        (InsertionPoint(InsertAt.AFTER, "c"), "a b c new"),
    ],
)
def test_a_rule_is_added_where_the_operator_says(to: InsertionPoint, expected: str) -> None:
    assert names(add(RULES, NEW, to)) == expected


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        (InsertionPoint(), "b c a"),
        (InsertionPoint(InsertAt.FIRST), "a b c"),
        (InsertionPoint(InsertAt.BEFORE, "c"), "b a c"),
        (InsertionPoint(InsertAt.AFTER, "c"), "b c a"),
    ],
)
def test_a_rule_moves_where_the_operator_says(to: InsertionPoint, expected: str) -> None:
    assert names(move(RULES, "a", to)) == expected


def test_a_deleted_rule_is_gone_and_the_others_keep_their_order() -> None:
    assert names(delete(RULES, "b")) == "a c"


def test_edits_that_are_impossible_are_refused() -> None:
    with pytest.raises(EditError, match="no rule 'x'"):
        delete(RULES, "x")
    with pytest.raises(EditError, match="no rule 'x'"):
        add(RULES, NEW, InsertionPoint(InsertAt.BEFORE, "x"))
    with pytest.raises(EditError, match="no rule 'x'"):
        move(RULES, "x", InsertionPoint())
    with pytest.raises(EditError, match="has a rule 'a' already"):
        add(RULES, Rule("a", Action.BYPASS), InsertionPoint())
    with pytest.raises(EditError, match="next to itself"):
        move(RULES, "a", InsertionPoint(InsertAt.AFTER, "a"))
