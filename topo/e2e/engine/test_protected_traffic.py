# SPDX-License-Identifier: Apache-2.0
"""Tests traffic between sites through real ESP engines. It must be ESP between the routers, and in
clear at the hosts.

After each test, all frames that the routers sent to t are checked: none may be in clear.
"""

import struct

import pytest

from sluice_testkit.capture import Capture
from sluice_testkit.packet import ICMP, ICMPV6, Frame
from sluice_testkit.wait import wait_until
from sluice_topo import probes

from ..frames import inject
from ..protected.network import SOON
from .network import LinkCaptures, Protected, outbound_spec

VERSIONS = pytest.mark.parametrize("version", [4, 6])
PATTERN = bytes.fromhex("c1ea47e875")
"""Part of the payload of each ping."""
COUNT = 10


def ping(protected: Protected, source: str, to: str, version: int, *options: str) -> probes.Ping:
    """Pings from host to host. Sends all requests at once."""
    hosts = protected.network.hosts
    words = ("-l", str(COUNT), "-p", PATTERN.hex(), *options)
    place, address = hosts[source].namespace, hosts[to].address(version)
    return probes.ping(place, address, count=COUNT, interval=1.0, size=100, options=words)


def passes(protected: Protected, source: str, to: str, version: int) -> None:
    """Checks that all pings from host to host are answered."""
    seen = ping(protected, source, to, version)
    assert seen.lost == 0, f"{seen.output}\n{lost_where(protected)}"


def lost_where(protected: Protected) -> str:
    """Returns the drop counters of engines and switches, for an error message."""
    lines = []
    for name, engine in protected.engines.items():
        counters = protected.network.p4_router(name).controller.ask(command="show", what="counters")
        drops = {k: v["packets"] for k, v in counters["switch_drops"].items() if v["packets"]}
        lines.append(f"{name}: switch {drops}, engine {engine.ctl('show')}")
    return "\n".join(lines)


def numbers(frames: list[Frame]) -> list[tuple[int, int]]:
    """Returns SPI and sequence number of each ESP packet."""
    headers = [
        frame.data[34:42] if frame.ethertype == 0x0800 else frame.data[54:62] for frame in frames
    ]
    return [struct.unpack("!II", header) for header in headers]


@VERSIONS
@pytest.mark.parametrize(
    ("to", "wire", "spi"), [("h2", "eth1", 0x1002), ("h3", "eth2", 0x1003)], ids=["ipv4", "ipv6"]
)
def test_a_protected_ping_is_esp_on_the_way_and_arrives_in_clear(
    protected: Protected, wires: LinkCaptures, version: int, to: str, wire: str, spi: int
) -> None:
    """A ping is ESP between the routers and in clear at the hosts, for tunnels over IPv4 and over
    IPv6.
    """
    with Capture(protected.network.hosts[to].namespace, "eth0") as arriving:
        passes(protected, "h1", to, version)
        echo = {4: ICMP, 6: ICMPV6}[version]
        clear = arriving.frames(lambda frame: frame.protocol == echo and PATTERN in frame.data)
        assert len([frame for frame in clear if not frame.outgoing]) == COUNT
    sealed = wires.esp(wire)
    assert [found for found, _ in numbers(sealed)] == [spi] * COUNT
    assert len({number for _, number in numbers(sealed)}) == COUNT
    assert not any(PATTERN in frame.data for frame in wires.sent(wire))


@VERSIONS
def test_through_the_hub(protected: Protected, wires: LinkCaptures, version: int) -> None:
    """A packet from spoke to spoke is decrypted at the hub, and encrypted again with the algorithm
    of the other tunnel.
    """
    passes(protected, "h2", "h3", version)
    assert [len(wires.esp(wire)) for wire in ("eth3", "eth2", "eth4", "eth1")] == [COUNT] * 4


def test_what_the_engine_counts_is_what_was_sent(protected: Protected, wires: LinkCaptures) -> None:
    r1, r2 = protected.engines["r1"], protected.engines["r2"]
    before = r1.sa("out", 12)["counters"], r2.sa("in", 12)["counters"]
    passes(protected, "h1", "h2", 4)
    after = r1.sa("out", 12)["counters"], r2.sa("in", 12)["counters"]
    for then, now in zip(before, after, strict=True):
        assert now["packets"] - then["packets"] == COUNT
        assert now["bytes"] - then["bytes"] == COUNT * 128


def test_replayed_and_changed_packets_come_no_further_than_the_engine(
    protected: Protected, wires: LinkCaptures
) -> None:
    """If ESP packets are sent again, unchanged or with one bit changed, the engine drops them."""
    passes(protected, "h2", "h1", 4)
    # ESP packets from r2 that t forwarded to r1.
    with Capture(protected.between, "eth1") as seen:
        passes(protected, "h2", "h1", 4)
        sent = seen.frames(lambda frame: frame.outgoing and frame.protocol == 50)
    engine = protected.engines["r1"]
    before = engine.sa("in", 21)["counters"]["drops"]
    changed = bytearray(sent[-1].data)
    changed[34 + 4 + 3] ^= 0x80  # a new sequence number
    with Capture(protected.network.hosts["h1"].namespace, "eth0") as arriving:
        inject(protected.between, "eth1", sent[-1].data, count=3)
        inject(protected.between, "eth1", bytes(changed))

        def dropped() -> bool:
            drops = engine.sa("in", 21)["counters"]["drops"]
            more = {name: drops[name] - before.get(name, 0) for name in drops}
            return more.get("replayed") == 3 and more.get("integrity_failed") == 1

        wait_until(dropped, 10, "the engine to count the drops")
        passes(protected, "h1", "h2", 4)
        requests = arriving.frames(lambda frame: frame.protocol == ICMP and frame.icmp_type == 8)
        assert [frame for frame in requests if not frame.outgoing] == []


def test_a_killed_engine_leaks_nothing_and_repeats_no_number(
    protected: Protected, wires: LinkCaptures
) -> None:
    """Without its engine, a router drops packets that need protection.

    After the engine's restart, no sequence number is used twice.
    """
    engine = protected.engines["r1"]
    passes(protected, "h1", "h2", 4)
    engine.kill()
    try:
        assert ping(protected, "h1", "h2", 4, *SOON).received == 0
    finally:
        engine.start()
    assert ping(protected, "h1", "h2", 4, *SOON).received == 0, "without SAs"
    assert engine.status()["others"]["drops"]["unknown_sa"] == COUNT
    protected.restore("r1")
    passes(protected, "h1", "h2", 4)
    sealed = numbers(wires.esp("eth1"))
    assert len(sealed) == len(set(sealed)) == 2 * COUNT


def test_after_a_hard_lifetime_nothing_leaves(protected: Protected, wires: LinkCaptures) -> None:
    """An SA with a hard limit of three packets drops every later packet. A new SA then carries
    packets.
    """
    engine = protected.engines["r1"]
    engine.ctl("delete-out", "12")
    engine.add([outbound_spec(12, 2, hard={"packets": 3})])
    try:
        assert ping(protected, "h1", "h2", 4, *SOON).received == 3
        sa = engine.sa("out", 12)
        assert (sa["age"], sa["counters"]["drops"]) == ("hard", {"hard_lifetime": COUNT - 3})
        assert len(wires.esp("eth1")) == 3
    finally:
        engine.ctl("delete-out", "12")
        engine.add([outbound_spec(12, 2)])
    passes(protected, "h1", "h2", 4)
