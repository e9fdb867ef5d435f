# SPDX-License-Identifier: Apache-2.0
"""Decides which discarded packets of an outbound list are answered (RFC 4301, 5.1.1).

The answer is the ICMP error "administratively prohibited". `reject: true` in a rule requests it,
and so does `reject` of an SPD for its final discard. It is sent only to senders inside the
boundary: the packet came in by an interface without an SPD, or a bundle carried it. An answer
quotes the packet, so the answer must stay inside too: it leaves by the same bundle, or all routes
to the sender lead to interfaces without an SPD. Answers have rates of their own, below those of all
ICMP errors (`icmp.RateLimiter`).

Only packets that the controller itself discards are answered, such as the first packet of a flow.
The switch drops the flow's later packets and sends no copies of them.

Depends on config, icmp, state.spd and wire.selectors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import StrEnum

from sluice.config import Config
from sluice.icmp import IcmpErrorRefusal, RateLimiter
from sluice.model import Address, PuntedPacket
from sluice.policy.model import Action, Direction, FragmentClass
from sluice.state.spd import PolicyList
from sluice.wire.errors import WireError
from sluice.wire.selectors import selectors

HOST_SHARE = 4
"""One host gets at most this fraction (1/4) of the rate and burst of answers."""
_REFUSALS = {
    IcmpErrorRefusal.RATE_LIMITED: IcmpErrorRefusal.RATE_LIMITED_REJECT,
    IcmpErrorRefusal.RATE_LIMITED_SOURCE: IcmpErrorRefusal.RATE_LIMITED_REJECT_SOURCE,
}


class RejectionRefusal(StrEnum):
    """Reasons why a discarded packet is not answered."""

    OUTSIDE = "sender_outside"
    ROUTED_OUTSIDE = "sender_routed_outside"
    """The answer could leave by an interface with an SPD, or there is no route to the sender."""
    LATER_FRAGMENT = "later_fragment"
    MALFORMED = "malformed"


class Rejections:
    """Decides about the discarded packets of one router.

    `interfaces_to(vrf, address)` returns the interfaces through which routes lead to an address.
    """

    def __init__(
        self, config: Config, interfaces_to: Callable[[int, Address], Collection[int]]
    ) -> None:
        self._interfaces_to = interfaces_to
        self._spds = {spd.name for spd in config.policy.spds if spd.reject}
        self._inside = {one.l3_if for one in config.interfaces if one.spd is None}
        self._rejecting: dict[int, tuple[PolicyList, frozenset[int]]] = {}
        self.set_rate(config.limits.icmp_rejects_per_second)

    def set_rate(self, rate: int) -> None:
        """Sets the maximum rate of answers to all senders. The burst is a tenth of it."""
        burst = min(rate, max(1.0, rate / 10))
        host_burst = min(rate, max(1.0, burst / HOST_SHARE))
        self._limiter = RateLimiter(rate, burst, rate / HOST_SHARE, host_burst)

    def check_rate(self, sender: Address, now: float) -> IcmpErrorRefusal | None:
        """Returns the reason if the rates allow no answer to `sender` now, else None."""
        refusal = self._limiter.check(sender, now)
        return None if refusal is None else _REFUSALS[refusal]

    def count_answer(self, sender: Address, now: float) -> None:
        """Counts an answer towards the rates."""
        self._limiter.take(sender, now)

    def asks(self, state: PolicyList, rule_id: int) -> bool:
        """Returns whether packets that this rule discards are to be answered."""
        return rule_id in self._ids(state)

    def refusal(self, packet: PuntedPacket) -> RejectionRefusal | None:
        """Returns why a packet must not be answered, or None."""
        if not packet.bundle and packet.ingress_l3_if not in self._inside:
            return RejectionRefusal.OUTSIDE
        try:
            seen = selectors(packet.frame)
        except WireError:
            return RejectionRefusal.MALFORMED
        if seen.fragment_class is FragmentClass.LATER:
            return RejectionRefusal.LATER_FRAGMENT
        if not packet.bundle and not self._is_inside(packet.vrf, seen.selectors.source):
            return RejectionRefusal.ROUTED_OUTSIDE
        return None

    def _is_inside(self, vrf: int, host: Address) -> bool:
        """Returns whether every packet to a host leaves by an interface without an SPD.

        A host inside may forge its source address, and the answer, which quotes the packet, would
        go to that address. So the route to the address is checked too.
        """
        interfaces = self._interfaces_to(vrf, host)
        return bool(interfaces) and self._inside.issuperset(interfaces)

    def _ids(self, state: PolicyList) -> frozenset[int]:
        """Returns the numbers of a list's rules with `reject`. The result is cached for each
        list."""
        if state.direction is not Direction.OUTBOUND:
            return frozenset()
        known = self._rejecting.get(state.list_id)
        if known is None or known[0] is not state:
            asks_at_end = state.spd in self._spds
            found = {
                number
                for rule, number in zip(state.rules, state.rule_ids, strict=True)
                if rule.reject
                or (asks_at_end and rule.is_default and rule.action is Action.DISCARD)
            }
            if asks_at_end:
                found.add(state.final_id)
            known = self._rejecting[state.list_id] = state, frozenset(found)
        return known[1]
