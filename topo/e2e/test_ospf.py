# SPDX-License-Identifier: Apache-2.0
"""Tests OSPFv2 and OSPFv3 through the switches: multicast hellos, adjacencies, equal-cost
routes.
"""

import os

import pytest

from sluice_testkit.namespaces import Lab
from sluice_testkit.wait import wait_until
from sluice_topo import probes
from sluice_topo.description import RouterKind, two_sites
from sluice_topo.network import Network, build_in_lab
from sluice_topo.routing_demo import wait_for_legs

ROUTER_IDS = {"r1": "10.255.0.1", "r2": "10.255.0.2", "t1": "10.255.1.1", "t2": "10.255.1.2"}
INTERFACE = """interface {name}
 ip ospf area 0
 ip ospf hello-interval 1
 ip ospf dead-interval 3
 ip ospf network point-to-point
 ipv6 ospf6 area 0
 ipv6 ospf6 hello-interval 1
 ipv6 ospf6 dead-interval 3
 ipv6 ospf6 network point-to-point
"""


def configurations() -> dict[str, str]:
    """Returns the FRR configurations of the two-site routers, with OSPF instead of BGP."""
    texts = {}
    for router in two_sites().routers:
        kept = router.frr_config().partition("router bgp")[0]
        names = ["eth1", "eth2", "eth3"] if router.kind is RouterKind.P4 else ["eth1", "eth2"]
        interfaces = "".join(INTERFACE.format(name=name) for name in names)
        identity = ROUTER_IDS[router.name]
        texts[router.name] = (
            f"{kept}\n{interfaces}"
            f"router ospf\n ospf router-id {identity}\n timers throttle spf 0 50 200\n"
            f"router ospf6\n ospf6 router-id {identity}\n timers throttle spf 0 50 200\n"
        )
    return texts


@pytest.fixture(scope="module")
def network(module_lab: Lab) -> Network:
    network = build_in_lab(
        two_sites(), module_lab, os.environ.get("TARGET"), frr_configs=configurations()
    )
    network.start()
    return network


def full_neighbours(network: Network, router: str, daemon: str) -> int:
    """Returns the number of adjacencies in state Full."""
    command = {"ospf": "show ip ospf neighbor", "ospf6": "show ipv6 ospf6 neighbor"}[daemon]
    return network.routers[router].frr.vtysh(command).count("Full")


@pytest.mark.parametrize("daemon", ["ospf", "ospf6"])
@pytest.mark.parametrize("router", ["r1", "r2"])
def test_adjacencies_with_both_transit_routers(network: Network, router: str, daemon: str) -> None:
    wait_until(
        lambda: full_neighbours(network, router, daemon) == 2,
        60,
        f"two {daemon} adjacencies of {router}",
        interval=0.2,
    )


@pytest.mark.parametrize("version", [4, 6])
def test_hosts_reach_each_other_over_equal_cost_routes(network: Network, version: int) -> None:
    wait_for_legs(network, 2)
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    seen = probes.ping(h1.namespace, h2.address(version), count=10)
    assert seen.lost == 0, seen.output
