# SPDX-License-Identifier: Apache-2.0
"""Tests the reading of a host's state for `sluice up`, with the real kernel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_namespace import ip, network_namespace, set_sysctl
from sluice.model import InterfaceAddress, Prefix, parse_mac
from sluice.sources import host_survey
from sluice.sources.ike_ports import Netfilter
from sluice.sources.steering import Steering
from sluice.survey_model import ForwardingSettings, HostLink, HostSurvey
from sluice.wire import tc

V1, V2 = 10, 11


@pytest.fixture
def namespace() -> Iterator[None]:
    with network_namespace():
        ip(f"link add v1 index {V1} type veth peer name v2 index {V2}")
        ip("link set v1 address 02:00:00:00:00:01 mtu 1400")
        ip("link set v1 up")
        ip("link set v2 up")
        yield


def link(survey: HostSurvey, name: str) -> HostLink:
    (found,) = (one for one in survey.links if one.name == name)
    return found


def test_links(namespace: None) -> None:
    ip("link add virtual link v1 type macvlan")
    ip("link add bridge0 type bridge")
    ip("link set v2 master bridge0")
    survey = host_survey.survey()
    mac = parse_mac("02:00:00:00:00:01")
    assert link(survey, "v1") == HostLink(V1, "v1", "veth", mac, 1400, True, True)
    assert link(survey, "v2").master == link(survey, "bridge0").index
    assert (link(survey, "virtual").kind, link(survey, "virtual").lower) == ("macvlan", V1)
    assert link(survey, "bridge0").kind == "bridge"
    assert not link(survey, "lo").is_ethernet


@pytest.mark.parametrize(("mode", "found"), [("passthru", True), ("bridge", False)])
def test_devices_that_take_the_frames_of_a_card(namespace: None, mode: str, found: bool) -> None:
    ip(f"link add virtual link v1 type macvlan mode {mode}")
    assert link(host_survey.survey(), "virtual").takes_frames == found


def test_addresses_and_local_prefixes(namespace: None) -> None:
    ip("addr add 10.0.1.1/24 dev v1")
    ip("addr add 2001:db8:1::1/64 dev v1 nodad")
    survey = host_survey.survey()
    wanted = {InterfaceAddress.parse(text) for text in ("10.0.1.1/24", "2001:db8:1::1/64")}
    assert wanted <= set(survey.addresses[V1])
    for text in ("10.0.1.1/32", "10.0.1.255/32", "127.0.0.0/8", "2001:db8:1::1/128", "::1/128"):
        assert Prefix.parse(text) in survey.local
    assert Prefix.parse("10.0.1.0/24") not in survey.local


def test_plain_host_has_nothing_to_refuse(namespace: None) -> None:
    survey = host_survey.survey()
    assert (survey.rules, survey.firewall, survey.policies) == ((), (), ())
    assert survey.filtered == frozenset()


def test_settings(namespace: None) -> None:
    set_sysctl("ipv4/ip_forward", "0")
    set_sysctl("ipv4/conf/v1/forwarding", "1")
    set_sysctl("ipv4/conf/v1/rp_filter", "2")
    set_sysctl("ipv6/conf/all/forwarding", "1")
    found = host_survey.survey().forwarding
    assert found["v1"] == ForwardingSettings(ipv4=True, ipv6=True, reverse_path=2)
    assert found["v2"] == ForwardingSettings(ipv4=False, ipv6=True, reverse_path=0)
    set_sysctl("ipv4/conf/all/rp_filter", "1")
    assert host_survey.survey().forwarding["v2"].reverse_path == 1


def test_ipv6_is_off_on_an_interface(namespace: None) -> None:
    set_sysctl("ipv6/conf/all/forwarding", "1")
    set_sysctl("ipv6/conf/v1/disable_ipv6", "1")
    ip("link set v2 mtu 1000")  # too small for IPv6: the kernel removes its settings
    found = host_survey.survey().forwarding
    assert not found["v1"].ipv6
    assert not found["v2"].ipv6


def test_programs_on_a_vlan_device_are_found(namespace: None) -> None:
    """The VLAN device is made by changing a decoded link, because some kernels have no VLAN
    devices."""
    with closing(Steering()) as steering:
        steering._hook(V1, tc.Hook.EGRESS, steering._silent)
        assert host_survey.survey().filtered == frozenset()
        links = tuple(
            replace(one, kind="vlan") if one.index == V1 else one
            for one in host_survey.read_links()
        )
        assert host_survey._filtered(links, ()) == {V1}


def test_silent_changes(namespace: None) -> None:
    def state() -> host_survey.SilentState:
        return host_survey.silent_state([("v1", V1)])

    first = state()
    assert state() == first
    set_sysctl("ipv6/conf/all/forwarding", "1")
    second = state()
    assert second.forwarding != first.forwarding
    set_sysctl("ipv6/conf/v1/disable_ipv6", "1")
    assert state().forwarding == first.forwarding
    with closing(Steering()) as steering:
        steering._hook(V1, tc.Hook.INGRESS, steering._silent)
        assert state().programs != first.programs
    assert state().programs == first.programs


def test_silent_state_without_the_interface(namespace: None) -> None:
    """The survey must succeed while a VLAN device is deleted."""
    off = ForwardingSettings(ipv4=False, ipv6=False, reverse_path=0)
    assert host_survey.silent_state([("v9", 99)]).forwarding == (off,)


def test_tables_of_iptables_legacy(
    namespace: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's files that name these tables are empty here, so the test replaces them with
    files that name tables."""
    files = tmp_path / "ip_tables_names", tmp_path / "ip6_tables_names"
    monkeypatch.setattr(host_survey, "LEGACY", files)
    assert host_survey.silent_state([]).legacy == ()
    files[1].write_text("nat\nfilter\n")
    (text,) = host_survey.silent_state([]).legacy
    assert text.startswith("ip6tables-legacy tables filter and nat (")
    assert host_survey.survey().firewall == (text,)


def test_rules(namespace: None) -> None:
    ip("rule add from 10.9.0.0/16 table 77 priority 1000")
    ip("-6 rule add iif v1 table 77 priority 1001")
    assert host_survey.survey().rules == ("ip rule 1000", "ip -6 rule 1001")


def test_policies(namespace: None) -> None:
    ip("xfrm policy add src 10.1.0.0/16 dst 10.2.0.0/16 dir out action allow")
    assert host_survey.survey().policies == ()
    ip("xfrm policy add src 10.1.0.0/16 dst 10.2.0.0/16 dir fwd action block")
    assert host_survey.survey().policies == (
        "ip xfrm policy dir fwd from 10.1.0.0/16 to 10.2.0.0/16",
    )


def test_default_of_the_policies(namespace: None) -> None:
    ip("xfrm policy setdefault fwd block")
    assert host_survey.survey().policies == ("ip xfrm policy default of direction fwd is block",)


def test_firewall(namespace: None) -> None:
    netfilter = Netfilter()
    netfilter.run("add table ip f")
    netfilter.run("add chain ip f c { type filter hook forward priority 0; }")
    assert host_survey.survey().firewall == ()
    netfilter.run("add rule ip f c drop")
    assert host_survey.survey().firewall == ("nftables chain ip f c (hook forward): has rules",)
    netfilter.close()


def test_neighbours_are_counted(namespace: None) -> None:
    before = host_survey.survey().neighbor_count
    ip("neigh add 10.0.1.9 lladdr 02:00:00:00:00:09 dev v1")
    assert host_survey.survey().neighbor_count == before + 1
