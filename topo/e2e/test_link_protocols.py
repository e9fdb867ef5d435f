# SPDX-License-Identifier: Apache-2.0
"""Tests two protocols with special needs: IS-IS, which does not run over IP, and BFD, which needs
short delays.
"""

import os
import time
from functools import partial

import pytest

from sluice_testkit.namespaces import Lab
from sluice_testkit.wait import Stopwatch, wait_until
from sluice_topo.description import RouterKind, two_sites
from sluice_topo.network import Network, build_in_lab
from sluice_topo.routing_demo import has_legs
from sluice_topo.traffic import PathMonitor, UdpFlows

from .faults import silent

SYSTEM_IDS = {"r1": "0001", "r2": "0002", "t1": "0011", "t2": "0012"}
ISIS_INTERFACE = """interface {name}
 ip router isis 1
 ipv6 router isis 1
 isis network point-to-point
 isis hello-interval 1
"""
NEIGHBOURS = {"r1": ("eth2", "eth3"), "r2": ("eth2", "eth3")}


def configurations() -> dict[str, str]:
    """Returns the FRR configurations of the two-site routers, with IS-IS added, and BFD on every
    BGP session over IPv4.
    """
    texts = {}
    for router in two_sites().routers:
        names = ["eth2", "eth3"] if router.kind is RouterKind.P4 else ["eth1", "eth2"]
        interfaces = "".join(ISIS_INTERFACE.format(name=name) for name in names)
        text, _, _ = router.frr_config().rpartition("end")
        lines = text.splitlines()
        peers = [
            line.split()[1]
            for line in lines
            if line.startswith(" neighbor 10.") and "remote-as" in line
        ]
        asn = next(line for line in lines if line.startswith("router bgp"))
        bfd = "".join(f" neighbor {peer} bfd\n" for peer in peers)
        sessions = "".join(
            f" peer {peer}\n  detect-multiplier 3\n  receive-interval 100\n"
            f"  transmit-interval 100\n exit\n"
            for peer in peers
        )
        texts[router.name] = (
            f"{text}\nbfd\n{sessions}exit\n{interfaces}{asn}\n{bfd}"
            f"router isis 1\n net 49.0001.0000.0000.{SYSTEM_IDS[router.name]}.00\n"
            f" is-type level-2-only\n"
        )
    return texts


@pytest.fixture(scope="module")
def network(module_lab: Lab) -> Network:
    network = build_in_lab(
        two_sites(), module_lab, os.environ.get("TARGET"), frr_configs=configurations()
    )
    network.start()
    return network


def isis_up(network: Network, router: str) -> bool:
    shown = network.routers[router].frr.vtysh("show isis neighbor")
    return all(f"{name} " in shown for name in NEIGHBOURS[router]) and shown.count(" Up ") == 2


def bfd_up(network: Network, router: str) -> bool:
    peers = network.routers[router].frr.json("show bfd peers json")
    return len(peers) == 2 and all(peer["status"] == "up" for peer in peers)


@pytest.mark.parametrize("router", ["r1", "r2"])
def test_isis_adjacencies(network: Network, router: str) -> None:
    wait_until(partial(isis_up, network, router), 60, f"IS-IS on {router}", interval=0.2)


@pytest.mark.parametrize("router", ["r1", "r2"])
def test_bfd_sessions(network: Network, router: str) -> None:
    wait_until(partial(bfd_up, network, router), 60, f"BFD on {router}", interval=0.2)


def test_bfd_takes_flows_from_a_gateway_that_fell_silent(network: Network) -> None:
    """If a gateway is silent while its link stays up, BFD moves flows off it before BGP's hold
    timer (9 s).
    """
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    prefix = "10.2.0.0/24"
    network.wait_for_bgp()
    wait_until(partial(has_legs, network, "r1", prefix, 2), 60, "both legs", interval=0.1)
    with PathMonitor(network) as monitor, UdpFlows(h1, h2, flows=32) as traffic:
        traffic.wait_for_more(320)
        assert monitor.packets()["t1"] > 0
        with silent(network.routers["t1"].namespace, "eth1"):
            watch = Stopwatch()
            wait_until(partial(has_legs, network, "r1", prefix, 1), 5, "one leg left")
            print(f"withdrawn after {watch.seconds():.2f} s")
            moment = time.monotonic()
            traffic.wait_for_more(500)
            numbers = traffic.sent_since(moment)[:400]
            assert traffic.arrived(numbers) == len(numbers)
        wait_until(partial(has_legs, network, "r1", prefix, 2), 60, "both legs", interval=0.1)
        traffic.stop()
