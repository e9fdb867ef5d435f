# SPDX-License-Identifier: Apache-2.0
"""Tests a takeover of a router that runs FRR: its sessions stay up, and the switch follows its
routes.
"""

from typing import Any

import pytest

from sluice_testkit.frr import Frr
from sluice_testkit.namespaces import Lab
from sluice_testkit.wait import wait_until
from sluice_topo import probes
from sluice_topo.kernel_router import KernelRouter

FIRST, SECOND = "203.0.113.1", "198.51.100.1"
SPEAKER = """\
router bgp {number}
 bgp router-id 10.0.2.{host}
 no bgp ebgp-requires-policy
 neighbor 10.0.2.{peer} remote-as {other}
 address-family ipv4 unicast
{networks} exit-address-family
exit
"""


def speaker(host: int, peer: int, networks: str = "") -> str:
    return SPEAKER.format(
        number=65000 + host, other=65000 + peer, host=host, peer=peer, networks=networks
    )


@pytest.fixture
def speakers(router: KernelRouter, lab: Lab) -> tuple[Frr, Frr]:
    """Starts BGP on the router and on h2. Returns both, the router's first."""
    h2 = router.hosts[1]
    h2.namespace.add_address("lo", f"{FIRST}/32", f"{SECOND}/32")
    text = speaker(2, 1, f"  network {FIRST}/32\n")
    there = Frr("h2", h2.namespace, text, lab.directory, lab.supervisor)
    here = Frr("r", router.namespace, speaker(1, 2), lab.directory, lab.supervisor)
    for one in (there, here):
        one.start()
    wait_until(lambda: has_route(router, FIRST), 60, "BGP's route in the kernel")
    return here, there


def has_route(router: KernelRouter, prefix: str) -> bool:
    return bool(router.namespace.run("ip", "route", "show", f"{prefix}/32").stdout)


def session(frr: Frr) -> tuple[Any, ...]:
    """Returns the state of the router's session, and how often it was established."""
    found = frr.json("show bgp neighbors 10.0.2.2 json")["10.0.2.2"]
    return found["bgpState"], found["connectionsEstablished"]


def test_session_and_routes(router: KernelRouter, speakers: tuple[Frr, Frr]) -> None:
    h1 = router.hosts[0]
    here, there = speakers
    assert session(here) == ("Established", 1)
    router.up()
    before, kernel = router.switch_packets(), probes.kernel_forwarded(router.namespace)
    assert probes.ping(h1.namespace, FIRST).lost == 0
    assert router.switch_packets() >= before + 10
    there.configure("router bgp 65002", "address-family ipv4 unicast", f"network {SECOND}/32")
    wait_until(lambda: has_route(router, SECOND), 30, "the new route in the kernel")
    wait_until(lambda: probes.ping(h1.namespace, SECOND, count=1).lost == 0, 10, "the new route")
    assert probes.kernel_forwarded(router.namespace) == kernel
    there.configure("router bgp 65002", "address-family ipv4 unicast", f"no network {SECOND}/32")
    wait_until(lambda: probes.ping(h1.namespace, SECOND, count=1).lost == 1, 30, "no route")
    assert session(here) == ("Established", 1)
    router.down()
    assert probes.ping(h1.namespace, FIRST).lost == 0
    assert session(here) == ("Established", 1)
