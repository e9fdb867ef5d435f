# SPDX-License-Identifier: Apache-2.0
"""Tests copies of dropped packets for the CPU, which are rate limited. The controller writes them
to the audit log, or requests an SA. A copy does not change how the drop is counted.
"""

from typing import Any

from scapy.packet import Raw

from sluice_ptf.case import ptf_test
from sluice_ptf.network import HOST4
from sluice_ptf.packets import ip4, udp_to
from sluice_ptf.policy import IN, OUT, Flow, Policy, Verdict, hit
from sluice_ptf.probe import FromPort, ProbeOutcome
from sluice_ptf.protection import BUNDLE, OURS4, PROTECT, SA, V4, V6, protected, with_engine
from sluice_ptf.router import Router, arriving, same
from sluice_ptf.schema import Value
from sluice_ptf.shim import ESP, esp
from sluice_ptf.standard import TO_B, A, B


def audits(router: Router, *reasons: str, punt_reason: str = "AUDIT") -> None:
    """Makes the pipeline copy drops for these reasons to the CPU."""
    for reason in reasons:
        key = {"drop_reason": reason}
        router.insert(router.entry("copied_drop", key, "copy_to_cpu", reason=punt_reason))


def is_audited(
    router: Router,
    frame: bytes,
    reason: str,
    rules: dict[str, int] | None = None,
    punt_reason: Any = "AUDIT",  # of type str; mypy would otherwise compare it with **known
    **known: Value,
) -> None:
    """Expects that the frame is dropped for the reason, and that a copy is punted."""
    came: dict[str, Value] = {"ingress_port": A.port, "ingress_l3_if": A.id}
    punt = router.packet_in(frame, reason=punt_reason, drop_reason=reason, **(came | known))
    expected = ProbeOutcome(
        punts=[punt], punted={punt_reason: 1}, drops={reason: 1}, rules=dict(rules or {})
    )
    same(router.exchange(FromPort(A.port, frame)), expected, frame)


@ptf_test
def a_copy_of_what_is_dropped(router: Router) -> None:
    """The audit copy of a dropped packet is the unchanged frame, and its metadata names the drop
    reason.

    Packets that are dropped for a reason that is not audited are not copied.
    """
    with_engine(router)
    unknown = arriving(A, ip4(OURS4, Raw(esp(7)), proto=ESP))
    router.drops(A, unknown, "UNKNOWN_SPI")
    audits(router, "UNKNOWN_SPI")
    is_audited(router, unknown, "UNKNOWN_SPI")
    router.drops(A, udp_to(V4, src="127.0.0.1"), "MARTIAN")


@ptf_test
def cleartext_names_the_rule(router: Router) -> None:
    """The copy of a cleartext packet that should have been protected names the protect rule that it
    matched, and the rule's list.
    """
    policy = Policy(router)
    policy.guard(A, IN)
    policy.flow(IN, Flow(HOST4, V4), Verdict("PROTECT", 3, BUNDLE))
    audits(router, "INBOUND_CLEARTEXT")
    asked = {"inbound_list_id": IN.id, "inbound_generation": IN.generation, "rule": 3}
    frame = arriving(A, udp_to(V4))
    is_audited(router, frame, "INBOUND_CLEARTEXT", hit(IN, 3), **asked)


@ptf_test
def copies_are_metered_and_drops_are_counted_once(router: Router) -> None:
    """Copies above the meter's rate are not sent.

    Each drop is counted once, under its own reason.
    """
    with_engine(router)
    audits(router, "UNKNOWN_SPI")
    router.punt_meter("AUDIT", rate=1, burst=2)
    frame = arriving(A, ip4(OURS4, Raw(esp(7)), proto=ESP))
    outcome = router.exchange(*[FromPort(A.port, frame)] * 20)
    assert outcome.drops == {"UNKNOWN_SPI": 20}
    assert outcome.punted["AUDIT"] == len(outcome.punts) < 20
    assert outcome.metered["AUDIT"] + len(outcome.punts) == 20


# --- requests for an SA -------------------------------------------------------


@ptf_test
def a_request_for_an_sa(router: Router) -> None:
    """The copy of a packet without an SA has the reason ACQUIRE. It names the bundle, and the rule
    that asked for protection.
    """
    policy = protected(router)
    router.delete(policy.sa_entry(SA))
    audits(router, "NO_SA", punt_reason="ACQUIRE")
    asked: dict[str, Value] = {
        "egress_l3_if": B.id,
        "nexthop_id": TO_B.id,
        "verdict": "PROTECT",
        "sa_bundle": BUNDLE,
        "rule": PROTECT.rule,
        "list_id": OUT.id,
        "generation": OUT.generation,
    }
    for dst in (V4, V6):
        frame = arriving(A, udp_to(dst))
        is_audited(router, frame, "NO_SA", hit(OUT, PROTECT.rule), "ACQUIRE", **asked)
    policy.protects(SA)
    policy.encrypts(A, udp_to(V4), SA, rules=hit(OUT, PROTECT.rule))


@ptf_test
def each_reason_for_copies_has_a_meter(router: Router) -> None:
    """Copies for the audit log and requests for an SA do not limit each other."""
    policy = protected(router)
    router.delete(policy.sa_entry(SA))
    audits(router, "UNKNOWN_SPI")
    audits(router, "NO_SA", punt_reason="ACQUIRE")
    causes = {
        "AUDIT": ("UNKNOWN_SPI", arriving(A, ip4(OURS4, Raw(esp(7)), proto=ESP))),
        "ACQUIRE": ("NO_SA", arriving(A, udp_to(V4))),
    }
    for limited, other in (("AUDIT", "ACQUIRE"), ("ACQUIRE", "AUDIT")):
        router.punt_meter(limited, rate=1, burst=2)
        reason, frame = causes[limited]
        outcome = router.exchange(*[FromPort(A.port, frame)] * 20)
        assert outcome.drops == {reason: 20}
        assert outcome.punted == {limited: len(outcome.punts)}
        assert outcome.metered == {limited: 20 - len(outcome.punts)}
        assert len(outcome.punts) < 20
        reason, frame = causes[other]
        outcome = router.exchange(*[FromPort(A.port, frame)] * 20)
        assert outcome.drops == {reason: 20}
        assert outcome.punted == {other: 20}
        assert outcome.metered == {}
        router.unlimit(limited)
