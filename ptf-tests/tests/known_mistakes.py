# SPDX-License-Identifier: Apache-2.0
"""Tests that the pipeline does not repeat known mistakes of other RFC 4301 implementations.

README.md lists all such mistakes, with the tests that cover them. The mistakes here are those that
no other module tests.
"""

from collections.abc import Mapping

from scapy.layers.sctp import SCTP
from scapy.packet import Raw

from sluice_ptf.case import ptf_test
from sluice_ptf.network import HOST4, HOST6
from sluice_ptf.packets import DPORT, SPORT, echo, ip4, ip6, tcp, udp_to
from sluice_ptf.policy import ENGINE, IN, OUT, Flow, Policy, Verdict, decrypted, hit, reinjection
from sluice_ptf.probe import FromCpu, ProbeOutcome
from sluice_ptf.protection import BUNDLE, FLOWS, OURS4, PROTECT, SA, SPI, V4, protected
from sluice_ptf.reinjected import first
from sluice_ptf.router import Router, arriving, routed, same
from sluice_ptf.schema import Value
from sluice_ptf.shim import ESP, esp
from sluice_ptf.standard import TO_B, A, B


@ptf_test
def protection_is_cached_with_its_bundle(router: Router) -> None:
    """A flow cached for one bundle does not match packets of other bundles, or cleartext."""
    policy = protected(router)
    policy.unbind(B)
    policy.guard(A, IN)
    for bundle in (BUNDLE, BUNDLE + 1):
        policy.carries(bundle, IN)
    for dst, flow in FLOWS.items():
        carried = Flow(**(vars(flow) | {"bundle": BUNDLE}))
        policy.flow(IN, carried, PROTECT)
        frame = arriving(ENGINE, udp_to(dst))
        accepted = ProbeOutcome(out=[(B.port, routed(frame, TO_B))], rules=hit(IN, 5))
        policy.from_engine(decrypted(BUNDLE, A), udp_to(dst), accepted)
        asked: dict[str, Value] = {"list_id": IN.id, "generation": IN.generation}
        punt = router.packet_in(
            frame,
            ingress_port=ENGINE.port,
            ingress_l3_if=A.id,
            reason="INBOUND_MISS",
            stage="INBOUND",
            origin="DECRYPTED",
            bundle=BUNDLE + 1,
            **asked,
        )
        missed = ProbeOutcome(punts=[punt], punted={"INBOUND_MISS": 1})
        policy.from_engine(decrypted(BUNDLE + 1, A), udp_to(dst), missed)
        router.punts(A, udp_to(dst), "INBOUND_MISS", stage="INBOUND", **asked)


@ptf_test
def ports_of_another_protocol_limit_nothing(router: Router) -> None:
    """A flow of UDP with ports matches no packets of other protocols, with or without ports."""
    policy = Policy(router)
    policy.guard(B, OUT)
    without = (1, 47, ESP, 51, 89, 253)
    for protocol in (*without, 17):
        policy.flow(OUT, Flow(HOST4, V4, protocol), Verdict("BYPASS", rule=2))
    way: Mapping[str, Value] = {"egress_l3_if": B.id, "nexthop_id": TO_B.id}
    asked: Mapping[str, Value] = {"list_id": OUT.id, "generation": OUT.generation}
    like_ports = SPORT << 16 | DPORT
    packets = [ip4(V4, Raw(esp(like_ports)), proto=protocol) for protocol in without[1:]]
    packets += [ip4(V4, echo()), ip4(V4, tcp())]
    packets.append(ip4(V4, SCTP(sport=SPORT, dport=DPORT) / Raw(bytes(20))))
    for packet in packets:
        router.punts(A, packet, "OUTBOUND_MISS", stage="OUTBOUND", **way, **asked)
    router.forwards(A, udp_to(V4), TO_B, rules=hit(OUT, 2))


@ptf_test
def an_sa_that_ends_in_mid_flow(router: Router) -> None:
    """After an SA's hard lifetime, all packets of its flows are dropped, cached or not, until a
    rekey.
    """
    policy = protected(router)
    fresh = Flow(HOST4, "10.2.0.10")
    punt = first(router, udp_to(fresh.dst_addr), "OUTBOUND_MISS")
    for dst in FLOWS:
        policy.encrypts(A, udp_to(dst), SA, rules=hit(OUT, 5))
    router.delete(policy.sa_entry(SA))
    for dst in FLOWS:
        router.drops(A, udp_to(dst), "NO_SA", rules=hit(OUT, 5))
    late = FromCpu(punt.frame, reinjection(punt, PROTECT))
    expected = ProbeOutcome(drops={"NO_SA": 1}, rules={"outbound claim 5": 1})
    same(router.exchange(late), expected, punt.frame)
    policy.protects(SA)
    for dst in FLOWS:
        policy.encrypts(A, udp_to(dst), SA, rules=hit(OUT, 5))


@ptf_test
def an_inbound_sa_that_ends(router: Router) -> None:
    """ESP of a deleted inbound SA is dropped, and not delivered to this router."""
    policy = protected(router)
    policy.guard(A, IN)
    key: Mapping[str, Value] = {"vrf": 0, "spi": SPI}
    router.delete(
        router.entry("inbound_sa", key, "decrypt", bundle=BUNDLE, engine=1, sa=0x12345678)
    )
    policy.flow(IN, Flow(HOST4, OURS4, ESP, 0, 0, is_local=1), Verdict("BYPASS", rule=1))
    router.drops(A, ip4(OURS4, Raw(esp(SPI)), proto=ESP), "UNKNOWN_SPI")
    router.drops(A, ip6("2001:db8:1::1", Raw(esp(SPI)), src=HOST6, nh=ESP), "UNKNOWN_SPI")
