# SPDX-License-Identifier: Apache-2.0
"""Punts and re-injections: the setup of tests of re-injection.

`guarded` is the standard router with IN on A, OUT on B, an engine and an SA. `first` or
`again` returns a punt, `policy.reinjection` makes the answer from it, and `comes_to`
checks the result.
"""

from __future__ import annotations

from collections.abc import Mapping

from sluice_ptf.network import HOST4, HOST6, Interface, Nexthop
from sluice_ptf.policy import (
    IN,
    OUT,
    Flow,
    Policy,
    PolicyList,
    Sa,
    Verdict,
)
from sluice_ptf.probe import FromCpu, FromPort, ProbeOutcome, Send
from sluice_ptf.router import Frame, Router, arriving, routed, same
from sluice_ptf.runtime import PacketIn
from sluice_ptf.schema import Value
from sluice_ptf.standard import A, B

V4, V6 = "10.2.0.9", "2001:db8:2::9"
OURS4, OURS6 = "10.1.0.1", "2001:db8:1::1"
BUNDLE = 0x4001
SA = Sa(bundle=BUNDLE)
BYPASS, DISCARD = Verdict("BYPASS", rule=2), Verdict("DISCARD", rule=4)
PROTECT = Verdict("PROTECT", rule=5, sa_bundle=BUNDLE)


def flow_to(dst: str, *, is_local: int = 0, bundle: int = 0) -> Flow:
    """The flow of `udp_to`."""
    return Flow(HOST6 if ":" in dst else HOST4, dst, is_local=is_local, bundle=bundle)


def guarded(router: Router) -> Policy:
    """Binds IN to A and OUT to B; configures an engine and an SA."""
    policy = Policy(router)
    policy.guard(A, IN)
    policy.guard(B, OUT)
    policy.engine()
    policy.protects(SA)
    return policy


def punted(router: Router, reason: str, send: Send) -> PacketIn:
    """Expects exactly one punt of a packet, and nothing else; returns it."""
    outcome = router.exchange(send)
    (punt,) = outcome.punts
    assert outcome.punted == {reason: 1}, outcome
    assert outcome.out == [], outcome
    assert outcome.drops == {}, outcome
    assert router.client.schema.enums["punt_reason_t"][reason] == punt.metadata["reason"]
    return punt


def first(router: Router, packet: Frame, reason: str, by: Interface = A) -> PacketIn:
    """The punt of a packet that arrives."""
    return punted(router, reason, FromPort(by.port, arriving(by, packet)))


def again(router: Router, header: Mapping[str, Value], frame: bytes, reason: str) -> PacketIn:
    """The punt of a packet that is re-injected."""
    return punted(router, reason, FromCpu(frame, header))


def comes_to(
    router: Router, punt: PacketIn, header: Mapping[str, Value], expected: ProbeOutcome
) -> None:
    """Expects exactly this result of re-injecting the punted packet."""
    same(router.exchange(FromCpu(punt.frame, header)), expected, punt.frame)


def sent(punt: PacketIn, via: Nexthop, rules: dict[str, int] | None = None) -> ProbeOutcome:
    """The packet leaves for a next hop, and nothing else happens."""
    return ProbeOutcome(out=[(via.interface.port, routed(punt.frame, via))], rules=rules or {})


def dropped(reason: str, rules: dict[str, int] | None = None) -> ProbeOutcome:
    """The packet is dropped, and nothing else happens."""
    return ProbeOutcome(drops={reason: 1}, rules=rules or {})


def asked(of: PolicyList) -> dict[str, Value]:
    """The metadata of a miss of a list."""
    return {"list_id": of.id, "generation": of.generation}
