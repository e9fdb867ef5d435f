# SPDX-License-Identifier: Apache-2.0
"""Tests the rules of instances against a plain specification of "populate from packet"."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from policies import packets, rules
from sluice.model import parse_address
from sluice.policy.model import (
    ICMP,
    ICMP_PROTOCOLS,
    MOBILITY,
    OPAQUE,
    PORT_PROTOCOLS,
    TCP,
    UDP,
    Action,
    AddressRange,
    Direction,
    NumberRange,
    Rule,
    Selectors,
)
from sluice.policy.populated import (
    FIELDS,
    Instance,
    Populated,
    as_written,
    is_without_sa,
    named_bundle,
    ordered,
    populate,
    populated_problem,
    to_document,
    to_value,
    unpopulated_protocol,
    with_instances,
    without_sa,
)
from sluice.state.rule_search import RuleIndex, effect_of, first_match, matches

HOST, PEER = parse_address("10.0.0.1"), parse_address("10.0.0.2")
NETWORK = (AddressRange(parse_address("10.0.0.0"), parse_address("10.0.0.9")),)
PAIRS = Rule(
    "pairs", Action.PROTECT, "branch", NETWORK, NETWORK, from_packet=("source", "destination")
)


def udp(source: int, destination: int, *, ports: tuple[int, int] = (5000, 7000)) -> Selectors:
    local, remote = (parse_address(f"10.0.0.{number}") for number in (source, destination))
    return Selectors(local, remote, UDP, *ports, None)


def possible(packet: Selectors) -> Selectors:
    """Removes the values from a packet that its protocol does not have."""
    has_ports = packet.protocol in PORT_PROTOCOLS
    return packet._replace(
        source_port=packet.source_port if has_ports else None,
        destination_port=packet.destination_port if has_ports else None,
        icmp=packet.icmp if packet.protocol in ICMP_PROTOCOLS else None,
        mobility_type=packet.mobility_type if packet.protocol == MOBILITY else None,
    )


@st.composite
def populating_rules(draw: st.DrawFn) -> Rule:
    """Draws a rule as a file may have it. Most of these rules protect, and most of those populate
    selectors."""
    rule = draw(rules())
    if draw(st.integers(0, 3)) == 0:
        return rule
    chosen = draw(st.sets(st.sampled_from([*FIELDS])))
    rule = rule._replace(
        action=Action.PROTECT,
        bundle=draw(st.sampled_from(["one", "two"])),
        from_packet=tuple(name for name in FIELDS if name in chosen),
    )
    if any(unpopulated_protocol(rule)):
        chosen.add("protocol")
    return rule._replace(from_packet=tuple(name for name in FIELDS if name in chosen))


def instances_of(
    listed: Sequence[Rule], seen: Iterable[Selectors], direction: Direction
) -> list[Instance]:
    """Returns the instances to which these packets belong, for each rule that matches."""
    found = []
    for packet in seen:
        for rule in listed:
            if rule.from_packet and rule.bundle is not None and matches(rule, packet):
                found.append(Instance(rule.bundle, values_of(rule, packet, direction)))
    return found


def values_of(rule: Rule, packet: Selectors, direction: Direction) -> Populated:
    values = populate(rule.from_packet, packet)
    return values if direction is Direction.OUTBOUND else values.turned()


def specified(
    listed: Sequence[Rule], direction: Direction, instances: set[Instance], packet: Selectors
) -> tuple[Action, str | None]:
    """Returns action and bundle by RFC 4301: the first rule that matches, then its instance."""
    for rule in listed:
        if not matches(rule, packet):
            continue
        if not rule.from_packet or rule.bundle is None:
            return rule.action, rule.bundle
        instance = Instance(rule.bundle, values_of(rule, packet, direction))
        name = instance.name if instance in instances else without_sa(rule.bundle)
        return rule.action, name
    return Action.DISCARD, None


def searched(made: Sequence[Rule], packet: Selectors) -> tuple[Action, str | None]:
    at = RuleIndex(made).first_match(packet)
    assert at == first_match(made, packet)
    return (Action.DISCARD, None) if at is None else (made[at].action, made[at].bundle)


WHOLE: SearchStrategy[Selectors] = (
    packets().filter(lambda packet: len(packet.source) == len(packet.destination)).map(possible)
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(populating_rules(), max_size=6),
    st.lists(WHOLE, max_size=4),
    st.lists(WHOLE, min_size=1, max_size=4),
    st.sampled_from(Direction),
    st.data(),
)
def test_the_search_with_instances_is_populate_from_packet(
    listed: list[Rule],
    with_sa: list[Selectors],
    others: list[Selectors],
    direction: Direction,
    data: st.DataObject,
) -> None:
    known = instances_of(listed, with_sa, direction)
    known += instances_of(listed, others, direction)
    kept = data.draw(st.sets(st.sampled_from(known))) if known else set()
    # Instances that fit no rule must not change the result.
    strays = {Instance("one", Populated(protocol=TCP)), Instance("none", Populated(HOST))}
    made = list(with_instances(listed, direction, ordered(kept | strays)))
    for packet in (*with_sa, *others):
        assert searched(made, packet) == specified(listed, direction, kept | strays, packet)
    assert [as_written(rule) for rule in made if not rule.is_instance] == listed


@settings(max_examples=200, deadline=None)
@given(
    st.lists(populating_rules(), min_size=1, max_size=5),
    st.lists(WHOLE, min_size=1, max_size=4),
    st.sampled_from(Direction),
)
def test_a_later_fragment_goes_with_its_datagram_or_its_own_values(
    listed: list[Rule], seen: list[Selectors], direction: Direction
) -> None:
    instances = set(instances_of(listed, seen[::2], direction))
    made = list(with_instances(listed, direction, ordered(instances)))
    index = RuleIndex(made)
    for first in seen:
        later = first._replace(
            protocol=first.protocol if len(first.source) == 4 else None,
            source_port=None,
            destination_port=None,
            icmp=None,
            mobility_type=None,
        )
        found = index.first_match_of_fragment(later, first)
        assert found is not None
        got = (
            (Action.DISCARD, None)
            if found.at is None
            else (made[found.at].action, made[found.at].bundle)
        )
        assert got in {searched(made, first), searched(made, later)}
        alone = index.first_match_of_fragment(later, None)
        if alone is not None and alone.at is not None and found.at is not None:
            # Without the first fragment there must be a verdict only if all datagrams would get the
            # same one.
            assert effect_of(made[alone.at]) == effect_of(made[found.at])


def test_each_pair_of_hosts_has_its_own_bundle() -> None:
    pairs = [Instance("branch", Populated(HOST, PEER)), Instance("branch", Populated(PEER, HOST))]
    made = list(with_instances([PAIRS], Direction.OUTBOUND, ordered(pairs)))
    assert [rule.name for rule in made] == [
        "pairs:10.0.0.1 > 10.0.0.2",
        "pairs:10.0.0.2 > 10.0.0.1",
        "pairs",
    ]
    assert searched(made, udp(1, 2))[1] == "branch (10.0.0.1 > 10.0.0.2)"
    assert searched(made, udp(2, 1))[1] == "branch (10.0.0.2 > 10.0.0.1)"
    assert searched(made, udp(1, 3))[1] == "branch (no SA)"
    inbound = list(with_instances([PAIRS], Direction.INBOUND, ordered(pairs[:1])))
    assert searched(inbound, udp(2, 1))[1] == "branch (10.0.0.1 > 10.0.0.2)"
    assert searched(inbound, udp(1, 2))[1] == "branch (no SA)"


def test_an_instance_serves_only_rules_that_populate_the_same_selectors() -> None:
    by_host = PAIRS._replace(name="hosts", from_packet=("source",))
    instances = ordered([Instance("branch", Populated(HOST, PEER))])
    made = list(with_instances([by_host, PAIRS], Direction.OUTBOUND, instances))
    assert [rule.name for rule in made] == ["hosts", "pairs:10.0.0.1 > 10.0.0.2", "pairs"]


def test_an_sa_of_the_whole_bundle_never_serves_a_rule_that_populates() -> None:
    plain = Rule("plain", Action.PROTECT, "branch", protocol=(TCP,))
    made = list(with_instances([plain, PAIRS], Direction.OUTBOUND, {}))
    assert [rule.bundle for rule in made] == ["branch", "branch (no SA)"]
    # So a fragment that could match either rule needs its first fragment.
    assert effect_of(made[0]) != effect_of(made[1])


def test_what_a_rule_does_not_match_gets_no_rule() -> None:
    outside = parse_address("10.1.0.1")
    rule = PAIRS._replace(protocol=(UDP,), from_packet=("source", "protocol", "source_ports"))
    for values in (
        Populated(outside, None, UDP, 5000),
        Populated(HOST, None, TCP, 5000),
        Populated(parse_address("2001:db8::1"), None, UDP, 5000),
        Populated(HOST, None, OPAQUE, 5000),
    ):
        made = with_instances([rule], Direction.OUTBOUND, ordered([Instance("branch", values)]))
        assert [one.name for one in made] == ["pairs"], values
    tcp = rule._replace(protocol=None)
    without_ports = Instance("branch", Populated(HOST, None, ICMP, 5000))
    assert len(list(with_instances([tcp], Direction.OUTBOUND, ordered([without_ports])))) == 1


def test_a_rule_of_both_families_has_instances_of_each() -> None:
    both = (*NETWORK, AddressRange(bytes(16), bytes([255] * 16)))
    rule = PAIRS._replace(destination=both, from_packet=("source",))
    made = with_instances(
        [rule], Direction.OUTBOUND, ordered([Instance("branch", Populated(HOST))])
    )
    assert searched(list(made), udp(1, 2))[1] == "branch (10.0.0.1 > *)"


def test_instances_without_ports_come_last() -> None:
    opaque = Instance("branch", Populated(None, None, UDP, OPAQUE))
    numbered = Instance("branch", Populated(None, None, UDP, 5000))
    assert ordered([opaque, numbered]) == {"branch": (numbered, opaque)}


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (Populated(HOST, PEER), "10.0.0.1 > 10.0.0.2"),
        (Populated(HOST, PEER, UDP, 5000, 7000), "udp 10.0.0.1:5000 > 10.0.0.2:7000"),
        (Populated(destination_ports=53, protocol=UDP), "udp * > *:53"),
        (
            Populated(parse_address("2001:db8::1"), None, OPAQUE, OPAQUE),
            "opaque [2001:db8::1]:opaque > *",
        ),
        (Populated(protocol=ICMP, icmp=8 << 8), "icmp * > * icmp 8/0"),
        (Populated(protocol=MOBILITY, mobility_types=5), "mobility * > * mobility 5"),
    ],
)
def test_values_as_text(values: Populated, text: str) -> None:
    assert str(values) == text
    read: dict[str, Any] = {name: to_value(name, one) for name, one in to_document(values).items()}
    assert Populated(**read) == values


POPULATED = st.builds(
    Populated,
    *[st.sampled_from([None, HOST, PEER])] * 2,
    *[st.sampled_from([None, OPAQUE, 1, 17, 6])] * 5,
)


@given(POPULATED, POPULATED)
def test_different_values_have_different_names(one: Populated, other: Populated) -> None:
    assert (str(one) == str(other)) == (one == other)
    assert one.turned().turned() == one
    name = Instance("branch-1", one).name
    assert named_bundle(name) == "branch-1"
    assert not is_without_sa(name)
    assert is_without_sa(without_sa("branch-1"))


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (Populated(), "gives no value"),
        (Populated(HOST, parse_address("2001:db8::1")), "an IPv4 and an IPv6 address"),
        (Populated(protocol=ICMP, source_ports=5), "the protocol icmp has no `source_ports`"),
        (Populated(protocol=ICMP, source_ports=OPAQUE), None),
        (Populated(HOST, PEER, UDP, 1, 2), None),
    ],
)
def test_values_that_no_packet_has(values: Populated, problem: str | None) -> None:
    found = populated_problem(values)
    assert found is None if problem is None else problem in (found or "")


@pytest.mark.parametrize(
    ("name", "written"),
    [("icmp", "8"), ("icmp", "8/256"), ("protocol", "300"), ("source_ports", "-1"),
     ("mobility_types", "256"), ("destination", "10.0.0.0/8")],
)  # fmt: skip
def test_values_that_cannot_be_read(name: str, written: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        to_value(name, written)


def test_a_range_becomes_one_number() -> None:
    rule = Rule(
        "ports",
        Action.PROTECT,
        "branch",
        protocol=(UDP, TCP),
        source_port=(NumberRange(4000, 6000),),
        from_packet=("protocol", "source_ports"),
    )
    instance = Instance("branch", Populated(protocol=UDP, source_ports=5000))
    made, rest = with_instances([rule], Direction.OUTBOUND, ordered([instance]))
    assert (made.protocol, made.source_port) == ((UDP,), (NumberRange(5000, 5000),))
    assert (made.is_instance, made.from_packet) == (True, ())
    assert rest == rule._replace(bundle="branch (no SA)")
