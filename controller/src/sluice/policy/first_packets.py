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

A kernel's default counts as no rule. If the default is bypass, it decides about an error whose
quoted packet is bypassed too. An error in fragments does not get this default if its quote could be
of a flow that a rule protects or discards, since later fragments cannot be judged by the quote. Nor
does a redirect or another message with a quote that no router forwards.

Two kinds of verdict are not cached:

- a verdict on an ICMP error that depends on the packet that the error quotes;
- the verdict on a packet whose headers the pipeline could not parse completely.

Every packet is re-injected, held or counted as dropped. Depends on policy, flow_tables, audit_log,
rejections, state.fragments and wire.selectors.
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
from sluice.policy.model import Action, FlowKey, FragmentClass, Selectors, Verdict
from sluice.policy.rejections import Rejections
from sluice.state.flow_cache import FlowVerdict
from sluice.state.fragments import DatagramKey, FragmentRange, FragmentTable
from sluice.state.spd import PolicyList
from sluice.wire.errors import WireError
from sluice.wire.selectors import (
    Fragment,
    Quoted,
    SeenPacket,
    is_icmp_error,
    is_neighbor_discovery,
    may_be_icmp_error,
    quoted_packet,
    quotes_a_packet,
    selectors,
)

QUOTE_REFUSED = "icmp_enclosed_flow"
"""Reason in the audit log: policy does not allow the error for the flow that it quotes."""
ERROR_IN_FRAGMENTS = "icmp_error_fragmented"
"""Reason in the audit log: the error is in fragments, and its quote may be of a flow that
a rule protects or discards."""

ERROR_NOT_ROUTED = "icmp_error_of_a_link"
"""Reason in the audit log: a redirect, source quench or unassigned error, whose quote may be of a
flow that a rule protects or discards. No such error is routed."""
LATER_REFUSED = "later fragment, its bundle carries none"


class Reinjection(NamedTuple):
    """A frame to re-inject, and its packet-out metadata."""

    frame: bytes
    metadata: Metadata


class EspSender(NamedTuple):
    """Source address and SPI of the ESP packets of a bundle's outbound SA."""

    address: Address
    spi: int


class _Found(NamedTuple):
    """Holds the result of a search.

    `key` is the verdict's key in the flow cache, None if the verdict is not cacheable.
    `refused_error` is the reason why an ICMP error is dropped. None for other packets.
    """

    verdict: Verdict
    key: FlowKey | None
    refused_error: str | None = None


class FirstPackets:
    """Answers packets that were punted because they need a list's verdict.

    `is_esp_source` returns whether an SA of an SPD sends ESP from this address with this SPI.
    `without_later` has the bundles that carry no later fragments.
    """

    def __init__(
        self,
        policy: Policy,
        packets: PacketSchema,
        fragments: FragmentTable,
        is_esp_source: Callable[[str, EspSender], bool],
        audit: AuditLog,
        *,
        rejections: Rejections,
        without_later: frozenset[int] = frozenset(),
    ) -> None:
        self._policy = policy
        self._packets = packets
        self._is_esp_source = is_esp_source
        self._audit = audit
        self._rejections = rejections
        self._without_later = without_later
        self._rejected: list[PuntedPacket] = []
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
            found = self._search(state, packet, seen, now)
        except WireError as error:
            self.counters[f"dropped: {error.name}"] += 1
            return []
        return self._apply_verdict(state, packet, found, now)

    def take_rejected(self) -> list[PuntedPacket]:
        """Returns the discarded packets since the last call whose rule asks for an answer."""
        rejected, self._rejected = self._rejected, []
        return rejected

    def expire(self, now: float) -> None:
        """Drops fragments whose first fragment has not arrived in time."""
        self.fragments.expire(now)
        self._log_dropped_fragments(now)

    def _log_dropped_fragments(self, now: float) -> None:
        for packet, reason in self.fragments.take_dropped():
            self._audit.fragment_dropped(packet, reason, now)

    def _is_own(self, packet: PuntedPacket) -> bool:
        if packet.stage == self._packets.stage_inbound:
            return bool(packet.is_local)
        return packet.origin == self._packets.origin_local

    def _apply_verdict(
        self,
        state: PolicyList,
        packet: PuntedPacket,
        found: _Found,
        now: float,
    ) -> list[Reinjection]:
        """Offers the flow to the cache, and returns the packet with its verdict."""
        verdict, key, refused_error = found
        self._policy.searched[state.list_id, verdict.rule_id] += 1
        if key is not None:
            epoch, (rule_id, action, bundle) = state.version.epoch, verdict
            flow = FlowVerdict(epoch, rule_id, action, bundle)
            self._policy.flows.offer(state.list_id, key, flow, now)
        if verdict.action is Action.DISCARD:
            self.counters[f"dropped: policy discards {state.direction.value}"] += 1
            if refused_error is None:
                self._audit.discarded(packet, state, verdict.rule_id, now)
            else:
                self._audit.error_refused(packet, state, refused_error, now)
            if self._rejections.asks(state, verdict.rule_id):
                self._rejected.append(packet)
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
        self, state: PolicyList, packet: PuntedPacket, seen: SeenPacket, now: float
    ) -> _Found:
        """Searches the list for a packet that is no fragment. Raises WireError."""
        verdict = state.search(seen.selectors)
        if _is_bypassed_by_default(state, verdict) and quotes_a_packet(seen.selectors):
            if not _may_quote_restricted(state, seen.selectors):
                return _Found(verdict, None)
            if not is_icmp_error(seen.selectors):
                return _Found(state.final(), None, ERROR_NOT_ROUTED)
        if state.is_default(verdict) and is_icmp_error(seen.selectors):
            try:
                quoted = quoted_packet(packet.frame, is_own=seen.selectors.is_own)
            except WireError as error:
                self._audit.error_refused(packet, state, error.name, now)
                raise
            if quoted is not None:
                verdict = self._search_quoted(state, packet, quoted, verdict)
                is_refused = verdict.action is Action.DISCARD
                return _Found(verdict, None, QUOTE_REFUSED if is_refused else None)
        return _Found(verdict, self._key(packet, seen))

    # -- ICMP errors

    def _search_quoted(
        self, state: PolicyList, packet: PuntedPacket, quoted: Quoted, default: Verdict
    ) -> Verdict:
        """Returns the verdict of an ICMP error that no rule matches (RFC 4301, 6.1 and 6.2).

        `default` is the verdict of the list's end on the error itself.
        """
        self.counters["searched by the packet that an ICMP error quotes"] += 1
        if quoted.fragment_class is FragmentClass.LATER:
            verdict = state.search_fragment(quoted.selectors, None) or state.final()
        else:
            verdict = state.search(quoted.selectors)
        if verdict.action is default.action is Action.BYPASS:
            return default
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
        is_bypassed = verdict is not None and _is_bypassed_by_default(state, verdict)
        if is_bypassed and may_be_icmp_error(later) and _may_quote_restricted(state, later):
            verdict = None  # only the first fragment shows whether this is an error
        if verdict is not None:
            if is_first:
                verdict = state.search(seen.selectors)
            is_error = is_bypassed and quotes_a_packet(seen.selectors)
            flow = None if is_error else self._key(packet, seen)
            found = _Found(verdict, flow)
            return self._apply_to_fragment(state, packet, found, now, is_first=is_first)
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
        self._log_dropped_fragments(now)
        if arrival.refusal is not None:
            self._audit.fragment_dropped(packet, arrival.refusal.value, now)
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
            found = _Found(verdict, None)
            if (
                quotes_a_packet(arrival.first)
                and _is_bypassed_by_default(state, verdict)
                and _may_quote_restricted(state, arrival.first)
            ):
                found = _Found(state.final(), None, ERROR_IN_FRAGMENTS)
            is_first_here = each is packet and is_first
            answers += self._apply_to_fragment(state, each, found, now, is_first=is_first_here)
        return answers

    def _apply_to_fragment(
        self, state: PolicyList, packet: PuntedPacket, found: _Found, now: float, *, is_first: bool
    ) -> list[Reinjection]:
        """Applies the verdict, unless it is protection by a bundle without later fragments."""
        verdict = found.verdict
        is_refused = verdict.action is Action.PROTECT and verdict.bundle in self._without_later
        if is_first or not is_refused:
            return self._apply_verdict(state, packet, found, now)
        self.counters[f"dropped: {LATER_REFUSED}"] += 1
        self._audit.fragment_dropped(packet, LATER_REFUSED, now)
        return []


def _is_bypassed_by_default(state: PolicyList, verdict: Verdict) -> bool:
    return verdict.action is Action.BYPASS and state.is_default(verdict)


def _may_quote_restricted(state: PolicyList, error: Selectors) -> bool:
    """Returns whether an ICMP error may quote a packet of a flow that is protected or discarded.

    An error goes to the sender of the quoted packet. So the flow's rule must accept the error's
    destination.
    """
    return state.restricts_to(error.destination, is_own=error.is_own)
