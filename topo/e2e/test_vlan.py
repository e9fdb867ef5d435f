# SPDX-License-Identifier: Apache-2.0
"""Tests a router with two VLANs on one port: host stack and routing. The test itself builds the
host's frames.
"""

from collections.abc import Iterator

import pytest

from sluice_testkit.capture import Capture
from sluice_testkit.namespaces import Lab, Namespace, veth
from sluice_testkit.packet import ETHERTYPE_ARP, ICMP
from sluice_testkit.wait import wait_until
from sluice_topo.description import two_sites
from sluice_topo.routers import P4Router

from .frames import arp_request, ethernet, inject
from .packets import echo_request

HOST = "02:aa:00:00:00:01"
OTHER = "02:aa:00:00:00:02"
ROUTER = {100: "02:00:00:00:10:64", 200: "02:00:00:00:10:c8"}


@pytest.fixture(scope="module")
def place(module_lab: Lab) -> Namespace:
    """Returns the namespace of a P4 router with VLANs 100 and 200 on port 1.

    The far end of port 1's link is the interface `host` in the same namespace.
    """
    place = module_lab.namespace("router")
    veth(place, "port1", place, "host")
    place.silence("host")
    description = two_sites().router("r1")
    config = description.sluice_config() | {
        "interfaces": [
            {
                "name": f"vlan{vlan}",
                "port": 1,
                "vlan": vlan,
                "device": "port1",
                "mac": mac,
                "mtu": 1500,
                "addresses": [f"10.{vlan}.0.1/24"],
            }
            for vlan, mac in ROUTER.items()
        ]
    }
    lab = module_lab
    router = P4Router(description, place, lab.directory, lab.supervisor, config=config)
    router.target.start()
    router.controller.start()
    router.controller.wait_synced()
    neighbour = ("10.200.0.2", "lladdr", OTHER, "dev", "vlan200", "nud", "permanent")
    place.run("ip", "neighbor", "replace", *neighbour)
    wait_until(lambda: "10.200.0.2" in str(router.controller.show("neighbors")), 10, "neighbour")
    router.controller.wait_synced()
    return place


@pytest.fixture
def seen(place: Namespace) -> Iterator[Capture]:
    """Captures the frames that the router sends to the host."""
    with Capture(place, "host", lambda frame: not frame.outgoing) as capture:
        yield capture


@pytest.mark.parametrize("vlan", [100, 200])
def test_the_host_stack_answers_in_the_vlan_that_asked(
    place: Namespace, seen: Capture, vlan: int
) -> None:
    request = arp_request(HOST, f"10.{vlan}.0.9", f"10.{vlan}.0.1")
    inject(place, "host", ethernet("ff:ff:ff:ff:ff:ff", HOST, ETHERTYPE_ARP, request, vlan))
    reply = seen.wait_for(lambda frame: frame.ethertype == ETHERTYPE_ARP, what="ARP reply")[0]
    assert reply.vlan == vlan
    assert reply.data[6:12].hex(":") == ROUTER[vlan]

    echo = echo_request(f"10.{vlan}.0.9", f"10.{vlan}.0.1")
    inject(place, "host", ethernet(ROUTER[vlan], HOST, 0x0800, echo, vlan))
    answer = seen.wait_for(lambda frame: frame.icmp_type == 0, what="echo reply")[0]
    assert answer.vlan == vlan


def test_routing_changes_the_tag(place: Namespace, seen: Capture) -> None:
    echo = echo_request("10.100.0.9", "10.200.0.2", ttl=9)
    inject(place, "host", ethernet(ROUTER[100], HOST, 0x0800, echo, 100))
    routed = seen.wait_for(lambda frame: frame.protocol == ICMP, what="the routed packet")[0]
    assert (routed.vlan, routed.ttl, routed.destination) == (200, 8, "10.200.0.2")
    assert routed.data[:6].hex(":") == OTHER
    assert routed.data[6:12].hex(":") == ROUTER[200]


def test_an_unknown_vlan_goes_nowhere(place: Namespace, seen: Capture) -> None:
    echo = echo_request("10.100.0.9", "10.200.0.2")
    for vlan in (None, 300):
        inject(place, "host", ethernet(ROUTER[100], HOST, 0x0800, echo, vlan))
    inject(place, "host", ethernet(ROUTER[100], HOST, 0x0800, echo, 100))
    seen.wait_for(lambda frame: frame.protocol == ICMP, what="the packet of a known VLAN")
    assert seen.count(lambda frame: frame.protocol == ICMP) == 1
