# SPDX-License-Identifier: Apache-2.0
"""Tests that the generated rules permit the router's own ND and IKE packets, and no others."""

from __future__ import annotations

import pytest

from sluice.model import parse_address
from sluice.policy.generated_rules import generated_rules
from sluice.policy.model import ICMPV6, TCP, UDP, Direction, Selectors
from sluice.state.rule_search import first_match

OUT, IN = Direction.OUTBOUND, Direction.INBOUND
OWN4, OWN6, LINK_LOCAL = "10.0.0.1", "2001:db8::1", "fe80::1"
PEER4, PEER6, PEER_LINK_LOCAL = "192.0.2.9", "2001:db8::9", "fe80::9"
SOLICITED, ALL_NODES, OTHER_GROUP = "ff02::1:ff00:9", "ff02::1", "ff02::5"
NS, NA, RS, REDIRECT, ECHO, MLD = 135, 136, 133, 137, 128, 143
OWN = [parse_address(address) for address in (OWN4, OWN6)]


def passes(direction: Direction, packet: Selectors) -> bool:
    return first_match(generated_rules(direction, OWN), packet) is not None


def icmp(source: str, destination: str, kind: int) -> Selectors:
    addresses = parse_address(source), parse_address(destination)
    return Selectors(*addresses, ICMPV6, None, None, kind << 8, is_own=True)


def ports(source: str, sport: int, destination: str, dport: int, protocol: int = UDP) -> Selectors:
    addresses = parse_address(source), parse_address(destination)
    return Selectors(*addresses, protocol, sport, dport, None, is_own=True)


@pytest.mark.parametrize(
    ("direction", "packet", "expected"),
    [
        (OUT, icmp(LINK_LOCAL, SOLICITED, NS), True),
        (OUT, icmp("::", SOLICITED, NS), True),  # duplicate address detection
        (OUT, icmp(OWN6, PEER6, NA), True),
        (OUT, icmp(LINK_LOCAL, PEER6, REDIRECT), True),
        (OUT, icmp(PEER6, SOLICITED, NS), False),
        (OUT, icmp(OWN6, PEER6, ECHO), False),
        (OUT, icmp(LINK_LOCAL, "ff02::16", MLD), False),
        (IN, icmp(PEER6, SOLICITED, NS), True),
        (IN, icmp("::", SOLICITED, NS), True),
        (IN, icmp(PEER6, OWN6, NA), True),
        (IN, icmp(PEER_LINK_LOCAL, LINK_LOCAL, NS), True),
        (IN, icmp(PEER_LINK_LOCAL, ALL_NODES, NA), True),
        (IN, icmp(PEER_LINK_LOCAL, "ff02::2", RS), True),
        (IN, icmp(PEER6, OTHER_GROUP, NS), False),
        (IN, icmp(PEER6, "2001:db8:2::1", NS), False),
        (IN, icmp(PEER6, OWN6, ECHO), False),
        (IN, icmp(PEER6, OWN6, NS)._replace(icmp=None, protocol=None), False),
        # Generated rules match only this router's own packets: delivered to it or sent by it.
        (IN, icmp(PEER6, OWN6, NA)._replace(is_own=False), False),
        (OUT, icmp(OWN6, PEER6, NA)._replace(is_own=False), False),
        (OUT, icmp(LINK_LOCAL, SOLICITED, NS)._replace(is_own=False), False),
        (OUT, ports(OWN4, 500, PEER4, 500)._replace(is_own=False), False),
        (IN, ports(PEER4, 500, OWN4, 500)._replace(is_own=False), False),
        (OUT, ports(OWN4, 500, PEER4, 500), True),
        (OUT, ports(OWN6, 4500, PEER6, 61000), True),
        (OUT, ports(PEER4, 500, OWN4, 500), False),
        (OUT, ports(OWN4, 1234, PEER4, 53), False),
        (IN, ports(PEER4, 500, OWN4, 500), True),
        (IN, ports(PEER6, 61000, OWN6, 4500), True),
        (IN, ports(PEER4, 500, "10.0.0.2", 500), False),
        (IN, ports(PEER4, 500, OWN4, 500, TCP), False),
        (IN, ports(PEER4, 500, OWN4, 501), False),
    ],
)
def test_what_passes(direction: Direction, packet: Selectors, expected: bool) -> None:
    assert passes(direction, packet) is expected


@pytest.mark.parametrize("direction", Direction)
def test_they_are_marked_and_do_not_depend_on_order(direction: Direction) -> None:
    rules = generated_rules(direction, OWN)
    assert [rule.name for rule in rules] == [
        "generated:nd",
        "generated:ike-ipv4",
        "generated:ike-ipv6",
    ]
    assert all(rule.generated for rule in rules)
    assert rules == generated_rules(direction, [*reversed(OWN), *OWN])


@pytest.mark.parametrize("direction", Direction)
def test_without_addresses_there_is_nobody_to_talk_ike_to(direction: Direction) -> None:
    assert [rule.name for rule in generated_rules(direction, [])] == ["generated:nd"]
