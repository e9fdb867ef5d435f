# SPDX-License-Identifier: Apache-2.0
"""Tests the ordered search of rules.

The search index must find the same rule as a search rule by rule.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import policies
from sluice.model import Prefix, parse_address
from sluice.policy.model import (
    ICMP,
    MOBILITY,
    OPAQUE,
    TCP,
    UDP,
    Action,
    AddressRange,
    NumberRange,
    Rule,
    Scope,
    Selectors,
    prefix_range,
)
from sluice.policy.spdfile import to_icmp
from sluice.state.rule_search import (
    FragmentMatch,
    RuleIndex,
    first_match,
    first_match_of_fragment,
    is_restricting,
    matches,
)

PACKET = Selectors(parse_address("10.0.0.1"), parse_address("10.1.0.1"), TCP, 4000, 80, None)
LATER = PACKET._replace(source_port=None, destination_port=None)
LATER6 = LATER._replace(source=bytes(16), destination=bytes(16), protocol=None)
BINDING_UPDATE = LATER._replace(protocol=MOBILITY, mobility_type=5)
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
        # A later fragment matches ANY and OPAQUE, never numbers (RFC 4301, 4.4.1.1).
        (ANY._replace(destination_port=(NumberRange(0, 65535),)), LATER, False),
        (ANY._replace(destination_port=OPAQUE), LATER, True),
        (ANY._replace(destination_port=OPAQUE), PACKET, False),
        (ANY._replace(icmp=(NumberRange(0, 65535),)), PACKET, False),
        (ANY._replace(icmp=OPAQUE), PACKET, True),
        (ANY._replace(mobility_type=(NumberRange(5, 6),)), BINDING_UPDATE, True),
        (ANY._replace(mobility_type=(NumberRange(6, 255),)), BINDING_UPDATE, False),
        (ANY._replace(mobility_type=OPAQUE), BINDING_UPDATE, False),
        (ANY, BINDING_UPDATE, True),
        # Only mobility messages have a type, and their later fragments have none.
        (ANY._replace(mobility_type=(NumberRange(0, 255),)), PACKET, False),
        (ANY._replace(mobility_type=OPAQUE), BINDING_UPDATE._replace(mobility_type=None), True),
        # The protocol of a later IPv6 fragment is unknown.
        (ANY, LATER6, True),
        (ANY._replace(protocol=(TCP,)), LATER6, False),
        (ANY._replace(protocol=OPAQUE), LATER6, True),
        (ANY._replace(protocol=OPAQUE), PACKET, False),
        # Generated rules match this router's own packets only.
        (ANY._replace(generated=True), PACKET, False),
        (ANY._replace(generated=True), PACKET._replace(is_own=True), True),
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


@pytest.mark.parametrize("written", ["8", "5-7", "3/4", "3/0-4", "0/255", "255"])
def test_icmp_type_and_code_are_compared_as_one_number(written: str) -> None:
    """Checks the match of ICMP types and codes against the formula of RFC 4301, 4.4.1.1.

    The compared values are the ends of each range and values next to them.
    """
    types, _, codes = written.partition("/")
    first, last = int(types.split("-")[0]), int(types.split("-")[-1])
    low, high = (int(codes.split("-")[0]), int(codes.split("-")[-1])) if codes else (0, 255)
    start, end = first * 256 + low, last * 256 + high
    rule = ANY._replace(protocol=(ICMP,), icmp=(to_icmp(written),))
    index = RuleIndex([rule])
    near = {start, end, *(one + step for one in (start, end) for step in (-256, -1, 1, 256))}
    for value in near | {0, 0xFFFF}:
        if not 0 <= value <= 0xFFFF:
            continue
        kind, code = divmod(value, 256)
        expected = start <= kind * 256 + code <= end
        packet = PACKET._replace(
            protocol=ICMP, source_port=None, destination_port=None, icmp=kind << 8 | code
        )
        assert matches(rule, packet) is expected, (kind, code)
        assert index.first_match(packet) == (0 if expected else None), (kind, code)


# -- later fragments (RFC 4301, section 7)

TCP_80 = Rule("web", Action.PROTECT, "b", protocol=(TCP,), destination_port=(NumberRange(80, 80),))
UPDATES = Rule(
    "updates", Action.PROTECT, "b", protocol=(MOBILITY,), mobility_type=(NumberRange(5, 5),)
)
TCP_443 = TCP_80._replace(name="tls", destination_port=(NumberRange(443, 443),))
FIRST_443 = PACKET._replace(destination_port=443)


@pytest.mark.parametrize(
    ("rules", "first", "expected"),
    [
        # All rules that could match have the same verdict: no first fragment is needed.
        ([ANY], None, FragmentMatch(0)),
        ([], None, FragmentMatch(None)),
        ([ANY, TCP_80], None, FragmentMatch(0)),
        ([TCP_80._replace(protocol=(UDP,)), ANY], None, FragmentMatch(1)),
        (
            [TCP_80, TCP_443, ANY._replace(action=Action.PROTECT, bundle="b")],
            None,
            FragmentMatch(2),
        ),
        ([TCP_80._replace(action=Action.DISCARD, bundle=None)], None, FragmentMatch(None)),
        # The verdicts differ: the first fragment decides, and without it there is no result.
        ([TCP_80, ANY], None, None),
        ([TCP_80], None, None),
        ([TCP_80, ANY._replace(action=Action.PROTECT, bundle="c")], None, None),
        ([TCP_80, ANY], PACKET, FragmentMatch(0)),
        ([TCP_80, ANY], FIRST_443, FragmentMatch(1)),
        ([TCP_80], FIRST_443, FragmentMatch(None)),
        # OPAQUE matches the later fragment itself, so such a rule decides if no rule before it
        # could match.
        ([ANY._replace(source_port=OPAQUE), TCP_80], None, FragmentMatch(0)),
        ([TCP_80, ANY._replace(source_port=OPAQUE)], None, None),
        ([TCP_80, ANY._replace(source_port=OPAQUE), ANY], FIRST_443, FragmentMatch(1)),
    ],
)
def test_later_fragments(
    rules: list[Rule], first: Selectors | None, expected: FragmentMatch | None
) -> None:
    assert first_match_of_fragment(rules, LATER, first) == expected
    assert RuleIndex(rules).first_match_of_fragment(LATER, first) == expected


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (None, None),
        (BINDING_UPDATE, FragmentMatch(0)),
        (BINDING_UPDATE._replace(mobility_type=6), FragmentMatch(1)),
    ],
)
def test_the_first_fragment_decides_by_its_mobility_type(
    first: Selectors | None, expected: FragmentMatch | None
) -> None:
    rules, later = [UPDATES, ANY], _later(BINDING_UPDATE)
    assert first_match_of_fragment(rules, later, first) == expected
    assert RuleIndex(rules).first_match_of_fragment(later, first) == expected


def test_the_protocol_that_a_later_ipv6_fragment_names_is_not_believed() -> None:
    rules = [Rule("udp", Action.DISCARD, protocol=(UDP,)), ANY]
    assert first_match_of_fragment(rules, LATER6, None) is None
    assert first_match_of_fragment(rules, LATER, None) == FragmentMatch(1)


@given(
    st.lists(policies.rules(), max_size=12),
    st.lists(policies.packets(), max_size=20),
    st.booleans(),
)
def test_the_index_agrees_about_later_fragments(
    rules: list[Rule], packets: list[Selectors], is_known: bool
) -> None:
    index = RuleIndex(rules)
    for packet in packets:
        later = _later(packet)
        first = packet if is_known else None
        expected = first_match_of_fragment(rules, later, first)
        assert index.first_match_of_fragment(later, first) == expected


@given(st.lists(policies.rules(), max_size=12), st.lists(policies.packets(), max_size=40))
def test_without_its_first_no_fragment_meets_a_laxer_rule_than_with_it(
    rules: list[Rule], packets: list[Selectors]
) -> None:
    """Checks that if a later fragment can be matched without the first one, its verdict is that of
    the whole packet.
    """
    rules = [rule for rule in rules if OPAQUE not in (rule.source_port, rule.destination_port)]
    rules = [rule for rule in rules if OPAQUE not in (rule.icmp, rule.protocol)]
    rules = [rule for rule in rules if rule.mobility_type is not OPAQUE]
    for packet in packets:
        later = _later(packet)
        match = first_match_of_fragment(rules, later, None)
        if match is None:
            continue
        at = first_match(rules, packet)
        effects = [
            (Action.DISCARD, None) if each is None else (rules[each].action, rules[each].bundle)
            for each in (at, match.at)
        ]
        assert effects[0] == effects[1]


# -- long lists, and indexes made from earlier indexes


def agrees(index: RuleIndex, rules: Sequence[Rule], packet: Selectors) -> None:
    """Compares all answers of an index about a packet with those of the search rule by rule."""
    assert index.first_match(packet) == first_match(rules, packet)
    later = _later(packet)
    if len(packet.source) == 16:
        later = later._replace(protocol=None)
    for first in (None, packet):
        expected = first_match_of_fragment(rules, later, first)
        assert index.first_match_of_fragment(later, first) == expected
    for is_own in (False, True):
        expected_restricts = any(
            is_restricting(rule)
            and matches(
                Rule("", Action.BYPASS, destination=rule.destination),
                packet._replace(source=packet.destination),
            )
            and rule.looks_at(is_own=is_own)
            for rule in rules
        )
        assert index.restricts_to(packet.destination, is_own=is_own) is expected_restricts


@given(
    st.lists(policies.rules(), max_size=40),
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 3), st.lists(policies.rules(), max_size=3)),
        max_size=12,
    ),
    st.lists(policies.packets(), max_size=8),
)
def test_an_index_that_follows_from_another_agrees_with_the_search(
    rules: list[Rule],
    edits: list[tuple[int, int, list[Rule]]],
    packets: list[Selectors],
) -> None:
    index = RuleIndex(rules)
    versions = [(index, list(rules))]
    for start, deleted, added in edits:
        rules = [*rules[:start], *added, *rules[start + deleted :]]
        index = RuleIndex(rules, index)
        versions.append((index, rules))
    for known, of_version in versions:  # the earlier indexes must be unchanged
        for packet in packets:
            agrees(known, of_version, packet)


def random_range(chance: random.Random, size: int) -> AddressRange:
    """Returns a prefix of 10.0.0.0/8 or 2001:db8::/104, or a range that is no prefix."""
    base = int.from_bytes(parse_address("10.0.0.0" if size == 4 else "2001:db8::"), "big")
    low = base + chance.getrandbits(24)
    high = low + chance.randrange(1, 5000)
    if chance.random() < 0.8:
        host = (1 << chance.choice((0, 0, 4, 8, 8, 16))) - 1
        low, high = low & ~host, low | host
    return AddressRange(low.to_bytes(size, "big"), high.to_bytes(size, "big"))


def random_rule(chance: random.Random, name: str) -> Rule:
    """Returns a rule as long lists have it, or rarely a rule with many values."""
    size = chance.choice((4, 4, 16))
    many = chance.random() < 0.02

    def some_ranges() -> tuple[AddressRange, ...] | None:
        if chance.random() < 0.1:
            return None
        return tuple(random_range(chance, size) for _ in range(30 if many else 1))

    rule = Rule(
        name,
        chance.choice((Action.BYPASS, Action.DISCARD, Action.PROTECT)),
        source=some_ranges(),
        destination=some_ranges(),
        scope=chance.choice((Scope.ANY, Scope.ANY, Scope.OWN, Scope.TRANSIT)),
        is_default=chance.random() < 0.01,
    )
    if rule.action is Action.PROTECT:
        rule = rule._replace(bundle=chance.choice(("branch", "other")))
    if chance.random() < 0.7:
        port = chance.randrange(64)
        ports = OPAQUE if chance.random() < 0.1 else (NumberRange(port, port + many),)
        rule = rule._replace(protocol=(TCP, UDP)[: 1 + many], destination_port=ports)
    return rule


def packet_of(chance: random.Random, rule: Rule) -> Selectors:
    """Returns a packet whose addresses match a rule."""
    size = 16 if chance.random() < 0.3 else 4

    def address(ranges: Sequence[AddressRange] | None) -> bytes:
        return chance.choice(chance.choice(ranges or (random_range(chance, size),)))

    source, destination = address(rule.source), address(rule.destination)
    if len(source) != len(destination):
        source = destination
    port = chance.randrange(64)
    return Selectors(
        source, destination, chance.choice((TCP, UDP, ICMP)), 9, port, None, chance.random() < 0.3
    )


def test_the_index_of_a_long_list_agrees_with_the_search() -> None:
    chance = random.Random(7)
    rules = [random_rule(chance, str(number)) for number in range(4000)]
    index = RuleIndex(rules)
    for rule in chance.sample(rules, 300):
        agrees(index, rules, packet_of(chance, rule))


def test_a_long_list_that_grows_and_shrinks_rule_by_rule_agrees_with_the_search() -> None:
    chance = random.Random(8)
    rules: list[Rule] = []
    index = RuleIndex(rules)
    for number in range(3000):
        at = chance.randrange(len(rules) + 1)
        if rules and chance.random() < (0.2 if number < 2000 else 0.8):
            del rules[at - 1]
        else:
            rules.insert(at, random_rule(chance, str(number)))
        index = RuleIndex(rules, index)
        if number % 30 == 0 and rules:
            agrees(index, rules, packet_of(chance, chance.choice(rules)))


def test_rules_with_equal_selectors_keep_their_order() -> None:
    rules = [ANY._replace(name=str(number), protocol=(TCP,)) for number in range(100)]
    assert RuleIndex(rules).first_match(PACKET) == 0
    index = RuleIndex([*rules[:50], *rules[60:]], RuleIndex(rules))
    assert index.first_match(PACKET) == 0
    assert index.first_match(PACKET._replace(protocol=UDP)) is None


def test_memory_grows_linearly_with_the_number_of_rules() -> None:
    chance = random.Random(9)
    sizes = []
    for count in (1000, 8000):
        rules = [random_rule(chance, str(number)) for number in range(count)]
        sizes.append(RuleIndex(rules).memory_bytes())
    assert sizes[1] < 12 * sizes[0]


def _later(packet: Selectors) -> Selectors:
    return packet._replace(source_port=None, destination_port=None, icmp=None, mobility_type=None)
