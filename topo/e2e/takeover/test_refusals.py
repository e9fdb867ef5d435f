# SPDX-License-Identifier: Apache-2.0
"""Tests the hosts that `sluice up` refuses by name.

The kernel of such a host handles forwarded packets in a way that the switch does not support. If a
host is changed in this way during a takeover, the takeover ends.
"""

import json
from collections.abc import Iterator

import pytest

from sluice_testkit.namespaces import Lab
from sluice_testkit.nftables import nft
from sluice_testkit.wait import wait_until
from sluice_topo import probes
from sluice_topo.kernel_router import KernelRouter

POLICY = ("src", "10.0.1.0/24", "dst", "10.0.2.0/24", "dir", "fwd")


@pytest.fixture(scope="module")
def kernel_router(module_lab: Lab) -> Iterator[KernelRouter]:
    """Yields a router that these tests never take over."""
    made = KernelRouter(module_lab, hosts=2)
    yield made
    made.close()


def refusal(router: KernelRouter, *interfaces: str) -> str:
    """Returns why `sluice up` refuses. Also checks that a dry run gives the same reasons, and that
    nothing has changed.
    """
    links = router.namespace.run("ip", "-br", "link").stdout
    dry = router.command("up", "--dry-run", *(interfaces or ("eth1", "eth2")), check=False)
    done = router.command("up", *(interfaces or ("eth1", "eth2")), check=False)
    assert (dry.returncode, done.returncode) == (1, 1)
    assert dry.stderr == done.stderr
    assert router.namespace.run("ip", "-br", "link").stdout == links
    assert "clsact" not in router.namespace.run("tc", "qdisc", "show").stdout
    return done.stderr


def test_ipsec_policy(kernel_router: KernelRouter) -> None:
    """The switch would forward packets in clear that the policy protects."""
    place = kernel_router.namespace
    template = ("tmpl", "src", "192.0.2.1", "dst", "192.0.2.2", "proto", "esp", "mode", "tunnel")
    place.run("ip", "xfrm", "policy", "add", *POLICY, *template)
    try:
        reason = refusal(kernel_router)
    finally:
        place.run("ip", "xfrm", "policy", "delete", *POLICY)
    assert "ip xfrm policy dir fwd from 10.0.1.0/24 to 10.0.2.0/24" in reason
    assert "in clear" in reason


def test_plain_bypass_is_no_obstacle(kernel_router: KernelRouter) -> None:
    place = kernel_router.namespace
    place.run("ip", "xfrm", "policy", "add", *POLICY, "action", "allow")
    try:
        kernel_router.command("up", "--dry-run", "eth1", "eth2")
    finally:
        place.run("ip", "xfrm", "policy", "delete", *POLICY)


def test_rule_of_policy_routing(kernel_router: KernelRouter) -> None:
    for version in ("-4", "-6"):
        kernel_router.namespace.run("ip", version, "rule", "add", "iif", "eth1", "table", "100")
    try:
        reason = refusal(kernel_router)
    finally:
        for version in ("-4", "-6"):
            kernel_router.namespace.run("ip", version, "rule", "delete", "iif", "eth1")
    assert "ip rule 32765: the switch would not apply this rule" in reason
    assert "ip -6 rule 32765: " in reason


def test_firewall(kernel_router: KernelRouter) -> None:
    nft(
        kernel_router.namespace,
        "add table inet filter\n"
        "add chain inet filter forward { type filter hook forward priority 0; }\n"
        "add rule inet filter forward ip saddr 10.0.1.66 drop\n"
        "add chain inet filter input { type filter hook input priority 0; }\n"
        "add rule inet filter input tcp dport 23 drop\n",
    )
    try:
        reason = refusal(kernel_router)
    finally:
        nft(kernel_router.namespace, "delete table inet filter")
    assert "nftables chain inet filter forward (hook forward): has rules" in reason
    assert "hook input" not in reason


def test_strict_reverse_path_filter(kernel_router: KernelRouter) -> None:
    kernel_router.namespace.sysctl(ipv4__conf__eth1__rp_filter=1)
    try:
        reason = refusal(kernel_router)
    finally:
        kernel_router.namespace.sysctl(ipv4__conf__eth1__rp_filter=0)
    assert "eth1: has a strict reverse-path filter" in reason


def test_host_that_does_not_forward(kernel_router: KernelRouter) -> None:
    kernel_router.namespace.sysctl(ipv4__ip_forward=0, ipv6__conf__all__forwarding=0)
    try:
        reason = refusal(kernel_router)
    finally:
        kernel_router.namespace.sysctl(ipv4__ip_forward=1, ipv6__conf__all__forwarding=1)
    assert "this host is not a router" in reason


def test_interfaces_that_are_no_cards(kernel_router: KernelRouter) -> None:
    place = kernel_router.namespace
    place.run("ip", "link", "add", "virtual", "link", "eth1", "type", "macvlan")
    try:
        reason = refusal(kernel_router, "eth1", "virtual", "lo", "eth9", "eth1")
    finally:
        place.run("ip", "link", "delete", "virtual")
    assert "eth1: given twice" in reason
    assert "virtual: is not a network card (macvlan)" in reason
    assert "lo: is not a network card" in reason
    assert "eth9: there is no such interface" in reason


def test_device_that_gets_the_frames_of_a_card(kernel_router: KernelRouter) -> None:
    place = kernel_router.namespace
    place.run("ip", "link", "add", "pass", "link", "eth1", "type", "macvlan", "mode", "passthru")
    try:
        reason = refusal(kernel_router)
    finally:
        place.run("ip", "link", "delete", "pass")
    assert "pass: gets frames to the MAC address of eth1 (macvlan)" in reason


def test_routes_outside_of_their_table(kernel_router: KernelRouter) -> None:
    place = kernel_router.namespace
    routes = (
        ("blackhole", "198.51.100.0/24", "table", "local"),
        ("198.51.100.0/24", "dev", "eth2", "table", "default"),
        ("local", "198.51.100.0/24", "dev", "lo", "table", "main"),
    )
    for one in routes:
        place.run("ip", "route", "add", *one)
    try:
        reason = refusal(kernel_router)
    finally:
        for one in routes:
            place.run("ip", "route", "delete", *one)
    assert "routes of table local that are not for this host: the switch cannot apply" in reason
    assert "routes of table default: the switch cannot apply" in reason
    assert "local, broadcast and anycast routes of table main: the switch cannot apply" in reason


def test_filters_of_another_program(kernel_router: KernelRouter) -> None:
    place = kernel_router.namespace
    place.run("tc", "qdisc", "add", "dev", "eth1", "clsact")
    try:
        done = kernel_router.command("up", "eth1", check=False)
    finally:
        place.run("tc", "qdisc", "delete", "dev", "eth1", "clsact")
    assert "eth1: has an ingress or clsact qdisc" in done.stderr


@pytest.mark.parametrize("change", ["policy", "rule", "firewall"])
def test_host_is_given_back_when_it_gets_a_policy(router: KernelRouter, change: str) -> None:
    """The kernel forwards again, so that it enforces the new policy, rule or firewall."""
    h1, h2 = router.hosts[:2]
    place = router.namespace
    router.up()
    if change == "policy":
        place.run("ip", "xfrm", "policy", "add", *POLICY, "action", "block")
    elif change == "rule":
        place.run("ip", "rule", "add", "iif", "eth1", "to", h2.address(4), "blackhole")
    else:
        chain = "add table ip f\nadd chain ip f c { type filter hook forward priority 0; }\n"
        nft(place, f"{chain}add rule ip f c ip daddr {h2.address(4)} drop\n")
    router.wait_for_end()
    assert probes.ping(h1.namespace, h2.address(4), count=3).received == 0
    assert probes.ping(h1.namespace, h2.address(6), count=3).lost == 0
    reason = {"policy": "ip xfrm policy", "rule": "ip rule 32765", "firewall": "chain ip f c"}
    assert reason[change] in router.log


def test_interface_without_ipv6(router: KernelRouter) -> None:
    """IPv6 packets that arrive on an interface with disable_ipv6 are dropped, as by the kernel."""
    h1, h2 = router.hosts[:2]
    router.up()
    router.namespace.sysctl(ipv6__conf__eth1__disable_ipv6=1)

    def arrives() -> bool:
        before = router.switch_packets()
        probes.ping(h1.namespace, h2.address(6), count=1)
        return router.switch_packets() > before

    wait_until(lambda: not arrives(), 10, "the switch to get no IPv6 packets of eth1")
    assert probes.ping(h1.namespace, h2.address(4), count=3).lost == 0


def test_filter_that_appears_later(router: KernelRouter) -> None:
    router.up()
    router.namespace.run("tc", "qdisc", "add", "dev", "eth1", "clsact")
    router.wait_for_end()
    assert "eth1: has an ingress or clsact qdisc" in router.log


def test_forwarding_switched_off(router: KernelRouter) -> None:
    """The switch forwards an IP version only while forwarding is enabled for it in the kernel."""
    h1, h2 = router.hosts[:2]
    router.up()

    def in_switch(version: int, received: int) -> int:
        """Sends three pings, of which `received` must be answered. Returns the number of packets
        that the switch got.
        """
        before = router.switch_packets()
        assert probes.ping(h1.namespace, h2.address(version), count=3).received == received
        return router.switch_packets() - before

    router.namespace.sysctl(ipv6__conf__all__forwarding=0)
    wait_until(
        lambda: probes.ping(h1.namespace, h2.address(6), count=1).received == 0,
        10,
        "the switch not to forward IPv6",
    )
    assert in_switch(6, 0) == 0
    assert in_switch(4, 3) == 6
    router.namespace.sysctl(ipv6__conf__all__forwarding=1)
    wait_until(lambda: in_switch(6, 3) == 6, 10, "the switch to forward IPv6")


def test_dry_run_says_what_would_be_done(kernel_router: KernelRouter) -> None:
    place = kernel_router.namespace
    place.run("ip", "route", "add", "198.51.100.0/24", "dev", "lo")
    place.sysctl(ipv6__conf__all__forwarding=0)
    try:
        told = kernel_router.command("up", "--dry-run", "eth1", "eth2").stdout
    finally:
        place.run("ip", "route", "delete", "198.51.100.0/24")
        place.sysctl(ipv6__conf__all__forwarding=1)
    links = json.loads(place.run("ip", "-j", "link", "show", "dev", "eth2").stdout)
    assert f"port 2: eth2\n  eth2, {links[0]['address']}, MTU 1500: 10.0.2.1/24, " in told
    assert "; forwards IPv4\n" in told
    assert "the kernel goes on forwarding by these routes: 198.51.100.0/24" in told
    assert "note: eth1: the kernel does not forward IPv6, so neither does the switch" in told
    assert kernel_router.command("down", check=False).returncode == 1  # nothing was started


def test_harmless_policy_does_not_end_the_takeover(router: KernelRouter) -> None:
    """After a change of the IPsec policies, the supervisor checks the host again. If the host is
    still permitted, the switch forwards again.
    """
    h1, h2 = router.hosts[:2]
    router.up()
    router.namespace.run("ip", "xfrm", "policy", "add", *POLICY, "action", "allow")

    def all_in_switch() -> bool:
        before = router.switch_packets()
        return (
            probes.ping(h1.namespace, h2.address(4), count=5).lost == 0
            and router.switch_packets() - before == 10
        )

    wait_until(all_in_switch, 10, "the switch to forward again")
