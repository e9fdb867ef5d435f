# SPDX-License-Identifier: Apache-2.0
"""Tests counters of the policy other than the rules' packet counters: limited misses, packets to
the engine, and bytes.
"""

from scapy.packet import Packet

from sluice_ptf.case import ptf_test
from sluice_ptf.network import HOST4
from sluice_ptf.packets import udp_to
from sluice_ptf.policy import ENGINE_ID, IN, OUT, Flow, Policy, Verdict
from sluice_ptf.probe import FromPort, ProbeOutcome
from sluice_ptf.protection import SA, V4, V6, protected
from sluice_ptf.router import Router, arriving
from sluice_ptf.runtime import Count
from sluice_ptf.standard import A, B, D


def flood(router: Router, packet: Packet, count: int) -> ProbeOutcome:
    """Sends a packet `count` times and returns all results."""
    frame = arriving(A, packet)
    return router.exchange(*(FromPort(A.port, frame) for _ in range(count)))


@ptf_test
def misses_of_each_direction_have_a_meter(router: Router) -> None:
    """A meter limits the misses of one direction and does not affect the other direction."""
    policy = Policy(router)
    policy.guard(A, IN)
    router.punt_meter("INBOUND_MISS", rate=1, burst=2)
    outcome = flood(router, udp_to(V4), 20)
    assert outcome.punted["INBOUND_MISS"] == len(outcome.punts) < 20
    assert outcome.metered["INBOUND_MISS"] == outcome.drops["PUNT_METERED"]
    assert outcome.metered["INBOUND_MISS"] + len(outcome.punts) == 20
    policy.unbind(A)
    policy.guard(B, OUT)
    assert flood(router, udp_to(V4), 20).punted == {"OUTBOUND_MISS": 20}


@ptf_test
def flows_are_not_limited(router: Router) -> None:
    """Packets that hit the flow cache are not limited, even if the meter is exhausted."""
    policy = Policy(router)
    policy.guard(B, OUT)
    router.punt_meter("OUTBOUND_MISS", rate=1, burst=1)
    policy.flow(OUT, Flow(HOST4, V4), Verdict("BYPASS", rule=2))
    outcome = flood(router, udp_to(V4), 30)
    assert len(outcome.at(B.port)) == 30
    assert outcome.rules == {"outbound hit 2": 30}


@ptf_test
def an_engine_counts_what_it_is_given(router: Router) -> None:
    """The engine's table entry counts a protected packet. The egress interface does not."""
    policy = protected(router)
    policy.bind(D, OUT)
    entry = router.client.schema.entry("engine", {"engine": ENGINE_ID})
    left = router.client.counter_cells("egress_interface_counter", [B.id, D.id])
    before = router.count(entry)
    for dst in (V4, V6):
        policy.encrypts(A, udp_to(dst), SA, rules={"outbound hit 5": 1})
    assert (router.count(entry) - before).packets == 2
    assert router.client.counter_cells("egress_interface_counter", [B.id, D.id]) == left


@ptf_test
def rules_and_flows_count_bytes(router: Router) -> None:
    """Rules and flows count the same bytes, those of whole frames."""
    policy = Policy(router)
    policy.guard(B, OUT)
    entry = policy.flow(OUT, Flow(HOST4, V4), Verdict("BYPASS", rule=2))
    before = router.client.counter_cells("outbound.rule_hit_counter", [2])[2]
    flood(router, udp_to(V4), 5)
    counted = router.client.counter_cells("outbound.rule_hit_counter", [2])[2] - before
    assert counted == Count(5, 5 * len(arriving(A, udp_to(V4))))
    assert router.count(entry) == counted
