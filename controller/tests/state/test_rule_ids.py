# SPDX-License-Identifier: Apache-2.0
"""Tests that rules have unique numbers and that unchanged rules keep them. Freed numbers are reused
as late as possible.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.state.rule_ids import RuleIds, TooManyRulesError


def test_a_plan_changes_nothing_until_it_is_committed() -> None:
    ids = RuleIds()
    plan = ids.plan({"a": ["1", "2"]})
    assert (plan.ids, plan.fresh, plan.released) == (
        {"a": {"1": 1, "2": 2}},
        {"a": (1, 2)},
        (),
    )
    assert ids.plan({"b": ["3"]}).ids == {"b": {"3": 1}}
    ids.commit(plan)
    assert ids.plan({"b": ["3"]}).ids == {"b": {"3": 3}}


def test_a_rule_keeps_its_number_in_its_own_list_only() -> None:
    ids = RuleIds()
    ids.commit(ids.plan({"a": ["1", "2"]}))
    plan = ids.plan({"a": ["2", "1", "3"], "b": ["1"]})
    assert plan.ids == {"a": {"2": 2, "1": 1, "3": 3}, "b": {"1": 4}}
    assert plan.fresh == {"a": (3,), "b": (4,)}


def test_too_many_rules_are_refused_and_released_ids_are_reused_last() -> None:
    ids = RuleIds(maximum=3)
    ids.commit(ids.plan({"a": ["1", "2"]}))
    ids.commit(ids.plan({"a": ["2"]}))
    assert ids.plan({"a": ["2", "3"]}).ids == {"a": {"2": 2, "3": 3}}
    plan = ids.plan({"a": ["2", "3", "4"]})
    assert plan.ids == {"a": {"2": 2, "3": 3, "4": 1}}
    ids.commit(plan)
    with pytest.raises(TooManyRulesError):
        ids.plan({"b": ["5"]})


def test_a_pipeline_with_fewer_counters_gets_other_numbers() -> None:
    ids = RuleIds(maximum=3)
    ids.remember("a", {"1": 1, "9": 9})
    plan = ids.plan({"a": ["1", "9"]})
    assert (plan.ids, plan.released) == ({"a": {"1": 1, "9": 2}}, (9,))
    ids.commit(plan)
    assert ids.plan({"a": ["1", "9", "4"]}).ids["a"]["4"] == 3


def test_ids_that_an_earlier_life_released_are_not_lost() -> None:
    ids = RuleIds(maximum=3)
    ids.remember("a", {"3": 3})
    assert ids.plan({"b": ["1", "2"]}).ids == {"b": {"1": 1, "2": 2}}


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sets(st.sampled_from("12345"))), max_size=20))
def test_no_two_rules_ever_share_an_id(steps: list[tuple[str, set[str]]]) -> None:
    ids = RuleIds()
    held: dict[str, dict[str, int]] = {}
    for name, wanted in steps:
        plan = ids.plan({name: sorted(wanted)})
        before = held.get(name, {})
        held[name] = dict(plan.ids[name])
        assert {rule: held[name][rule] for rule in before if rule in wanted} == {
            rule: number for rule, number in before.items() if rule in wanted
        }
        ids.commit(plan)
        numbers = [number for one in held.values() for number in one.values()]
        assert len(numbers) == len(set(numbers))
        assert 0 not in numbers
