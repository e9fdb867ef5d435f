# SPDX-License-Identifier: Apache-2.0
"""Tests IKEv2 between two implementations: Libreswan at r and strongSwan at p."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from sluice_testkit import libreswan, strongswan
from sluice_testkit.libreswan import Libreswan
from sluice_testkit.pages import blocks
from sluice_testkit.strongswan import StrongSwan
from sluice_testkit.wait import wait_until

from .network import NATTED, Interop, connections, needs_esp

pytestmark = [
    needs_esp,
    pytest.mark.skipif(not strongswan.is_installed(), reason="strongSwan is not installed"),
    pytest.mark.skipif(not libreswan.is_unpacked(), reason="Libreswan is missing: make interop"),
]

SECRETS = '@r @p : PSK "a secret of both"\n'


class Peers(SimpleNamespace):
    """Holds the IKE daemons of r and p."""

    r: Libreswan
    p: StrongSwan


@pytest.fixture
def peers(network: Interop) -> Iterator[Peers]:
    peers = Peers(r=network.pluto(), p=network.charon(of_peer=True))
    yield peers
    for daemon in (peers.r, peers.p):
        if daemon.process is not None:
            daemon.kill()


def ours(auto: str = "ondemand") -> str:
    """Returns the Libreswan connection of docs/how-to/ike.md, with the ids `r` and `p`."""
    (text,) = (one.text for one in blocks("docs/how-to/ike.md") if "conn branch" in one.text)
    assert "auto=ondemand" in text
    return text.replace("auto=ondemand", f"leftid=@r\n    rightid=@p\n    auto={auto}")


def test_traffic_starts_ike_and_then_passes(network: Interop, peers: Peers) -> None:
    """The first packet makes the kernel request an SA (an acquire), which starts IKE. Packets pass
    after the negotiation.
    """
    peers.p.start(connections(of_peer=True))
    peers.r.start(ours(), SECRETS)
    network.wait_for_rules("protect", 1)
    with network.monitor():
        wait_until(lambda: network.ping(count=1).received, 30, "a ping to h2")
        network.passes("h2")
        network.passes("h1", size=3000)
    assert network.counted("kernel_policies", "acquires") >= 1
    assert peers.p.established("net")
    assert not network.problems()


@pytest.mark.parametrize("initiator", ["r", "p"])
def test_a_rekey_loses_no_packet(network: Interop, peers: Peers, initiator: str) -> None:
    peers.p.start(connections(of_peer=True))
    peers.r.start(ours("add"), SECRETS)
    peers.r.ctl("--initiate", "--name", "branch")
    before = network.wait_in_use()
    with network.monitor(), network.lossless():
        if initiator == "r":
            peers.r.ctl("--rekey-ipsec", "--name", "branch")
        else:
            peers.p.ctl("--rekey", "--child", "net")
        assert network.wait_in_use(before) != before
    wait_until(lambda: not network.in_use("outbound") & before, 10, "the old SA to go")


def test_a_peer_that_lost_its_sas_is_found_again(network: Interop, peers: Peers) -> None:
    """If the peer has lost its SAs, dead peer detection notices it, and the next packets lead to
    new SAs.
    """
    peers.p.start(connections(of_peer=True))
    peers.r.start(ours(), SECRETS)
    wait_until(lambda: network.ping(count=1).received, 30, "a ping to h2")
    before = network.wait_in_use()
    peers.p.kill()
    network.p.run("ip", "xfrm", "state", "flush")
    peers.p.start(connections(of_peer=True))
    with network.monitor():
        wait_until(lambda: network.ping(count=1).received, 60, "IKE to negotiate new SAs")
    assert network.in_use("outbound").isdisjoint(before)


def test_through_a_nat(network: Interop, peers: Peers) -> None:
    """With a NAT between r and p, IKE negotiates ESP in UDP, and packets pass in both
    directions.
    """
    with network.nat():
        peers.p.start(connections(of_peer=True, remote=NATTED))
        peers.r.start(ours("add"), SECRETS)
        peers.r.ctl("--initiate", "--name", "branch")
        network.wait_in_use()
        with network.monitor(in_udp=True):
            network.passes("h2")
            network.passes("h1")
