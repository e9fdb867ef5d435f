# SPDX-License-Identifier: Apache-2.0
"""Reports the traffic of rules with `from_packet` for which an SA is missing (RFC 4301, 5.1 step
3b).

The switch drops a packet as NO_SA if no SA carries packets with its populated values, and copies
the packet to the controller. This module writes the values to the audit log. An operator, or a
program that follows the audit log, can then add the SA. The same values are reported at most once
in `INTERVAL`.

The kernel's key managers get their acquires from `kernel_mirror`. Depends on policy, audit_log,
wire.selectors.
"""

from __future__ import annotations

from collections import Counter, OrderedDict

from sluice.audit_log import AuditLog
from sluice.model import PuntedPacket
from sluice.p4.packets import PacketSchema
from sluice.policy.enforcement import Policy
from sluice.policy.model import Rule
from sluice.policy.populated import (
    Instance,
    Populated,
    is_without_sa,
    named_bundle,
    populate,
    to_document,
)
from sluice.state.spd import PolicyList
from sluice.wire.errors import WireError
from sluice.wire.selectors import selectors

INTERVAL = 3.0
"""Shortest time between two reports of the same values, in seconds."""
REMEMBERED = 4096
"""Number of values whose last report is remembered."""


class Acquires:
    """Reports packets that were dropped because their instance has no SA.

    `latest` has the time of the last report of each instance. The most recent one is last.
    """

    def __init__(self, policy: Policy, packets: PacketSchema, audit: AuditLog) -> None:
        self._policy = policy
        self._packets = packets
        self._audit = audit
        self.latest: OrderedDict[Instance, float] = OrderedDict()
        self.counters: Counter[str] = Counter()
        self._populating: dict[int, tuple[PolicyList, dict[int, Rule]]] = {}
        """The rules with `from_packet` of each list, by list id and rule number."""

    def dropped(self, packet: PuntedPacket, now: float) -> None:
        """Reports a packet that the switch dropped as NO_SA, if its rule has `from_packet`."""
        instance = self._instance_of(packet)
        if instance is None:
            return
        last = self.latest.get(instance)
        if last is not None and now - last < INTERVAL:
            self.counters["SAs wanted: held back"] += 1
            return
        self.latest[instance] = now
        self.latest.move_to_end(instance)
        if len(self.latest) > REMEMBERED:
            self.latest.popitem(last=False)
        self.counters["SAs wanted"] += 1
        self._audit.acquired(packet, instance.bundle, to_document(instance.values), now)

    def _instance_of(self, packet: PuntedPacket) -> Instance | None:
        """Returns the instance whose SA would carry a packet, or None if its rule does not have
        `from_packet`."""
        name = self._policy.numbers.name_of(packet.sa_bundle)
        if name is None:
            return None
        if not is_without_sa(name):
            return self._policy.instances.named(packet.sa_bundle)
        values = self._populated(packet)
        return None if values is None else Instance(named_bundle(name), values)

    def _populated(self, packet: PuntedPacket) -> Populated | None:
        state = self._policy.list_by_id(packet.list_id)
        rule = None if state is None else self._rule(state, packet.rule)
        if rule is None:
            return None
        is_own = packet.origin == self._packets.origin_local
        try:
            seen = selectors(packet.frame, is_own=is_own)
        except WireError as error:
            self.counters[f"no report: {error.name}"] += 1
            return None
        return populate(rule.from_packet, seen.selectors)

    def _rule(self, state: PolicyList, number: int) -> Rule | None:
        """Returns the rule of a list with this number, or None if it does not have
        `from_packet`."""
        known = self._populating.get(state.list_id)
        if known is None or known[0] is not state:
            numbered = zip(state.rule_ids, state.rules, strict=True) if state.populates else ()
            known = state, {one: rule for one, rule in numbered if rule.from_packet}
            self._populating[state.list_id] = known
        return known[1].get(number)
