# SPDX-License-Identifier: Apache-2.0
"""Tests IKEv2 with strongSwan at both ends. ESP is done by the engine at r, and by Linux at p."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from sluice_testkit.pages import blocks
from sluice_testkit.strongswan import StrongSwan, is_installed
from sluice_testkit.wait import wait_until

from .network import NATTED, Interop, connections, needs_esp

pytestmark = [
    needs_esp,
    pytest.mark.skipif(not is_installed(), reason="strongSwan is not installed"),
]


class Peers:
    """Holds the IKE daemons of r and p."""

    def __init__(self, network: Interop):
        self.network = network
        self.r = network.charon(of_peer=False)
        self.p = network.charon(of_peer=True)

    def start(self, r: str, p: str) -> None:
        """Starts both daemons. `r` and `p` are their connections."""
        self.p.start(p)
        self.r.start(r)


@pytest.fixture
def peers(network: Interop) -> Iterator[Peers]:
    peers = Peers(network)
    yield peers
    for daemon in (peers.r, peers.p):
        if daemon.process is not None:
            daemon.kill()


def passes_soon(network: Interop, to: str = "h2") -> None:
    """Waits until packets pass through SAs that IKE has negotiated."""
    wait_until(lambda: network.ping(to, count=1).received, 15, f"a ping to {to}")


def test_traffic_starts_ike_and_then_passes(network: Interop, peers: Peers) -> None:
    """With a trap policy at r, the first packet makes the kernel request an SA (an acquire), which
    starts IKE. Packets pass after the negotiation.
    """
    peers.start(connections(of_peer=False, start="trap"), connections(of_peer=True))
    network.wait_for_rules("protect", 1)
    with network.monitor():
        passes_soon(network)
        network.passes("h2")
        network.passes("h1")
    assert network.counted("kernel_policies", "acquires") >= 1
    assert peers.p.established("net")


def test_the_example_of_the_page(network: Interop, peers: Peers) -> None:
    """The example of docs/how-to/ike.md works at r. p has the same connection with local and remote
    exchanged.
    """
    (ours,) = (one.text for one in blocks("docs/how-to/ike.md") if "connections {" in one.text)
    theirs = ours.replace("local_", "near_").replace("remote_", "local_")
    peers.start(ours, theirs.replace("near_", "remote_"))
    with network.monitor():
        passes_soon(network)
        network.passes("h1")


def test_the_peer_begins(network: Interop, peers: Peers) -> None:
    peers.start(connections(of_peer=False), connections(of_peer=True))
    peers.p.ctl("--initiate", "--child", "net")
    network.wait_in_use()
    with network.monitor():
        network.passes("h1")


@pytest.mark.parametrize("esp", ["aes256gcm16", "chacha20poly1305-esn", "aes128-sha256"])
def test_other_algorithms(network: Interop, peers: Peers, esp: str) -> None:
    ends = (connections(of_peer=of_peer, esp=esp) for of_peer in (False, True))
    peers.start(*ends)
    peers.r.ctl("--initiate", "--child", "net")
    network.wait_in_use()
    with network.monitor():
        network.passes()


@pytest.mark.parametrize("initiator", ["r", "p"])
def test_a_rekey_loses_no_packet(network: Interop, peers: Peers, initiator: str) -> None:
    """A rekey by either end loses no packet in either direction, because the new SA is created
    before the old one is deleted.
    """
    peers.start(connections(of_peer=False), connections(of_peer=True))
    peers.r.ctl("--initiate", "--child", "net")
    before = network.wait_in_use()
    daemon: StrongSwan = getattr(peers, initiator)
    with network.monitor(), network.lossless():
        daemon.ctl("--rekey", "--child", "net")
        assert network.wait_in_use(before) != before
    wait_until(lambda: not network.in_use("outbound") & before, 10, "the old SA to go")


def test_tcp_and_large_packets_pass_while_both_ends_rekey(network: Interop, peers: Peers) -> None:
    """TCP transfers run one after the other while both ends rekey. All arrive unchanged, and later
    a large packet passes too.
    """
    peers.start(connections(of_peer=False), connections(of_peer=True))
    peers.r.ctl("--initiate", "--child", "net")
    spis = network.wait_in_use()
    done = Event()

    def transfers() -> int:
        number = 0
        while not done.is_set():
            network.transfers(500_000)
            number += 1
        return number

    with network.monitor(), ThreadPoolExecutor(1) as pool:
        transferring = pool.submit(transfers)
        try:
            for daemon in (peers.r, peers.p):
                daemon.ctl("--rekey", "--child", "net")
                spis = network.wait_in_use(spis)
        finally:
            done.set()
        assert transferring.result() >= 1
        network.passes(size=3000)


def test_bytes_that_the_engine_counted_make_the_daemon_rekey(
    network: Interop, peers: Peers
) -> None:
    child = "rekey_bytes = 2000\n        life_bytes = 100000\n        rand_bytes = 0"
    ends = connections(of_peer=False, child=child), connections(of_peer=True)
    peers.start(*ends)
    peers.r.ctl("--initiate", "--child", "net")
    before = network.wait_in_use()
    with network.monitor():
        network.passes(count=20, size=200)
        after = network.wait_in_use(before)
        assert after.isdisjoint(network.in_use("outbound") & before)
        network.passes()


def test_a_peer_that_lost_its_sas_is_found_again(network: Interop, peers: Peers) -> None:
    """If the peer has lost its SAs, dead peer detection notices it, and the next packets lead to
    new SAs.
    """
    mine = connections(of_peer=False, start="trap", dpd="2s", child="dpd_action = trap")
    peers.start(mine, connections(of_peer=True))
    passes_soon(network)
    before = network.wait_in_use()
    peers.p.kill()
    network.p.run("ip", "xfrm", "state", "flush")
    peers.p.start(connections(of_peer=True))
    with network.monitor():
        wait_until(lambda: network.ping(count=1).received, 60, "IKE to negotiate new SAs")
    assert network.in_use("outbound").isdisjoint(before)


@pytest.mark.parametrize("initiator", ["r", "p"])
def test_reauthentication(network: Interop, peers: Peers, initiator: str) -> None:
    """Without `make_before_break`, reauthentication first deletes all SAs, then negotiates new
    ones.

    Until then, packets are dropped and none is in clear.
    """
    ends = (connections(of_peer=of_peer, start="trap") for of_peer in (False, True))
    peers.start(*ends)
    passes_soon(network)
    before = network.wait_in_use()
    daemon: StrongSwan = getattr(peers, initiator)
    with network.monitor():
        daemon.ctl("--rekey", "--ike", "peer", "--reauth")
        network.wait_in_use(before)
        passes_soon(network)
        network.passes("h2")
        network.passes("h1")
    assert network.in_use("outbound").isdisjoint(before)


def test_through_a_nat(network: Interop, peers: Peers) -> None:
    """With a NAT between r and p, IKE negotiates ESP in UDP, and packets pass in both
    directions.
    """
    with network.nat():
        mine = connections(of_peer=False)
        peers.start(mine, connections(of_peer=True, remote=NATTED))
        peers.r.ctl("--initiate", "--child", "net")
        network.wait_in_use()
        with network.monitor(in_udp=True):
            network.passes("h2")
            network.passes("h1")
