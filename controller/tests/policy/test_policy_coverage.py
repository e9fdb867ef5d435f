# SPDX-License-Identifier: Apache-2.0
"""Tests the search for rules that no packet reaches.

A rule counts as unreachable if one earlier rule matches all of its packets.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import packets, rules
from sluice.model import parse_address
from sluice.policy.coverage import covers, find_covered, quoted_names, warn_of_unreached
from sluice.policy.model import (
    ICMP_PROTOCOLS,
    MOBILITY_PROTOCOLS,
    OPAQUE,
    PORT_PROTOCOLS,
    Action,
    AddressRange,
    Direction,
    NumberRange,
    Numbers,
    Rule,
    Scope,
    Selectors,
)
from sluice.policy.spdfile import parse_spd
from sluice.state.rule_search import matches

OUT = Direction.OUTBOUND


def read(*written: str) -> tuple[Rule, ...]:
    text = "spd: corp\noutbound:\n" + "".join(
        f"  - {{name: r{at}, action: bypass, {one}}}\n" for at, one in enumerate(written, 1)
    )
    return parse_spd(text, "corp.yaml", lambda _: None).rules[OUT]


@pytest.mark.parametrize(
    ("wide", "narrow", "is_covered"),
    [
        ("source: any", "destination_ports: 80, protocol: tcp", True),
        ("protocol: tcp", "protocol: tcp", True),
        ("protocol: [tcp, udp]", "protocol: udp", True),
        ("protocol: tcp", "source: any", False),
        ("source: any", "protocol: opaque", True),
        ("protocol: opaque", "protocol: opaque", True),
        ("protocol: opaque", "protocol: tcp", False),
        ("protocol: tcp", "protocol: opaque", False),
        ("source: 10.0.0.0/8", "source: 10.1.0.0/16, destination: 10.2.0.0/16", True),
        ("source: 10.1.0.0/16", "source: 10.0.0.0/8", False),
        ("source: 10.0.0.0/8", "source: [10.0.0.1, 11.0.0.1]", False),
        # The two /9 prefixes together cover the /8 prefix.
        ("source: [10.0.0.0/9, 10.128.0.0/9]", "source: 10.0.0.0/8", True),
        ("source: 10.0.0.0/8", "destination: 10.0.0.0/8", False),
        # An IPv4 destination implies an IPv4 source.
        ("source: 0.0.0.0/0", "destination: 10.0.0.0/8", True),
        ("source: 0.0.0.0/0", "protocol: tcp", False),  # the later rule also matches IPv6
        ("source: '::/0'", "source: '2001:db8::/32'", True),
        ("source: '::/0'", "source: 10.0.0.0/8", False),
        ("source: 0.0.0.0-255.255.255.255", "source: 10.0.0.0/8", True),
        ("protocol: tcp, source_ports: 1-9", "protocol: tcp, source_ports: [2, 4-6]", True),
        ("protocol: tcp, source_ports: [1-4, 5-9]", "protocol: tcp, source_ports: 3-6", True),
        ("protocol: tcp, source_ports: 1-9", "protocol: tcp, source_ports: 9-10", False),
        # Later fragments have no ports.
        ("protocol: tcp, source_ports: 0-65535", "protocol: tcp", False),
        ("protocol: tcp, source_ports: opaque", "protocol: tcp", False),
        ("source_ports: opaque", "protocol: gre", True),  # GRE has no ports
        ("source_ports: opaque", "source_ports: opaque, protocol: tcp", True),
        ("icmp: opaque", "protocol: tcp, destination_ports: 80", True),
        ("protocol: icmp, icmp: 3", "protocol: icmp, icmp: 3/4", True),
        ("protocol: icmp, icmp: 3-5", "protocol: icmp, icmp: [3, 5/1]", True),
        ("protocol: icmp, icmp: 3/0-4", "protocol: icmp, icmp: 3", False),
        *(
            (
                f"protocol: mobility, mobility_types: {wide}",
                f"protocol: mobility, {narrow}",
                covered,
            )
            for wide, narrow, covered in (
                ("5-6", "mobility_types: 5", True),
                ("[5, 6]", "mobility_types: 5-6", True),
                ("5", "mobility_types: 5-6", False),
                ("0-255", "source: any", False),  # later fragments have no type
                ("opaque", "mobility_types: opaque", True),
            )
        ),
        ("mobility_types: opaque", "protocol: tcp, destination_ports: 80", True),
        ("mobility_types: opaque", "protocol: mobility, mobility_types: 5", False),
    ],
)
def test_one_rule_against_one_other(wide: str, narrow: str, is_covered: bool) -> None:
    first, second = read(wide, narrow)
    assert covers(first, second) == is_covered
    assert find_covered([first, second]).by_rule == ({0: [1]} if is_covered else {})


@pytest.mark.parametrize(
    ("wide", "narrow", "is_covered"),
    [
        (Scope.ANY, Scope.OWN, True),
        (Scope.ANY, Scope.TRANSIT, True),
        (Scope.OWN, Scope.OWN, True),
        (Scope.OWN, Scope.ANY, False),
        (Scope.OWN, Scope.TRANSIT, False),
        (Scope.TRANSIT, Scope.ANY, False),
        (Scope.TRANSIT, Scope.OWN, False),
    ],
)
def test_a_rule_covers_only_the_packets_that_it_looks_at(
    wide: Scope, narrow: Scope, is_covered: bool
) -> None:
    (rule,) = read("source: any")
    first, second = rule._replace(scope=wide), rule._replace(scope=narrow)
    assert covers(first, second) == is_covered
    assert find_covered([first, second]).by_rule == ({0: [1]} if is_covered else {})


def as_parsed(rule: Rule) -> Rule:
    """Changes a rule so that the parser could have produced it.

    A parsed rule is not a generated one. It has ports, ICMP types and codes, or mobility types only
    if all of its protocols have them.
    """
    protocols = frozenset(rule.protocol if isinstance(rule.protocol, tuple) else ())

    def shown(numbers: Numbers, wanted: frozenset[int]) -> Numbers:
        is_good = not isinstance(numbers, tuple) or (protocols and wanted >= protocols)
        return numbers if is_good else OPAQUE

    return rule._replace(
        source_port=shown(rule.source_port, PORT_PROTOCOLS),
        destination_port=shown(rule.destination_port, PORT_PROTOCOLS),
        icmp=shown(rule.icmp, ICMP_PROTOCOLS),
        mobility_type=shown(rule.mobility_type, MOBILITY_PROTOCOLS),
        generated=False,
    )


def as_seen(packet: Selectors) -> Selectors:
    """Returns the packet without the ports, ICMP type and mobility type that its protocol lacks."""
    has_ports, has_icmp = packet.protocol in PORT_PROTOCOLS, packet.protocol in ICMP_PROTOCOLS
    return packet._replace(
        source_port=packet.source_port if has_ports else None,
        destination_port=packet.destination_port if has_ports else None,
        icmp=packet.icmp if has_icmp else None,
        mobility_type=packet.mobility_type if packet.protocol in MOBILITY_PROTOCOLS else None,
    )


RULES = rules().map(as_parsed)


@given(RULES, RULES, st.lists(packets().map(as_seen), min_size=5, max_size=30))
def test_a_covered_rule_matches_nothing_else(
    wide: Rule, narrow: Rule, tried: list[Selectors]
) -> None:
    if covers(wide, narrow):
        assert not any(matches(narrow, one) and not matches(wide, one) for one in tried)


@given(st.lists(RULES, max_size=8))
def test_the_blocks_find_what_trying_all_finds(listed: list[Rule]) -> None:
    expected: dict[int, list[int]] = {}
    for at, rule in enumerate(listed):
        by = next((one for one in range(at) if covers(listed[one], rule)), None)
        if by is not None:
            expected.setdefault(by, []).append(at)
    assert find_covered(listed).by_rule == expected


def test_a_rule_after_a_catch_all_is_warned_of() -> None:
    listed = read("protocol: tcp", "protocol: udp", "source: any", "protocol: icmp", "source: any")
    assert [*warn_of_unreached(listed, OUT)] == [
        "the outbound rules 'r4' and 'r5' are never reached: the earlier rule 'r3' matches all of"
        " their packets"
    ]
    (warning,) = warn_of_unreached(read("protocol: tcp", "protocol: tcp, source: 10.0.0.1"), OUT)
    assert warning.startswith("the outbound rule 'r2' is never reached: the earlier rule 'r1'")
    assert [*warn_of_unreached(read("protocol: tcp", "protocol: udp"), OUT)] == []


def test_generated_rules_cover_nobodys() -> None:
    generated = Rule("generated:nd", Action.BYPASS, generated=True)
    assert [*warn_of_unreached((generated, *read("protocol: tcp")), OUT)] == []


def test_an_opaque_protocol_of_ipv4_matches_nothing() -> None:
    listed = read("protocol: opaque", "protocol: opaque, destination: 10.0.0.1", "protocol: tcp")
    warnings = [*warn_of_unreached(listed[1:], OUT)]
    assert warnings == [
        "the outbound list has rules that match nothing: 'r2': the protocol of an IPv4 packet is"
        " never opaque"
    ]


def test_many_names_are_counted() -> None:
    assert quoted_names(["a"]) == "'a'"
    assert quoted_names([*"abcd"]) == "'a', 'b', 'c' and 'd'"
    assert quoted_names([]) == ""
    assert quoted_names([*"abcdef"]) == "'a', 'b', 'c' and 3 more"


def host_rule(number: int) -> Rule:
    address = (parse_address("10.0.0.0")[:2]) + number.to_bytes(2, "big")
    return Rule(f"r{number}", Action.BYPASS, source=(AddressRange(address, address),))


def test_a_long_list_of_hosts_needs_few_tests_and_a_bad_one_says_where_it_stopped() -> None:
    hosts = [host_rule(number) for number in range(5000)]
    assert find_covered(hosts, tests=5000).is_complete
    ports = [
        Rule(f"r{n}", Action.BYPASS, protocol=(6,), destination_port=(NumberRange(n, n),))
        for n in range(5000)
    ]
    assert find_covered(ports, tests=5000).is_complete
    alike = [Rule(f"r{n}", Action.BYPASS, protocol=(n,)) for n in range(200)]
    assert not find_covered(alike, tests=1000).is_complete
    assert find_covered(alike).is_complete
