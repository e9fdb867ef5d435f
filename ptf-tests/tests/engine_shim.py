# SPDX-License-Identifier: Apache-2.0
"""Tests packets to the engine: ESP to this router, and packets that an outbound list protects."""

from collections.abc import Mapping
from dataclasses import replace

from scapy.layers.inet6 import IPv6ExtHdrDestOpt, IPv6ExtHdrFragment
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from sluice_ptf import raw
from sluice_ptf.case import ptf_test
from sluice_ptf.network import HOST4, HOST6, HOST_MAC, Interface
from sluice_ptf.packets import hops, ip4, ip6, udp, udp_to
from sluice_ptf.policy import (
    ENGINE,
    IN,
    OUT,
    Flow,
    Policy,
    Sa,
    Verdict,
    hit,
)
from sluice_ptf.probe import FromPort, ProbeOutcome
from sluice_ptf.protection import (
    BUNDLE,
    FLOWS,
    OURS4,
    OURS6,
    PROTECT,
    SA,
    SPI,
    V4,
    V6,
    protected,
    with_engine,
)
from sluice_ptf.router import Router, arriving, same
from sluice_ptf.schema import Value
from sluice_ptf.shim import DECRYPT, ESP, Shim, esp
from sluice_ptf.standard import OTHER_VRF, TO_B, A, B, C, D, E


def goes_to(router: Router, source: Interface, packet: Packet, shim: Shim) -> None:
    """Sends a packet. Expects it at the engine's port, unchanged but with the shim, and nothing
    else.
    """
    frame = arriving(source, packet)
    expected = ProbeOutcome(out=[(ENGINE.port, shim.on(frame))])
    same(router.exchange(FromPort(source.port, frame)), expected, frame)


# --- ESP to this router -------------------------------------------------------

TO_DECRYPT = Shim(DECRYPT, bundle=BUNDLE, sa=0x12345678, ingress_l3_if=A.id)


@ptf_test
def esp_to_us(router: Router) -> None:
    """ESP with a known SPI goes to the engine, with any TTL, options and extension headers."""
    with_engine(router)
    for packet in (
        ip4(OURS4, Raw(esp(SPI)), proto=ESP),
        ip4(OURS4, Raw(esp(SPI)), proto=ESP, ttl=1),
        ip4(OURS4, Raw(esp(SPI)), proto=ESP, options=b"\x94\x04\0\0"),
        ip6(OURS6, Raw(esp(SPI)), nh=ESP),
        ip6(OURS6, Raw(esp(SPI)), nh=ESP, hlim=1),
        ip6(OURS6, IPv6ExtHdrDestOpt(nh=ESP) / Raw(esp(SPI))),
    ):
        goes_to(router, A, packet, TO_DECRYPT)


@ptf_test
def esp_to_us_by_vlan_and_vrf(router: Router) -> None:
    """The shim of ESP to this router names ingress interface and VRF. The frame to the engine has
    no VLAN tag.

    An SPI is valid in one VRF only.
    """
    policy = with_engine(router)
    for dst, options in ((OURS4, {"proto": ESP}), (OURS6, {"nh": ESP})):
        packet = (ip6 if ":" in dst else ip4)(dst, Raw(esp(SPI)), **options)
        goes_to(router, D, packet, replace(TO_DECRYPT, ingress_l3_if=D.id))
    ours_in_e = ip4("10.2.0.1", Raw(esp(SPI)), proto=ESP)
    router.drops(E, ours_in_e, "UNKNOWN_SPI")
    policy.spi(SPI, bundle=7, sa=8, vrf=OTHER_VRF)
    shim = Shim(DECRYPT, bundle=7, sa=8, ingress_l3_if=E.id, vrf=OTHER_VRF)
    goes_to(router, E, ours_in_e, shim)


@ptf_test
def esp_in_udp_to_us(router: Router) -> None:
    """ESP in UDP from or to port 4500 goes to the engine (RFC 3948).

    IKE messages (they begin with four zero bytes) and keep-alives go to the CPU.
    """
    with_engine(router)
    for sport, dport in ((4500, 4500), (31000, 4500), (4500, 31000)):
        for dst in (OURS4, OURS6):
            make = ip6 if ":" in dst else ip4
            datagram = udp(dport=dport, sport=sport, size=0) / Raw(esp(SPI))
            goes_to(router, A, make(dst, datagram), TO_DECRYPT)
            if dport == 4500:
                ike = udp(dport=dport, sport=sport, size=0) / Raw(bytes(32))
                router.punts(A, make(dst, ike), "IKE", stage="LOCAL_DELIVERY", is_local=0)
                alive = udp(dport=dport, sport=sport, size=0) / Raw(b"\xff")
                router.punts(A, make(dst, alive), "IKE", stage="LOCAL_DELIVERY", is_local=0)


@ptf_test
def fragments_of_esp_to_us(router: Router) -> None:
    """Fragments of ESP go to the reassembly engine of their VRF, even if another engine has
    the SA.
    """
    policy = with_engine(router)
    elsewhere = SPI ^ 2
    router.insert(router.entry("engine", {"engine": 2}, "set_engine", port=C.port))
    policy.spi(elsewhere, bundle=BUNDLE, sa=9, engine=2)
    fragment = Shim(DECRYPT, ingress_l3_if=A.id)
    data = Raw(esp(0x0BAD0BAD))
    for spi in (SPI, elsewhere):
        goes_to(router, A, ip4(OURS4, Raw(esp(spi)), proto=ESP, flags="MF"), fragment)
        first = ip6(OURS6, IPv6ExtHdrFragment(m=1, nh=ESP) / Raw(esp(spi)))
        goes_to(router, A, first, fragment)
    for more in ("", "MF"):
        goes_to(router, A, ip4(OURS4, data, proto=ESP, frag=6, flags=more), fragment)
        later = IPv6ExtHdrFragment(offset=6, m=int(bool(more)), nh=ESP)
        goes_to(router, A, ip6(OURS6, later / data), fragment)


@ptf_test
def fragments_of_esp_go_to_the_engine_of_their_vrf(router: Router) -> None:
    """Fragments of ESP are dropped in a VRF without a reassembly engine.

    In other VRFs, the fragments go to the VRF's reassembly engine.
    """
    policy = with_engine(router)
    first = ip4("10.2.0.1", Raw(esp(SPI)), proto=ESP, flags="MF")
    later = ip4("10.2.0.1", Raw(esp(SPI)), proto=ESP, frag=6)
    for packet in (first, later):
        router.drops(E, packet, "UNKNOWN_SPI")
    router.insert(router.entry("engine", {"engine": 2}, "set_engine", port=ENGINE.port))
    policy.spi(SPI, bundle=7, sa=8, engine=2, vrf=OTHER_VRF)
    policy.reassembles(engine=2, vrf=OTHER_VRF)
    shim = Shim(DECRYPT, engine=2, ingress_l3_if=E.id, vrf=OTHER_VRF)
    for packet in (first, later):
        goes_to(router, E, packet, shim)


@ptf_test
def an_atomic_fragment_of_esp_to_us(router: Router) -> None:
    """An atomic fragment (RFC 6946) is a whole packet. So it goes to the engine of its SA."""
    with_engine(router)
    goes_to(router, A, ip6(OURS6, IPv6ExtHdrFragment(nh=ESP) / Raw(esp(SPI))), TO_DECRYPT)


@ptf_test
def fragments_of_esp_in_udp_to_us(router: Router) -> None:
    """First fragments of ESP in UDP are dropped as ESP_IN_UDP_FRAGMENT.

    Later fragments are ordinary UDP, and the SPD list applies to them.
    """
    policy = with_engine(router)
    later4 = ip4(OURS4, Raw(esp(SPI)), proto=17, frag=6)
    later6 = ip6(OURS6, IPv6ExtHdrFragment(offset=6, nh=17) / Raw(esp(SPI)))
    for spi in (SPI, SPI ^ 1):
        for sport, dport in ((4500, 4500), (31000, 4500), (4500, 31000)):
            datagram = udp(dport=dport, sport=sport, size=0) / Raw(esp(spi))
            first6 = ip6(OURS6, IPv6ExtHdrFragment(m=1) / datagram)
            for first in (ip4(OURS4, datagram, flags="MF"), first6):
                router.drops(A, first, "ESP_IN_UDP_FRAGMENT")
    for later in (later4, later6):
        router.punts(A, later, "LOCAL", stage="LOCAL_DELIVERY")
    policy.guard(A, IN)
    for later in (later4, later6):
        asked: dict[str, Value] = {"list_id": IN.id, "generation": IN.generation, "is_local": 1}
        router.punts(A, later, "FRAGMENT", stage="INBOUND", **asked)


@ptf_test
def what_looks_like_esp_behind_the_end_of_its_packet(router: Router) -> None:
    """A UDP packet to port 4500 is not ESP if its SPI lies, even in part, in the frame's
    padding.
    """
    with_engine(router)
    for size in (8, 12, 15):
        for claimed in (size, 48):
            datagram = raw.datagram(0, 4500, 4500)[:4] + claimed.to_bytes(2, "big") + bytes(2)
            payload = datagram + esp(SPI)
            packet = raw.ipv4(OURS4, payload[:size]) + payload[size:]
            router.punts(A, _framed(packet, 0x0800), "IKE", stage="LOCAL_DELIVERY")
            packet = raw.ipv6(OURS6, payload[:size]) + payload[size:]
            router.punts(A, _framed(packet, 0x86DD), "IKE", stage="LOCAL_DELIVERY")


def _framed(packet: bytes, ether_type: int) -> bytes:
    return bytes(Ether(src=HOST_MAC, dst=A.mac, type=ether_type)) + packet


@ptf_test
def a_first_fragment_that_ends_before_the_marker(router: Router) -> None:
    """A first fragment of eight bytes holds only the ports.

    The fragment counts as UDP, even if ESP follows in the padding.
    """
    with_engine(router)
    ports = raw.datagram(0, 4500, 4500)[:4] + b"\x02\0\0\0"
    more = raw.MORE_FRAGMENTS
    for padding in (b"", esp(SPI)):
        first4 = raw.ipv4(OURS4, ports, fragment=more) + padding
        router.punts(A, _framed(first4, 0x0800), "IKE", stage="LOCAL_DELIVERY")
        header = raw.fragment_header(17, 0, True)
        first6 = raw.ipv6(OURS6, header + ports, next_header=44) + padding
        router.punts(A, _framed(first6, 0x86DD), "IKE", stage="LOCAL_DELIVERY")


@ptf_test
def fragments_of_ike(router: Router) -> None:
    """Fragments of IKE messages go to the CPU like whole ones, and are not taken for ESP."""
    with_engine(router)
    ike = udp(dport=4500, sport=4500, size=0) / Raw(bytes(32))
    router.punts(A, ip4(OURS4, ike, flags="MF"), "IKE", stage="LOCAL_DELIVERY")
    later = ip4(OURS4, Raw(bytes(40)), proto=17, frag=5)
    router.punts(A, later, "LOCAL", stage="LOCAL_DELIVERY")


@ptf_test
def an_unknown_spi(router: Router) -> None:
    """Drops ESP with an unknown SPI as UNKNOWN_SPI: whole, in UDP, or a first fragment."""
    with_engine(router)
    for spi in (0, 1, SPI - 1, SPI ^ 1 << 31):
        router.drops(A, ip4(OURS4, Raw(esp(spi)), proto=ESP), "UNKNOWN_SPI")
        router.drops(A, ip6(OURS6, Raw(esp(spi)), nh=ESP), "UNKNOWN_SPI")
    encapsulated = udp(dport=4500, sport=4500, size=0) / Raw(esp(SPI ^ 1))
    router.drops(A, ip4(OURS4, encapsulated), "UNKNOWN_SPI")
    router.drops(A, ip4(OURS4, Raw(esp(SPI ^ 1)), proto=ESP, flags="MF"), "UNKNOWN_SPI")


@ptf_test
def esp_to_us_asks_no_list(router: Router) -> None:
    """The SPD list of the ingress interface does not apply to ESP to this router.

    Instead, the bundle's list applies to the decrypted packet.
    """
    policy = with_engine(router)
    policy.guard(A, IN)
    goes_to(router, A, ip4(OURS4, Raw(esp(SPI)), proto=ESP), TO_DECRYPT)
    goes_to(router, A, ip6(OURS6, Raw(esp(SPI)), nh=ESP), TO_DECRYPT)
    goes_to(router, A, ip4(OURS4, Raw(bytes(8)), proto=ESP, frag=6), Shim(DECRYPT, ingress_l3_if=1))


@ptf_test
def esp_in_transit_is_ordinary_traffic(router: Router) -> None:
    """ESP to other hosts is ordinary traffic, even with an SPI of this router.

    SPD lists apply to such ESP.
    """
    policy = with_engine(router)
    esp4, esp6 = ip4(V4, Raw(esp(SPI)), proto=ESP), ip6(V6, Raw(esp(SPI)), nh=ESP)
    later = ip4(V4, Raw(esp(SPI)), proto=ESP, frag=6)
    in_udp = ip4(V4, udp(dport=4500, sport=4500, size=0) / Raw(esp(SPI)))
    for packet in (esp4, esp6, later, in_udp):
        router.forwards(A, packet, TO_B)
    policy.guard(A, IN)
    policy.flow(IN, Flow(HOST4, V4, ESP, 0, 0), Verdict("BYPASS", rule=1))
    policy.flow(IN, Flow(HOST6, V6, ESP, 0, 0), Verdict("DISCARD", rule=2))
    router.forwards(A, esp4, TO_B, rules=hit(IN, 1))
    router.drops(A, esp6, "INBOUND_DISCARD", rules=hit(IN, 2))


@ptf_test
def esp_to_us_without_its_engine(router: Router) -> None:
    """Drops ESP if the engine of the SA, or the reassembly engine of the VRF, does not exist."""
    policy = Policy(router)
    policy.spi(SPI, bundle=BUNDLE, sa=1, engine=9)
    policy.reassembles(engine=9)
    router.drops(A, ip4(OURS4, Raw(esp(SPI)), proto=ESP), "NO_ENGINE")
    router.drops(A, ip4(OURS4, Raw(bytes(8)), proto=ESP, frag=6), "NO_ENGINE")


# --- packets to be protected --------------------------------------------------


@ptf_test
def protect(router: Router) -> None:
    """A protected packet reaches the engine with its hop count decremented. The shim names the
    ingress interface.
    """
    policy = protected(router)
    for dst in FLOWS:
        for left in (2, 64, 255):
            policy.encrypts(A, udp_to(dst, **hops(dst, left)), SA, rules=hit(OUT, 5))


@ptf_test
def protect_between_vlans_and_vrfs(router: Router) -> None:
    """A protected packet reaches the engine without VLAN tag, whether the ingress or the egress
    interface has one.

    The shim names the VRF of the packet.
    """
    policy = protected(router)
    for dst in FLOWS:
        policy.encrypts(D, udp_to(dst), SA, rules=hit(OUT, 5))
    policy.bind(D, OUT)
    policy.flow(OUT, Flow(HOST4, "10.4.0.9"), PROTECT)
    policy.encrypts(A, udp_to("10.4.0.9"), SA, rules=hit(OUT, 5))
    policy.bind(E, OUT)
    router.drops(E, udp_to(V4), "NO_SA", rules=hit(OUT, 5))  # the bundle has no SA in this VRF
    there = replace(SA, vrf=OTHER_VRF)
    policy.protects(there)
    policy.encrypts(E, udp_to(V4), there, rules=hit(OUT, 5))


@ptf_test
def protect_fragments(router: Router) -> None:
    """First and later fragments go to the engine, each by the flow of its own key."""
    policy = protected(router)
    policy.flow(OUT, Flow(HOST4, V4, fragment="FIRST"), PROTECT)
    policy.flow(OUT, Flow(HOST4, V4, 17, 0, 0, fragment="LATER"), PROTECT)
    first, later = ip4(V4, udp(size=64), flags="MF"), ip4(V4, Raw(bytes(64)), proto=17, frag=9)
    for packet in (first, later):
        policy.encrypts(A, packet, SA, rules=hit(OUT, 5))


@ptf_test
def protect_what_passed_inbound(router: Router) -> None:
    """A packet that both lists permit is counted once by a rule of the inbound list and once by a
    rule of the outbound list.
    """
    policy = protected(router)
    policy.guard(A, IN)
    for dst, flow in FLOWS.items():
        policy.flow(IN, flow, Verdict("BYPASS", rule=3))
        policy.encrypts(A, udp_to(dst), SA, rules=hit(IN, 3) | hit(OUT, 5))


@ptf_test
def a_rekey_is_one_write(router: Router) -> None:
    """One write moves a bundle to another SA and engine. The cached flows stay valid."""
    policy = protected(router)
    fresh = Sa(BUNDLE, sa=0xFFFFFFFF, engine=255)
    router.insert(router.entry("engine", {"engine": 255}, "set_engine", port=ENGINE.port))
    policy.encrypts(A, udp_to(V4), SA, rules=hit(OUT, 5))
    router.modify(policy.sa_entry(fresh))
    policy.encrypts(A, udp_to(V4), fresh, rules=hit(OUT, 5))


@ptf_test
def never_in_clear(router: Router) -> None:
    """Drops protected packets if the bundle has no SA (NO_SA) or the engine is missing
    (NO_ENGINE).
    """
    policy = protected(router)
    router.delete(policy.sa_entry(SA))
    for dst in FLOWS:
        router.drops(A, udp_to(dst), "NO_SA", rules=hit(OUT, 5))
    policy.protects(replace(SA, engine=9))
    for dst in FLOWS:
        router.drops(A, udp_to(dst), "NO_ENGINE", rules=hit(OUT, 5))
    router.delete(router.entry("engine", {"engine": 1}, "set_engine", port=ENGINE.port))
    router.modify(policy.sa_entry(SA))
    for dst in FLOWS:
        router.drops(A, udp_to(dst), "NO_ENGINE", rules=hit(OUT, 5))
        policy.flow(OUT, replace(FLOWS[dst], is_local=1), PROTECT)
        frame = bytes(Ether(src=B.mac, dst=TO_B.mac) / udp_to(dst))
        expected = ProbeOutcome(drops={"NO_ENGINE": 1}, rules=hit(OUT, 5))
        router.packet_out(frame, expected, kind="LOCAL_ORIGIN", egress_l3_if=B.id)


@ptf_test
def an_engine_that_is_down(router: Router) -> None:
    """Drops packets of an engine that is down as NO_ENGINE, in both directions, until it is up
    again.
    """
    policy = protected(router)
    up = router.entry("engine", {"engine": 1}, "set_engine", port=ENGINE.port)
    router.modify(router.entry("engine", {"engine": 1}, "engine_down"))
    for dst in FLOWS:
        router.drops(A, udp_to(dst), "NO_ENGINE", rules=hit(OUT, 5))
    router.drops(A, ip4(OURS4, Raw(esp(SPI)), proto=ESP), "NO_ENGINE")
    router.modify(up)
    policy.encrypts(A, udp_to(V4), SA, rules=hit(OUT, 5))


@ptf_test
def the_neighbor_does_not_matter(router: Router) -> None:
    """A protected packet needs no resolved neighbour, because its ESP packet has its own next
    hop.
    """
    policy = protected(router)
    router.modify(router.entry("nexthop", {"nexthop_id": TO_B.id}, "resolve_neighbor", l3_if=B.id))
    for dst in FLOWS:
        policy.encrypts(A, udp_to(dst), SA, rules=hit(OUT, 5))


def carried() -> Mapping[str, Value]:
    """Returns the metadata of a protected packet's punt at the rewrite stage."""
    return {
        "egress_l3_if": B.id,
        "nexthop_id": TO_B.id,
        "verdict": "PROTECT",
        "rule": 5,
        "sa_bundle": BUNDLE,
        "list_id": OUT.id,
        "generation": OUT.generation,
    }


@ptf_test
def ttl_before_the_engine(router: Router) -> None:
    """Punts a protected packet with TTL 0 or 1, so that the CPU can send an ICMP error."""
    protected(router)
    for dst in FLOWS:
        for left in (0, 1):
            packet = udp_to(dst, **hops(dst, left))
            router.punts(A, packet, "TTL_EXCEEDED", "REWRITE", hit(OUT, 5), **carried())


@ptf_test
def mtu_before_the_engine(router: Router) -> None:
    """The size limit of a packet before protection is the smaller of egress MTU and path MTU, minus
    the overhead.
    """
    policy = protected(router)
    for mtu, path_mtu, overhead, fits in (
        (1500, 1500, 0, 1500),
        (1500, 1500, 73, 1427),
        (1500, 1400, 73, 1327),
        (1400, 1500, 73, 1327),
        (1500, 65535, 1, 1499),
        (9000, 1300, 0, 1300),
    ):
        router.modify(router.egress(Interface(B.id, B.port, B.mac, mtu=mtu)))
        sa = replace(SA, path_mtu=path_mtu, overhead=overhead)
        router.modify(policy.sa_entry(sa))
        for large in (0, 1):
            for packet in (
                ip4(V4, udp(size=fits - 28 + large)),
                ip6(V6, udp(size=fits - 48 + large)),
            ):
                if large:
                    rules = hit(OUT, 5)
                    router.punts(A, packet, "MTU_EXCEEDED", "REWRITE", rules, **carried())
                else:
                    policy.encrypts(A, packet, sa, rules=hit(OUT, 5))


@ptf_test
def an_mtu_that_nothing_fits(router: Router) -> None:
    """Punts every packet if the overhead is at least the MTU."""
    policy = protected(router)
    for path_mtu, overhead in ((1500, 1500), (1500, 65535), (0, 0), (50, 73)):
        router.modify(policy.sa_entry(replace(SA, path_mtu=path_mtu, overhead=overhead)))
        for dst in FLOWS:
            rules = hit(OUT, 5)
            router.punts(A, udp_to(dst), "MTU_EXCEEDED", "REWRITE", rules, **carried())
