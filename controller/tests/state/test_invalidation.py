# SPDX-License-Identifier: Apache-2.0
"""Tests which cached flows a commit keeps. It must not keep a flow whose verdict the new rules
change.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

import policies
from sluice.policy.model import Action, Direction, FlowKey, FragmentClass, Rule, Selectors
from sluice.state.flow_cache import FlowVerdict
from sluice.state.invalidation import RuleTest, changed_rules, new_verdict, wrapped_lists
from sluice.state.spd import MAXIMUM_COUNT, Commit, ListVersion, PolicyList, SpdTable

NAME = ("corp", Direction.OUTBOUND)


def rules(*names: str) -> list[Rule]:
    return [Rule(name, Action.BYPASS) for name in names]


def committed(*lists: list[Rule]) -> list[PolicyList]:
    """Commits these lists of rules one after the other, all in the same epoch. Returns the list
    after each commit."""
    table, states = SpdTable({}), []
    for one in lists:
        commit = table.plan_commit({NAME: one}, lambda _: True)
        table.apply(commit)
        state = table.list_of(*NAME)
        assert state is not None
        states.append(state)
    return states


def keys() -> SearchStrategy[FlowKey]:
    address = st.sampled_from(policies.ADDRESSES)
    ports = policies.NUMBERS
    classes = st.sampled_from(FragmentClass)
    return st.builds(
        FlowKey, address, address, policies.PROTOCOLS, ports, ports, classes, st.booleans()
    )


def cached_verdict(state: PolicyList, key: FlowKey) -> FlowVerdict | None:
    """Returns the verdict that the flow cache would hold for a flow, or None if such a flow is
    never cached.
    """
    packet = key.selectors()
    if packet is None:
        protocol = key.protocol if len(key.source) == 4 else None
        later = Selectors(key.source, key.destination, protocol, None, None, None, key.is_local)
        found = state.search_fragment(later, None)
        if found is None:
            return None
        if key.fragment is FragmentClass.FIRST:
            found = state.search(key._replace(fragment=FragmentClass.WHOLE).selectors() or later)
    else:
        found = state.search(packet)
    return FlowVerdict(state.version.epoch, *found)


@st.composite
def edited(draw: st.DrawFn) -> tuple[list[Rule], list[Rule]]:
    """Draws a list of rules, and an edited version of it."""
    one = policies.rules().map(lambda rule: rule._replace(bundle=None))
    before = draw(st.lists(one, max_size=8))
    after = list(before)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(after)))
        edit = draw(st.sampled_from(["add", "remove", "move", "turn"]))
        if edit == "add" or at == len(after):
            after.insert(at, draw(one))
        elif edit == "remove":
            del after[at]
        elif edit == "move":
            after.insert(draw(st.integers(0, len(after) - 1)), after.pop(at))
        else:
            other = Action.DISCARD if after[at].action is Action.BYPASS else Action.BYPASS
            after[at] = after[at]._replace(action=other)
    return before, after


@settings(deadline=None)  # caches are empty in the first run, which is slow
@given(edited(), st.lists(keys(), min_size=1, max_size=30))
def test_a_flow_that_is_kept_is_what_a_search_says(
    lists: tuple[list[Rule], list[Rule]], flows: list[FlowKey]
) -> None:
    before, after = committed(*lists)
    assert before.version.epoch == after.version.epoch
    tests = [RuleTest.of(rule) for rule in changed_rules(before, after)]
    for key in flows:
        cached = cached_verdict(before, key)
        if cached is None:
            continue
        if any(test.could_match([key]) for test in tests):
            told = new_verdict(after, key, cached)
            is_whole = key.fragment is FragmentClass.WHOLE
            assert told == (cached_verdict(after, key) if is_whole else None)
        else:
            assert cached_verdict(after, key) == cached


def test_only_what_is_added_removed_changed_or_moved_counts() -> None:
    def names(before: list[Rule], after: list[Rule]) -> list[str]:
        return [rule.name for rule in changed_rules(*committed(before, after))]

    some = rules("a", "b", "c", "d", "e")
    assert names(some, some) == []
    assert names(some, some[1:]) == ["a"]
    assert names(some, [*some[:2], *rules("new"), *some[2:]]) == ["new"]
    turned = some[2]._replace(action=Action.DISCARD)
    assert names(some, [*some[:2], turned, *some[3:]]) == ["c", "c"]
    assert names(some, [some[4], *some[:4]]) == ["e", "e"]
    assert names(some, [*some[1:], some[0]]) == ["a", "a"]
    assert len(names(some, some[::-1])) == 8


def test_another_number_for_a_bundle_is_another_rule() -> None:
    rule = Rule("site", Action.PROTECT, "branch")
    states = []
    for number in (1, 2):
        table = SpdTable({"branch": number})
        table.apply(table.plan_commit({NAME: [rule]}))
        state = table.list_of(*NAME)
        assert state is not None
        states.append(state)
    assert changed_rules(*states) == [rule, rule]


def test_epochs_that_wrap_are_told() -> None:
    table = SpdTable({})
    table.apply(table.plan_commit({NAME: rules("a")}))
    state = table.list_of(*NAME)
    assert state is not None
    last = MAXIMUM_COUNT - 1

    def anew(epochs: dict[int, int]) -> set[int]:
        commit = table.plan_bump([state.list_id])
        return wrapped_lists(commit, epochs)

    table.observe(state.list_id, ListVersion(last, 7))
    assert anew({state.list_id: last}) == set()  # the next epoch is the last one
    assert anew({state.list_id: last + 1}) == {state.list_id}  # the next epoch is 1
    # The next epoch is 2: the plan before has used up epoch 1, although it was not carried out.
    assert anew({state.list_id: last + 1}) == {state.list_id}
    assert anew({}) == set()
    assert wrapped_lists(Commit(()), {state.list_id: last}) == set()
