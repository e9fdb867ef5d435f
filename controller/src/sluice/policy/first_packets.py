# SPDX-License-Identifier: Apache-2.0
"""Handles flow cache misses: searches the list and re-injects the packet with the verdict.

For each packet, the list is searched, the flow is inserted into the cache, and the packet is
re-injected. Re-injection does not wait until the switch has the flow: the packet carries its own
verdict, and only later packets use the flow. A packet with verdict DISCARD is dropped here, but its
flow is installed too.

Fragments (RFC 4301, section 7) get the verdict of their datagram. This verdict is cached as usual
if all rules that could match a later fragment have the same verdict. Otherwise each fragment is
punted, and `state.fragments` tracks the datagrams.

The verdict of an ICMP error (section 6) may depend on the packet that it quotes (`decisions`).

Two kinds of verdict are not cached:

- a verdict on an ICMP error that depends on the packet that the error quotes;
- a verdict on a packet with headers that the pipeline could not parse.

Every packet is re-injected, held or counted as dropped. Depends on policy, decisions, flow_tables,
audit_log, rejections, state.fragments and wire.selectors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable
from typing import NamedTuple

from sluice._native import FirstPacket
from sluice.audit_log import AuditLog
from sluice.model import PuntedPacket
from sluice.p4.packets import AnsweredPunt, PacketSchema, PolicyAnswer
from sluice.p4runtime.client import Metadata
from sluice.policy.decisions import BadQuoteError, Decision, Decisions, EspSender
from sluice.policy.enforcement import Policy
from sluice.policy.model import (
    AH,
    Action,
    FlowKey,
    FragmentClass,
)
from sluice.policy.rejections import Rejections
from sluice.state.flow_cache import FlowVerdict
from sluice.state.fragments import DatagramKey, FragmentRange, FragmentTable
from sluice.state.spd import PolicyList
from sluice.wire.errors import WireError
from sluice.wire.selectors import Fragment, SeenPacket, selectors

AH_NO_SA = "AH_NO_SA"
"""The pipeline's drop reason of AH for this router."""
LATER_REFUSED = "later fragment, its bundle carries none"


class Reinjection(NamedTuple):
    """A frame to re-inject, and the metadata of its packet-out."""

    frame: bytes
    metadata: Metadata


class _Answer(NamedTuple):
    """Holds the answer to plain packets that match one rule of a list. All these packets get the
    same answer."""

    flow: FlowVerdict
    searched: tuple[int, int]
    answer: PolicyAnswer
    is_discard: bool


class _Answers:
    """Caches the answers to the plain packets of a list, by position of the matching rule."""

    def __init__(self, state: PolicyList) -> None:
        self.state = state
        self.first_match_of = state.index.first_match_of
        self.by_position: dict[int | None, _Answer] = {}

    def add(self, at: int | None) -> _Answer:
        """Makes the answer to packets whose first match is the rule at this position."""
        state, verdict = self.state, self.state.verdict_at(at)
        rule, action, bundle = verdict
        epoch, generation = state.version
        found = self.by_position[at] = _Answer(
            FlowVerdict(epoch, rule, action, bundle),
            (state.list_id, rule),
            PolicyAnswer(state.list_id, generation, int(action), bundle, rule),
            action is Action.DISCARD,
        )
        return found


class FirstPackets:
    """Answers packets that were punted because they need a list's verdict.

    `is_esp_source` returns whether an SA of an SPD sends ESP packets with the given source address
    and SPI. `without_later` has the bundles that carry no later fragments.
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
        without_later: Container[int] = frozenset(),
    ) -> None:
        self._policy = policy
        self._packets = packets
        self.decisions = Decisions(lambda spd: policy.spds[spd].icmp_errors_checked, is_esp_source)
        self._audit = audit
        self._rejections = rejections
        self._without_later = without_later
        self._rejected: list[PuntedPacket] = []
        self.fragments = fragments
        self.counters: Counter[str] = Counter()
        self._answers: dict[int, _Answers] = {}

    def needs_verdict(self, packet: PuntedPacket) -> bool:
        """Returns whether the packet was punted because it needs a list's verdict."""
        return packet.stage in (self._packets.stage_inbound, self._packets.stage_outbound)

    def answer(self, packet: PuntedPacket, now: float) -> list[Reinjection]:
        """Searches the list and returns the packets to re-inject.

        These are `packet`, unless it is discarded or held. If `packet` is the first fragment of its
        datagram, the later fragments that waited for it are among them.
        """
        state = self._policy.list_by_id(packet.list_id)
        if state is None:
            self.counters["dropped: of a list that is not known"] += 1
            return []
        try:
            seen = selectors(packet.frame, is_own=self._is_own(packet))
            if self._is_ah_to_router(packet, seen):
                # The pipeline punts AH only if it did not parse all headers. It drops all other AH
                # itself.
                self._audit.packet_dropped(AH_NO_SA, packet, now)
                self.counters[f"dropped: {AH_NO_SA}"] += 1
                return []
            if seen.fragment is not None:
                return self._answer_fragment(state, packet, seen, seen.fragment, now)
            decision = self._decide(state, packet, seen, now)
        except WireError as error:
            self.counters[f"dropped: {error.name}"] += 1
            return []
        return self._apply_verdict(state, packet, decision, self._key(packet, seen), now)

    def answer_plain(self, packets: Iterable[FirstPacket], now: float) -> list[AnsweredPunt]:
        """Searches the lists for plain first packets, like `answer`. Returns those to re-inject.

        A plain packet is neither a fragment nor a message of ICMP or mobility. So the first rule
        that matches decides, as in `Decisions.of_packet`, and its verdict may be cached.
        """
        answered: list[AnsweredPunt] = []
        offers: list[tuple[FirstPacket, FlowVerdict]] = []
        searched: list[tuple[int, int]] = []
        lists: dict[int, _Answers | None] = {}
        for packet in packets:
            list_id = packet.list_id
            if list_id not in lists:
                lists[list_id] = self._answers_of(list_id)
            known = lists[list_id]
            if known is None:
                self.counters["dropped: of a list that is not known"] += 1
                continue
            at = known.first_match_of(packet)
            found = known.by_position.get(at) or known.add(at)
            searched.append(found.searched)
            offers.append((packet, found.flow))
            if found.is_discard:
                self._discard(known.state, packet.packet(), found.flow.rule_id, now)
            else:
                answered.append(AnsweredPunt(packet, found.answer))
        self._policy.searched.update(searched)
        self._policy.flows.offer_all(offers, now)
        return answered

    def _answers_of(self, list_id: int) -> _Answers | None:
        """Returns the answers of a list in force, or None if the list is not known."""
        state = self._policy.list_by_id(list_id)
        if state is None:
            return None
        known = self._answers.get(list_id)
        if known is None or known.state is not state:
            known = self._answers[list_id] = _Answers(state)
        return known

    def take_rejected(self) -> list[PuntedPacket]:
        """Returns the packets that were discarded since the last call and whose rule has
        `reject`."""
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

    def _is_ah_to_router(self, packet: PuntedPacket, seen: SeenPacket) -> bool:
        """Returns whether this is AH for this router, which has no SAs for AH (RFC 4301, 5.2)."""
        inbound = packet.stage == self._packets.stage_inbound
        is_in_clear = inbound and not packet.bundle
        return is_in_clear and seen.selectors.is_own and seen.protocol == AH

    def _apply_verdict(
        self,
        state: PolicyList,
        packet: PuntedPacket,
        decision: Decision,
        key: FlowKey | None,
        now: float,
    ) -> list[Reinjection]:
        """Offers the flow to the cache, and returns the packet with its verdict.

        `key` is the flow's key in the cache; None if the flow has no key.
        """
        verdict, refused_error = decision.verdict, decision.refused_error
        self._policy.searched[state.list_id, verdict.rule_id] += 1
        if key is not None and decision.is_cacheable:
            epoch, (rule_id, action, bundle) = state.version.epoch, verdict
            flow = FlowVerdict(epoch, rule_id, action, bundle)
            self._policy.flows.offer(state.list_id, key, flow, now)
        if verdict.action is Action.DISCARD:
            self._discard(state, packet, verdict.rule_id, now, refused_error)
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

    def _discard(
        self,
        state: PolicyList,
        packet: PuntedPacket,
        rule_id: int,
        now: float,
        refused_error: str | None = None,
    ) -> None:
        """Counts and logs a discarded packet. Keeps the packet if its rule has `reject`."""
        self.counters[f"dropped: policy discards {state.direction.value}"] += 1
        if refused_error is None:
            self._audit.discarded(packet, state, rule_id, now)
        else:
            self._audit.error_refused(packet, state, refused_error, now)
        if self._rejections.asks(state, rule_id):
            self._rejected.append(packet)

    def _key(self, packet: PuntedPacket, seen: SeenPacket) -> FlowKey | None:
        inbound = packet.stage == self._packets.stage_inbound
        return seen.key(bundle=packet.bundle if inbound else 0)

    def _decide(
        self, state: PolicyList, packet: PuntedPacket, seen: SeenPacket, now: float
    ) -> Decision:
        """Decides about an unfragmented packet, and counts the result. Raises WireError."""
        verdict = state.search(seen.selectors)
        try:
            decision = self.decisions.of_packet(state, packet.frame, seen, verdict, packet.bundle)
        except BadQuoteError as error:
            self._audit.error_refused(packet, state, error.name, now)
            raise
        if decision.is_by_quote:
            self.counters["searched by the packet that an ICMP error quotes"] += 1
        if decision.is_refused_in_clear:
            self.counters["ICMP errors in clear refused"] += 1
        return decision

    # -- fragments

    def _answer_fragment(
        self,
        state: PolicyList,
        packet: PuntedPacket,
        seen: SeenPacket,
        fragment: Fragment,
        now: float,
    ) -> list[Reinjection]:
        is_first = seen.fragment_class is FragmentClass.FIRST
        decision = self.decisions.of_fragment(state, seen)
        if decision is not None:
            flow = self._key(packet, seen)
            return self._apply_to_fragment(state, packet, decision, flow, now, is_first=is_first)
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
            is_first_here = each is packet and is_first
            later = None if is_first_here else seen.as_later_fragment()
            decision = self.decisions.of_datagram(state, arrival.first, later)
            answers += self._apply_to_fragment(
                state, each, decision, None, now, is_first=is_first_here
            )
        return answers

    def _apply_to_fragment(
        self,
        state: PolicyList,
        packet: PuntedPacket,
        decision: Decision,
        key: FlowKey | None,
        now: float,
        *,
        is_first: bool,
    ) -> list[Reinjection]:
        """Applies the verdict. Drops the fragment instead if its bundle carries no later
        fragments."""
        verdict = decision.verdict
        is_refused = verdict.action is Action.PROTECT and verdict.bundle in self._without_later
        if is_first or not is_refused:
            return self._apply_verdict(state, packet, decision, key, now)
        self.counters[f"dropped: {LATER_REFUSED}"] += 1
        self._audit.fragment_dropped(packet, LATER_REFUSED, now)
        return []
