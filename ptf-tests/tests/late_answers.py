# SPDX-License-Identifier: Apache-2.0
"""Tests verdicts that come too late: when the packet is re-injected, the list has changed, or
another list applies.

A claim is the verdict that the controller states in the packet-out of a re-injected packet.
"""

from sluice_ptf.case import ptf_test
from sluice_ptf.packets import udp_to
from sluice_ptf.policy import (
    IN,
    IN2,
    OUT,
    OUT2,
    Verdict,
    claim,
    hit,
    reinjection,
)
from sluice_ptf.probe import ProbeOutcome
from sluice_ptf.reinjected import (
    BYPASS,
    DISCARD,
    PROTECT,
    V4,
    V6,
    again,
    asked,
    comes_to,
    dropped,
    first,
    flow_to,
    guarded,
    sent,
)
from sluice_ptf.router import Router
from sluice_ptf.standard import TO_B, TO_C, TO_D, A, B, C, D


@ptf_test
def a_stale_answer_is_dropped(router: Router) -> None:
    """A packet is dropped if the list of its claim has a new epoch and generation, or only a new
    generation.
    """
    policy = guarded(router)
    for dst in (V4, V6):
        inbound = first(router, udp_to(dst), "INBOUND_MISS")
        for now in (IN.edited(), IN.changed()):
            policy.commit(now)
            for answer in (BYPASS, DISCARD, PROTECT):
                header = reinjection(inbound, answer)
                comes_to(router, inbound, header, dropped("STALE_VERDICT"))
            policy.commit(IN)
        outbound = again(router, reinjection(inbound, BYPASS), inbound.frame, "OUTBOUND_MISS")
        for now in (OUT.edited(), OUT.changed()):
            policy.commit(now)
            for answer in (BYPASS, DISCARD, PROTECT):
                header = reinjection(outbound, answer)
                comes_to(router, outbound, header, dropped("STALE_VERDICT"))
            policy.commit(OUT)


@ptf_test
def a_stale_answer_does_not_fall_back_to_the_cache(router: Router) -> None:
    """A packet with a stale claim is dropped even if a cached flow would match.

    That flow may be newer than the packet.
    """
    policy = guarded(router)
    policy.unbind(B)
    punt = first(router, udp_to(V4), "INBOUND_MISS")
    policy.commit(IN.changed())
    policy.flow(IN.changed(), flow_to(V4), BYPASS)
    comes_to(router, punt, reinjection(punt, BYPASS), dropped("STALE_VERDICT"))


@ptf_test
def a_stale_inbound_verdict(router: Router) -> None:
    """A packet that is re-injected at a later stage is dropped if its inbound verdict is no longer
    current.
    """
    policy = guarded(router)
    policy.flow(IN, flow_to(V4), BYPASS)
    outbound = first(router, udp_to(V4), "OUTBOUND_MISS")
    unresolved = router.entry("nexthop", {"nexthop_id": TO_B.id}, "resolve_neighbor", l3_if=B.id)
    router.modify(unresolved)
    held = again(router, reinjection(outbound, BYPASS), outbound.frame, "NEIGHBOR_UNRESOLVED")
    router.modify(router.neighbor(TO_B))
    lost = first(router, udp_to("192.0.2.1"), "INBOUND_MISS")
    lost = again(router, reinjection(lost, BYPASS), lost.frame, "NO_ROUTE")
    policy.commit(IN.edited())
    comes_to(router, outbound, reinjection(outbound, BYPASS), dropped("STALE_VERDICT"))
    comes_to(router, held, reinjection(held), dropped("STALE_VERDICT"))
    comes_to(router, lost, reinjection(lost), dropped("STALE_VERDICT"))


@ptf_test
def a_list_without_an_epoch_takes_no_answer(router: Router) -> None:
    """A list without an epoch accepts no verdict."""
    policy = guarded(router)
    inbound = first(router, udp_to(V4), "INBOUND_MISS")
    outbound = again(router, reinjection(inbound, BYPASS), inbound.frame, "OUTBOUND_MISS")
    router.delete(policy.state(OUT))
    comes_to(router, outbound, reinjection(outbound, BYPASS), dropped("LIST_NOT_READY"))
    router.delete(policy.state(IN))
    comes_to(router, inbound, reinjection(inbound, BYPASS), dropped("LIST_NOT_READY"))
    comes_to(router, outbound, reinjection(outbound, BYPASS), dropped("LIST_NOT_READY"))


@ptf_test
def another_inbound_list_by_now(router: Router) -> None:
    """If the interface has another inbound list now, the claim is ignored and the new list
    applies.
    """
    policy = guarded(router)
    policy.unbind(B)
    punt = first(router, udp_to(V4), "INBOUND_MISS")
    policy.guard(A, IN2)
    came = {"ingress_port": A.port, "ingress_l3_if": A.id}
    missed = router.packet_in(
        punt.frame, reason="INBOUND_MISS", stage="INBOUND", **came, **asked(IN2)
    )
    expected = ProbeOutcome(punts=[missed], punted={"INBOUND_MISS": 1})
    for answer in (BYPASS, DISCARD):
        comes_to(router, punt, reinjection(punt, answer), expected)
    policy.flow(IN2, flow_to(V4), Verdict("BYPASS", rule=7))
    comes_to(router, punt, reinjection(punt, DISCARD), sent(punt, TO_B, hit(IN2, 7)))
    policy.unbind(A)
    comes_to(router, punt, reinjection(punt, DISCARD), sent(punt, TO_B))
    router.delete(router.unbound(A)[0])
    comes_to(router, punt, reinjection(punt, BYPASS), dropped("NO_POLICY_BINDING"))


@ptf_test
def another_outbound_list_by_now(router: Router) -> None:
    """If the route now leads to an interface with another SPD, the claim is ignored and the other
    SPD applies.
    """
    policy = guarded(router)
    policy.guard(C, OUT2)
    policy.flow(IN, flow_to(V4), BYPASS)
    punt = first(router, udp_to(V4), "OUTBOUND_MISS")
    router.modify(router.route_entry("10.2.0.0/16", nexthop_id=TO_C.id))
    missed = router.packet_in(
        punt.frame,
        ingress_port=A.port,
        ingress_l3_if=A.id,
        reason="OUTBOUND_MISS",
        stage="OUTBOUND",
        egress_l3_if=C.id,
        nexthop_id=TO_C.id,
        inbound_list_id=IN.id,
        inbound_generation=IN.generation,
        **asked(OUT2),
    )
    expected = ProbeOutcome(punts=[missed], punted={"OUTBOUND_MISS": 1})
    comes_to(router, punt, reinjection(punt, BYPASS), expected)
    comes_to(router, missed, reinjection(missed, BYPASS), sent(punt, TO_C, claim(OUT2, 2)))
    policy.flow(OUT2, flow_to(V4), DISCARD)
    expected = dropped("OUTBOUND_DISCARD", hit(OUT2, 4))
    comes_to(router, punt, reinjection(punt, BYPASS), expected)


@ptf_test
def another_way_under_the_same_list(router: Router) -> None:
    """If the route moved to an interface with the same list, the claim holds on the new route."""
    policy = guarded(router)
    policy.bind(D, OUT)
    policy.flow(IN, flow_to(V4), BYPASS)
    punt = first(router, udp_to(V4), "OUTBOUND_MISS")
    router.modify(router.route_entry("10.2.0.0/16", nexthop_id=TO_D.id))
    comes_to(router, punt, reinjection(punt, BYPASS), sent(punt, TO_D, claim(OUT, 2)))
    router.modify(router.route_entry("10.2.0.0/16", nexthop_id=TO_C.id))
    comes_to(router, punt, reinjection(punt, BYPASS), sent(punt, TO_C))
    router.modify(router.route_entry("10.2.0.0/16", "blackhole"))
    comes_to(router, punt, reinjection(punt, BYPASS), dropped("BLACKHOLE"))


@ptf_test
def another_inbound_list_on_the_way_out(router: Router) -> None:
    """A packet is re-injected at the outbound stage, but its interface has another inbound list
    now.

    Its inbound claim is ignored, and the packet misses in the new list.
    """
    policy = guarded(router)
    policy.flow(IN, flow_to(V4), BYPASS)
    punt = first(router, udp_to(V4), "OUTBOUND_MISS")
    policy.guard(A, IN2)
    came = {"ingress_port": A.port, "ingress_l3_if": A.id, "nexthop_id": TO_B.id}
    missed = router.packet_in(
        punt.frame, reason="INBOUND_MISS", stage="INBOUND", **came, **asked(IN2)
    )
    expected = ProbeOutcome(punts=[missed], punted={"INBOUND_MISS": 1})
    comes_to(router, punt, reinjection(punt, BYPASS), expected)
    policy.flow(IN2, flow_to(V4), DISCARD)
    expected = dropped("INBOUND_DISCARD", hit(IN2, 4))
    comes_to(router, punt, reinjection(punt, BYPASS), expected)
