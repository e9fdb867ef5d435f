# SPDX-License-Identifier: Apache-2.0
"""Tests BFD for OSPFv2, OSPFv3 and IS-IS: flows must leave a gateway that is silent although its
link is up.

Without BFD, the protocols would notice this only after 40 s (OSPF) or 30 s (IS-IS).
test_link_protocols tests BFD with BGP.
"""

import os
from functools import partial

import pytest

from sluice_testkit.namespaces import Lab
from sluice_testkit.wait import wait_until
from sluice_topo.description import RouterKind, two_sites
from sluice_topo.network import Network, build_in_lab
from sluice_topo.routing_demo import fib_legs, wait_for_legs

from .faults import silent

SITES = ("10.2.0.0/24", "2001:db8:2::/64")
NUMBERS = {"r1": 1, "r2": 2, "t1": 11, "t2": 12}
OSPF = (
    "interface {name}\n ip ospf area 0\n ip ospf network point-to-point\n ip ospf bfd\n"
    " ip ospf hello-interval 1\n ip ospf dead-interval 40\n"
    " ipv6 ospf6 area 0\n ipv6 ospf6 network point-to-point\n ipv6 ospf6 bfd\n"
    " ipv6 ospf6 hello-interval 1\n ipv6 ospf6 dead-interval 40\nexit\n"
)
OSPF_ROUTER = (
    "router ospf\n ospf router-id 10.255.0.{number}\nexit\n"
    "router ospf6\n ospf6 router-id 10.255.0.{number}\nexit\n"
)
ISIS = (
    "interface {name}\n ip router isis 1\n ipv6 router isis 1\n isis network point-to-point\n"
    " isis hello-interval 1\n isis hello-multiplier 30\n isis bfd\nexit\n"
)
ISIS_ROUTER = "router isis 1\n net 49.0001.0000.0000.{number:04}.00\n is-type level-2-only\nexit\n"
PROTOCOLS = {"ospf": (OSPF, OSPF_ROUTER), "isis": (ISIS, ISIS_ROUTER)}
SESSIONS = {"ospf": 4, "isis": 2}
"""Number of r1's BFD sessions: one per transit router over IPv4; OSPFv3 adds one over IPv6."""


def configurations(protocol: str) -> dict[str, str]:
    """Returns the FRR configurations of the two-site routers, with this protocol and BFD (300 ms x
    3) instead of BGP.
    """
    interface, instance = PROTOCOLS[protocol]
    texts = {}
    for router in two_sites().routers:
        kept = router.frr_config().partition("router bgp")[0]
        names = ["eth1", "eth2", "eth3"] if router.kind is RouterKind.P4 else ["eth1", "eth2"]
        interfaces = "".join(interface.format(name=name) for name in names)
        number = NUMBERS[router.name]
        texts[router.name] = f"{kept}\nbfd\nexit\n{interfaces}{instance.format(number=number)}"
    return texts


@pytest.fixture(params=PROTOCOLS)
def network(request: pytest.FixtureRequest, lab: Lab) -> Network:
    network = build_in_lab(
        *(two_sites(), lab, os.environ.get("TARGET")),
        frr_configs=configurations(request.param),
    )
    network.start()
    frr = network.routers["r1"].frr

    def are_up() -> bool:
        peers = frr.json("show bfd peers json")
        states = [peer["status"] for peer in peers]
        return states == ["up"] * SESSIONS[request.param]

    wait_until(are_up, 60, "the BFD sessions", interval=0.2)
    wait_for_legs(network, 2)
    return network


def test_a_silent_gateway_leaves_the_routes_and_comes_back(network: Network) -> None:
    def has(legs: int) -> bool:
        return all(fib_legs(network, "r1", site) == legs for site in SITES)

    t1 = network.routers["t1"].namespace
    with silent(t1, "eth1"):
        wait_until(partial(has, 1), 10, "one leg left")
        assert "up" in t1.run("cat", "/sys/class/net/eth1/operstate").stdout
    wait_until(partial(has, 2), 90, "both legs again", interval=0.2)
