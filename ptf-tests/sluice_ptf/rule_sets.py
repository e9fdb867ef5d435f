# SPDX-License-Identifier: Apache-2.0
"""Sets up tests of the rule tables: two lists with a rule set, and expected misses.

IN applies to interface A, OUT to interface B. Their rule sets have numbers of more than 8 bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sluice_ptf import policy
from sluice_ptf.network import HOST4, HOST6
from sluice_ptf.policy import Policy, PolicyList, Verdict
from sluice_ptf.router import Frame, Router, Rules
from sluice_ptf.schema import Value
from sluice_ptf.standard import TO_B, A, B

IN = replace(policy.IN, rule_set=0x1101)
OUT = replace(policy.OUT, rule_set=0x1102)
V4, V6 = "10.2.0.9", "2001:db8:2::9"
DESTINATION = {"ipv4": V4, "ipv6": V6}
SOURCE = {"ipv4": HOST4, "ipv6": HOST6}
BYPASS, DISCARD = Verdict("BYPASS", rule=2), Verdict("DISCARD", rule=4)


def each(router: Router) -> Iterator[tuple[Policy, PolicyList]]:
    """Yields the inbound list, then the outbound list. Only the yielded list is bound."""
    made = Policy(router)
    for of, interface in ((IN, A), (OUT, B)):
        made.guard(interface, of)
        yield made, of
        made.unbind(interface)


def asked(of: PolicyList) -> dict[str, Value]:
    """Returns the metadata of a punt of `udp_to(V4)` or `udp_to(V6)` by which the CPU finds the
    list to search.
    """
    known: dict[str, Value] = {"list_id": of.id, "generation": of.generation}
    if of.direction == "outbound":
        known |= {"egress_l3_if": B.id, "nexthop_id": TO_B.id}
    return known


def misses(router: Router, of: PolicyList, packet: Frame, reason: str = "") -> None:
    """Expects that the packet from A is punted, because neither a flow nor a rule has its verdict.
    The reason is INBOUND_MISS or OUTBOUND_MISS unless given.
    """
    stage = of.direction.upper()
    router.punts(A, packet, reason or f"{stage}_MISS", stage, **asked(of))


def refuses(router: Router, of: PolicyList, packet: Frame, rules: Rules) -> None:
    """Expects that the packet from A is dropped by a rule that discards."""
    router.drops(A, packet, f"{of.direction.upper()}_DISCARD", rules=rules)
