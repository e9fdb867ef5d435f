# SPDX-License-Identifier: Apache-2.0
"""A packet that its list's flow cache does not know: searched, and sent on with the verdict.

Search, insert, re-inject, in that order, neither of the last two waiting for the other: the verdict
travels with the packet, and the flow is for those that follow. A discarded packet ends here, its
flow is installed all the same. What the pipeline could not walk, and what an ICMP error got for the
packet that it is about (RFC 4301, section 6), is never cached.

Every packet is sent on or counted under a name. Depends on policy, flow_tables, wire.selectors.
"""

from __future__ import annotations

from collections import Counter

from sluice.model import PuntedPacket
from sluice.p4.packets import PacketSchema, PolicyAnswer
from sluice.p4runtime.client import Metadata
from sluice.policy import Policy
from sluice.policy_model import Action, FlowKey, Verdict
from sluice.state.flow_cache import FlowVerdict
from sluice.state.spd import ListState
from sluice.wire.errors import WireError
from sluice.wire.selectors import SeenPacket, enclosed_selectors, selectors


class FirstPackets:
    """Answers for INBOUND_MISS, OUTBOUND_MISS and EXTENSION_HEADERS at a list."""

    def __init__(self, policy: Policy, packets: PacketSchema) -> None:
        self._policy = policy
        self._packets = packets
        self.counters: Counter[str] = Counter()

    def asks(self, packet: PuntedPacket) -> bool:
        """Whether a list is asked about the packet."""
        return packet.stage in (self._packets.stage_inbound, self._packets.stage_outbound)

    def answer(self, packet: PuntedPacket, now: float) -> Metadata | None:
        """What the packet is to be re-injected with; None where it is discarded."""
        state = self._policy.table.lists.get(packet.list_id)
        if state is None:
            self.counters["dropped: of a list that is not known"] += 1
            return None
        try:
            seen = selectors(packet.frame)
            verdict, key = self._search(state, packet, seen)
        except WireError as error:
            self.counters[f"dropped: {error.name}"] += 1
            return None
        self._policy.searched[state.list_id, verdict.rule_id] += 1
        if key is not None:
            epoch, (rule_id, action, bundle) = state.counts.epoch, verdict
            flow = FlowVerdict(epoch, rule_id, action, bundle)
            self._policy.flows.offer(state.list_id, key, flow, now)
        if verdict.action is Action.DISCARD:
            self.counters[f"dropped: policy discards {state.direction.value}"] += 1
            return None
        return self._packets.reinject_with(
            packet,
            PolicyAnswer(
                state.list_id,
                state.counts.generation,
                int(verdict.action),
                verdict.bundle,
                verdict.rule_id,
            ),
        )

    def _search(
        self, state: ListState, packet: PuntedPacket, seen: SeenPacket
    ) -> tuple[Verdict, FlowKey | None]:
        """The verdict, and the key to cache it under if it may be. Raises WireError."""
        verdict = state.search(seen.selectors)
        if verdict.rule_id == state.final_id:
            about = enclosed_selectors(packet.frame)
            if about is not None:
                self.counters["searched by the packet that an ICMP error is about"] += 1
                return state.search(about), None
        if packet.stage == self._packets.stage_inbound:
            return verdict, seen.key(is_local=bool(packet.is_local), bundle=packet.bundle)
        return verdict, seen.key()
