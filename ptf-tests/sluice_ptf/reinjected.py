# SPDX-License-Identifier: Apache-2.0
"""Sets up tests of re-injection: punts packets, then re-injects them.

`guarded` configures the standard router with the list IN on interface A, OUT on B, an engine and an
SA. `first` and `again` send a packet and return its punt. `policy.reinjection` makes a packet-out
header from the punt. `comes_to` sends the packet-out and checks the result.
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
    """Returns the flow to which the packets of `udp_to(dst)` belong."""
    return Flow(HOST6 if ":" in dst else HOST4, dst, is_local=is_local, bundle=bundle)


def guarded(router: Router) -> Policy:
    """Binds the list IN to interface A and OUT to B. Configures an engine and an SA."""
    policy = Policy(router)
    policy.guard(A, IN)
    policy.guard(B, OUT)
    policy.engine()
    policy.protects(SA)
    return policy


def punted(router: Router, reason: str, send: Send) -> PacketIn:
    """Sends a packet and expects exactly one punt, which is returned."""
    outcome = router.exchange(send)
    (punt,) = outcome.punts
    assert outcome.punted == {reason: 1}, outcome
    assert outcome.out == [], outcome
    assert outcome.drops == {}, outcome
    assert router.client.schema.enums["punt_reason_t"][reason] == punt.metadata["reason"]
    return punt


def first(router: Router, packet: Frame, reason: str, by: Interface = A) -> PacketIn:
    """Sends a packet into a port and returns its punt."""
    return punted(router, reason, FromPort(by.port, arriving(by, packet)))


def again(router: Router, header: Mapping[str, Value], frame: bytes, reason: str) -> PacketIn:
    """Re-injects a packet and returns its next punt."""
    return punted(router, reason, FromCpu(frame, header))


def comes_to(
    router: Router, punt: PacketIn, header: Mapping[str, Value], expected: ProbeOutcome
) -> None:
    """Re-injects the punted packet and expects exactly this result."""
    same(router.exchange(FromCpu(punt.frame, header)), expected, punt.frame)


def sent(punt: PacketIn, via: Nexthop, rules: dict[str, int] | None = None) -> ProbeOutcome:
    """Returns the expected outcome of a packet that is sent to a next hop."""
    return ProbeOutcome(out=[(via.interface.port, routed(punt.frame, via))], rules=rules or {})


def dropped(reason: str, rules: dict[str, int] | None = None) -> ProbeOutcome:
    """Returns the expected outcome of a packet that is dropped."""
    return ProbeOutcome(drops={reason: 1}, rules=rules or {})


def asked(of: PolicyList) -> dict[str, Value]:
    """Returns the metadata by which a punt names the list that the CPU must search."""
    return {"list_id": of.id, "generation": of.generation}
