# SPDX-License-Identifier: Apache-2.0
"""Tests what happens to single packets at an interface with an SPD: fragments, ICMP errors, packets
with options, forged packets, ESP.

The network and the captures are those of test_policy_engine.py. After each test, captures are
checked: no packet may be in clear that policy protects or discards.
"""

import ipaddress
import socket
from functools import partial

import pytest

from sluice_testkit.esp_engine import ESP, OutboundSa, Shim, esp_of, seal
from sluice_testkit.namespaces import Namespace
from sluice_testkit.packet import ICMP, UDP, Frame
from sluice_testkit.wait import wait_until

from ..frames import ethernet, inject
from ..packets import (
    NO_OPERATION,
    echo_request,
    icmp,
    in_fragments,
    ipv4,
    ipv6_with_options,
    udp,
    udp_over_ipv6,
)
from .monitor import FORGED, LeakMonitor
from .network import ELSEWHERE, R1_TO_H1, R1_TO_T, SOON, TUNNEL, ProtectedNetwork

VERSIONS = pytest.mark.parametrize("version", [4, 6])
H1, H2 = "10.1.0.2", "10.2.0.2"
IPV4, IPV6 = 0x0800, 0x86DD
OPEN_PORT, CLOSED_PORT = 4000, 4001  # ports of r1's rules `open` and `closed`
SITE_PORT = 4002  # port of r1's rule `site`


def listener(place: Namespace, port: int, address: str = "0.0.0.0") -> socket.socket:
    """Returns a UDP socket that waits for packets."""
    opened = place.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.bind((address, port))
    opened.settimeout(10)
    return opened


def from_h1(walks: ProtectedNetwork, *packets: bytes) -> None:
    """Sends IP packets from h1 to r1, on an interface without an SPD."""
    for packet in packets:
        inject(walks.host("h1").namespace, "eth0", ethernet(R1_TO_H1, ELSEWHERE, IPV4, packet))


def from_t(walks: ProtectedNetwork, *packets: bytes) -> None:
    """Sends IP packets from t to r1, on the link towards spoke 2."""
    for packet in packets:
        inject(walks.between, "eth1", ethernet(R1_TO_T, ELSEWHERE, IPV4, packet))


def answered(walks: ProtectedNetwork) -> None:
    """Waits until r1 has processed all earlier packets, in both directions: a later ping must be
    answered.
    """
    h1, h2 = walks.host("h1"), walks.host("h2")
    seen = walks.ping(h1.namespace, h2.address(4), count=1)
    assert seen.lost == 0, walks.where_lost(seen)


# --- fragments


@VERSIONS
def test_a_large_datagram_is_protected_in_fragments(
    walks: ProtectedNetwork, monitor: LeakMonitor, version: int
) -> None:
    """A datagram is fragmented to the tunnel's MTU before encryption. So its ESP packets are not
    fragments.
    """
    h1, h2 = walks.host("h1"), walks.host("h2")
    options = ("-M", "dont") if version == 4 else ()

    def path_mtu_known() -> int:
        """Pings once. Over IPv6, each host first gets an ICMP error, and then sends smaller
        packets.
        """
        at = h2.address(version)
        return walks.ping(h1.namespace, at, count=1, size=3000, options=options + SOON).received

    wait_until(path_mtu_known, 10, "a large datagram and its answer")
    seen = walks.ping(h1.namespace, h2.address(version), count=5, size=3000, options=options)
    assert seen.lost == 0, walks.where_lost(seen)
    assert any(frame.fragment_offset for frame in walks.engines["r1"].encrypted)
    assert not monitor.sent("r1-2", lambda frame: frame.is_fragment)
    assert walks.flows("r1", direction="outbound", later_fragments=True, action="protect")


def test_fragments_of_a_bypass_by_port_are_bypassed(
    walks: ProtectedNetwork, monitor: LeakMonitor
) -> None:
    """The first fragment matches the rule `open` by its port. The later fragments get the same
    verdict, bypass.

    The same rules protect all fragments of other datagrams between these hosts.
    """
    payload = bytes(range(256)) * 8
    monitor.allow(lambda seen: seen.flow[:3] == (H1, H2, UDP) and seen.is_fragment)
    with listener(walks.host("h2").namespace, OPEN_PORT) as waiting:
        from_h1(walks, *in_fragments(ipv4(H1, H2, UDP, udp(7001, OPEN_PORT, payload)), 800))
        assert waiting.recv(4096) == payload
    assert fragments_to_engine(walks) == []
    assert len(monitor.sent("r1-2", lambda seen: seen.flow[:3] == (H1, H2, UDP))) == 3


def test_fragments_of_what_is_protected_are_protected(
    walks: ProtectedNetwork, monitor: LeakMonitor
) -> None:
    """Fragments of a protected datagram are protected even if the later ones arrive first. They
    contain no ports, and must not be bypassed by the rule `open`.
    """
    payload = bytes(range(256)) * 8
    first, *later = in_fragments(ipv4(H1, H2, UDP, udp(7001, SITE_PORT, payload)), 800)
    with listener(walks.host("h2").namespace, SITE_PORT) as waiting:
        from_h1(walks, *later, first)
        assert waiting.recv(4096) == payload
    assert sorted(fragments_to_engine(walks)) == [0, 800, 1600]
    assert not monitor.sent("r1-2", lambda seen: seen.flow[:3] == (H1, H2, UDP))


def test_a_discard_by_port_takes_the_whole_datagram(
    walks: ProtectedNetwork, monitor: LeakMonitor
) -> None:
    with listener(walks.host("h2").namespace, CLOSED_PORT) as waiting:
        closed = ipv4(H1, H2, UDP, udp(7002, CLOSED_PORT, bytes(1600)))
        from_h1(walks, *in_fragments(closed, 800) * 2)
        answered(walks)
        waiting.setblocking(False)
        with pytest.raises(BlockingIOError):
            waiting.recv(4096)
    assert fragments_to_engine(walks) == []
    assert walks.flows("r1", direction="outbound", rule="closed") == []


def fragments_to_engine(walks: ProtectedNetwork) -> list[int]:
    """Returns the offsets of the UDP fragments that r1's engine has encrypted, in the order of
    encryption.
    """
    encrypted = walks.engines["r1"].encrypted
    return [seen.fragment_offset for seen in encrypted if seen.protocol == UDP and seen.is_fragment]


# --- ICMP errors


def test_an_error_goes_the_way_of_the_packet_it_quotes_and_is_never_cached(
    walks: ProtectedNetwork, monitor: LeakMonitor
) -> None:
    """An ICMP error about a packet of `site` is treated like that packet, although no rule matches
    the error's own source.

    Spoke 2 sends the error through the bundle of the quoted packet, without a search of a list. The
    hub searches its list for each error, by the quoted packet, and never caches the result.
    """
    h1 = walks.host("h1").namespace
    name = "searched by the packet that an ICMP error quotes"
    before = [walks.counted(router, "first_packets", name) for router in ("r1", "r2")]
    for _ in range(3):
        seen = walks.ping(h1, H2, count=1, options=("-t", "2"))
        assert "Time to live exceeded" in seen.output, seen.output
    after = [walks.counted(router, "first_packets", name) for router in ("r1", "r2")]
    assert [now - then for then, now in zip(before, after, strict=True)] == [3, 0]
    errors = [f for f in walks.engines["r1"].decrypted if (f.protocol, f.icmp_type) == (ICMP, 11)]
    assert [(error.source, error.destination) for error in errors] == [("10.0.20.1", H1)] * 3
    for router in ("r1", "r2"):
        assert not walks.flows(router, protocol=ICMP, icmp="11/0")


def test_an_error_in_clear_about_a_protected_flow_is_refused(
    walks: ProtectedNetwork, monitor: LeakMonitor
) -> None:
    """An ICMP error in clear about a protected flow is refused, because any node on the path could
    have forged it.

    RFC 4301, 6.1.1 leaves this decision to policy.
    """
    about = ipv4(H1, H2, UDP, udp(7003, 53, FORGED))
    refused = partial(walks.counted, "r1", "first_packets", "ICMP errors in clear refused")
    before = refused()
    for kind, code in ((3, 4), (3, 1), (11, 0)):
        from_t(walks, ipv4("10.0.12.2", H1, ICMP, icmp(kind, code, 576, about)))
    wait_until(lambda: refused() - before == 3, 10, "three packets to be refused")
    assert not walks.flows("r1", direction="inbound", protocol=ICMP, source="10.0.12.2")


def test_an_error_about_somebody_elses_packet_is_dropped(
    walks: ProtectedNetwork, monitor: LeakMonitor
) -> None:
    """An ICMP error to h1 is dropped if the quoted packet was not sent by h1."""
    about = ipv4("10.1.0.77", H2, UDP, udp(7004, 53, FORGED))
    name = "dropped: icmp_enclosed_source"
    before = walks.counted("r1", "first_packets", name)
    from_t(walks, ipv4("10.0.12.2", H1, ICMP, icmp(3, 1, 0, about)))
    wait_until(lambda: walks.counted("r1", "first_packets", name) - before == 1, 10, name)


# --- IPv4 options


def test_a_packet_with_options_is_protected_with_them(
    walks: ProtectedNetwork, monitor: LeakMonitor
) -> None:
    h1 = walks.host("h1").namespace
    seen = walks.ping(h1, H2, count=3, options=("-T", "tsonly"))
    assert seen.lost == 0, walks.where_lost(seen)
    assert {f.data[14] & 0xF for f in walks.engines["r1"].encrypted} == {15}
    assert monitor.esp("r1-2") == 3


def test_more_options_than_the_parser_walks_are_searched_each_time(
    walks: ProtectedNetwork, monitor: LeakMonitor
) -> None:
    """The switch's parser does not walk forty IPv4 options, so the controller searches the rules
    for every such packet.

    The packets are protected and never cached.
    """
    before = walks.rule("r1", "to-spoke2", "outbound", "site")["searched"]
    from_h1(walks, *[echo_request(H1, H2, b"with options", options=NO_OPERATION * 40)] * 3)
    wait_until(lambda: len(walks.engines["r2"].decrypted) == 3, 10, "three packets at r2")
    assert walks.rule("r1", "to-spoke2", "outbound", "site")["searched"] - before == 3
    wait_until(lambda: len(echo_replies(monitor)) == 3, 10, "three answers")


def echo_replies(monitor: LeakMonitor) -> list[Frame]:
    return monitor.arrived("h1", lambda f: (f.protocol, f.icmp_type, f.source) == (ICMP, 0, H2))


@pytest.mark.parametrize("kind", [131, 137], ids=["loose", "strict"])
def test_a_source_route_is_dropped_by_name_wherever_it_stands(
    walks: ProtectedNetwork, monitor: LeakMonitor, kind: int
) -> None:
    route = bytes((kind, 7, 4)) + ipaddress.ip_address("10.9.0.9").packed
    first, hidden = route + NO_OPERATION, NO_OPERATION * 17 + route
    switch, own = walks.drops("r1", "SOURCE_ROUTE"), dropped_source_routes(walks)
    from_h1(walks, *(echo_request(H1, H2, FORGED, options=options) for options in (first, hidden)))
    wait_until(
        lambda: walks.drops("r1", "SOURCE_ROUTE") - switch == 1, 10, "one drop by the switch"
    )
    wait_until(lambda: dropped_source_routes(walks) - own == 1, 10, "one drop by the controller")


def dropped_source_routes(walks: ProtectedNetwork) -> int:
    groups = "punts", "first_packets"
    return sum(walks.counted("r1", group, "dropped: source_route") for group in groups)


def test_more_extension_headers_than_the_parser_walks_are_searched_each_time(
    walks: ProtectedNetwork, monitor: LeakMonitor
) -> None:
    """The switch's parser does not walk eight extension headers, so the controller searches the
    rules for every such packet.

    The rule matches the protocol behind the headers.
    """
    h1, h2 = walks.host("h1"), walks.host("h2")
    ends = h1.address(6), h2.address(6)
    datagram = udp_over_ipv6(*ends, (7009, 7009), b"behind eight headers")
    frame = ethernet(R1_TO_H1, ELSEWHERE, IPV6, ipv6_with_options(*ends, 8, UDP, datagram))
    before = walks.rule("r1", "to-spoke2", "outbound", "site-ipv6")["searched"]
    with h2.namespace.socket(socket.AF_INET6, socket.SOCK_DGRAM) as waiting:
        waiting.bind(("::", 7009))
        waiting.settimeout(10)
        for _ in range(3):
            inject(h1.namespace, "eth0", frame)
            assert waiting.recv(2000) == b"behind eight headers"
    assert walks.rule("r1", "to-spoke2", "outbound", "site-ipv6")["searched"] - before == 3


# --- received ESP


def test_esp_in_fragments_is_put_together_by_the_engine(
    walks: ProtectedNetwork, monitor: LeakMonitor
) -> None:
    """Fragments of an ESP packet go to the engine, which reassembles them. No rule applies before
    decryption.
    """
    inner = ipv4(H2, H1, UDP, udp(7010, 7010, b"in parts"))
    outer = seal(TUNNEL[21], 9001, inner)
    with listener(walks.host("h1").namespace, 7010) as waiting:
        from_t(walks, *reversed(in_fragments(outer, 24)))
        assert waiting.recv(2000) == b"in parts"
    assert len(walks.engines["r1"].decrypted) == 1


def test_esp_in_udp_is_decrypted_and_its_unknown_spi_dropped(
    walks: ProtectedNetwork, monitor: LeakMonitor
) -> None:
    inner = ipv4(H2, H1, UDP, udp(7011, 7011, b"behind a NAT"))
    nobodys = OutboundSa(0x9998, "10.0.20.1", "10.0.12.1")
    before = walks.drops("r1", "UNKNOWN_SPI")
    with listener(walks.host("h1").namespace, 7011) as waiting:
        for sa in (nobodys, TUNNEL[21]):
            sealed = esp_of(seal(sa, 9002, inner))
            from_t(walks, ipv4("10.0.20.1", "10.0.12.1", UDP, udp(4500, 4500, sealed)))
        assert waiting.recv(2000) == b"behind a NAT"
    assert walks.drops("r1", "UNKNOWN_SPI") - before == 1


# -- forged packets


@pytest.mark.parametrize("kind", [1, 2, 3, 4], ids=["encrypt", "encrypted", "decrypt", "decrypted"])
def test_a_forged_shim_on_a_front_port_is_dropped(
    walks: ProtectedNetwork, monitor: LeakMonitor, kind: int
) -> None:
    """Frames with a shim are dropped if they do not come from the engine port. They are sent from t
    and from h1, with each kind of shim.
    """
    before = walks.drops("r1", "FORGED_SHIM")
    shim = Shim(kind, bundle=2, sa=21, ingress_l3_if=2)
    macs = bytes.fromhex((R1_TO_T + ELSEWHERE).replace(":", ""))
    inward, outward = udp(7005, 7005, FORGED), udp(7006, 7006, FORGED)
    inject(walks.between, "eth1", shim.frame(ipv4(H2, H1, UDP, inward), macs), count=3)
    h1 = walks.host("h1").namespace
    macs = bytes.fromhex((R1_TO_H1 + ELSEWHERE).replace(":", ""))
    inject(h1, "eth0", shim.frame(ipv4(H1, H2, UDP, outward), macs), count=3)
    wait_until(lambda: walks.drops("r1", "FORGED_SHIM") - before == 6, 10, "six drops")


def test_what_is_no_answer_of_the_engines_is_dropped(
    walks: ProtectedNetwork, monitor: LeakMonitor
) -> None:
    """Frames from the engine are dropped if they have no shim, a request, an unknown kind, or the
    kind DECRYPTED without a bundle.
    """
    before = walks.drops("r1", "SHIM_INVALID")
    inner = ipv4(H2, H1, UDP, udp(7007, 7007, FORGED))
    bare = ethernet(R1_TO_T, ELSEWHERE, IPV4, inner)
    for frame in (bare, *(Shim(kind, ingress_l3_if=2).frame(inner) for kind in (1, 3, 4, 5))):
        inject(walks.engine_places["r1"], "engine", frame)
    wait_until(lambda: walks.drops("r1", "SHIM_INVALID") - before == 5, 10, "five drops")


def test_esp_with_an_unknown_spi_is_dropped_by_name(
    walks: ProtectedNetwork, monitor: LeakMonitor
) -> None:
    nobodys = OutboundSa(0x9999, "10.0.20.1", "10.0.12.1")
    before = walks.drops("r1", "UNKNOWN_SPI")
    from_t(walks, *[seal(nobodys, n, ipv4(H2, H1, UDP, udp(1, 1, FORGED))) for n in (1, 2, 3)])
    wait_until(lambda: walks.drops("r1", "UNKNOWN_SPI") - before == 3, 10, "three drops")
    engine = walks.engines["r1"]
    assert not engine.decrypted
    assert not engine.refused


def test_esp_that_is_not_the_peers_ends_at_the_engine(
    walks: ProtectedNetwork, monitor: LeakMonitor
) -> None:
    """ESP with a known SPI but a wrong integrity check value is dropped by the engine."""
    forged = (0x2001).to_bytes(4, "big") + bytes(4) + FORGED * 4
    from_t(walks, ipv4("10.0.20.1", "10.0.12.1", ESP, forged))
    engine = walks.engines["r1"]
    wait_until(lambda: engine.refused["integrity check failed"] == 1, 10, "the engine's refusal")


def test_cleartext_that_a_rule_protects_is_dropped_by_name(
    walks: ProtectedNetwork, monitor: LeakMonitor
) -> None:
    """Clear packets that a rule protects are dropped as INBOUND_CLEARTEXT, first and later ones.

    The controller searches the rules for the first packet. The others hit the cached verdict.
    """
    before = walks.drops("r1", "INBOUND_CLEARTEXT")
    for _ in range(3):
        from_t(walks, ipv4(H2, H1, UDP, udp(7008, 7008, FORGED)))
    wait_until(lambda: walks.drops("r1", "INBOUND_CLEARTEXT") - before == 3, 10, "three drops")
    (flow,) = walks.flows("r1", direction="inbound", source_port=7008)
    assert (flow["action"], flow["bundle"], flow["carried_by"]) == ("protect", "spoke2", None)
