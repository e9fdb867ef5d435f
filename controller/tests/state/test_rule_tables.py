# SPDX-License-Identifier: Apache-2.0
"""Tests the compilation of an ordered list to entries of the rule tables.

For every whole packet, the entries must give the verdict of the ordered search, or leave the packet
to the CPU. `Lookup` finds an entry like the switch does: the highest priority that matches decides.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

import policies
from sluice.entities import LEAVE_TO_CPU, ForeignMatch, Presence, RuleEntry, RuleMatch, RuleVerdict
from sluice.model import Prefix, parse_address
from sluice.policy.model import (
    ICMP,
    ICMP_PROTOCOLS,
    ICMPV6,
    MOBILITY,
    OPAQUE,
    PORT_PROTOCOLS,
    SCTP,
    TCP,
    UDP,
    Action,
    AddressRange,
    Direction,
    FlowKey,
    NumberRange,
    Numbers,
    Rule,
    Scope,
    Selectors,
    prefix_range,
)
from sluice.state.rule_search import first_match, matches
from sluice.state.rule_tables import (
    MAXIMUM_EXPANSION,
    CompiledList,
    EntryCounts,
    compile_list,
    entries_of,
)
from sluice.state.spd import PolicyList, SpdTable
from sluice.wire.selectors import is_icmp_error

GRE = 47
AMPLE = EntryCounts(100_000, 100_000)
BYPASS = Rule("bypass", Action.BYPASS)
DISCARD = Rule("discard", Action.DISCARD)
BUNDLES = {"branch": 7}
RULE_SET = 3


def listed(*rules: Rule) -> PolicyList:
    spd = SpdTable(BUNDLES)
    spd.apply(spd.plan_commit({("corp", Direction.OUTBOUND): rules}))
    state = spd.list_of("corp", Direction.OUTBOUND)
    assert state is not None
    return state


def matches_of(*rules: Rule, room: EntryCounts = AMPLE) -> list[RuleMatch]:
    """Returns the matches of the entries that the rules have, without those of the final discard.

    For this, a default of the kernel ends the list.
    """
    compiled = compile_list(listed(*rules, DISCARD._replace(is_default=True)), room)
    assert compiled.rules == len(rules)
    return [match for match, _ in compiled.entries]


def values_of(*rules: Rule) -> list[RuleVerdict | Presence]:
    compiled = compile_list(listed(*rules, DISCARD._replace(is_default=True)), AMPLE)
    return [value for _, value in compiled.entries]


def net(text: str) -> tuple[AddressRange, ...]:
    return (prefix_range(Prefix.parse(text)),)


def between(low: str, high: str) -> AddressRange:
    return AddressRange(parse_address(low), parse_address(high))


def one(number: int) -> tuple[NumberRange, ...]:
    return (NumberRange(number, number),)


class Lookup:
    """Looks packets up in the entries of one rule set."""

    def __init__(self, compiled: CompiledList) -> None:
        entries = entries_of(compiled, RULE_SET)
        assert {entry.rule_set for entry in entries} <= {RULE_SET}
        assert len({entry.priority for entry in entries}) == len(compiled.entries)
        assert all(entry.priority >= 1 for entry in entries)
        ordered = sorted(entries.items(), key=lambda item: -item[0].priority)
        self._ordered: list[tuple[RuleEntry, RuleVerdict | Presence]] = ordered

    def of(self, key: FlowKey) -> RuleVerdict | Presence | None:
        """Returns the value of the entry that matches, or None for a miss."""
        return next((value for (_, _, match), value in self._ordered if hits(match, key)), None)


def hits(match: RuleMatch | ForeignMatch, key: FlowKey) -> bool:
    """Returns whether the keys of a rule table accept a packet."""
    assert isinstance(match, RuleMatch)
    return (
        match.size == len(key.source)
        and (match.source is None or match.source.covers(key.source))
        and (match.destination is None or match.destination.covers(key.destination))
        and match.protocol in (None, key.protocol)
        and in_range(match.source_port, key.source_port)
        and in_range(match.destination_port, key.destination_port)
        and match.is_own in (None, key.is_local)
    )


def in_range(ports: tuple[int, int] | None, value: int) -> bool:
    return ports is None or ports[0] <= value <= ports[1]


def selectors(key: FlowKey) -> Selectors:
    packet = key.selectors()
    assert packet is not None
    return packet


def searched(state: PolicyList, key: FlowKey) -> RuleVerdict:
    """Returns the verdict of the search rule by rule."""
    at = first_match(state.rules, selectors(key))
    if at is None:
        return RuleVerdict(state.final_id, Action.DISCARD, 0)
    return RuleVerdict(state.rule_ids[at], state.rules[at].action, state.bundle_ids[at])


def check(
    state: PolicyList, room: EntryCounts, keys: Iterable[FlowKey], *, has_long_rules: bool = False
) -> CompiledList:
    """Compiles a list, and checks the entries for these packets.

    `has_long_rules`: some rules need more entries than a rule may have.
    """
    compiled = compile_list(state, room)
    lookup = Lookup(compiled)
    sizes = [match.size for match, _ in compiled.entries]
    assert compiled.used == (sizes.count(4), sizes.count(16))
    assert compiled.used.ipv4 <= room.ipv4
    assert compiled.used.ipv6 <= room.ipv6
    assert len(dict(compiled.entries)) == len(compiled.entries)
    if compiled.is_complete:
        assert compiled.rules == len(state.rules)
    for key in keys:
        found, expected = lookup.of(key), searched(state, key)
        packet = selectors(key)
        at = first_match(state.rules, packet)
        is_unmatched_error = at is None and is_icmp_error(packet)
        if found is None:
            assert not compiled.is_complete
            # The packet misses all entries, so the rules that they cover must not match it.
            assert at is None or at >= compiled.rules
        elif found is LEAVE_TO_CPU:
            decisive = state.rules[: None if at is None else at + 1]
            is_left = any(is_left_to_cpu(rule, packet) for rule in decisive)
            assert is_left or is_unmatched_error or has_long_rules, key
        else:
            assert found == expected, key
            assert not is_unmatched_error, key
    return compiled


def is_left_to_cpu(rule: Rule, packet: Selectors) -> bool:
    """Returns whether an entry of `rule` may leave this packet to the CPU."""
    if has_any_protocol_and_opaque(rule):
        source_port, destination_port, icmp, mobility_type = (
            None if numbers is OPAQUE else numbers for numbers in numbers_of(rule)
        )
        visible = rule._replace(
            source_port=source_port,
            destination_port=destination_port,
            icmp=icmp,
            mobility_type=mobility_type,
        )
        return matches(visible, packet)
    audits = rule.action is Action.DISCARD and (rule.audit or rule.reject)
    return audits and matches(rule, packet)


def has_any_protocol_and_opaque(rule: Rule) -> bool:
    return rule.protocol is None and OPAQUE in numbers_of(rule)


def numbers_of(rule: Rule) -> tuple[Numbers, ...]:
    """Returns the selectors of ports and types."""
    return rule.source_port, rule.destination_port, rule.icmp, rule.mobility_type


# -- one rule


def test_an_entry_has_the_selectors_and_the_verdict_of_its_rule() -> None:
    web = Rule(
        "web",
        Action.PROTECT,
        "branch",
        source=net("10.0.0.0/24"),
        destination=net("10.1.0.1/32"),
        protocol=(TCP,),
        source_port=(NumberRange(1024, 65535),),
        destination_port=one(443),
    )
    state = listed(BYPASS._replace(protocol=(GRE,)), web, DISCARD)
    match = RuleMatch(
        4,
        Prefix.parse("10.0.0.0/24"),
        Prefix.parse("10.1.0.1/32"),
        TCP,
        (1024, 65535),
        (443, 443),
    )
    number = state.rule_ids[1]
    assert (match, RuleVerdict(number, 3, 7)) in compile_list(state, AMPLE).entries


def test_a_rule_for_any_packet_has_one_entry_in_each_family() -> None:
    assert matches_of(BYPASS) == [RuleMatch(4), RuleMatch(16)]


@pytest.mark.parametrize(
    ("source", "destination", "sizes"),
    [
        (net("10.0.0.0/8"), None, [4]),
        (None, net("2001:db8::/32"), [16]),
        (net("10.0.0.0/8") + net("2001:db8::/32"), None, [4, 16]),
        (net("10.0.0.0/8") + net("2001:db8::/32"), net("10.0.0.0/8"), [4]),
        (net("10.0.0.0/8"), net("2001:db8::/32"), []),
        ((), None, []),
    ],
)
def test_addresses_limit_the_family(
    source: tuple[AddressRange, ...] | None,
    destination: tuple[AddressRange, ...] | None,
    sizes: list[int],
) -> None:
    matches = matches_of(BYPASS._replace(source=source, destination=destination))
    assert [match.size for match in matches] == sizes


@pytest.mark.parametrize(
    ("ranges", "prefixes"),
    [
        ([between("10.0.0.0", "10.0.0.255")], ["10.0.0.0/24"]),
        (
            [between("10.0.0.1", "10.0.0.6")],
            ["10.0.0.1/32", "10.0.0.2/31", "10.0.0.4/31", "10.0.0.6/32"],
        ),
        ([between("10.0.0.0", "10.0.0.4")], ["10.0.0.0/30", "10.0.0.4/32"]),
        ([between("0.0.0.0", "127.255.255.255")], ["0.0.0.0/1"]),
        ([between("255.255.255.254", "255.255.255.255")], ["255.255.255.254/31"]),
        # Ranges that touch or overlap are merged.
        ([between("10.0.0.2", "10.0.0.3"), between("10.0.0.0", "10.0.0.1")], ["10.0.0.0/30"]),
        ([between("10.0.0.0", "10.0.0.2"), between("10.0.0.1", "10.0.0.3")], ["10.0.0.0/30"]),
        ([between("10.0.0.9", "10.0.0.9"), between("10.0.0.9", "10.0.0.9")], ["10.0.0.9/32"]),
        ([between("2001:db8::", "2001:db8::2")], ["2001:db8::/127", "2001:db8::2/128"]),
    ],
)
def test_ranges_become_the_fewest_prefixes(ranges: list[AddressRange], prefixes: list[str]) -> None:
    rule = BYPASS._replace(destination=tuple(ranges))
    assert [str(match.destination) for match in matches_of(rule)] == prefixes


def test_the_longest_expansion_of_a_range() -> None:
    rule = BYPASS._replace(source=(between("0.0.0.1", "255.255.255.254"),))
    assert len(matches_of(rule)) == 62
    rule = BYPASS._replace(source=(between("::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe"),))
    assert len(matches_of(rule)) == 254
    assert LEAVE_TO_CPU not in values_of(rule)


def test_a_selector_that_accepts_every_value_is_no_selector() -> None:
    """P4Runtime permits no ternary match with an empty mask, and no range match of all values."""
    rule = BYPASS._replace(
        source=net("0.0.0.0/0"),
        destination=(between("0.0.0.0", "9.255.255.255"), between("10.0.0.0", "255.255.255.255")),
        protocol=(TCP,),
        source_port=(NumberRange(0, 65535),),
        destination_port=(NumberRange(0, 79), NumberRange(80, 65535)),
    )
    assert matches_of(rule) == [RuleMatch(4, protocol=TCP)]


def test_port_ranges_are_united() -> None:
    ports = NumberRange(90, 100), NumberRange(80, 89), NumberRange(95, 110), NumberRange(200, 200)
    rule = BYPASS._replace(source=net("::/0"), protocol=(UDP,), source_port=ports)
    assert [match.source_port for match in matches_of(rule)] == [(80, 110), (200, 200)]


@pytest.mark.parametrize(
    ("scope", "generated", "is_own"),
    [
        (Scope.ANY, False, [None]),
        (Scope.OWN, False, [True]),
        (Scope.TRANSIT, False, [False]),
        (Scope.ANY, True, [True]),
        (Scope.OWN, True, [True]),
        (Scope.TRANSIT, True, []),
    ],
)
def test_scope(scope: Scope, generated: bool, is_own: list[bool | None]) -> None:
    rule = BYPASS._replace(source=net("10.0.0.0/8"), scope=scope, generated=generated)
    assert [match.is_own for match in matches_of(rule)] == is_own


EVERY = (NumberRange(0, 65535),)


@pytest.mark.parametrize(
    ("rule", "transports"),
    [
        # Only packets with ports, or with ICMP types, match numbers.
        (
            BYPASS._replace(destination_port=one(53)),
            [(TCP, None, (53, 53)), (UDP, None, (53, 53)), (SCTP, None, (53, 53))],
        ),
        (
            BYPASS._replace(source_port=EVERY),
            [(TCP, None, None), (UDP, None, None), (SCTP, None, None)],
        ),
        (BYPASS._replace(mobility_type=(NumberRange(1, 6),)), [(MOBILITY, None, (1, 6))]),
        (BYPASS._replace(protocol=(GRE, MOBILITY), mobility_type=OPAQUE), [(GRE, None, None)]),
        (BYPASS._replace(icmp=one(0x800), mobility_type=one(1)), []),
        (
            BYPASS._replace(icmp=(NumberRange(0x800, 0x8FF),)),
            [(ICMP, None, (0x800, 0x8FF)), (ICMPV6, None, (0x800, 0x8FF))],
        ),
        (BYPASS._replace(icmp=EVERY), [(ICMP, None, None), (ICMPV6, None, None)]),
        (
            BYPASS._replace(protocol=(GRE, TCP, ICMP), destination_port=one(53)),
            [(TCP, None, (53, 53))],
        ),
        (BYPASS._replace(protocol=(GRE, TCP, ICMP), icmp=one(0x800)), [(ICMP, None, (0x800,) * 2)]),
        (BYPASS._replace(protocol=(GRE,), destination_port=EVERY), []),
        (BYPASS._replace(destination_port=one(53), icmp=one(0x800)), []),
        (BYPASS._replace(protocol=(TCP, TCP)), [(TCP, None, None)]),
        (BYPASS._replace(protocol=()), []),
        # OPAQUE matches packets without such numbers.
        (BYPASS._replace(protocol=(TCP, GRE), source_port=OPAQUE), [(GRE, None, None)]),
        (BYPASS._replace(protocol=(TCP, ICMP), icmp=OPAQUE), [(TCP, None, None)]),
        (BYPASS._replace(protocol=(TCP,), source_port=one(1), destination_port=OPAQUE), []),
        (
            BYPASS._replace(source_port=OPAQUE, icmp=one(0x800)),
            [(ICMP, None, (0x800,) * 2), (ICMPV6, None, (0x800,) * 2)],
        ),
        (
            BYPASS._replace(source_port=one(9), icmp=OPAQUE),
            [(TCP, (9, 9), None), (UDP, (9, 9), None), (SCTP, (9, 9), None)],
        ),
        # Every whole packet has a visible protocol.
        (BYPASS._replace(protocol=OPAQUE), []),
    ],
)
def test_protocols_and_ports(
    rule: Rule, transports: list[tuple[int, tuple[int, int] | None, tuple[int, int] | None]]
) -> None:
    matches = matches_of(rule)
    found = [(match.protocol, match.source_port, match.destination_port) for match in matches]
    for size in (4, 16):
        of_size = [each for each, match in zip(found, matches, strict=True) if match.size == size]
        assert sorted(of_size, key=repr) == sorted(transports, key=repr)
    assert LEAVE_TO_CPU not in values_of(rule)


# -- rules that the controller decides about


@pytest.mark.parametrize(
    "rule",
    [
        DISCARD._replace(audit=True),
        DISCARD._replace(reject=True),
        BYPASS._replace(source_port=OPAQUE),
        BYPASS._replace(destination_port=OPAQUE, icmp=OPAQUE),
        BYPASS._replace(icmp=OPAQUE),
    ],
)
def test_rules_that_are_left_to_the_cpu(rule: Rule) -> None:
    assert matches_of(rule) == [RuleMatch(4), RuleMatch(16)]
    assert values_of(rule) == [LEAVE_TO_CPU, LEAVE_TO_CPU]


def test_only_discards_are_audited() -> None:
    assert LEAVE_TO_CPU not in values_of(BYPASS._replace(audit=True))


def test_a_rule_that_is_left_to_the_cpu_keeps_its_place() -> None:
    """The entry must be at the rule's position, so that no later rule decides about its packets."""
    audited = DISCARD._replace(audit=True, destination=net("10.0.0.0/24"))
    lookup = Lookup(compile_list(listed(audited, BYPASS), AMPLE))
    key = FlowKey(parse_address("10.9.0.1"), parse_address("10.0.0.1"), TCP, 1, 80)
    assert lookup.of(key) is LEAVE_TO_CPU
    assert lookup.of(key._replace(destination=key.source)) == (2, Action.BYPASS, 0)


# -- expansion


def odd_addresses(count: int) -> tuple[AddressRange, ...]:
    """Returns ranges of six addresses, each of which needs four prefixes."""
    return tuple(between(f"10.0.{i}.1", f"10.0.{i}.6") for i in range(count))


def test_a_rule_that_needs_too_many_entries_is_left_to_the_cpu() -> None:
    rule = BYPASS._replace(source=odd_addresses(4), destination=odd_addresses(4))
    assert len(matches_of(rule)) == MAXIMUM_EXPANSION
    assert set(values_of(rule)) == {RuleVerdict(1, Action.BYPASS, 0)}
    rule = rule._replace(destination=odd_addresses(5))
    assert len(matches_of(rule)) == 4 * 5
    assert set(values_of(rule)) == {LEAVE_TO_CPU}
    assert str(matches_of(rule)[0].source) == "10.0.0.0/29"


def test_each_family_is_expanded_on_its_own() -> None:
    net6 = net("2001:db8::/32")
    rule = BYPASS._replace(source=odd_addresses(4) + net6, destination=odd_addresses(5) + net6)
    entries = compile_list(listed(rule), AMPLE).entries
    assert {value for _, value in entries[:20]} == {LEAVE_TO_CPU}
    prefix = Prefix.parse("2001:db8::/32")
    assert entries[20] == (RuleMatch(16, prefix, prefix), RuleVerdict(1, Action.BYPASS, 0))


def test_a_range_of_a_long_rule_becomes_its_smallest_cover() -> None:
    ranges = between("7.255.255.255", "8.0.0.0"), between("9.0.0.1", "9.0.0.7")
    ports = tuple(NumberRange(i * 2, i * 2) for i in range(100))
    rule = BYPASS._replace(source=ranges, protocol=(UDP,), destination_port=ports)
    assert {str(match.source) for match in matches_of(rule)} == {"0.0.0.0/4", "9.0.0.0/29"}
    assert set(values_of(rule)) == {LEAVE_TO_CPU}
    # 127.255.255.255 and 128.0.0.0 have no bit in common.
    rule = rule._replace(source=(*ranges, between("127.255.255.255", "128.0.0.0")))
    rule = rule._replace(destination_port=ports[:50])
    assert [match.source for match in matches_of(rule)][-1] is None


def test_compilation_stops_before_a_rule_that_is_too_long_even_for_the_cpu() -> None:
    ports = tuple(NumberRange(i * 2, i * 2) for i in range(MAXIMUM_EXPANSION + 1))
    long = BYPASS._replace(protocol=(UDP,), destination_port=ports)
    state = listed(BYPASS._replace(protocol=(TCP,)), long, DISCARD)
    compiled = compile_list(state, AMPLE)
    assert (compiled.rules, compiled.is_complete, compiled.used) == (1, False, (1, 1))


# -- room


def test_compilation_stops_before_the_rule_that_does_not_fit() -> None:
    wide = BYPASS._replace(protocol=(TCP, UDP, GRE))
    narrow = BYPASS._replace(name="narrow", source=net("2001:db8::/32"))
    state = listed(narrow, wide, narrow._replace(name="last", destination=net("::1/128")))
    for room, rules, used in [
        (EntryCounts(0, 0), 0, (0, 0)),
        (EntryCounts(9, 0), 0, (0, 0)),
        (EntryCounts(0, 9), 1, (0, 1)),
        (EntryCounts(2, 9), 1, (0, 1)),
        (EntryCounts(3, 3), 1, (0, 1)),
        (EntryCounts(3, 4), 2, (3, 4)),
        (EntryCounts(3, 5), 3, (3, 5)),
    ]:
        compiled = compile_list(state, room)
        assert (compiled.rules, compiled.used) == (rules, used), room
        assert not compiled.is_complete
    assert compile_list(state, EntryCounts(7, 9)).is_complete


def test_the_same_match_has_one_entry_and_takes_room_once() -> None:
    web = BYPASS._replace(source=net("10.0.0.0/8"), protocol=(TCP, UDP))
    again = DISCARD._replace(source=net("10.0.0.0/8"), protocol=(UDP, GRE))
    compiled = compile_list(listed(web, again), EntryCounts(3, 0))
    assert compiled.rules == 2
    assert compiled.used == (3, 0)
    assert [(match.protocol, value) for match, value in compiled.entries] == [
        (TCP, RuleVerdict(1, Action.BYPASS, 0)),
        (UDP, RuleVerdict(1, Action.BYPASS, 0)),
        (GRE, RuleVerdict(2, Action.DISCARD, 0)),
    ]


# -- the end of the list


def test_compilation_stops_before_the_defaults_of_the_kernel() -> None:
    default = BYPASS._replace(name="default", is_default=True)
    compiled = compile_list(listed(BYPASS._replace(protocol=(TCP,)), default), AMPLE)
    assert (compiled.rules, compiled.is_complete, compiled.used) == (1, False, (1, 1))
    assert compile_list(listed(default), AMPLE) == CompiledList((), 0, False, EntryCounts(0, 0))


def test_the_final_discard_follows_the_rules() -> None:
    compiled = compile_list(listed(), AMPLE)
    assert compiled.is_complete
    for size in (4, 16):
        assert [item for item in compiled.entries if item[0].size == size] == [
            (RuleMatch(size, None, None, ICMP, None, (0x300, 0x3FF)), LEAVE_TO_CPU),
            (RuleMatch(size, None, None, ICMP, None, (0xB00, 0xCFF)), LEAVE_TO_CPU),
            (RuleMatch(size, None, None, ICMPV6, None, (0x100, 0x4FF)), LEAVE_TO_CPU),
            (RuleMatch(size), RuleVerdict(1, Action.DISCARD, 0)),
        ]


def test_the_final_discard_leaves_exactly_the_icmp_errors_to_the_cpu() -> None:
    """The ICMP types are those for which `wire.selectors` reads the quote, in both families."""
    state = listed()
    lookup = Lookup(compile_list(state, AMPLE))
    final = RuleVerdict(state.final_id, Action.DISCARD, 0)
    for size in (4, 16):
        for protocol in (ICMP, ICMPV6, TCP, GRE):
            for number in (kind << 8 | code for kind in range(256) for code in (0, 255)):
                key = FlowKey(bytes(size), bytes(size), protocol, 0, number)
                expected = LEAVE_TO_CPU if is_icmp_error(selectors(key)) else final
                assert lookup.of(key) == expected, key


def test_a_rule_decides_about_its_icmp_errors() -> None:
    state = listed(BYPASS._replace(protocol=(ICMP,)))
    lookup = Lookup(compile_list(state, AMPLE))
    key = FlowKey(bytes(4), bytes(4), ICMP, 0, 0x300)
    assert lookup.of(key) == (1, Action.BYPASS, 0)
    key = key._replace(protocol=ICMPV6)
    assert lookup.of(key._replace(destination_port=0x8000)) == (2, Action.DISCARD, 0)
    assert lookup.of(key) is LEAVE_TO_CPU


def test_a_list_that_asks_about_the_final_discard_leaves_its_packets_to_the_cpu() -> None:
    state = listed(BYPASS._replace(protocol=(TCP,)))
    compiled = compile_list(state, EntryCounts(2, 2), asks_final=True)
    assert compiled.is_complete
    lookup = Lookup(compiled)
    for size in (4, 16):
        key = FlowKey(bytes(size), bytes(size), TCP, 1, 2)
        assert lookup.of(key) == (1, Action.BYPASS, 0)
        assert lookup.of(key._replace(protocol=UDP)) is LEAVE_TO_CPU
        assert lookup.of(key._replace(protocol=ICMP, destination_port=0x300)) is LEAVE_TO_CPU


def test_no_final_discard_follows_a_rule_that_matches_every_packet() -> None:
    compiled = compile_list(listed(BYPASS), EntryCounts(1, 1))
    assert compiled.is_complete
    assert compiled.used == (1, 1)


def test_the_final_discard_may_fit_in_one_family_only() -> None:
    state = listed(BYPASS._replace(protocol=(TCP,)))
    compiled = compile_list(state, EntryCounts(5, 4))
    assert (compiled.rules, compiled.is_complete, compiled.used) == (1, False, (5, 1))
    lookup = Lookup(compiled)
    key = FlowKey(bytes(4), bytes(4), UDP, 1, 2)
    assert lookup.of(key) == (2, Action.DISCARD, 0)
    assert lookup.of(key._replace(source=bytes(16), destination=bytes(16))) is None


def test_priorities_fall_from_the_first_entry_to_1() -> None:
    compiled = compile_list(listed(BYPASS._replace(protocol=(TCP,)), BYPASS), AMPLE)
    assert entries_of(compiled, 9) == {
        RuleEntry(9, 4 - at, match): value for at, (match, value) in enumerate(compiled.entries)
    }
    assert len(compiled.entries) == 4


# -- random lists


def plain_rule(rule: Rule) -> Rule:
    return rule._replace(bundle=None, audit=False, reject=False, is_default=False)


def any_rules() -> SearchStrategy[list[Rule]]:
    """Draws rules like `policies.rules`. Some protect, some have `audit`, and defaults end the
    list."""

    def vary(rule: Rule, kind: int) -> Rule:
        if kind == 0:
            return plain_rule(rule)._replace(action=Action.PROTECT, bundle="branch")
        return plain_rule(rule)._replace(audit=kind == 1, reject=kind == 2)

    varied = st.builds(vary, policies.rules(), st.integers(0, 8))
    defaults = policies.rules().map(lambda rule: plain_rule(rule)._replace(is_default=True))
    return st.builds(list.__add__, st.lists(varied, max_size=10), st.lists(defaults, max_size=1))


def plain_rules() -> SearchStrategy[list[Rule]]:
    """Draws rules that entries can describe exactly."""

    def known(rule: Rule) -> Rule:
        if has_any_protocol_and_opaque(rule):
            rule = rule._replace(protocol=(TCP, ICMP, GRE))
        return plain_rule(rule)

    return st.lists(policies.rules().map(known), max_size=10)


def keys() -> SearchStrategy[FlowKey]:
    """Draws whole packets."""

    def build(ends: tuple[bytes, bytes], packet: Selectors, low: int, high: int) -> FlowKey:
        protocol = packet.protocol or GRE
        source_port = low if protocol in PORT_PROTOCOLS else 0
        has_number = protocol in PORT_PROTOCOLS | ICMP_PROTOCOLS
        destination_port = high if has_number else high & 0xFF if protocol == MOBILITY else 0
        ports = source_port, destination_port
        return FlowKey(ends[0], ends[1], protocol, *ports, is_local=packet.is_own)

    families = [[one for one in policies.ADDRESSES if len(one) == size] for size in (4, 16)]
    ends = st.one_of(
        *(st.tuples(st.sampled_from(some), st.sampled_from(some)) for some in families)
    )
    numbers = policies.NUMBERS
    icmp = numbers | st.sampled_from([0x2FF, 0x300, 0x3FF, 0x400, 0x4FF, 0x500, 0xB00, 0xCFF, 256])
    return st.builds(build, ends, policies.packets(), numbers, icmp)


rooms = st.builds(EntryCounts, *[st.integers(0, 80) | st.just(10_000)] * 2)


@given(any_rules() | plain_rules(), rooms, st.lists(keys(), min_size=1, max_size=40))
def test_the_entries_agree_with_the_search(
    rules: list[Rule], room: EntryCounts, packets: list[FlowKey]
) -> None:
    state = listed(*rules)
    for key in packets:
        found = state.search(selectors(key))
        assert RuleVerdict(found.rule_id, found.action, found.bundle) == searched(state, key)
    check(state, room, packets)


@given(any_rules(), rooms, rooms)
def test_a_larger_room_never_covers_fewer_rules(
    rules: list[Rule], room: EntryCounts, more: EntryCounts
) -> None:
    state = listed(*rules)
    small = compile_list(state, room)
    large = compile_list(state, EntryCounts(room.ipv4 + more.ipv4, room.ipv6 + more.ipv6))
    assert large.rules >= small.rules
    assert large.is_complete >= small.is_complete
    assert large.entries[: len(small.entries)] == small.entries or small.rules == len(rules)


class EdgeGenerator:
    """Draws rules over wide ranges, and packets whose values are at the edges of the rules."""

    def __init__(self, seed: int, *, has_prefixes_only: bool) -> None:
        self.random = random.Random(seed)
        self._has_prefixes_only = has_prefixes_only

    def address(self, size: int) -> bytes:
        head = parse_address("10.0.0.0") if size == 4 else parse_address("2001:db8::")
        return head[:-2] + self.random.choice([0, 1, 255, 256, 0x7FFF, 0xFFFF]).to_bytes(2, "big")

    def ranges(self) -> tuple[AddressRange, ...] | None:
        if not self.random.randrange(3):
            return None
        found = []
        for _ in range(self.random.randint(1, 3)):
            size = self.random.choice([4, 16])
            if self._has_prefixes_only or self.random.randrange(2):
                length = self.random.choice([0, 8, size * 8 - 9, size * 8 - 1, size * 8])
                found.append(prefix_range(Prefix.of(self.address(size), length)))
            else:
                found.append(AddressRange(*sorted([self.address(size), self.address(size)])))
        return tuple(found)

    def numbers(self, *edges: int) -> tuple[NumberRange, ...] | None:
        if self.random.randrange(3):
            return None
        pairs = [sorted(self.random.choices(edges, k=2)) for _ in range(self.random.randint(1, 2))]
        return tuple(NumberRange(*pair) for pair in pairs)

    def rule(self, number: int) -> Rule:
        action = self.random.choice(list(Action))
        protocols = self.random.sample([ICMP, TCP, UDP, SCTP, ICMPV6, GRE, MOBILITY], k=2)
        return Rule(
            f"rule {number}",
            action,
            "branch" if action is Action.PROTECT else None,
            self.ranges(),
            self.ranges(),
            self.random.choice([None, tuple(protocols), tuple(protocols[:1])]),
            self.numbers(0, 1, 1023, 1024, 65535),
            self.numbers(0, 79, 80, 81, 65535),
            self.numbers(0, 0x2FF, 0x300, 0x800, 0xFFFF) if not number % 4 else None,
            scope=self.random.choice(list(Scope)),
            generated=not number % 7,
            mobility_type=self.numbers(0, 1, 5, 255) if not number % 5 else None,
        )

    def packets(self, rules: Sequence[Rule], count: int) -> Iterator[FlowKey]:
        ends: dict[int, list[bytes]] = {4: [bytes(4)], 16: [bytes(16)]}
        ports = {0, 65535, 0x300, 0x3FF, 0x400, 0x100, 0xCFF}
        for rule in rules:
            for each in (rule.source or ()) + (rule.destination or ()):
                ends[len(each.low)] += [*neighbours(each.low), *neighbours(each.high)]
            for numbers in numbers_of(rule):
                if isinstance(numbers, tuple):
                    ports |= {value + step for pair in numbers for value in pair for step in STEPS}
        values = sorted(ports & {*range(0x10000)})
        for _ in range(count):
            addresses = ends[self.random.choice([4, 16])]
            source, destination = self.random.choices(addresses, k=2)
            protocol = self.random.choice([ICMP, TCP, UDP, SCTP, ICMPV6, GRE, MOBILITY])
            source_port, destination_port = self.random.choices(values, k=2)
            yield FlowKey(
                source,
                destination,
                protocol,
                source_port if protocol in PORT_PROTOCOLS else 0,
                destination_port & LARGEST.get(protocol, 0xFFFF),
                is_local=bool(self.random.randrange(2)),
            )


STEPS = (-1, 0, 1)
LARGEST = {GRE: 0, MOBILITY: 0xFF}
"""Largest number in the key's destination port, if it is not that of a port."""


def neighbours(address: bytes) -> Iterator[bytes]:
    """Yields an address and the addresses next to it."""
    number, bits = int.from_bytes(address, "big"), len(address) * 8
    for step in STEPS:
        yield ((number + step) % (1 << bits)).to_bytes(len(address), "big")


@pytest.mark.parametrize("has_prefixes_only", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_packets_at_the_edges_of_the_rules(seed: int, has_prefixes_only: bool) -> None:
    edges = EdgeGenerator(seed, has_prefixes_only=has_prefixes_only)
    state = listed(*(edges.rule(number) for number in range(12)))
    packets = [*edges.packets(state.rules, 600)]
    long = not has_prefixes_only
    compiled = check(state, AMPLE, packets, has_long_rules=long)
    assert compiled.is_complete
    # The test must be meaningful: several rules match, and entries decide about most packets.
    assert len({searched(state, key).rule for key in packets}) > 2
    lookup = Lookup(compiled)
    assert sum(isinstance(lookup.of(key), RuleVerdict) for key in packets) > len(packets) / 2
    for room in (
        EntryCounts(10, 10),
        EntryCounts(40, 60),
        EntryCounts(compiled.used.ipv4, compiled.used.ipv6 - 1),
    ):
        check(state, room, packets[:100], has_long_rules=long)
