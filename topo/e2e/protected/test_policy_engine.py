# SPDX-License-Identifier: Apache-2.0
"""Tests protected traffic end to end, through three routers with an ESP engine each. Every link
between them is captured.

The tests cover protected packets in transit, from the router itself, to the router itself, and
through the hub. They also cover packets while no engine runs. After each test, captures are
checked: no packet may be in clear that policy protects or discards.
"""

import socket
import threading

import pytest

from sluice_testkit.esp_engine import OUTER_TTL, seal
from sluice_testkit.namespaces import Namespace, veth
from sluice_testkit.packet import ICMP
from sluice_testkit.target import target_name
from sluice_testkit.wait import wait_until
from sluice_topo import probes

from ..frames import ethernet, inject
from ..packets import echo_request
from .monitor import FORGED, LeakMonitor, is_esp, time_exceeded
from .network import (
    ELSEWHERE,
    ENGINE_PORT,
    HUB,
    R1_TO_T,
    SOON,
    TUNNEL,
    ProtectedNetwork,
    flush_path_mtu,
)

VERSIONS = pytest.mark.parametrize("version", [4, 6])
ECHO_REQUEST = {4: "8/0", 6: "128/0"}
END_ADDRESSES = {
    "h1": ("10.1.0.2", "2001:db8:1::2"),
    "h2": ("10.2.0.2", "2001:db8:2::2"),
    "r1": (HUB[4], HUB[6]),
    "r2": ("10.2.0.1", "2001:db8:2::1"),
}
OUTER_GATEWAY = "10.0.12.2"


@VERSIONS
def test_transit_is_protected_both_ways(
    walks: ProtectedNetwork, monitor: LeakMonitor, version: int
) -> None:
    h1, h2 = walks.host("h1"), walks.host("h2")
    seen = walks.ping(h1.namespace, h2.address(version), count=10)
    assert seen.lost == 0, walks.where_lost(seen)
    assert monitor.esp("r1-2") == monitor.esp("r2") == 10
    assert [frame.ttl for frame in walks.engines["r1"].encrypted] == [63] * 10
    assert [frame.ttl for frame in walks.engines["r1"].decrypted] == [63] * 10
    assert {frame.ttl for frame in monitor.sent("r1-2", is_esp)} == {OUTER_TTL}


@VERSIONS
def test_what_the_router_itself_sends_is_protected(
    walks: ProtectedNetwork, monitor: LeakMonitor, version: int
) -> None:
    h2 = walks.host("h2").address(version)
    seen = walks.ping(walks.place("r1"), h2, count=5, options=("-I", HUB[version]))
    assert seen.lost == 0, walks.where_lost(seen)
    assert monitor.esp("r1-2") == monitor.esp("r2") == 5
    sent = {(frame.source, frame.ttl) for frame in walks.engines["r1"].encrypted}
    assert sent == {(HUB[version], 64)}


@VERSIONS
def test_what_the_router_itself_sends_and_no_rule_names_is_discarded(
    walks: ProtectedNetwork, monitor: LeakMonitor, version: int
) -> None:
    """The router's own packets are discarded if no rule matches their source address.

    Here the source is the address of the protected interface, which belongs to no site.
    """
    h2 = walks.host("h2").address(version)
    before = sum(discarded(walks))
    seen = walks.ping(walks.place("r1"), h2, count=5, options=SOON)
    assert seen.received == 0
    assert sum(discarded(walks)) - before >= 5
    assert not walks.engines["r1"].encrypted


def discarded(walks: ProtectedNetwork) -> tuple[int, int]:
    """Returns the number of discards by the controller (first packets), and by the switch (later
    packets).
    """
    searched = walks.counted("r1", "first_packets", "dropped: policy discards outbound")
    return searched, walks.drops("r1", "OUTBOUND_DISCARD")


@VERSIONS
def test_a_decrypted_packet_for_the_router_is_delivered(
    walks: ProtectedNetwork, monitor: LeakMonitor, version: int
) -> None:
    h2 = walks.host("h2")
    seen = walks.ping(h2.namespace, HUB[version], count=5)
    assert seen.lost == 0, walks.where_lost(seen)
    assert monitor.esp("r1-2") == monitor.esp("r2") == 5
    (flow,) = walks.flows(
        "r1",
        direction="inbound",
        source=h2.address(version),
        destination=HUB[version],
        icmp=ECHO_REQUEST[version],
    )
    assert (flow["local"], flow["carried_by"], flow["action"]) == (True, "spoke2", "protect")


@VERSIONS
def test_a_decrypted_packet_goes_on_through_another_protected_interface(
    walks: ProtectedNetwork, monitor: LeakMonitor, version: int
) -> None:
    h2, h3 = walks.host("h2"), walks.host("h3")
    seen = walks.ping(h2.namespace, h3.address(version), count=5)
    assert seen.lost == 0, walks.where_lost(seen)
    for wire in ("r2", "r1-3", "r3", "r1-2"):
        assert monitor.esp(wire) == 5, wire
    hub = walks.engines["r1"]
    assert [frame.ttl for frame in hub.decrypted] == [63] * 10
    assert [frame.ttl for frame in hub.encrypted] == [62] * 10


def test_the_monitor_sees_a_leak(walks: ProtectedNetwork, monitor: LeakMonitor) -> None:
    """Control experiment: if a rule bypasses ICMP, the monitor must report the pings as leaks."""
    h1, h2 = walks.host("h1"), walks.host("h2")
    first = {"outbound": ["{name: leak, action: bypass, protocol: icmp}"]}
    with walks.amended("r1", "to-spoke2", first):
        walks.ping(h1.namespace, h2.address(4), count=2, options=SOON)
        with pytest.raises(AssertionError, match="in clear on the wire of r1-2"):
            monitor.check()
    monitor.allow(lambda frame: (frame.protocol, frame.destination) == (ICMP, h2.address(4)))


@VERSIONS
@pytest.mark.parametrize("ends", [("h1", "h2"), ("r1", "r2")], ids=["hosts", "routers"])
def test_a_long_tcp_stream_goes_through_whole(
    walks: ProtectedNetwork, monitor: LeakMonitor, version: int, ends: tuple[str, str]
) -> None:
    """A TCP stream arrives complete, although its first segments are too long for the tunnel. Both
    ends learn the tunnel's MTU.
    """
    address = {name: END_ADDRESSES[name][version == 6] for name in ends}
    client, server = ((walks.namespace(name), address[name]) for name in ends)
    sent = bytes(range(256)) * 2000
    assert streamed(client, server, sent) == sent
    assert monitor.esp("r1-2") > len(sent) // 1500
    for name in ("r1", "r2", "h1", "h2"):
        flush_path_mtu(walks.namespace(name))


def streamed(client: tuple[Namespace, str], server: tuple[Namespace, str], data: bytes) -> bytes:
    """Sends data from a TCP client to a server. Returns the data that the server received."""
    family = socket.AF_INET6 if ":" in server[1] else socket.AF_INET
    with (
        server[0].socket(family, socket.SOCK_STREAM) as listening,
        client[0].socket(family, socket.SOCK_STREAM) as connecting,
    ):
        for one in (listening, connecting):
            one.settimeout(20)
        listening.bind((server[1], 7100))
        listening.listen()
        connecting.bind((client[1], 0))
        connecting.connect((server[1], 7100))
        sender = threading.Thread(target=send_all, args=(connecting, data), daemon=True)
        sender.start()
        accepted, _ = listening.accept()
        with accepted:
            accepted.settimeout(20)
            parts = list(iter(lambda: accepted.recv(65536), b""))
        sender.join()
    return b"".join(parts)


def send_all(connection: socket.socket, data: bytes) -> None:
    connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)


@VERSIONS
def test_without_the_cache_each_packet_is_searched_and_protected_once(
    walks: ProtectedNetwork, monitor: LeakMonitor, version: int
) -> None:
    h1, h2 = walks.host("h1"), walks.host("h2")
    name = {4: "site", 6: "site-ipv6"}[version]
    walks.sluice("r1", "flow-cache", "off", "to-spoke2")
    try:
        before = [walks.rule("r1", "to-spoke2", way, name) for way in ("inbound", "outbound")]
        seen = walks.ping(h1.namespace, h2.address(version), count=10)
        after = [walks.rule("r1", "to-spoke2", way, name) for way in ("inbound", "outbound")]
    finally:
        walks.sluice("r1", "flow-cache", "on", "to-spoke2")
    assert seen.lost == 0, walks.where_lost(seen)
    for then, now in zip(before, after, strict=True):
        assert (now["searched"] - then["searched"], now["hits"] - then["hits"]) == (10, 0)
    assert monitor.esp("r1-2") == 10


@VERSIONS
def test_packets_wait_for_a_neighbour_as_what_they_are(
    walks: ProtectedNetwork, monitor: LeakMonitor, version: int
) -> None:
    """A packet that waits for a MAC address keeps its state: t's address for an encrypted packet,
    h1's for a decrypted one.

    Each packet is then sent once, and policy is not applied to it again.
    """
    h1, h2 = walks.host("h1"), walks.host("h2")
    held = walks.counted("r1", "held_packets", "held")
    for interface, neighbour in (("eth2", OUTER_GATEWAY), ("eth1", h1.address(version))):
        walks.place("r1").run("ip", "neigh", "delete", neighbour, "dev", interface)
    wait_until(lambda: not knows_outer_gateway(walks), 10, "r1 to forget t's MAC address")
    seen = walks.ping(h1.namespace, h2.address(version), count=1)
    assert seen.lost == 0, walks.where_lost(seen)
    assert walks.counted("r1", "held_packets", "held") > held
    assert (monitor.esp("r1-2"), monitor.esp("r2")) == (1, 1)


def knows_outer_gateway(walks: ProtectedNetwork) -> bool:
    """Returns whether r1's switch knows the MAC address of the next hop for ESP to spoke 2. Also
    true while the switch is not in sync.
    """
    nexthops = walks.show("r1", "nexthops")["nexthops"]
    (gateway,) = [one for one in nexthops if one["gateway"] == OUTER_GATEWAY]
    return bool(gateway["mac"]) or not walks.show("r1", "status")["synced"]


# --- no engine


def test_protect_without_an_sa_is_dropped_by_name(
    walks: ProtectedNetwork, monitor: LeakMonitor
) -> None:
    before = walks.drops("r1", "NO_SA")
    seen = walks.ping(walks.host("h1").namespace, "10.9.0.5", count=5, options=SOON)
    assert seen.received == 0
    assert walks.drops("r1", "NO_SA") - before == 5
    assert monitor.esp("r1-2") == 0


@VERSIONS
def test_an_engine_that_does_not_answer_leaks_nothing(
    walks: ProtectedNetwork, monitor: LeakMonitor, version: int
) -> None:
    h1, h2 = walks.host("h1"), walks.host("h2")
    engine = walks.engines["r1"]
    with engine.dead():
        seen = walks.ping(h1.namespace, h2.address(version), count=5, options=SOON)
        assert seen.received == 0
        assert engine.refused["dead"] == 5
    assert monitor.esp("r1-2") == 0
    assert walks.ping(h1.namespace, h2.address(version), count=2).lost == 0


def test_an_engine_port_without_link_leaks_nothing(
    walks: ProtectedNetwork, monitor: LeakMonitor
) -> None:
    h1, h2 = walks.host("h1"), walks.host("h2")
    engine = walks.engine_places["r1"]
    before = walks.drops("r1", "NO_ENGINE")
    engine.link_up("engine", False)

    def dropped_by_name() -> bool:
        assert walks.ping(h1.namespace, h2.address(4), count=1, options=SOON).received == 0
        return walks.drops("r1", "NO_ENGINE") > before

    wait_until(dropped_by_name, 20, "NO_ENGINE counted")
    assert monitor.esp("r1-2") == 0
    engine.link_up("engine")
    wait_until(
        lambda: walks.ping(h1.namespace, h2.address(4), count=1).received, 20, "the tunnel again"
    )


@pytest.mark.skipif(target_name() == "bmv2", reason="does not tell its ports")
def test_a_switch_without_the_engine_s_port_leaks_nothing(
    walks: ProtectedNetwork, monitor: LeakMonitor
) -> None:
    """If the engine port is removed from the switch, the switch drops packets that need the engine.

    The interface itself stays up, so only the switch reports the missing port.
    """
    h1, h2 = walks.host("h1"), walks.host("h2")

    def problem() -> bool:
        return any("engine 1" in text for text in walks.show("r1", "status")["problems"])

    assert not problem()
    walks.switch_ctl("r1", "remove-port", str(ENGINE_PORT))
    try:
        wait_until(problem, 20, "the engine among the problems")
        before = walks.drops("r1", "NO_ENGINE")
        seen = walks.ping(h1.namespace, h2.address(4), count=5, options=SOON)
        assert seen.received == 0
        assert walks.drops("r1", "NO_ENGINE") - before == 5
        assert monitor.esp("r1-2") == 0
    finally:
        walks.switch_ctl("r1", "add-port", f"{ENGINE_PORT}@port9")
    wait_until(lambda: not problem(), 20, "the problem with the engine to end")
    wait_until(
        lambda: walks.ping(h1.namespace, h2.address(4), count=1).received, 20, "the tunnel again"
    )


# --- permitted packets of an SA


def test_an_sa_carries_only_what_its_rule_names(
    walks: ProtectedNetwork, monitor: LeakMonitor
) -> None:
    """A packet with a source address of spoke 2 is discarded if it arrives in an SA of spoke 3,
    although it was encrypted correctly.
    """
    lie = echo_request(walks.host("h2").address(4), walks.host("h1").address(4), b"a lie")
    before = walks.drops("r1", "INBOUND_DISCARD")
    frame = ethernet(R1_TO_T, ELSEWHERE, 0x86DD, seal(TUNNEL[31], 9000, lie))
    inject(walks.between, "eth1", frame, count=3)
    wait_until(lambda: len(walks.engines["r1"].decrypted) == 3, 10, "three packets decrypted")
    first = "the CPU discards the first, or the switch by its answer"
    wait_until(lambda: refused_lies(walks) >= 1, 10, first)
    assert walks.drops("r1", "INBOUND_DISCARD") - before + refused_lies(walks) >= 3
    assert not monitor.arrived("h1", lambda seen: b"a lie" in seen.data)


def refused_lies(walks: ProtectedNetwork) -> int:
    return walks.counted("r1", "first_packets", "dropped: policy discards inbound")


def test_esp_inside_of_esp_is_not_opened_again(
    walks: ProtectedNetwork, monitor: LeakMonitor
) -> None:
    """If a decrypted packet is itself ESP, it is not decrypted again. No rule admits it, so it is
    discarded.
    """
    inner = echo_request(walks.host("h2").address(4), walks.host("h1").address(4), b"twice")
    twice = seal(TUNNEL[21], 9002, seal(TUNNEL[21], 9001, inner))
    before = refused_lies(walks)
    inject(walks.between, "eth1", ethernet(R1_TO_T, ELSEWHERE, 0x0800, twice))
    wait_until(lambda: refused_lies(walks) > before, 10, "the packet to be discarded")
    assert len(walks.engines["r1"].decrypted) == 1
    assert not monitor.arrived("h1", lambda seen: b"twice" in seen.data)


# --- the kernel


@VERSIONS
def test_kernel_forwarding_switched_on_changes_nothing(
    walks: ProtectedNetwork, monitor: LeakMonitor, version: int
) -> None:
    h1, h2 = walks.host("h1"), walks.host("h2")
    for router in walks.engines:
        walks.place(router).sysctl(ipv4__ip_forward=1, ipv6__conf__all__forwarding=1)
    before = probes.kernel_forwarded(walks.place("r1"))
    try:
        assert walks.ping(h1.namespace, h2.address(version), count=10).lost == 0
        walks.ping(h1.namespace, h2.address(version), count=1, options=("-t", "1", *SOON))
        assert len(time_exceeded(monitor, "h1", version)) == 1
    finally:
        for router in walks.engines:
            walks.place(router).sysctl(ipv4__ip_forward=0, ipv6__conf__all__forwarding=0)
    assert probes.kernel_forwarded(walks.place("r1")) == before
    assert monitor.esp("r1-2") == monitor.esp("r2") == 10


def test_what_the_kernel_forwards_into_an_interface_stays_there(
    walks: ProtectedNetwork, monitor: LeakMonitor
) -> None:
    """If a packet reaches the kernel without the switch, the kernel forwards it into a TAP. But no
    frame leaves the router.
    """
    place, h2 = walks.place("r1"), walks.host("h2").address(4)
    veth(place, "side0", place, "side1")
    place.add_address("side0", "10.77.0.1/24")
    place.sysctl(ipv4__ip_forward=1)
    mac = place.run("cat", "/sys/class/net/side0/address").stdout.strip()
    stray = ethernet(mac, "02:aa:aa:aa:aa:aa", 0x0800, echo_request("10.77.0.2", h2, FORGED))
    try:
        before = probes.kernel_forwarded(place)
        inject(place, "side1", stray, count=5)
        wait_until(lambda: probes.kernel_forwarded(place) > before, 10, "the kernel to forward")
        assert walks.ping(place, h2, count=2, options=("-I", HUB[4])).lost == 0
    finally:
        place.sysctl(ipv4__ip_forward=0)
        place.run("ip", "link", "delete", "side0")
    assert len(walks.engines["r1"].encrypted) == 2
