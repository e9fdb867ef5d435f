# SPDX-License-Identifier: Apache-2.0
"""Tests restarts of controller and switch. After a controller's restart, the switch's entries keep
forwarding until the new controller has corrected them.
"""

import json
import os
from collections.abc import Iterator

import pytest

from sluice_testkit.namespaces import Lab, Namespace
from sluice_testkit.wait import wait_until
from sluice_topo import probes
from sluice_topo.description import two_sites
from sluice_topo.network import Network, build_in_lab
from sluice_topo.routing_demo import wait_for_legs
from sluice_topo.traffic import UdpFlows


@pytest.fixture(scope="module")
def started(module_lab: Lab) -> Network:
    network = build_in_lab(two_sites(), module_lab, os.environ.get("TARGET"))
    network.start()
    return network


@pytest.fixture
def network(started: Network) -> Iterator[Network]:
    started.wait_for_bgp()
    wait_for_legs(started, 2)
    yield started
    started.wait_for_bgp()
    wait_for_legs(started, 2)


def states_of_neighbours(place: Namespace, interface: str) -> dict[str, list[str]]:
    """Returns the states that the kernel reports for an interface's neighbours, by address."""
    shown = place.run("ip", "-json", "neigh", "show", "dev", interface).stdout
    return {entry["dst"]: entry["state"] for entry in json.loads(shown)}


def all_reachable(place: Namespace, addresses: tuple[str, ...]) -> bool:
    states = states_of_neighbours(place, "eth2")
    return all("REACHABLE" in states.get(address, []) for address in addresses)


def test_a_killed_controller_loses_no_packet_that_the_switch_can_forward(network: Network) -> None:
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    controller = network.p4_router("r1").controller
    with UdpFlows(h1, h2) as traffic:
        traffic.wait_for_more(100)
        controller.kill()
        traffic.wait_for_more(500)
        controller.start()
        controller.wait_synced()
        traffic.wait_for_more(500)
        network.wait_for_bgp()
        wait_for_legs(network, 2)
        traffic.wait_for_more(500)
        outcome = traffic.stop()
    assert outcome.lost == 0, outcome


def test_a_restarted_controller_leaves_permanent_neighbours_alone(network: Network) -> None:
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    router = network.p4_router("r1")
    place = router.namespace
    t1 = network.routers["t1"].namespace
    mac = json.loads(t1.run("ip", "-json", "link", "show", "dev", "eth1").stdout)[0]["address"]
    addresses = ("10.0.1.2", "2001:db8:0:1::2")
    for address in addresses:
        command = ("ip", "neigh", "replace", address, "lladdr", mac, "dev", "eth2")
        place.run(*command, "nud", "permanent")
    with UdpFlows(h1, h2) as traffic:
        traffic.wait_for_more(100)
        router.controller.stop()
        router.controller.start()
        router.controller.wait_synced()
        network.wait_for_bgp()
        wait_for_legs(network, 2)
        traffic.wait_for_more(500)
        outcome = traffic.stop()
    kept = states_of_neighbours(place, "eth2")
    for address in addresses:
        place.run("ip", "neigh", "del", address, "dev", "eth2")
    wait_until(lambda: all_reachable(place, addresses), 20, "both neighbours to be resolved again")
    assert [kept[address] for address in addresses] == [["PERMANENT"], ["PERMANENT"]]
    assert outcome.lost == 0, outcome


def test_a_restarted_switch_is_programmed_again(network: Network) -> None:
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    router = network.p4_router("r1")
    router.target.stop()
    assert probes.ping(h1.namespace, h2.address(4), count=1).received == 0
    router.target.start()
    router.controller.wait_synced()
    network.wait_for_bgp()
    wait_for_legs(network, 2)
    for version in (4, 6):
        seen = probes.ping(h1.namespace, h2.address(version), count=20)
        assert seen.lost == 0, seen.output


def test_frr_restarted_under_the_controller(network: Network) -> None:
    router = network.p4_router("r1")
    router.frr.stop()
    router.frr.start()
    network.wait_for_bgp()
    wait_for_legs(network, 2)
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    assert probes.ping(h1.namespace, h2.address(4), count=10).lost == 0
