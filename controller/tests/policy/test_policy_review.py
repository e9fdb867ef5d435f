# SPDX-License-Identifier: Apache-2.0
"""Tests rules as text, the comparison of lists, and the warnings of a check."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.model import Prefix, parse_address
from sluice.policy.generated_rules import generated_rules
from sluice.policy.model import (
    OPAQUE,
    TCP,
    Action,
    AddressRange,
    Direction,
    NumberRange,
    Rule,
    prefix_range,
)
from sluice.policy.review import RuleChangeKind, describe, diff

A, B, C, D = (Rule(name, Action.BYPASS) for name in "abcd")
BGP = (NumberRange(179, 179),)
OWN = parse_address("10.0.0.1")
A1, A2, A3 = (parse_address(f"10.0.0.{n}") for n in (1, 2, 3))
REST = Rule("rest", Action.DISCARD)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (A, "bypass any -> any"),
        (
            Rule(
                "web",
                Action.PROTECT,
                "branch",
                source=(prefix_range(Prefix.parse("10.1.0.0/16")),),
                destination=(prefix_range(Prefix.parse("::1/128")),),
                protocol=(TCP, 99),
                source_port=OPAQUE,
                destination_port=(NumberRange(80, 80), NumberRange(443, 445)),
            ),
            "protect(branch) tcp,99 10.1.0.0/16 -> ::1 sport opaque dport 80,443-445",
        ),
        (
            Rule(
                "ping",
                Action.DISCARD,
                protocol=(1,),
                icmp=(NumberRange(0x800, 0x8FF), NumberRange(0x304, 0x304)),
            ),
            "discard icmp any -> any icmp 8,3/4",
        ),
        (
            Rule(
                "unseen",
                Action.DISCARD,
                protocol=OPAQUE,
                icmp=(NumberRange(0x500, 0x7FF), NumberRange(0x300, 0x304)),
                audit=True,
            ),
            "discard opaque any -> any icmp 5-7,3/0-4 audit",
        ),
        (
            Rule(
                "bindings",
                Action.DISCARD,
                protocol=(135,),
                mobility_type=(NumberRange(5, 6), NumberRange(8, 8)),
                audit=True,
            ),
            "discard mobility any -> any mobility-type 5-6,8 audit",
        ),
        (
            Rule("no-type", Action.BYPASS, protocol=(135,), mobility_type=OPAQUE),
            "bypass mobility any -> any mobility-type opaque",
        ),
        (
            Rule("some", Action.BYPASS, source=(AddressRange(A1, A3), AddressRange(A2, A3))),
            "bypass 10.0.0.1-10.0.0.3,10.0.0.2/31 -> any",
        ),
        (
            generated_rules(Direction.OUTBOUND, [])[0],
            "bypass icmpv6 fe80::/10,:: -> any icmp 133-137",
        ),
    ],
)
def test_a_rule_as_text(rule: Rule, text: str) -> None:
    assert describe(rule) == text


def changes(before: list[Rule], after: list[Rule]) -> list[tuple[str, str]]:
    return [(one.change.value, one.name) for one in diff(before, after)]


def test_a_diff_names_what_is_removed_added_changed_and_moved() -> None:
    changed = B._replace(action=Action.DISCARD)
    assert changes([A, B, C], [A, B, C]) == []
    assert changes([A, B, C], [changed, C, D]) == [
        ("removed", "a"),
        ("changed", "b"),
        ("added", "d"),
    ]
    assert changes([A, B, C, D], [D, A, B, C]) == [("moved", "d")]
    (moved,) = diff([A, B, C, D], [D, A, B, C])
    assert (moved.position_before, moved.position_after) == (4, 1)


@given(st.permutations([A, B, C, D]), st.sets(st.sampled_from("abcd")))
def test_a_diff_is_empty_for_equal_lists_only(after: list[Rule], kept: set[str]) -> None:
    before = [A, B, C, D]
    new = [rule for rule in after if rule.name in kept]
    found = diff(before, new)
    assert (found == []) is (new == before)
    assert {one.name for one in found if one.change is RuleChangeKind.REMOVED} == set("abcd") - kept
