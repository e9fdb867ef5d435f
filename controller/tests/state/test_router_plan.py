# SPDX-License-Identifier: Apache-2.0
"""Tests the plan of `sluice up`, and the reasons to refuse a host."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluice.model import InterfaceAddress
from sluice.state.router_plan import RouterPlan, plan
from sluice.survey_model import DOT1Q, ForwardingSettings, HostLink, HostSurvey

ROUTER = ForwardingSettings(ipv4=True, ipv6=True, reverse_path=0)
ADDRESS = InterfaceAddress.parse("10.0.1.1/24")


def card(index: int, name: str, **more: object) -> HostLink:
    plain = HostLink(index, name, "", bytes([2, 0, 0, 0, 0, index]), 1500, True, True)
    return replace(plain, **more)  # type: ignore[arg-type]


ETH1, ETH2 = card(1, "eth1"), card(2, "eth2")
VLAN = card(3, "eth1.7", kind="vlan", lower=1, vlan=7, vlan_protocol=DOT1Q)


def host(*links: HostLink, **more: object) -> HostSurvey:
    found = links or (ETH1, ETH2)
    plain = HostSurvey(found, {link.name: ROUTER for link in found}, {1: (ADDRESS,)})
    return replace(plain, **more)  # type: ignore[arg-type]


def refusals(survey: HostSurvey, *names: str) -> list[str]:
    return list(plan(survey, names or ("eth1", "eth2")).problems)


def the_refusal(survey: HostSurvey, *names: str) -> str:
    (found,) = refusals(survey, *names)
    return found


def test_cards_are_ports_in_the_given_order() -> None:
    made = plan(host(), ("eth2", "eth1"))
    assert made.problems == ()
    assert [(port.number, port.link.name) for port in made.ports] == [(1, "eth2"), (2, "eth1")]
    assert [(one.name, one.port, one.vlan) for one in made.interfaces] == [
        ("eth2", 1, 0),
        ("eth1", 2, 0),
    ]
    eth1 = made.interfaces[1]
    assert (eth1.mac, eth1.mtu, eth1.addresses) == (ETH1.mac, 1500, (ADDRESS,))
    assert (eth1.ipv4, eth1.ipv6) == (True, True)


def test_vlans_come_with_their_card() -> None:
    made = plan(host(ETH1, VLAN), ("eth1",))
    assert made.problems == ()
    assert [(one.name, one.index, one.card, one.port, one.vlan) for one in made.interfaces] == [
        ("eth1", 1, 1, 1, 0),
        ("eth1.7", 3, 1, 1, 7),
    ]


def test_vlan_alone_is_refused() -> None:
    assert the_refusal(host(ETH1, VLAN), "eth1.7").startswith("eth1.7: is a VLAN of eth1; name")


def test_service_tag_is_refused() -> None:
    survey = host(ETH1, replace(VLAN, vlan_protocol=0x88A8))
    assert the_refusal(survey, "eth1").startswith("eth1.7: is a VLAN of protocol 0x88a8")


@pytest.mark.parametrize(
    ("link", "words"),
    [
        (card(1, "eth1", is_ethernet=False), "is not a network card (loopback"),
        (card(1, "eth1", kind="bond"), "is not a network card (bond)"),
        (card(1, "eth1", kind="bridge"), "is not a network card (bridge)"),
        (card(1, "eth1", kind="macvlan", lower=2), "is not a network card (macvlan)"),
        (card(1, "eth1", master=2), "belongs to eth2 (); take it out"),
        (card(1, "eth1", has_xdp=True), "has an XDP program"),
        (card(1, "eth1", mtu=9500), "has an MTU of 9500 bytes"),
        (card(1, "eth1", mtu=576), "has an MTU of 576 bytes"),
    ],
)
def test_links_that_are_refused(link: HostLink, words: str) -> None:
    assert f"eth1: {words}" in the_refusal(host(link, ETH2))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"master": 2}, "belongs to eth2 (); take it out (`ip link set eth1.7 nomaster`)"),
        ({"has_xdp": True}, "has an XDP program"),
    ],
)
def test_other_uses_of_a_vlan_are_refused(changes: dict[str, object], words: str) -> None:
    vlan = replace(VLAN, **changes)  # type: ignore[arg-type]
    assert the_refusal(host(ETH1, ETH2, vlan)).startswith(f"eth1.7: {words}")


def test_filters_of_a_vlan_are_refused() -> None:
    reason = the_refusal(host(ETH1, ETH2, VLAN, filtered=frozenset({3})))
    assert reason.startswith("eth1.7: has an ingress or clsact qdisc")


@pytest.mark.parametrize("lower", [ETH1, VLAN])
def test_devices_that_take_frames_of_an_interface_are_refused(lower: HostLink) -> None:
    device = card(9, "ipvl0", kind="ipvlan", lower=lower.index, takes_frames=True)
    reason = the_refusal(host(ETH1, ETH2, VLAN, device))
    assert reason.startswith(f"ipvl0: gets frames to the MAC address of {lower.name} (ipvlan)")


def test_filters_of_other_programs_are_refused() -> None:
    reason = the_refusal(host(filtered=frozenset({2})))
    assert reason.startswith("eth2: has an ingress or clsact qdisc")


def test_missing_and_repeated_names_are_refused() -> None:
    assert refusals(host(), "eth1", "eth9", "eth1") == [
        "eth1: given twice",
        "eth9: there is no such interface",
    ]


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("rules", "ip rule 100"),
        ("firewall", "nftables chain inet f forward"),
        ("policies", "ip xfrm policy dir fwd"),
        ("routes", "throw routes"),
    ],
)
def test_what_the_switch_does_not_apply_is_refused(field: str, text: str) -> None:
    assert the_refusal(host(**{field: (text,)})).startswith(f"{text}: the switch")


def test_strict_reverse_path_filter_is_refused_where_ipv4_is_forwarded() -> None:
    strict = ROUTER._replace(reverse_path=1)
    survey = host(forwarding={"eth1": strict, "eth2": ROUTER})
    assert the_refusal(survey).startswith("eth1: has a strict reverse-path filter")
    ipv6_only = strict._replace(ipv4=False)
    assert refusals(replace(survey, forwarding={"eth1": ipv6_only, "eth2": ROUTER})) == []


def test_host_that_forwards_nothing_is_refused() -> None:
    off = ForwardingSettings(ipv4=False, ipv6=False, reverse_path=0)
    assert "this host is not a router" in the_refusal(host(forwarding={"eth1": off}))


def notes(made: RouterPlan) -> str:
    assert made.problems == ()
    return "\n".join(made.notes)


def test_family_is_forwarded_only_where_the_kernel_does() -> None:
    ipv4 = ROUTER._replace(ipv6=False)
    made = plan(host(forwarding={"eth1": ipv4, "eth2": ROUTER}), ("eth1", "eth2"))
    assert [(one.ipv4, one.ipv6) for one in made.interfaces] == [(True, False), (True, True)]
    assert "eth1: the kernel does not forward IPv6, so neither does the switch" in notes(made)


def test_notes_name_what_differs() -> None:
    macvlan = card(9, "vrrp4-1", kind="macvlan", lower=1)
    loose = ROUTER._replace(reverse_path=2)
    survey = host(ETH1, ETH2, macvlan, forwarding={"eth1": loose, "eth2": ROUTER})
    told = notes(plan(survey, ("eth1", "eth2")))
    assert "vrrp4-1 (macvlan on eth1) stays with the kernel" in told
    assert "eth1: has a loose reverse-path filter" in told
