# SPDX-License-Identifier: Apache-2.0
"""Tests the warnings of `spd check`.

A warning says that the rules would block this router's own sessions or path MTU discovery, or that
a list discards everything.
"""

from __future__ import annotations

import re

import pytest

from sluice.frr import Routing, read_frr
from sluice.model import InterfaceAddress, Prefix, parse_address
from sluice.policy.model import (
    ICMP,
    ICMPV6,
    OPAQUE,
    TCP,
    UDP,
    Action,
    Direction,
    NumberRange,
    Rule,
    prefix_range,
)
from sluice.policy.warnings import OSPF, GuardedInterface, RuleContext, warnings

BGP = (NumberRange(179, 179),)
OWN = parse_address("10.0.0.1")
ALL = Rule("all", Action.BYPASS)
REST = Rule("rest", Action.DISCARD)
ACTIVE_OUT = Rule("out", Action.BYPASS, protocol=(TCP,), destination_port=BGP)
ACTIVE_IN = Rule("in", Action.PROTECT, "b", protocol=(TCP,), source_port=BGP)
OSPF_RULE = Rule("ospf", Action.BYPASS, protocol=(OSPF,))
ETH1 = GuardedInterface(
    "eth1", (InterfaceAddress.parse("10.0.0.1/24"), InterfaceAddress.parse("2001:db8::1/64"))
)
NO_FRR = RuleContext(own=(OWN,))


def warned(outbound: list[Rule], inbound: list[Rule], around: RuleContext = NO_FRR) -> list[str]:
    return warnings({Direction.OUTBOUND: outbound, Direction.INBOUND: inbound}, around, "corp")


def with_frr(text: str) -> RuleContext:
    routing = Routing()
    read_frr(text, "frr.conf", routing)
    return RuleContext((ETH1,), (OWN,), routing)


@pytest.mark.parametrize(
    ("outbound", "inbound", "is_good"),
    [
        ([ALL], [ALL], True),
        ([ACTIVE_OUT], [ACTIVE_IN], True),
        ([ACTIVE_IN], [ACTIVE_OUT], True),  # the peer opens the session
        # Whichever side opens the session, its packets pass in one direction only.
        ([ACTIVE_OUT], [ACTIVE_OUT], False),
        ([REST, ACTIVE_OUT], [ALL], False),  # the second rule is never reached
        ([ACTIVE_OUT._replace(protocol=(UDP,))], [ALL], False),
        ([ACTIVE_OUT._replace(source=(prefix_range(Prefix.parse("10.9.0.0/16")),))], [ALL], False),
        ([ACTIVE_OUT._replace(destination=(prefix_range(Prefix.parse("::/0")),))], [ALL], False),
        ([ACTIVE_OUT._replace(source_port=OPAQUE)], [ALL], False),
        ([ACTIVE_OUT._replace(icmp=(NumberRange(0, 1),))], [ALL], False),
        ([REST], [], False),
    ],
)
def test_bgp_needs_a_way_out_and_in(
    outbound: list[Rule], inbound: list[Rule], is_good: bool
) -> None:
    around = with_frr("router bgp 1\n neighbor 10.0.0.2 remote-as 2\n")
    found = [one for one in warned(outbound, inbound, around) if "the BGP session 10.0.0.1" in one]
    assert len(found) == (not is_good)


def test_ospf_needs_its_hello_out_and_in() -> None:
    around = with_frr("interface eth1\n ip ospf area 0\n ipv6 ospf6 area 0\n")
    bgp = [ACTIVE_OUT, ACTIVE_IN]
    assert warned([OSPF_RULE, *bgp], [OSPF_RULE, *bgp], around) == []
    missing = warned([OSPF_RULE, *bgp], bgp, around)
    assert [one[:50] for one in missing] == [
        "corp: no OSPF neighbour can come up on eth1 (frr.c",
        "corp: no OSPFv3 neighbour can come up on eth1 (frr",
    ]
    only_ipv4 = OSPF_RULE._replace(destination=(prefix_range(Prefix.parse("224.0.0.0/24")),))
    (ipv6,) = warned([*bgp, only_ipv4, REST], [*bgp, OSPF_RULE], around)[:1]
    assert "no OSPFv3 neighbour" in ipv6
    assert "the outbound rule 'rest' discards its packets" in ipv6


@pytest.mark.parametrize(
    "text",
    [
        None,
        "hostname r1\n",
        "router bgp 1\n neighbor 10.0.0.2 remote-as 2\n neighbor 10.0.0.2 shutdown\n",
        "router ospf\n network 10.0.0.0/8 area 0\n passive-interface eth1\n",
        "interface eth1\n ipv6 ospf6 area 0\n ipv6 ospf6 passive\n",
    ],
)
def test_sessions_that_do_not_exist_are_not_warned_of(text: str | None) -> None:
    around = RuleContext((ETH1,), (OWN,)) if text is None else with_frr(text)
    found = warned([REST], [REST], around)
    assert not any("BGP" in one or "OSPF" in one for one in found)
    assert "corp: the inbound list discards everything" in found


def test_a_peer_that_listens_on_another_port() -> None:
    around = with_frr(
        "router bgp 1\n neighbor 10.0.0.2 remote-as 2\n neighbor 10.0.0.2 port 1179\n"
    )
    other = ACTIVE_OUT._replace(destination_port=(NumberRange(1179, 1179),))
    back = ACTIVE_IN._replace(source_port=(NumberRange(1179, 1179),))
    assert warned([other], [back], around) == [
        one for one in warned([other], [back]) if "BGP" not in one
    ]
    (found, *_) = warned([ACTIVE_OUT], [ACTIVE_IN], around)
    assert "TCP port 1179 needs" in found


def test_what_frr_speaks_is_tried_and_nothing_else() -> None:
    web = Rule("web", Action.BYPASS, protocol=(TCP,), destination_port=BGP)
    quiet = warned([web], [ALL], with_frr("hostname r1\n"))
    assert all("traceroute" in one for one in quiet)
    peers = with_frr(
        "router bgp 1\n neighbor 10.0.0.2 remote-as 2\n neighbor 192.0.2.1 remote-as 3\n"
    )
    one_peer = ACTIVE_OUT._replace(destination=(prefix_range(Prefix.parse("10.0.0.9/32")),))
    found, _, _ = warned([one_peer], [ALL], peers)
    assert found.startswith("corp: the BGP session 10.0.0.1 - 10.0.0.2 (frr.conf:2) cannot come up")
    assert "no outbound rule lets its packets pass" in found
    assert warned([ACTIVE_OUT], [ACTIVE_IN], peers) == []
    (found,) = warned([], [ALL], peers)[1:2]
    assert "10.0.0.1 - 192.0.2.1 (frr.conf:3)" in found
    assert found.endswith("if it uses an interface that this SPD guards")
    unnumbered = with_frr("router bgp 1\n neighbor eth1 interface remote-as 2\n")
    found, *_ = warned([one_peer], [ALL], unnumbered)
    assert "fe80::1 - fe80::2 (frr.conf:2)" in found


def test_a_peer_several_hops_away() -> None:
    text = "router bgp 1\n neighbor 192.0.2.1 remote-as 1\n"
    by_loopback = ACTIVE_OUT._replace(source=(prefix_range(Prefix.parse("10.255.0.1/32")),))
    (found,) = warned([by_loopback], [ACTIVE_IN], with_frr(text))
    assert "the BGP session 10.0.0.1 - 192.0.2.1 (frr.conf:2) cannot come up" in found
    from_loopback = with_frr(text + " neighbor 192.0.2.1 update-source 10.255.0.1\n")
    assert warned([by_loopback], [ACTIVE_IN], from_loopback) == []
    # If another SPD applies to the link, this SPD does not concern the session.
    elsewhere = with_frr(text)._replace(elsewhere=(Prefix.parse("192.0.2.0/24"),))
    assert warned([by_loopback], [ACTIVE_IN], elsewhere) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("router ospf\n network 10.0.0.0/8 area 0\n", "no OSPF neighbour can come up on eth1"),
        ("interface eth1\n ip ospf area 0\n", "on eth1 (frr.conf:2)"),
        ("interface eth1\n ipv6 ospf6 area 0\n", "no OSPFv3 neighbour"),
        ("router ospf\n network 10.9.0.0/16 area 0\n", None),
        ("interface eth7\n ip ospf area 0\n", None),
    ],
)
def test_ospf_that_is_configured(text: str, words: str | None) -> None:
    found = warned([ACTIVE_OUT], [ACTIVE_IN], with_frr(text))
    assert [words in one for one in found if words] == ([True] if words else [])
    assert len(found) == (words is not None)


def test_the_ospf_peer_on_a_link_of_two_addresses_is_the_other_one() -> None:
    eth1 = GuardedInterface("eth1", (InterfaceAddress.parse("10.0.0.2/31"),))
    routing = Routing()
    read_frr("interface eth1\n ip ospf area 0\n", "frr.conf", routing)
    around = RuleContext((eth1,), (OWN,), routing)
    bgp = [ACTIVE_OUT, ACTIVE_IN]
    from_the_link = OSPF_RULE._replace(source=(prefix_range(Prefix.parse("10.0.0.2/31")),))
    assert warned([from_the_link, *bgp], [from_the_link, *bgp], around) == []


PTB = NumberRange(0x200, 0x2FF)
UNREACHABLE = NumberRange(0x300, 0x3FF)
HOST = (prefix_range(Prefix.parse("10.0.0.9/32")), prefix_range(Prefix.parse("2001:db8::9/128")))
WEB = Rule("web", Action.BYPASS, protocol=(TCP,), destination_port=(NumberRange(443, 443),))


@pytest.mark.parametrize(
    ("inbound", "protocols"),
    [
        ([ALL], []),
        ([ACTIVE_IN, OSPF_RULE], []),  # errors about protected packets use the bundle
        ([WEB], ["ICMP f", "ICMPv6"]),  # no rule matches the errors
        ([WEB._replace(source=(prefix_range(Prefix.parse("10.0.0.0/8")),))], ["ICMP f"]),
        ([WEB, Rule("icmp", Action.BYPASS, protocol=(ICMP,), icmp=(UNREACHABLE,))], ["ICMPv6"]),
        ([WEB._replace(protocol=OPAQUE, destination_port=None)], []),
        ([ACTIVE_IN, REST], ["ICMP f", "ICMPv6"]),
        # A rule for some destinations does not concern errors to other destinations.
        ([Rule("one", Action.DISCARD, protocol=(ICMP, ICMPV6), destination=HOST), WEB],
         ["ICMP f", "ICMPv6"]),
        ([Rule("site", Action.PROTECT, "b", source=HOST), WEB], ["ICMP f", "ICMPv6"]),
        ([Rule("all", Action.PROTECT, "b"), WEB], []),
        ([Rule("icmp", Action.BYPASS, protocol=(ICMP,)), REST], ["ICMPv6"]),
        ([Rule("ptb", Action.BYPASS, protocol=(ICMPV6,), icmp=(PTB,)), REST], ["ICMP f"]),
        ([Rule("no-icmp", Action.DISCARD, protocol=(ICMP, ICMPV6))], ["ICMP f", "ICMPv6"]),
        ([Rule("ping", Action.DISCARD, protocol=(ICMP,), icmp=(NumberRange(0x800, 0x8FF),))], []),
        # Errors from the protected site are permitted. Errors from routers on the path to the site
        # are not.
        ([ALL._replace(source=(prefix_range(Prefix.parse("10.0.0.0/8")),)), REST],
         ["ICMP f", "ICMPv6"]),
    ],
)  # fmt: skip
def test_path_mtu_discovery_needs_its_errors(inbound: list[Rule], protocols: list[str]) -> None:
    found = [one for one in warned([ALL], inbound) if "path MTU" in one]
    named = [re.search("(?:discards every|lets) (ICMPv6|ICMP f)", one) for one in found]
    assert [one and one[1] for one in named] == protocols


def test_errors_that_no_rule_matches_are_let_in_if_the_spd_checks_them() -> None:
    around = NO_FRR._replace(are_errors_checked=True)
    assert warned([ALL], [WEB], around) == []
    found = [one for one in warned([WEB], [ALL], around) if "path MTU" in one]
    assert len(found) == 2
    assert found[0] == (
        "corp: no outbound rule lets ICMP fragmentation needed (3/4) pass, so that path MTU"
        " discovery fails for bypassed packets: write a bypass rule for this error"
    )
    (inbound, _) = warned([ALL], [WEB])
    assert inbound.endswith(
        "write a bypass rule for this error, or `icmp_errors: checked` for the SPD"
    )


TIME_EXCEEDED = NumberRange(11 << 8, (11 << 8) + 255)


@pytest.mark.parametrize(
    ("outbound", "inbound", "lost"),
    [
        ([WEB], [ALL], "ICMP time exceeded (11) or ICMPv6 time exceeded (3)"),
        ([WEB, Rule("icmp", Action.BYPASS, protocol=(ICMP,), icmp=(TIME_EXCEEDED,))], [ALL],
         "ICMPv6 time exceeded (3)"),
        ([ALL], [ALL], None),
        # No warning: no inbound rule lets a traceroute probe pass anyway.
        ([WEB], [Rule("secret", Action.PROTECT, "b")], None),
    ],
)  # fmt: skip
def test_a_traceroute_through_a_guarded_interface_needs_the_router_s_errors(
    outbound: list[Rule], inbound: list[Rule], lost: str | None
) -> None:
    found = [one for one in warned(outbound, inbound) if "traceroute" in one]
    assert len(found) == (lost is not None)
    if lost is not None:
        assert f"lets this router's {lost} pass" in found[0]
        assert "shows `*`" in found[0]


def test_a_list_that_lets_nothing_pass() -> None:
    generated = Rule("generated:nd", Action.BYPASS, generated=True)
    found = [one for one in warned([generated, REST], []) if "everything" in one]
    assert found == [
        "corp: the outbound list discards everything",
        "corp: the inbound list discards everything",
    ]
