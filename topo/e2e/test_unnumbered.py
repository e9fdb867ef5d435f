# SPDX-License-Identifier: Apache-2.0
"""Tests BGP unnumbered: IPv4 routes have the next hop 169.254.0.1, for which zebra adds a permanent
neighbour to the kernel.
"""

import json
import os
from typing import Any

import pytest

from sluice_testkit.namespaces import Lab, Namespace
from sluice_testkit.wait import wait_until
from sluice_topo.description import two_sites
from sluice_topo.network import Network, build_in_lab
from sluice_topo.routing_demo import wait_for_legs
from sluice_topo.traffic import UdpFlows

GATEWAY = "169.254.0.1"
# Sessions to make unnumbered, for each router: the peer's IPv4 address, and the interface that
# replaces it. The interface must have no IPv4 address, because bgpd would use that address as the
# next hop.
UNNUMBERED = {
    "r1": {"10.0.1.2": "eth2", "10.0.2.2": "eth3"},
    "t1": {"10.0.1.1": "eth1"},
    "t2": {"10.0.2.1": "eth1"},
}


def unnumbered(text: str, peers: dict[str, str]) -> str:
    """Returns a router's FRR configuration in which the sessions to these peers are unnumbered."""
    lines = []
    # Transit routers have their addresses in FRR's files, P4 routers in sluice.yaml.
    own = {f"ip address {peer[:-1]}2/30" for peer in peers}
    numbers = tuple(f"neighbor 2001:db8:0:{peer.split('.')[2]}::" for peer in peers)
    for line in text.splitlines():
        if line.strip().startswith(numbers) or line.strip() in own:
            continue
        for peer, interface in peers.items():
            if line.strip().startswith(f"neighbor {peer} "):
                line = line.replace(peer, interface).replace(" remote-as", " interface remote-as")
        lines.append(line)
        if line.strip() == "address-family ipv6 unicast":
            lines += [f"  neighbor {interface} activate" for interface in peers.values()]
    return "\n".join((*lines, ""))


def without_ipv4(router: str, config: dict[str, Any]) -> dict[str, Any]:
    """Returns a P4 router's configuration without IPv4 addresses on its unnumbered interfaces."""
    bare = set(UNNUMBERED.get(router, {}).values())
    interfaces = [
        each | {"addresses": [a for a in each["addresses"] if ":" in a or each["name"] not in bare]}
        for each in config["interfaces"]
    ]
    return config | {"interfaces": interfaces}


@pytest.fixture(scope="module")
def network(module_lab: Lab) -> Network:
    texts = {
        router.name: unnumbered(router.frr_config(), UNNUMBERED.get(router.name, {}))
        for router in two_sites().routers
    }
    target = os.environ.get("TARGET")
    network = build_in_lab(two_sites(), module_lab, target, without_ipv4, texts)
    network.start()
    network.wait_for_bgp()
    wait_for_legs(network, 2)
    return network


def entry(place: Namespace, interface: str) -> dict[str, object]:
    """Returns the kernel's neighbour entry for 169.254.0.1 on an interface."""
    found = json.loads(
        place.run("ip", "-json", "neigh", "show", GATEWAY, "dev", interface, "nud", "all").stdout
    )
    return dict(found[0]) if found else {}


def test_a_restarted_controller_leaves_zebras_gateways_alone(network: Network) -> None:
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    router = network.p4_router("r1")
    before = {name: entry(router.namespace, name) for name in ("eth2", "eth3")}
    assert all(found["state"] == ["PERMANENT"] for found in before.values()), before
    shown = {leg["gateway"] for leg in router.controller.show("nexthops")["nexthops"]}
    assert GATEWAY in shown
    with UdpFlows(h1, h2) as traffic:
        traffic.wait_for_more(100)
        router.controller.stop()
        router.controller.start()
        router.controller.wait_synced()
        wait_until(
            lambda: router.controller.show("status")["fpm"]["settled"], 40, "the replay to be over"
        )
        network.wait_for_bgp()
        wait_for_legs(network, 2)
        traffic.wait_for_more(500)
        outcome = traffic.stop()
    assert {name: entry(router.namespace, name) for name in before} == before
    assert outcome.lost == 0, outcome
