# SPDX-License-Identifier: Apache-2.0
"""Tests BGP through the switches, and its effects on hosts. The tests run in this order."""

import json

import pytest

from sluice_testkit.capture import Capture
from sluice_testkit.packet import ETHERTYPE_ARP, ICMP, ICMPV6
from sluice_testkit.target import target_name
from sluice_testkit.wait import wait_until
from sluice_topo import probes
from sluice_topo.demo_printer import DemoPrinter
from sluice_topo.network import Network
from sluice_topo.routing_demo import (
    a_link_fails_and_comes_back,
    both_paths_carry_flows,
    large_packets_arrive,
    the_kernel_stood_by,
    traceroute_works,
)
from sluice_topo.traffic import FIRST_SOURCE_PORT, PORT, PathMonitor, UdpFlows

VERSIONS = pytest.mark.parametrize("version", [4, 6])


@VERSIONS
def test_the_first_ping_waits_for_its_neighbour_and_is_not_lost(
    started: Network, version: int
) -> None:
    h1, h2 = started.hosts["h1"], started.hosts["h2"]
    seen = probes.ping(h1.namespace, h2.address(version), count=1)
    assert seen.received == 1, seen.output


@VERSIONS
def test_ping_from_host_to_host(network: Network, version: int) -> None:
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    for one, two in ((h1, h2), (h2, h1)):
        seen = probes.ping(one.namespace, two.address(version), count=20)
        assert seen.lost == 0, seen.output
        assert "ttl=61" in seen.output  # 64 minus three routers


@VERSIONS
def test_ping_from_a_router_to_the_far_host(network: Network, version: int) -> None:
    address = network.hosts["h2"].address(version)
    seen = probes.ping(network.routers["r1"].namespace, address, count=5)
    assert seen.lost == 0, seen.output


@VERSIONS
def test_ping_to_every_address_of_a_router(network: Network, version: int) -> None:
    config = network.p4_router("r2").controller.config
    for interface in config["interfaces"]:
        for address in interface["addresses"]:
            if (":" in address) == (version == 6):
                seen = probes.ping(network.hosts["h1"].namespace, address.partition("/")[0])
                assert seen.lost == 0, seen.output


def test_traceroute_names_every_router(network: Network) -> None:
    traceroute_works(network, DemoPrinter())


def test_both_paths_carry_flows(network: Network) -> None:
    both_paths_carry_flows(network, DemoPrinter())


@pytest.mark.skipif(target_name() != "sluice-switch", reason="other targets have no dry run")
def test_show_route_names_the_path_that_a_flow_takes(network: Network) -> None:
    """`sluice show route` names the path of a flow.

    IPv4 only: the kernel chooses IPv6 flow labels.
    """
    h1, h2, r1 = network.hosts["h1"], network.hosts["h2"], network.p4_router("r1").controller
    flows = 12
    with PathMonitor(network) as monitor, UdpFlows(h1, h2, flows=flows) as traffic:
        traffic.wait_for_more(5 * flows)
        traffic.stop()
        seen = monitor.flows()
    transit = {"eth2": "t1", "eth3": "t2"}
    said: dict[str, set[int | None]] = {"t1": set(), "t2": set()}
    for number in range(flows):
        source = FIRST_SOURCE_PORT + number
        words = ["show", "route", h2.address(4), "--source", h1.address(4), "--json"]
        words += ["--protocol", "udp", "--ports", f"{source}:{PORT}", "--socket", str(r1.socket)]
        (taken,) = [leg for leg in json.loads(r1.command(*words))["legs"] if leg["taken"]]
        said[transit[taken["interface"]]].add(source)
    assert said == seen
    assert all(said.values())


def test_large_datagrams_arrive(network: Network) -> None:
    large_packets_arrive(network, DemoPrinter())


def test_no_route_is_told_to_the_sender(network: Network) -> None:
    h1 = network.hosts["h1"].namespace
    assert "Net Unreachable" in probes.ping(h1, "192.0.2.1", count=1).output
    assert "No route" in probes.ping(h1, "2001:db8:ffff::1", count=1).output


@VERSIONS
def test_a_host_that_is_not_there_is_told_to_the_sender(network: Network, version: int) -> None:
    h1 = network.hosts["h1"].namespace
    address = {4: "10.2.0.99", 6: "2001:db8:2::99"}[version]
    said = {4: "Destination Host Unreachable", 6: "Address unreachable"}[version]
    options = ("-w", "10")
    seen = probes.ping(h1, address, count=5, interval=0.5, options=options)
    assert seen.received == 0
    assert said in seen.output, seen.output


def test_a_router_answers_arp_by_its_host_stack_only(network: Network) -> None:
    h1 = network.hosts["h1"].namespace
    with Capture(h1, "eth0", lambda frame: frame.ethertype == ETHERTYPE_ARP) as capture:
        h1.run("ip", "neighbor", "flush", "dev", "eth0")
        assert probes.ping(h1, "10.1.0.1", count=1).received == 1
        replies = capture.wait_for(lambda f: not f.outgoing and f.data[20:22] == b"\x00\x02")
    assert len(replies) == 1
    assert replies[0].data[6:12] == bytes.fromhex("020000000101")


def test_ttl_counts_once_for_each_router(network: Network) -> None:
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    protocols = (ICMP, ICMPV6)
    with Capture(
        h2.namespace, "eth0", lambda f: f.protocol in protocols and not f.outgoing
    ) as seen:
        for version in (4, 6):
            probes.ping(h1.namespace, h2.address(version), count=1, options=("-t", "10"))
        requests = seen.wait_for(lambda frame: frame.icmp_type in (8, 128), count=2)
    assert {frame.ttl for frame in requests} == {7}


def test_link_failure_and_recovery(network: Network) -> None:
    a_link_fails_and_comes_back(network, DemoPrinter())


def test_neighbours_are_learned_and_shown(network: Network) -> None:
    controller = network.p4_router("r2").controller
    h2 = network.hosts["h2"]
    probes.ping(h2.namespace, "10.2.0.1", count=1)
    wait_until(
        lambda: "10.2.0.2" in str(controller.show("neighbors")), 10, "h2 among r2's neighbours"
    )


@pytest.mark.parametrize(
    "what", ["interfaces", "routes", "nexthops", "neighbors", "punts", "counters"]
)
def test_show_for_people_and_for_programs(network: Network, what: str) -> None:
    controller = network.p4_router("r1").controller
    assert controller.show(what)
    text = controller.command("show", what, "--socket", str(controller.socket))
    assert len(text.splitlines()) > 2


def test_the_kernels_of_the_p4_routers_forwarded_nothing(network: Network) -> None:
    the_kernel_stood_by(network, DemoPrinter())
