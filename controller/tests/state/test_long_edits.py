# SPDX-License-Identifier: Apache-2.0
"""Tests that a plan that reuses parts of an earlier list equals a plan that computes the whole
list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sluice.policy.model import Action, Direction, Rule
from sluice.state.rule_ids import EditedNumbers, RuleIds
from sluice.state.spd import PolicyList, SpdTable, changed_since, rule_blocks, rules_digest

OUTBOUND = Direction.OUTBOUND
NAME = "corp", OUTBOUND
LISTS = st.lists(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["x", "y", None])), unique=True),
    min_size=2,
    max_size=6,
)


def rules(items: list[tuple[str, str | None]]) -> tuple[Rule, ...]:
    return tuple(
        Rule(name, Action.BYPASS if bundle is None else Action.PROTECT, bundle)
        for name, bundle in items
    )


def committed(table: SpdTable, listed: tuple[Rule, ...]) -> PolicyList:
    table.apply(table.plan_commit({NAME: listed}))
    state = table.list_of(*NAME)
    assert state is not None
    return state


@given(LISTS, st.sets(st.integers(0, 5)))
def test_an_edited_list_equals_one_that_is_made_anew(
    lists: list[list[tuple[str, str | None]]], renumbered: set[int]
) -> None:
    bundles = {"x": 1, "y": 2}
    table = SpdTable(bundles)
    before: PolicyList | None = None
    for step, items in enumerate(lists):
        if step in renumbered:
            bundles["x"] += 10
        listed = rules(items)
        state = committed(table, listed)
        anew = SpdTable(bundles).unnumbered(NAME, listed)
        assert (state.rules, state.fingerprints) == (anew.rules, anew.fingerprints)
        assert (state.bundle_ids, state.digest) == (anew.bundle_ids, anew.digest)
        assert state.digest == rules_digest(rule_blocks(state.fingerprints, state.bundle_ids))
        assert state.rule_ids == tuple(map(state.numbers.__getitem__, state.fingerprints))
        if before is not None and state is not before:
            start, end, end_before = changed_since(before, state)
            for one, other in (
                (state.fingerprints, before.fingerprints),
                (state.bundle_ids, before.bundle_ids),
            ):
                assert one[:start] == other[:start]
                assert one[end:] == other[end_before:]
        before = state


@given(st.sets(st.sampled_from("abcdef")), st.lists(st.sets(st.sampled_from("abcdef")), max_size=9))
def test_restored_numbers_are_planned_alike_with_and_without_their_order(
    first: set[str], steps: list[set[str]]
) -> None:
    restored = {fingerprint: number for number, fingerprint in enumerate([*first, "(final)"], 1)}
    slow, fast = RuleIds(maximum=1000), RuleIds(maximum=1000)
    for ids in (slow, fast):
        ids.remember("list", restored)
    fast.keep("list", sorted(first))
    for wanted in steps:
        plans = [ids.plan({"list": sorted(wanted)}, ["(final)"]) for ids in (slow, fast)]
        one, other = plans
        assert dict(one.ids["list"]) == dict(other.ids["list"])
        assert (one.fresh, sorted(one.released)) == (other.fresh, sorted(other.released))
        assert len(other.ids["list"]) == len({*wanted, "(final)"})
        for ids, plan in zip((slow, fast), plans, strict=True):
            ids.commit(plan)


def test_a_view_of_edited_numbers_survives_their_commit() -> None:
    known = {"a": 1, "b": 2, "c": 3}
    view = EditedNumbers(known, frozenset("ab"), {"b": 5, "d": 4})
    expected = {"c": 3, "b": 5, "d": 4}
    assert view == expected
    assert known == {"a": 1, "b": 2, "c": 3}
    assert view.applied() is known
    assert known == expected
    assert view == expected
    assert (len(view), "a" in view) == (3, False)
