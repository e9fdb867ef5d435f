# SPDX-License-Identifier: Apache-2.0
"""Tests the report of where the fragments of each rule get their verdict: from the flow cache, from
the controller, or from either.

The report is compared with the definition, which is evaluated here for all addresses and protocols.
"""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies import ADDRESSES, rules
from sluice.model import Address, parse_address
from sluice.policy.fragments import FAMILIES, ServedBy, expectations
from sluice.policy.model import OPAQUE, Action, AddressRange, Direction, Rule, Selectors
from sluice.policy.spdfile import parse_spd
from sluice.state.rule_search import first_match_of_fragment
from sluice.state.spd import FINAL_DISCARD

OUT = Direction.OUTBOUND
ELSEWHERE = (parse_address("11.0.0.1"), parse_address("2001:db9::1"))
PROTOCOLS = (1, 6, 17, 50, 58, 132, 135, 99)  # no rule names 99
VERDICTS = st.sampled_from(
    [
        {"action": Action.BYPASS, "bundle": None, "generated": False},
        {"action": Action.DISCARD, "bundle": None, "generated": False},
        {"action": Action.PROTECT, "bundle": "a", "generated": False},
        {"action": Action.PROTECT, "bundle": "b", "generated": False},
    ]
)
FINAL = Rule(FINAL_DISCARD, Action.DISCARD)


def could_match(rule: Rule, source: Address, destination: Address, protocol: int | None) -> bool:
    """Returns whether a rule could match a later fragment in transit.

    `protocol` is None if the fragment's protocol field is not trusted.
    """
    return (
        rule.looks_at(is_own=False)
        and _holds(rule.source, source)
        and _holds(rule.destination, destination)
        and (protocol is None or rule.protocol is None or _lists(rule, protocol))
    )


def matches_for_certain(rule: Rule, protocol: int | None) -> bool:
    """Returns whether a rule matches a later fragment, whatever the first fragment contains.

    The rule must be one for which `could_match` is true.
    """
    shown = (rule.source_port, rule.destination_port, rule.icmp, rule.mobility_type)
    return not any(isinstance(one, tuple) for one in shown) and (
        protocol is not None or rule.protocol in (None, OPAQUE)
    )


def _holds(ranges: tuple[AddressRange, ...] | None, address: Address) -> bool:
    return ranges is None or any(
        len(low) == len(address) and low <= address <= high for low, high in ranges
    )


def _lists(rule: Rule, protocol: int) -> bool:
    return isinstance(rule.protocol, tuple) and protocol in rule.protocol


def by_definition(listed: list[Rule], size: int) -> dict[str, tuple[ServedBy, set[str]]]:
    """Returns, by rule name, where the rule's fragments get their verdict.

    The result also has the names of earlier rules that could match the same fragments with another
    verdict.
    """
    ways: dict[str, set[bool]] = {}
    because: dict[str, set[str]] = {}
    addresses = [one for one in (*ADDRESSES, *ELSEWHERE) if len(one) == size]
    protocols = PROTOCOLS if size == 4 else (None,)
    for source, destination, protocol in product(addresses, addresses, protocols):
        could = [one for one in listed if could_match(one, source, destination, protocol)]
        certain = next((one for one in could if matches_for_certain(one, protocol)), FINAL)
        before = could[: could.index(certain)] if certain in could else could
        differing = {one.name for one in before if one[1:3] != certain[1:3]}
        # The search that the controller uses for packets must need the first fragment in exactly
        # the same cases.
        later = Selectors(source, destination, protocol, None, None, None)
        found = first_match_of_fragment(listed, later, None)
        assert (found is None) == bool(differing)
        assert found is None or found.at == (listed.index(certain) if certain in listed else None)
        for rule in (*before, certain):
            ways.setdefault(rule.name, set()).add(bool(differing))
            because.setdefault(rule.name, set()).update(differing)
    names = {1: ServedBy.CACHE, 2: ServedBy.CONTROLLER, 3: ServedBy.EITHER}
    return {
        name: (names[sum(2 if way else 1 for way in seen)], because[name])
        for name, seen in ways.items()
    }


PROTECT = "action: protect, bundle: branch"


@pytest.mark.parametrize(
    ("rules", "served_by"),
    [
        (f"{{name: a, {PROTECT}, from_packet: [source, destination]}}", "cache"),
        (f"{{name: a, {PROTECT}, protocol: udp, from_packet: source_ports}}", "controller"),
        # The protocol of a later IPv6 fragment is not trusted.
        (f"{{name: a, {PROTECT}, source: '2001:db8::/32', from_packet: protocol}}", "controller"),
        (f"{{name: a, {PROTECT}, source: 10.0.0.0/8, from_packet: protocol}}", "cache"),
        # Both rules name one bundle, but never share an SA.
        (
            f"{{name: a, {PROTECT}, protocol: udp, destination_ports: 7}},"
            f" {{name: b, {PROTECT}, from_packet: [source]}}",
            "either",
        ),
    ],
)
def test_fragments_under_rules_that_populate(rules: str, served_by: str) -> None:
    text = f"spd: corp\noutbound: [{rules}]\n"
    spd = parse_spd(text, "corp.yaml", lambda _: None)
    found = {
        one.served_by.value
        for one in expectations(spd.rules)
        for name in one.rules
        if name in ("a", "b")
    }
    assert served_by in found
    assert len(found) == 1 or served_by == "either"


@settings(max_examples=60)
@given(
    st.lists(
        st.builds(lambda rule, verdict: rule._replace(**verdict), rules(), VERDICTS),
        min_size=1,
        max_size=6,
    )
)
def test_it_is_what_the_definition_says(listed: list[Rule]) -> None:
    found = expectations({OUT: listed})
    for size, family in FAMILIES.items():
        expected = by_definition(listed, size)
        served_by = {
            name: one.served_by for one in found if family in one.families for name in one.rules
        }
        if served_by:
            assert served_by == {name: way for name, (way, _) in expected.items()}
        else:  # only the final discard matches
            assert set(expected) == {FINAL_DISCARD}
        for one in found:
            if family in one.families:
                assert {*one.because} == set().union(*(expected[name][1] for name in one.rules))


def read(*written: str) -> tuple[Rule, ...]:
    text = "spd: corp\noutbound:\n" + "".join(f"  - {{{one}}}\n" for one in written)
    return parse_spd(text, "corp.yaml", lambda _: None).rules[OUT]


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        (["name: all, action: bypass"], [("IPv4 and IPv6", "cache", "all", "")]),
        (
            ["name: dns, action: bypass, protocol: udp, destination_ports: 53",
             "name: rest, action: bypass"],
            [("IPv4 and IPv6", "cache", "dns rest", "")],  # all rules have the same verdict
        ),
        (
            ["name: site, action: bypass, source: 10.1.0.0/16",
             "name: games, action: discard, protocol: udp, destination_ports: 27015"],
            [("IPv4", "cache", "site games (final)", ""), ("IPv6", "cache", "games (final)", "")],
        ),
        (
            ["name: games, action: discard, protocol: udp, destination_ports: 27015",
             "name: site, action: bypass, source: 10.1.0.0/16"],
            [("IPv4", "either", "games site", "games"), ("IPv4", "cache", "(final)", ""),
             ("IPv6", "cache", "games (final)", "")],
        ),
        (
            ["name: later, action: discard, protocol: udp, destination_ports: opaque",
             "name: web, action: bypass, protocol: tcp, destination_ports: 443, source: 10.0.0.1",
             "name: rest, action: discard"],
            [("IPv4", "controller", "web", "web"), ("IPv4", "either", "rest", "web"),
             ("IPv4", "cache", "later", ""),
             ("IPv6", "cache", "later rest", "")],
        ),
        (  # IPv6: the protocol of a later fragment is not trusted
            ["name: udp, action: bypass, protocol: udp, source: '2001:db8::/32'",
             "name: unseen, action: discard, protocol: opaque"],
            [("IPv6", "either", "unseen", "udp"), ("IPv6", "controller", "udp", "udp")],
        ),
    ],
)  # fmt: skip
def test_groups_of_a_list(listed: list[str], found: list[tuple[str, str, str, str]]) -> None:
    assert sorted(
        (
            " and ".join(one.families),
            one.served_by.value,
            " ".join(one.rules),
            " ".join(one.because),
        )
        for one in expectations({OUT: read(*listed)})
    ) == sorted(found)


def test_generated_rules_and_absent_families_are_left_out() -> None:
    generated = Rule("generated:nd", Action.BYPASS, protocol=(58,), generated=True)
    (one,) = expectations({OUT: (generated, *read("name: a, action: bypass, source: 10.0.0.1"))})
    assert (one.families, one.rules) == (("IPv4",), ("a", FINAL_DISCARD))


def test_a_list_that_takes_too_long_is_said_to_be_not_tried() -> None:
    listed = read(
        "name: dns, action: bypass, protocol: udp, destination_ports: 53",
        "name: a, action: bypass, source: 10.0.0.1",
        "name: b, action: discard",
    )
    one, _ = expectations({OUT: listed}, tests=3)
    assert one.served_by is ServedBy.UNKNOWN
    assert one.rules == ("dns", "a", "b", FINAL_DISCARD)
    assert one.because == ("dns",)
