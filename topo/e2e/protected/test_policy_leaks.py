# SPDX-License-Identifier: Apache-2.0
"""Tests attacks from a link and from a compromised engine: no packet may leave a router in clear.

After each test, the captures are checked against a list of frames that may be in clear between the
sites. The drop reasons show which check stopped each attack.
"""

import json
from functools import partial
from pathlib import Path

from sluice_testkit.esp_engine import ENCRYPTED, ESP, Shim
from sluice_testkit.packet import ICMP, UDP
from sluice_testkit.wait import wait_until

from ..frames import ethernet, inject
from ..packets import icmp, in_fragments, ipv4, udp
from .monitor import FORGED, LeakMonitor
from .network import ELSEWHERE, R1_TO_H1, R1_TO_T, ProtectedNetwork

IPV4 = 0x0800
H1, H2 = "10.1.0.2", "10.2.0.2"
BYPASS_ICMP = "{name: icmp, action: bypass, protocol: icmp}"
OWN_ADDRESS = "10.0.13.1"
"""An address of r1, on an interface that none of these packets uses."""


def from_h1(walks: ProtectedNetwork, *packets: bytes) -> None:
    """Sends IP packets from h1 to r1, on an interface without an SPD."""
    for packet in packets:
        inject(walks.host("h1").namespace, "eth0", ethernet(R1_TO_H1, ELSEWHERE, IPV4, packet))


def from_engine(walks: ProtectedNetwork, *frames: bytes) -> None:
    """Sends frames to r1 from the engine's end of r1's engine port."""
    for frame in frames:
        inject(walks.engine_places["r1"], "engine", frame)


def test_errors_about_what_a_bundle_carried_leave_by_it(
    walks: ProtectedNetwork, monitor: LeakMonitor
) -> None:
    """An ICMP error that quotes a packet of a bundle leaves through the same bundle, even if a rule
    bypasses ICMP.
    """
    engine = walks.engines["r2"]
    with walks.amended("r2", "wan", {"outbound": [BYPASS_ICMP]}):
        seen = walks.ping(walks.host("h1").namespace, H2, count=1, options=("-t", "2"))
        assert "Time to live exceeded" in seen.output, walks.where_lost(seen)
    assert any(frame.protocol == ICMP and frame.icmp_type == 11 for frame in engine.encrypted)
    assert not monitor.sent("r2", lambda frame: frame.protocol == ICMP)


def test_ike_ports_of_this_router_let_no_transit_out(
    walks: ProtectedNetwork, monitor: LeakMonitor
) -> None:
    """Packets of other hosts with one of the router's addresses as source are dropped as MARTIAN.
    The generated rule for IKE would bypass some of them.
    """
    before = walks.drops("r1", "MARTIAN")
    for port in (500, 4500):
        from_h1(walks, ipv4(OWN_ADDRESS, H2, UDP, udp(port, port, FORGED * 50)))
        from_h1(walks, ipv4("10.0.12.1", "10.9.9.9", UDP, udp(port, 7000, FORGED)))
    wait_until(lambda: walks.drops("r1", "MARTIAN") - before == 4, 10, "four martians")


def test_an_engine_cannot_send_plaintext_as_encrypted(
    walks: ProtectedNetwork, monitor: LeakMonitor
) -> None:
    """Packets that the engine marks as encrypted are dropped if they are not ESP, or if they do not
    have their bundle's tunnel addresses.
    """
    before = walks.drops("r1", "SHIM_INVALID")
    shim = Shim(ENCRYPTED, bundle=2, sa=12, ingress_l3_if=1)
    sealed = bytes(8) + FORGED * 4
    frames = [
        shim.frame(ipv4("10.0.12.1", H2, UDP, udp(7001, 7001, FORGED))),
        shim.frame(ipv4("10.0.12.1", H2, UDP, udp(4500, 4500, bytes(4) + FORGED * 4))),
        shim.frame(ipv4(H1, "10.0.20.1", ESP, sealed)),
        shim.frame(ipv4("10.0.12.1", "10.0.20.1", ESP, sealed, fragment=0x2000)),
        Shim(ENCRYPTED, bundle=3, sa=13, ingress_l3_if=1).frame(
            ipv4("10.0.12.1", "10.0.20.1", ESP, sealed)
        ),
    ]
    from_engine(walks, *frames)
    wait_until(lambda: walks.drops("r1", "SHIM_INVALID") - before == len(frames), 10, "five drops")


def test_an_error_that_quotes_a_bypassed_flow_leaves_nothing_in_clear(
    walks: ProtectedNetwork, monitor: LeakMonitor
) -> None:
    """An ICMP error is discarded although it quotes a bypassed flow, because it could carry 800
    bytes of the attacker's choice.
    """
    quoted = ipv4("10.2.0.99", H1, UDP, udp(4000, 4000, FORGED * 33))
    discards = partial(walks.counted, "r1", "first_packets", "dropped: policy discards outbound")
    before = discards()
    from_h1(walks, ipv4("10.66.0.1", "10.2.0.99", ICMP, icmp(3, 1, 0, quoted)))
    wait_until(lambda: discards() - before == 1, 10, "the error discarded")


def test_a_small_first_fragment_does_not_free_the_rest(
    walks: ProtectedNetwork, monitor: LeakMonitor
) -> None:
    """A first fragment of only eight bytes, just the UDP header, is enough to decide about the
    datagram.

    The later fragments get the same verdict: they are protected.
    """
    datagram = ipv4(H1, H2, UDP, udp(7100, 7100, FORGED * 30), identification=0x7100)
    parts = in_fragments(datagram, 8)
    engine = walks.engines["r1"]
    before = len(engine.encrypted)
    from_h1(walks, *parts[1:40], parts[0])
    wait_until(lambda: len(engine.encrypted) - before == 40, 10, "forty fragments protected")
    engine.encrypted.clear()  # otherwise the monitor would report the FORGED mark in them


def test_refused_packets_are_in_the_audit_log(
    walks: ProtectedNetwork, monitor: LeakMonitor
) -> None:
    """The audit log contains addresses, SPI, rule and interface of refused packets (RFC 4301,
    5.2).
    """
    log = Path(walks.network.p4_router("r1").controller.config["state_dir"]) / "audit.log"
    known = len(log.read_text().splitlines())
    clear = ipv4(H2, H1, UDP, udp(7200, 7201, FORGED))
    unknown = ipv4("10.0.20.1", "10.0.12.1", ESP, (0xBADC0DE).to_bytes(4, "big") + bytes(40))
    for packet in (clear, unknown):
        inject(walks.between, "eth1", ethernet(R1_TO_T, ELSEWHERE, IPV4, packet))
    macs = bytes.fromhex((R1_TO_T + ELSEWHERE).replace(":", ""))
    inject(walks.between, "eth1", Shim(4, bundle=2, ingress_l3_if=2).frame(clear, macs))

    def events() -> dict[str, dict[str, object]]:
        lines = log.read_text().splitlines()[known:]
        return {event["event"]: event for event in map(json.loads, lines)}

    wanted = {"cleartext refused", "spi unknown", "forged shim"}
    wait_until(lambda: wanted <= events().keys(), 10, "three events")
    seen = events()
    refused = seen["cleartext refused"]
    assert (refused["source"], refused["destination"]) == (H2, H1)
    assert (refused["spd"], refused["list"], refused["rule"]) == ("to-spoke2", "inbound", "site")
    assert seen["spi unknown"]["spi"] == 0xBADC0DE
    assert {event["interface"] for event in seen.values()} == {"eth2"}
