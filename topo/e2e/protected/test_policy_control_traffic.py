# SPDX-License-Identifier: Apache-2.0
"""Tests control traffic through an interface with an SPD. Generated rules admit neighbour discovery
and IKE. BGP and OSPF need a configured rule.

r1 runs BGP and OSPF with t, and BGP with r2 behind t. After each test, captures are checked: no
packet may be in clear that policy protects or discards.
"""

import socket
from collections.abc import Iterator
from functools import partial

import pytest

from sluice_testkit.capture import Capture
from sluice_testkit.frr import daemons_of
from sluice_testkit.namespaces import Namespace
from sluice_testkit.packet import OSPF, TCP, UDP, Frame
from sluice_testkit.wait import wait_until

from ..frames import ethernet, inject
from ..packets import ipv4, udp
from .monitor import FORGED, LeakMonitor, is_arp, is_neighbor_discovery
from .network import ELSEWHERE, R1_TO_T, SOON, ProtectedNetwork

BGP = 179
TIMERS = "timers bgp 1 3"
BGP_BOTH_WAYS = [
    "{name: bgp, action: bypass, protocol: tcp, destination_ports: [179]}",
    "{name: bgp-back, action: bypass, protocol: tcp, source_ports: [179]}",
]
HELLO = """interface {name}
 ip ospf area 0
 ip ospf hello-interval 1
 ip ospf dead-interval 3
 ip ospf network point-to-point
"""


def bgp(number: int, identity: str, *peers: tuple[str, int]) -> str:
    """Returns the configuration of a BGP speaker that retries every second. A peer may be up to
    four hops away.
    """
    lines = [f"router bgp {number}", f" bgp router-id {identity}", f" {TIMERS}"]
    lines.append(" no bgp ebgp-requires-policy")
    for address, peer in peers:
        lines.append(f" neighbor {address} remote-as {peer}")
        lines.append(f" neighbor {address} ebgp-multihop 4")
        lines.append(f" neighbor {address} timers connect 1")
    return "\n".join(lines) + "\n"


def configurations() -> dict[str, str]:
    """Returns FRR configurations: BGP for r1, r2 and t, OSPF for r1 and t."""
    hello = "router ospf\n ospf router-id {}\n"
    return {
        "r1": HELLO.format(name="eth3")
        + hello.format("10.0.13.1")
        + bgp(65001, "10.0.12.1", ("10.0.12.2", 65100), ("10.0.20.1", 65002)),
        "r2": bgp(65002, "10.0.20.1", ("10.0.12.1", 65001)),
        "t": HELLO.format(name="eth2")
        + hello.format("10.0.13.2")
        + bgp(65100, "10.0.12.2", ("10.0.12.1", 65001)),
    }


@pytest.fixture(scope="module")
def routing_protocols(
    walks: ProtectedNetwork, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Runs the configured routing daemons during the tests of this module."""
    started = []
    for name, text in configurations().items():
        frr = walks.network.routers[name].frr
        for daemon in daemons_of(text):
            if daemon not in frr.processes:
                frr.start_daemon(daemon)
                started.append((frr, daemon))
        path = tmp_path_factory.mktemp(name) / "frr.conf"
        path.write_text(text, encoding="utf-8")
        frr.load(path)
    yield
    for frr, daemon in started:
        frr.processes.pop(daemon).stop()


IKE_ENDS = pytest.mark.parametrize(
    ("family", "router", "peer"),
    [
        (socket.AF_INET, "10.0.12.1", "10.0.12.2"),
        (socket.AF_INET6, "2001:db8:0:12::1", "2001:db8:0:12::2"),
    ],
    ids=["ipv4", "ipv6"],
)


# --- traffic that needs no rule


@IKE_ENDS
@pytest.mark.parametrize("port", [500, 4500])
def test_ike_comes_in_and_is_answered(
    walks: ProtectedNetwork, monitor: LeakMonitor, family: int, router: str, peer: str, port: int
) -> None:
    question = bytes(4) + b"a message of IKE"  # begins like IKE on port 4500
    with (
        udp_socket(walks.place("r1"), family, router, port) as responder,
        udp_socket(walks.between, family, peer, port) as initiator,
    ):
        initiator.sendto(question, (router, port))
        message, sender = responder.recvfrom(2000)
        assert (message, sender[:2]) == (question, (peer, port))
        responder.sendto(b"\0\0\0\0an answer", sender)
        assert initiator.recv(2000) == b"\0\0\0\0an answer"
    assert [f.source for f in monitor.sent("r1-2", lambda f: f.protocol == UDP)] == [router]


@IKE_ENDS
@pytest.mark.parametrize("port", [500, 4500])
def test_ike_in_fragments_passes(
    walks: ProtectedNetwork, monitor: LeakMonitor, family: int, router: str, peer: str, port: int
) -> None:
    """IKE messages in two fragments pass. Messages with certificates need this.

    The second fragment contains no ports.
    """
    # On port 4500, a message that does not begin with four zero bytes would be ESP (RFC 3948, 2.2).
    message, answer = (bytes(4) + text * 11 for text in (bytes(range(256)), b"an answer " * 26))
    monitor.allow(lambda seen: seen.is_fragment and seen.source == router)
    with (
        udp_socket(walks.place("r1"), family, router, port) as responder,
        udp_socket(walks.between, family, peer, port) as initiator,
    ):
        initiator.sendto(message, (router, port))
        received, sender = responder.recvfrom(4000)
        assert received == message
        responder.sendto(answer, sender)
        assert initiator.recv(4000) == answer
    assert len(monitor.sent("r1-2", lambda seen: seen.is_fragment)) == 2


def udp_socket(place: Namespace, family: int, address: str, port: int) -> socket.socket:
    opened = place.socket(family, socket.SOCK_DGRAM)
    opened.bind((address, port))
    opened.settimeout(10)
    return opened


def test_ike_to_somebody_else_is_discarded(walks: ProtectedNetwork, monitor: LeakMonitor) -> None:
    """IKE from t to h1 is discarded: the generated rule permits IKE only to the router's own
    addresses.
    """
    name = "dropped: policy discards inbound"
    searched, hit = walks.counted("r1", "first_packets", name), walks.drops("r1", "INBOUND_DISCARD")
    packet = ipv4("10.0.12.2", "10.1.0.2", UDP, udp(500, 500, FORGED))
    frame = ethernet(R1_TO_T, ELSEWHERE, 0x0800, packet)
    inject(walks.between, "eth1", frame)
    wait_until(lambda: walks.counted("r1", "first_packets", name) > searched, 10, name)
    inject(walks.between, "eth1", frame, count=2)
    wait_until(lambda: walks.drops("r1", "INBOUND_DISCARD") - hit >= 2, 10, "two more drops")


def test_neighbor_discovery_works_while_the_spd_is_empty(
    walks: ProtectedNetwork, monitor: LeakMonitor
) -> None:
    """MAC addresses are resolved in both directions even if both lists of the SPD discard
    everything.
    """
    r1, t = walks.place("r1"), walks.between
    with walks.amended("r1", "to-spoke2", {}, only=True):
        for place, interface in ((r1, "eth2"), (t, "eth1")):
            place.run("ip", "neigh", "flush", "dev", interface)
        monitor.wires["r1-2"].clear()
        for place, peers in ((t, ("10.0.12.1", "2001:db8:0:12::1")), (r1, ("2001:db8:0:12::2",))):
            for peer in peers:
                assert walks.ping(place, peer, count=2, options=SOON).received == 0
                wait_until(partial(resolved, place, peer), 10, f"the MAC address of {peer}")
        assert monitor.sent("r1-2", is_neighbor_discovery)
        others = [f for f in monitor.sent("r1-2") if not (is_arp(f) or is_neighbor_discovery(f))]
        assert not others


def resolved(place: Namespace, address: str) -> bool:
    """Returns whether the kernel has a neighbour's MAC address."""
    return "lladdr" in place.run("ip", "neigh", "show", address).stdout


# --- traffic that needs a rule


@pytest.mark.usefixtures("routing_protocols")
def test_bgp_through_a_protected_interface_needs_its_rule(
    walks: ProtectedNetwork, monitor: LeakMonitor
) -> None:
    """Without a rule for BGP, `sluice spd check` warns, the session stays down and no segment
    leaves.

    With the rule, the session comes up.
    """
    warned = check(walks, {})
    assert "the BGP session 10.0.12.1 - 10.0.12.2" in warned, warned
    assert "cannot come up" in warned, warned
    before = discarded_own(walks)
    wait_until(lambda: discarded_own(walks) > before, 20, "bgpd's packets to be discarded")
    assert state(walks, "10.0.12.2") != "Established"
    assert not monitor.sent("r1-2", is_bgp)

    first = {"inbound": BGP_BOTH_WAYS, "outbound": BGP_BOTH_WAYS}
    assert "BGP" not in check(walks, first)
    monitor.allow(lambda frame: is_bgp(frame) and "10.0.12.2" in (frame.source, frame.destination))
    monitor.allow(lambda frame: is_bgp(frame) and "10.0.20.1" in (frame.source, frame.destination))
    with walks.amended("r1", "to-spoke2", first):
        wait_until(lambda: state(walks, "10.0.12.2") == "Established", 30, "the session with t")
        assert monitor.sent("r1-2", is_bgp)
    wait_until(lambda: state(walks, "10.0.12.2") != "Established", 30, "the session to go down")


@pytest.mark.usefixtures("routing_protocols")
def test_bgp_runs_protected_between_two_routers(
    walks: ProtectedNetwork, monitor: LeakMonitor
) -> None:
    """A rule can protect BGP between r1 and r2. Its packets pass the engines, and none is in clear
    between the routers.
    """
    rule = "{{name: bgp, action: protect, bundle: {}, protocol: tcp, source: {}, destination: {}}}"
    hub, spoke = "10.0.12.1", "10.0.20.1"
    at_hub = {
        "outbound": [rule.format("spoke2", hub, spoke)],
        "inbound": [rule.format("spoke2", spoke, hub)],
    }
    at_spoke = {
        "outbound": [rule.format("hub", spoke, hub)],
        "inbound": [rule.format("hub", hub, spoke)],
    }
    with walks.amended("r1", "to-spoke2", at_hub), walks.amended("r2", "wan", at_spoke):
        wait_until(lambda: state(walks, spoke) == "Established", 30, "the session with r2")
        assert any(is_bgp(frame) for frame in walks.engines["r1"].encrypted)
        assert any(is_bgp(frame) for frame in walks.engines["r1"].decrypted)
        assert not monitor.sent("r1-2", is_bgp)
        assert not monitor.sent("r2", is_bgp)


@pytest.mark.usefixtures("routing_protocols")
def test_an_ospf_hello_needs_its_rule(walks: ProtectedNetwork, monitor: LeakMonitor) -> None:
    """Without a rule for OSPF, no hello leaves r1, and the adjacency with t stays down.

    With the rule, the adjacency comes up.
    """
    t = walks.network.routers["t"].frr
    with Capture(walks.place("r1"), "eth3") as on_the_tap:
        on_the_tap.wait_for(is_hello, 10, "hello of r1's ospfd")
    assert "OSPF" in check(walks, {}, "to-spoke3")
    assert not monitor.sent("r1-3", is_ospf)
    assert "Full" not in t.vtysh("show ip ospf neighbor")
    rule = ["{name: ospf, action: bypass, protocol: ospf}"]
    first = {"inbound": rule, "outbound": rule}
    assert "OSPF" not in check(walks, first, "to-spoke3")
    monitor.allow(is_ospf)
    with walks.amended("r1", "to-spoke3", first):
        wait_until(lambda: "Full" in t.vtysh("show ip ospf neighbor"), 30, "the adjacency")
    assert monitor.sent("r1-3", is_hello)
    wait_until(
        lambda: "Full" not in t.vtysh("show ip ospf neighbor"), 20, "the adjacency to go down again"
    )


def is_bgp(frame: Frame) -> bool:
    return frame.protocol == TCP and BGP in (frame.source_port, frame.destination_port)


def is_ospf(frame: Frame) -> bool:
    return frame.protocol == OSPF


def is_hello(frame: Frame) -> bool:
    return is_ospf(frame) and frame.destination == "224.0.0.5"


def check(walks: ProtectedNetwork, first: dict[str, list[str]], spd: str = "to-spoke2") -> str:
    """Runs `sluice spd check` for an SPD that begins with these rules. Returns the command's
    output.

    The command also gets the BGP and OSPF part of r1's FRR configuration.
    """
    routing = walks.directory / "r1-routing.conf"
    routing.write_text(configurations()["r1"], encoding="utf-8")
    file = walks.spd_file("r1", spd, first)
    return walks.sluice("r1", "spd", "check", file, "--frr", str(routing))


def state(walks: ProtectedNetwork, peer: str) -> str:
    """Returns the state of r1's BGP session with a peer."""
    summary = walks.network.routers["r1"].frr.json("show bgp summary json")
    return str(summary["ipv4Unicast"]["peers"][peer]["state"])


def discarded_own(walks: ProtectedNetwork) -> int:
    """Returns how many of r1's own packets the controller and the switch have discarded."""
    searched = walks.counted("r1", "first_packets", "dropped: policy discards outbound")
    return searched + walks.drops("r1", "OUTBOUND_DISCARD")
