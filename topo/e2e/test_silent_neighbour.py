# SPDX-License-Identifier: Apache-2.0
"""Tests a gateway that stops answering while its link stays up: flows must leave it, and return
when it answers again.

All routes are static, so no routing protocol withdraws the routes through this gateway.
"""

import os
import time

import pytest

from sluice_testkit.namespaces import Lab
from sluice_testkit.wait import Stopwatch, wait_until
from sluice_topo import probes
from sluice_topo.description import two_sites
from sluice_topo.network import Network, build_in_lab
from sluice_topo.routing_demo import fib_legs, wait_for_legs
from sluice_topo.traffic import PathMonitor, UdpFlows

from .faults import silent

ROUTES = {
    "r1": (
        *("ip route 10.2.0.0/24 10.0.1.2", "ip route 10.2.0.0/24 10.0.2.2"),
        *("ipv6 route 2001:db8:2::/64 2001:db8:0:1::2",),
        *("ipv6 route 2001:db8:2::/64 2001:db8:0:2::2",),
        # Routes with t1 as the only next hop.
        *("ip route 10.77.0.0/24 10.0.1.2", "ipv6 route 2001:db8:77::/64 2001:db8:0:1::2"),
    ),
    "r2": (
        *("ip route 10.1.0.0/24 10.0.3.1", "ip route 10.1.0.0/24 10.0.4.1"),
        *("ipv6 route 2001:db8:1::/64 2001:db8:0:3::1",),
        *("ipv6 route 2001:db8:1::/64 2001:db8:0:4::1",),
    ),
    "t1": (
        *("ip route 10.1.0.0/24 10.0.1.1", "ip route 10.2.0.0/24 10.0.3.2"),
        *("ipv6 route 2001:db8:1::/64 2001:db8:0:1::1",),
        *("ipv6 route 2001:db8:2::/64 2001:db8:0:3::2",),
    ),
    "t2": (
        *("ip route 10.1.0.0/24 10.0.2.1", "ip route 10.2.0.0/24 10.0.4.2"),
        *("ipv6 route 2001:db8:1::/64 2001:db8:0:2::1",),
        *("ipv6 route 2001:db8:2::/64 2001:db8:0:4::2",),
    ),
}
GATEWAY = {4: "10.0.1.2", 6: "2001:db8:0:1::2"}
FAR_SITE = {4: "10.2.0.0/24", 6: "2001:db8:2::/64"}
VERSIONS = pytest.mark.parametrize("version", [4, 6])


def configurations() -> dict[str, str]:
    """Returns the FRR configurations of the two-site routers, with static routes instead of BGP."""
    return {
        router.name: router.frr_config().partition("router bgp")[0]
        + "\n".join((*ROUTES[router.name], ""))
        for router in two_sites().routers
    }


@pytest.fixture(scope="module")
def network(module_lab: Lab) -> Network:
    network = build_in_lab(
        two_sites(), module_lab, os.environ.get("TARGET"), frr_configs=configurations()
    )
    network.start()
    # Neighbours become stale after about one second instead of half a minute.
    for family in ("ipv4", "ipv6"):
        network.routers["r1"].namespace.sysctl(
            **{
                f"{family}__neigh__eth2__base_reachable_time_ms": 1000,
                f"{family}__neigh__eth2__delay_first_probe_time": 1,
            }
        )
    wait_for_legs(network, 2)
    return network


def let_fail(network: Network, version: int) -> None:
    """Sends pings from r1 to t1, as BGP would send packets, until r1's kernel marks t1 as
    failed.
    """
    router, address = network.p4_router("r1"), GATEWAY[version]

    def failed() -> bool:
        known = {entry["address"]: entry["state"] for entry in router.controller.show("neighbors")}
        if known.get(address) == "failed":
            return True
        probes.ping(router.namespace, address, count=1, options=("-W", "0.2"))
        return False

    wait_until(failed, 40, f"{address} to be given up", interval=0.2)


@VERSIONS
def test_flows_leave_a_silent_neighbour_and_come_back(network: Network, version: int) -> None:
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    t1 = network.routers["t1"].namespace
    with PathMonitor(network) as monitor, UdpFlows(h1, h2, version, flows=32) as traffic:
        traffic.wait_for_more(320)
        before = monitor.flows()
        assert min(len(before["t1"]), len(before["t2"])) > 0, before
        with silent(t1, "eth1"):
            let_fail(network, version)
            wait_until(lambda: fib_legs(network, "r1", FAR_SITE[version]) == 1, 5, "one leg left")
            moment = time.monotonic()
            monitor.clear()
            traffic.wait_for_more(1000)
            numbers = traffic.sent_since(moment)[:900]
            assert traffic.arrived(numbers) == len(numbers)
            assert monitor.packets()["t1"] == 0
            assert "up" in t1.run("cat", "/sys/class/net/eth1/operstate").stdout
        watch = Stopwatch()
        wait_until(lambda: monitor.packets()["t1"] > 0, 40, "packets on t1 again")
        print(f"back on both paths after {watch.seconds():.1f} s")
        moment = time.monotonic()
        traffic.wait_for_more(500)
        numbers = traffic.sent_since(moment)[:400]
        assert traffic.arrived(numbers) == len(numbers)
        traffic.stop()
    assert fib_legs(network, "r1", FAR_SITE[version]) == 2


@VERSIONS
def test_a_route_over_a_silent_neighbour_alone_is_unreachable(
    network: Network, version: int
) -> None:
    h1 = network.hosts["h1"].namespace
    address = {4: "10.77.0.1", 6: "2001:db8:77::1"}[version]
    said = {4: "Destination Host Unreachable", 6: "Address unreachable"}[version]
    with silent(network.routers["t1"].namespace, "eth1"):
        let_fail(network, version)
        seen = probes.ping(h1, address, count=5, interval=0.5, options=("-w", "10"))
        assert seen.received == 0
        assert said in seen.output, seen.output
    wait_until(lambda: fib_legs(network, "r1", FAR_SITE[version]) == 2, 40, "both legs again")
