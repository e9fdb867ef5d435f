# SPDX-License-Identifier: Apache-2.0
"""Tests that all packets still pass through the switch alone if forwarding is enabled in the
router's kernel.
"""

import os

import pytest

from sluice_testkit.capture import Capture
from sluice_testkit.namespaces import Lab
from sluice_testkit.packet import ICMP, ICMPV6, UDP
from sluice_topo import probes
from sluice_topo.description import two_sites
from sluice_topo.network import Network, build_in_lab
from sluice_topo.routing_demo import wait_for_legs
from sluice_topo.traffic import PORT, UdpFlows

from .frames import ethernet, inject
from .packets import echo_request


@pytest.fixture(scope="module")
def network(module_lab: Lab) -> Network:
    network = build_in_lab(two_sites(), module_lab, os.environ.get("TARGET"))
    network.start()
    for name in ("r1", "r2"):
        namespace = network.routers[name].namespace
        namespace.sysctl(ipv4__ip_forward=1, ipv6__conf__all__forwarding=1)
    network.wait_for_bgp()
    wait_for_legs(network, 2)
    return network


@pytest.mark.parametrize("version", [4, 6])
def test_every_packet_passes_once(network: Network, version: int) -> None:
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    with Capture(
        h2.namespace, "eth0", lambda frame: frame.protocol == UDP and not frame.outgoing
    ) as capture:
        with UdpFlows(h1, h2, version) as traffic:
            traffic.wait_for_more(500)
            outcome = traffic.stop()
        arrived = capture.count(lambda frame: frame.destination_port == PORT)
    assert outcome.lost == 0
    assert arrived == outcome.sent


@pytest.mark.parametrize("version", [4, 6])
def test_exceptions_are_answered_once(network: Network, version: int) -> None:
    """A packet whose TTL expires gets exactly one error, from the controller and none from the
    kernel.
    """
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    expired = {4: (ICMP, 11), 6: (ICMPV6, 3)}[version]
    with Capture(
        h1.namespace, "eth0", lambda frame: (frame.protocol, frame.icmp_type) == expired
    ) as capture:
        probes.ping(h1.namespace, h2.address(version), count=1, options=("-t", "1"))
        answers = capture.wait_for(lambda frame: True, what="time exceeded")
        probes.ping(h1.namespace, h2.address(version), count=1)
        assert capture.count() == len(answers) == 1


def test_transit_out_of_the_kernel_is_dropped(network: Network) -> None:
    """If the kernel forwards a packet into a TAP, the packet is dropped, because its source is not
    an address of the router.

    The packet reaches the router's kernel through an additional veth.
    """
    router, h2 = network.p4_router("r1"), network.hosts["h2"]
    place = router.namespace
    place.run("ip", "link", "add", "side0", "type", "veth", "peer", "name", "side1")
    for name in ("side0", "side1"):
        place.offloads_off(name)
        place.link_up(name)
    place.add_address("side0", "10.77.0.1/24")
    mac = place.run("cat", "/sys/class/net/side0/address").stdout.strip()
    echo = echo_request("10.77.0.2", h2.address(4))
    frame = ethernet(mac, "02:aa:aa:aa:aa:aa", 0x0800, echo)
    with Capture(h2.namespace, "eth0", lambda seen: seen.source == "10.77.0.2") as capture:
        before = probes.kernel_forwarded(place)
        inject(place, "side1", frame, 10)
        assert probes.ping(place, h2.address(4), count=10).lost == 0
        assert probes.kernel_forwarded(place) > before, "the kernel was not made to forward"
        assert capture.count() == 0
