# SPDX-License-Identifier: Apache-2.0
"""Handles flow cache misses: searches the list and re-injects the packet with the verdict.

For each packet, the list is searched, the flow is inserted into the cache, and the packet is
re-injected. Re-injection does not wait until the switch has the flow: the packet carries its own
verdict, and the flow serves later packets only. A packet with verdict DISCARD is dropped here, but
its flow is installed too.

Fragments (RFC 4301, section 7) get the verdict of their datagram. This verdict is cached as usual
if all rules that could match a later fragment have the same verdict. Otherwise each fragment is
punted, and `state.fragments` tracks the datagrams.

An ICMP error (section 6) that no rule matches is treated like a packet of the reverse flow of the
packet that it quotes. But the sender of an error can forge the quote. So an outbound error passes
only if the rule for that flow is PROTECT, and then through the rule's bundle. An inbound error
passes only if it came through that bundle, or in clear if the SPD has `icmp_errors: checked`. All
other errors are dropped.

Two kinds of verdict are not cached:

- a verdict on an ICMP error that depends on the packet that the error quotes;
- the verdict on a packet whose headers the pipeline could not parse completely.

Every packet is re-injected, held or counted as dropped. Depends on policy, flow_tables, audit_log,
state.fragments and wire.selectors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from sluice.audit_log import AuditLog
from sluice.model import Address, PuntedPacket
from sluice.p4.packets import PacketSchema, PolicyAnswer
from sluice.p4runtime.client import Metadata
from sluice.policy.enforcement import Policy
from sluice.policy.model import Action, FlowKey, FragmentClass, Verdict
from sluice.state.flow_cache import FlowVerdict
from sluice.state.fragments import DatagramKey, FragmentRange, FragmentTable
from sluice.state.spd import PolicyList
from sluice.wire.errors import WireError
from sluice.wire.selectors import (
    Fragment,
    Quoted,
    SeenPacket,
    is_neighbor_discovery,
    quoted_packet,
    selectors,
)


class Reinjection(NamedTuple):
    """A frame to re-inject, and its packet-out metadata."""

    frame: bytes
    metadata: Metadata


class EspSender(NamedTuple):
    """Source address and SPI of the ESP packets of a bundle's outbound SA."""

    address: Address
    spi: int


class FirstPackets:
    """Answers packets that were punted because they need a list's verdict.

    Their punt reasons are INBOUND_MISS, OUTBOUND_MISS, FRAGMENT and EXTENSION_HEADERS.
    `is_esp_source` returns whether an outbound SA of an SPD uses this source address and SPI.
    """

    def __init__(
        self,
        policy: Policy,
        packets: PacketSchema,
        fragments: FragmentTable,
        is_esp_source: Callable[[str, EspSender], bool],
        audit: AuditLog,
    ) -> None:
        self._policy = policy
        self._packets = packets
        self._is_esp_source = is_esp_source
        self._audit = audit
        self.fragments = fragments
        self.counters: Counter[str] = Counter()

    def needs_verdict(self, packet: PuntedPacket) -> bool:
        """Returns whether the packet was punted because it needs a list's verdict."""
        return packet.stage in (self._packets.stage_inbound, self._packets.stage_outbound)

    def answer(self, packet: PuntedPacket, now: float) -> list[Reinjection]:
        """Searches the list and returns the packets to re-inject.

        These are `packet`, unless it is discarded or held, and the later fragments that were held
        until `packet`, the first fragment of their datagram, arrived.
        """
        state = self._policy.list_by_id(packet.list_id)
        if state is None:
            self.counters["dropped: of a list that is not known"] += 1
            return []
        try:
            seen = selectors(packet.frame, is_own=self._is_own(packet))
            if seen.fragment is not None:
                return self._answer_fragment(state, packet, seen, seen.fragment, now)
            if is_neighbor_discovery(seen.selectors) and not seen.is_cacheable:
                # The extension headers were too many for the pipeline. So it did not recognize the
                # packet as ND and did not check that the hop limit is 255.
                raise WireError("nd_invalid", 0, "neighbour discovery behind a deep chain")
            verdict, key = self._search(state, packet, seen)
        except WireError as error:
            self.counters[f"dropped: {error.name}"] += 1
            return []
        return self._apply_verdict(state, packet, verdict, key, now)

    def expire(self, now: float) -> None:
        """Drops fragments whose first fragment has not arrived in time."""
        self.fragments.expire(now)

    def _is_own(self, packet: PuntedPacket) -> bool:
        if packet.stage == self._packets.stage_inbound:
            return bool(packet.is_local)
        return packet.origin == self._packets.origin_local

    def _apply_verdict(
        self,
        state: PolicyList,
        packet: PuntedPacket,
        verdict: Verdict,
        key: FlowKey | None,
        now: float,
    ) -> list[Reinjection]:
        """Offers the flow to the cache, and returns the packet to re-inject with its verdict.

        Returns no packet if the verdict is DISCARD.
        """
        self._policy.searched[state.list_id, verdict.rule_id] += 1
        if key is not None:
            epoch, (rule_id, action, bundle) = state.version.epoch, verdict
            flow = FlowVerdict(epoch, rule_id, action, bundle)
            self._policy.flows.offer(state.list_id, key, flow, now)
        if verdict.action is Action.DISCARD:
            self.counters[f"dropped: policy discards {state.direction.value}"] += 1
            self._audit.discarded(packet, state, verdict.rule_id, now)
            return []
        metadata = self._packets.reinject_with(
            packet,
            PolicyAnswer(
                state.list_id,
                state.version.generation,
                int(verdict.action),
                verdict.bundle,
                verdict.rule_id,
            ),
        )
        return [Reinjection(packet.frame, metadata)]

    def _key(self, packet: PuntedPacket, seen: SeenPacket) -> FlowKey | None:
        inbound = packet.stage == self._packets.stage_inbound
        return seen.key(bundle=packet.bundle if inbound else 0)

    def _search(
        self, state: PolicyList, packet: PuntedPacket, seen: SeenPacket
    ) -> tuple[Verdict, FlowKey | None]:
        """Returns the verdict and its cache key. The key is None if the verdict must not be cached.

        Raises WireError.
        """
        verdict = state.search(seen.selectors)
        if verdict.rule_id == state.final_id:
            quoted = quoted_packet(packet.frame, is_own=seen.selectors.is_own)
            if quoted is not None:
                return self._search_quoted(state, packet, quoted), None
        return verdict, self._key(packet, seen)

    # -- ICMP errors

    def _search_quoted(self, state: PolicyList, packet: PuntedPacket, quoted: Quoted) -> Verdict:
        """Returns the verdict on an ICMP error that no rule matches (RFC 4301, 6.1 and 6.2)."""
        self.counters["searched by the packet that an ICMP error quotes"] += 1
        if quoted.fragment_class is FragmentClass.LATER:
            verdict = state.search_fragment(quoted.selectors, None) or state.final()
        else:
            verdict = state.search(quoted.selectors)
        if packet.stage == self._packets.stage_outbound:
            is_accepted = verdict.action is Action.PROTECT
        elif packet.bundle:
            is_accepted = verdict.action is Action.PROTECT and verdict.bundle == packet.bundle
        else:
            return self._unprotected_error(state, quoted, verdict)
        return verdict if is_accepted else state.final()

    def _unprotected_error(self, state: PolicyList, quoted: Quoted, verdict: Verdict) -> Verdict:
        """Returns the verdict on an inbound ICMP error that came in clear. Its quote may be forged.

        The error passes only if the SPD has `icmp_errors: checked`, and only in these cases:

        - The list bypasses the reverse flow of the quoted packet.
        - The error is for this router and quotes an ESP packet that an SA of this SPD sent.
        """
        if self._policy.spds[state.spd].icmp_errors_checked:
            if verdict.action is Action.BYPASS:
                return verdict
            if quoted.spi is not None and quoted.selectors.is_own:
                about = EspSender(quoted.selectors.destination, quoted.spi)
                if self._is_esp_source(state.spd, about):
                    return Verdict(state.final_id, Action.BYPASS, 0)
        self.counters["ICMP errors in clear refused"] += 1
        return state.final()

    # -- fragments

    def _answer_fragment(
        self,
        state: PolicyList,
        packet: PuntedPacket,
        seen: SeenPacket,
        fragment: Fragment,
        now: float,
    ) -> list[Reinjection]:
        if is_neighbor_discovery(seen.selectors):
            raise WireError("nd_invalid", 0, "neighbour discovery in fragments (RFC 6980)")
        is_first = seen.fragment_class is FragmentClass.FIRST
        later = seen.as_later_fragment()
        verdict = state.search_fragment(later, None)
        if verdict is not None:
            if is_first:
                verdict = state.search(seen.selectors)
            return self._apply_verdict(state, packet, verdict, self._key(packet, seen), now)
        key = DatagramKey(
            state.list_id,
            seen.selectors.is_own,
            packet.bundle,
            seen.selectors.source,
            seen.selectors.destination,
            fragment.protocol,
            fragment.identification,
        )
        piece = FragmentRange(fragment.start, fragment.end, fragment.more)
        first = seen.selectors if is_first else None
        arrival = self.fragments.arrive(key, piece, packet, first, now)
        if arrival.refusal is not None:
            self.counters[f"dropped: {arrival.refusal.value}"] += 1
            return []
        if arrival.first is None:
            self.counters["fragments that waited for their first"] += 1
            return []
        answers: list[Reinjection] = []
        for each in (packet, *arrival.released):
            verdict = state.search(arrival.first)
            if not (each is packet and is_first):
                verdict = state.search_fragment(later, arrival.first) or state.final()
            answers += self._apply_verdict(state, each, verdict, None, now)
        return answers
