# SPDX-License-Identifier: Apache-2.0
"""Tests links with different MTUs: the P4 router fragments IPv4, and answers IPv6 with Packet Too
Big.

r1 and r2 have an MTU of 1400 bytes towards the transit routers, and of 1500 bytes towards the
hosts.
"""

import os
from typing import Any

import pytest

from sluice_testkit.capture import Capture
from sluice_testkit.namespaces import Lab
from sluice_testkit.packet import ICMP
from sluice_topo import probes
from sluice_topo.description import two_sites
from sluice_topo.network import Network, build_in_lab
from sluice_topo.routing_demo import wait_for_legs

MTU = 1400


def smaller_towards_transit(_: str, config: dict[str, Any]) -> dict[str, Any]:
    for interface in config["interfaces"]:
        if interface["name"] != "eth1":
            interface["mtu"] = MTU
    return config


@pytest.fixture(scope="module")
def network(module_lab: Lab) -> Network:
    target = os.environ.get("TARGET")
    network = build_in_lab(two_sites(), module_lab, target, edit=smaller_towards_transit)
    network.start()
    network.wait_for_bgp()
    wait_for_legs(network, 2)
    return network


def test_the_router_fragments_ipv4(network: Network) -> None:
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    with Capture(
        h2.namespace, "eth0", lambda frame: frame.protocol == ICMP and not frame.outgoing
    ) as capture:
        seen = probes.ping(h1.namespace, h2.address(4), size=1472, options=("-M", "dont"))
        fragments = capture.frames(lambda frame: frame.is_fragment)
    assert seen.lost == 0, seen.output
    assert len(fragments) == 2 * seen.sent
    assert max(len(frame.data) for frame in fragments) <= 14 + MTU


def test_a_datagram_of_three_fragments_is_put_together(network: Network) -> None:
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    seen = probes.ping(h1.namespace, h2.address(4), size=4000, options=("-M", "dont"))
    assert seen.lost == 0, seen.output


def test_do_not_fragment_is_honoured_and_told(network: Network) -> None:
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    seen = probes.ping(h1.namespace, h2.address(4), size=1472, count=1, options=("-M", "do"))
    assert seen.received == 0
    assert f"mtu = {MTU}" in seen.output or f"mtu={MTU}" in seen.output, seen.output


def test_ipv6_learns_the_path_mtu(network: Network) -> None:
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    first = probes.ping(h1.namespace, h2.address(6), size=1452, count=1, options=("-M", "do"))
    assert f"mtu={MTU}" in first.output.replace(" ", ""), first.output
    # The second request is fragmented by h1. Its answer is too big for r2, which sends an error to
    # h2.
    probes.ping(h1.namespace, h2.address(6), size=1452, count=1)
    later = probes.ping(h1.namespace, h2.address(6), size=1452)
    assert later.lost == 0, later.output
    assert f"mtu {MTU}" in h1.namespace.run("ip", "-6", "route", "get", h2.address(6)).stdout


@pytest.mark.parametrize("version", [4, 6])
def test_a_packet_of_exactly_the_mtu_passes_whole(network: Network, version: int) -> None:
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    size = MTU - {4: 28, 6: 48}[version]
    options = ("-M", "do") if version == 4 else ()
    seen = probes.ping(h1.namespace, h2.address(version), size=size, options=options)
    assert seen.lost == 0, seen.output
