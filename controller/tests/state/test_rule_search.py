# SPDX-License-Identifier: Apache-2.0
"""The ordered search, rule by rule, and the index that must never say anything else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import policies
from sluice.model import Prefix, parse_address
from sluice.policy_model import (
    OPAQUE,
    TCP,
    UDP,
    Action,
    NumberRange,
    Rule,
    Selectors,
    prefix_range,
)
from sluice.state.rule_search import RuleIndex, first_match, matches

PACKET = Selectors(parse_address("10.0.0.1"), parse_address("10.1.0.1"), TCP, 4000, 80, None, False)
LATER = PACKET._replace(source_port=None, destination_port=None, is_later_fragment=True)
ANY = Rule("any", Action.BYPASS)


@pytest.mark.parametrize(
    ("rule", "packet", "expected"),
    [
        (ANY, PACKET, True),
        (ANY, LATER, True),
        (ANY._replace(source=(prefix_range(Prefix.parse("10.0.0.0/24")),)), PACKET, True),
        (ANY._replace(source=(prefix_range(Prefix.parse("10.0.0.2/31")),)), PACKET, False),
        (ANY._replace(source=(prefix_range(Prefix.parse("::/0")),)), PACKET, False),
        (ANY._replace(protocol=(UDP, TCP)), PACKET, True),
        (ANY._replace(protocol=(UDP,)), PACKET, False),
        (ANY._replace(destination_port=(NumberRange(80, 81),)), PACKET, True),
        (ANY._replace(destination_port=(NumberRange(81, 81),)), PACKET, False),
        # RFC 4301, 4.4.1.1: a later fragment matches ANY and OPAQUE, never numbers.
        (ANY._replace(destination_port=(NumberRange(0, 65535),)), LATER, False),
        (ANY._replace(destination_port=OPAQUE), LATER, True),
        (ANY._replace(destination_port=OPAQUE), PACKET, False),
        (ANY._replace(icmp=(NumberRange(0, 65535),)), PACKET, False),
        (ANY._replace(icmp=OPAQUE), PACKET, True),
    ],
)
def test_one_rule(rule: Rule, packet: Selectors, expected: bool) -> None:
    assert matches(rule, packet) is expected
    assert RuleIndex([rule]).first_match(packet) == (0 if expected else None)


def test_the_first_match_decides_whatever_its_action() -> None:
    narrow = ANY._replace(name="narrow", action=Action.DISCARD, protocol=(TCP,))
    assert first_match([narrow, ANY], PACKET) == 0
    assert first_match([ANY, narrow], PACKET) == 0
    assert first_match([], PACKET) is None
    assert RuleIndex([]).first_match(PACKET) is None


@given(st.lists(policies.rules(), max_size=12), st.lists(policies.packets(), max_size=20))
def test_the_index_agrees_with_the_search(rules: list[Rule], packets: list[Selectors]) -> None:
    index = RuleIndex(rules)
    for packet in packets:
        assert index.first_match(packet) == first_match(rules, packet)
