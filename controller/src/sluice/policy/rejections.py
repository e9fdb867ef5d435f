# SPDX-License-Identifier: Apache-2.0
"""Decides which packets that an outbound list discards are answered (RFC 4301, 5.1.1).

The answer is the ICMP error "administratively prohibited". Rules ask for it by `reject: true`, and
SPDs for their final discard. It is sent only to senders inside of the boundary: the packet came in
by an interface without an SPD, or a bundle carried it. The answer has a rate of its own, below that
of all ICMP errors (`icmp.RateLimiter`).

Discards by the flow cache reach the controller as copies. The switch makes copies only while
`is_wanted`.

Depends on config, icmp, state.spd and wire.selectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum

from sluice.config import Config
from sluice.icmp import TokenBucket
from sluice.model import PuntedPacket
from sluice.policy.model import Action, Direction, FragmentClass
from sluice.state.spd import PolicyList
from sluice.wire.errors import WireError
from sluice.wire.selectors import selectors

OUTBOUND_DISCARD = "OUTBOUND_DISCARD"
"""The pipeline's drop reason of packets that an outbound list discards."""


class RejectionRefusal(StrEnum):
    """Reasons why a discarded packet is not answered."""

    OUTSIDE = "sender_outside"
    LATER_FRAGMENT = "later_fragment"
    MALFORMED = "malformed"


class Rejections:
    """Decides for one router. `list_of` returns a list by its number."""

    def __init__(self, config: Config, list_of: Callable[[int], PolicyList | None]) -> None:
        self._list_of = list_of
        self._spds = {spd.name for spd in config.policy.spds if spd.reject}
        self._inside = {one.l3_if for one in config.interfaces if one.spd is None}
        self._rejecting: dict[int, tuple[PolicyList, frozenset[int]]] = {}
        self.set_rate(config.limits.icmp_rejects_per_second)

    def set_rate(self, rate: int) -> None:
        """Sets the maximum rate of answers to all senders. The burst is a tenth of it."""
        self._rate = rate
        self._bucket: TokenBucket | None = None

    def bucket(self, now: float) -> TokenBucket:
        """Returns the token bucket of the answers."""
        if self._bucket is None:
            burst = min(self._rate, max(1.0, self._rate / 10))
            self._bucket = TokenBucket(self._rate, burst, now)
        return self._bucket

    def is_wanted(self, lists: Iterable[PolicyList]) -> bool:
        """Returns whether any rule or final discard of these lists asks for answers."""
        return any(self._ids(state) for state in lists)

    def asks(self, state: PolicyList, rule_id: int) -> bool:
        """Returns whether the rule with this number asks for an answer to what it discards."""
        return rule_id in self._ids(state)

    def asks_for_copy(self, packet: PuntedPacket) -> bool:
        """Returns whether the copy of a packet that the flow cache discards is to be answered."""
        state = self._list_of(packet.list_id)
        is_current = state is not None and packet.generation == state.version.generation
        return state is not None and is_current and self.asks(state, packet.rule)

    def refusal(self, packet: PuntedPacket) -> RejectionRefusal | None:
        """Returns why a packet must not be answered, or None."""
        if not packet.bundle and packet.ingress_l3_if not in self._inside:
            return RejectionRefusal.OUTSIDE
        try:
            seen = selectors(packet.frame)
        except WireError:
            return RejectionRefusal.MALFORMED
        is_later = seen.fragment_class is FragmentClass.LATER
        return RejectionRefusal.LATER_FRAGMENT if is_later else None

    def _ids(self, state: PolicyList) -> frozenset[int]:
        """Returns the numbers of a list's rules that ask. The result is cached for each list."""
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
