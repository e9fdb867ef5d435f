# SPDX-License-Identifier: Apache-2.0
"""Decides about punted packets: deliver to the host, answer, fragment, or hold.

`PuntHandler.handle(packet, now)` stores its decisions in `PuntActions` and sends nothing. Every
packet has exactly one of these outcomes, or is dropped and counted by the reason.

- No ICMP error is sent about a packet that this router itself sent, because the error would go to
  this router. Exception: if a packet of the host stack is too big, the stack gets the error, on the
  interface on which it sent the packet. The stack's path MTU discovery needs this error (RFC 1191,
  RFC 8201), because no other router knows by how much ESP enlarges the packet.
- ESP packets of this router that are too big are fragmented, unless they are IPv4 with DF set.

Depends on state, held_packets, icmp, fragment, policy.rejections, wire.packet and the packet
metadata of p4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from operator import attrgetter
from secrets import randbits
from typing import NamedTuple, Protocol

from sluice._native import FirstPacket
from sluice.fragment import fragment_esp_over_ipv6, fragment_ipv4
from sluice.held_packets import HeldPackets
from sluice.icmp import IcmpErrorKind, IcmpErrorRefusal, RateLimiter, error_for
from sluice.model import Address, NeighborState, PuntedPacket
from sluice.p4.packets import AnsweredPunt, PacketSchema, PuntReason
from sluice.p4runtime.client import Metadata
from sluice.policy.rejections import Rejections
from sluice.state.fib import Fib
from sluice.state.nexthops import Path
from sluice.wire.errors import WireError
from sluice.wire.packet import (
    has_source_route,
    ip_payload,
    is_multicast,
    local_frame,
    parse_ethernet,
    parse_ipv4,
    parse_ipv6,
)

FOR_THE_HOST = frozenset(
    {
        PuntReason.ARP,
        PuntReason.LINK_PROTOCOL,
        PuntReason.NEIGHBOR_DISCOVERY,
        PuntReason.ROUTING_PROTOCOL,
        PuntReason.IKE,
        PuntReason.LOCAL,
    }
)
IP_FOR_THE_HOST = FOR_THE_HOST - {PuntReason.ARP, PuntReason.LINK_PROTOCOL}
COPIES = frozenset({PuntReason.AUDIT, PuntReason.ACQUIRE})
"""Reasons of the copies of packets that the switch has dropped."""
_REASON = attrgetter("reason")
ANSWERED = {
    PuntReason.TTL_EXCEEDED: IcmpErrorKind.TTL_EXCEEDED,
    PuntReason.NO_ROUTE: IcmpErrorKind.NO_ROUTE,
    PuntReason.UNREACHABLE: IcmpErrorKind.ROUTE_UNREACHABLE,
    PuntReason.PROHIBITED: IcmpErrorKind.PROHIBITED,
}


class TunnelMtu(NamedTuple):
    """Holds the path MTU of a bundle, and by how much its ESP enlarges a packet. Both are in
    bytes."""

    path_mtu: int
    overhead: int


class PolicySearch(Protocol):
    """Searches the policy lists for packets that miss the flow cache
    (`first_packets.FirstPackets`)."""

    def needs_verdict(self, packet: PuntedPacket) -> bool:
        """Returns whether the packet needs a verdict from a policy list."""

    def answer(self, packet: PuntedPacket, now: float) -> Iterable[tuple[bytes, Metadata]]:
        """Returns frames to re-inject and their metadata. The result is empty if the packet is
        discarded or held."""

    def answer_plain(self, packets: Iterable[FirstPacket], now: float) -> Iterable[AnsweredPunt]:
        """Searches the lists for plain first packets. Returns the packets to re-inject, with their
        answers."""

    def take_rejected(self) -> Iterable[PuntedPacket]:
        """Returns the packets that were discarded since the last call and whose rule has
        `reject`."""

    def expire(self, now: float) -> None:
        """Drops the packets that were held too long."""


class PuntActions:
    """Collects what the caller must do after a slice of packets has been handled."""

    __slots__ = ("answered", "packet_outs", "resolve", "to_host", "unanswered")

    def __init__(self) -> None:
        self.to_host: list[tuple[int, bytes]] = []
        self.packet_outs: list[tuple[bytes, Metadata]] = []
        self.answered: list[AnsweredPunt] = []
        self.resolve: list[Path] = []
        self.unanswered: list[Path] = []


class PuntHandler:
    """Decides about punted packets.

    - `when_ready(path)`: requests that `release` is called for a resolved neighbour once the switch
      can forward to it.
    - `tunnels`: path MTU and overhead of each bundle, by the bundle's number.
    - `audit_drop`: called with reason, packet and time of a drop, for the audit log.
    - `delivering`: called with each IP packet for the host.
    - `rejections`: decides which packets that policy discards are answered.
    - `without_later`: the bundles that carry no later fragments.
    """

    def __init__(
        self,
        fib: Fib,
        packets: PacketSchema,
        held: HeldPackets,
        limiter: RateLimiter,
        when_ready: Callable[[Path], None],
        *,
        first_packets: PolicySearch,
        tunnels: Mapping[int, TunnelMtu],
        audit_drop: Callable[[str, PuntedPacket, float], None],
        delivering: Callable[[PuntedPacket], None],
        rejections: Rejections,
        without_later: Container[int] = frozenset(),
    ) -> None:
        self._fib = fib
        self._packets = packets
        self._held = held
        self._limiter = limiter
        self._when_ready = when_ready
        self._first_packets = first_packets
        self._tunnels = tunnels
        self._audit_drop = audit_drop
        self._delivering = delivering
        self._rejections = rejections
        self._without_later = without_later
        self.counters: Counter[str] = Counter()
        self.by_reason: Counter[str] = Counter()

    def handle(self, packet: PuntedPacket, now: float, outcome: PuntActions) -> None:
        """Decides about one packet."""
        reason = self._packets.reasons.get(packet.reason)
        if reason is None:
            self.counters["dropped: unknown punt reason"] += 1
            return
        self.by_reason[reason.value] += 1
        if reason in FOR_THE_HOST:
            if reason in IP_FOR_THE_HOST:
                self._delivering(packet)
            outcome.to_host.append((packet.ingress_l3_if, packet.frame))
        elif reason in ANSWERED:
            self._answer(packet, ANSWERED[reason], now, outcome)
        elif reason is PuntReason.NEIGHBOR_UNRESOLVED:
            self._hold(packet, now, outcome)
        elif reason is PuntReason.MTU_EXCEEDED:
            self._too_big(packet, now, outcome)
        elif reason is PuntReason.IP_OPTIONS:
            self._look_at_options(packet, outcome)
        elif reason in COPIES:
            dropped_for = self._packets.drop_reasons.get(packet.drop_reason)
            self._audit_drop(dropped_for or str(packet.drop_reason), packet, now)
        else:
            self._ask_policy(packet, now, outcome)

    def handle_first(
        self, packets: Sequence[FirstPacket], now: float, outcome: PuntActions
    ) -> None:
        """Decides about plain first packets."""
        for reason, number in Counter(map(_REASON, packets)).items():
            self.by_reason[self._packets.reasons[reason].value] += number
        outcome.answered += self._first_packets.answer_plain(packets, now)
        for rejected in self._first_packets.take_rejected():
            self._reject(rejected, now, outcome)

    def _ask_policy(self, packet: PuntedPacket, now: float, outcome: PuntActions) -> None:
        """Handles the punt reasons INBOUND_MISS, OUTBOUND_MISS, FRAGMENT and EXTENSION_HEADERS
        (more headers than the pipeline parses)."""
        if not self._first_packets.needs_verdict(packet):
            self.counters["dropped: asks no list"] += 1
            return
        outcome.packet_outs += self._first_packets.answer(packet, now)
        for rejected in self._first_packets.take_rejected():
            self._reject(rejected, now, outcome)

    # -- ICMP errors

    def _reject(self, packet: PuntedPacket, now: float, outcome: PuntActions) -> None:
        """Answers a packet that policy discards, if it may be answered."""
        refusal = self._rejections.refusal(packet)
        if refusal is not None:
            self.counters[f"icmp refused: {refusal}"] += 1
            return
        self._answer(packet, IcmpErrorKind.PROHIBITED, now, outcome, is_rejection=True)

    def unreachable(self, packets: list[PuntedPacket], now: float, outcome: PuntActions) -> None:
        """Answers packets whose neighbour is unreachable with ICMP errors, where errors are
        allowed."""
        for packet in packets:
            self._answer(packet, IcmpErrorKind.NEIGHBOR_UNREACHABLE, now, outcome)

    def _answer(
        self,
        packet: PuntedPacket,
        kind: IcmpErrorKind,
        now: float,
        outcome: PuntActions,
        *,
        mtu: int = 0,
        is_rejection: bool = False,
    ) -> None:
        """Sends an ICMP error to the packet's sender, if the rates allow it.

        `is_rejection`: the error is about a packet that policy discards, and the lower rates of
        such errors apply too.
        """
        if packet.origin in self._packets.own_origins:
            self.counters[f"dropped: own packet, {kind.name}"] += 1
            return
        try:
            ip = ip_payload(packet.frame)
            source = parse_ipv4(ip).source if ip[0] >> 4 == 4 else parse_ipv6(ip).source
        except WireError as error:
            self.counters[f"dropped: {error.name}"] += 1
            return
        own = self._answer_from(packet, len(source))
        if own is None:
            self.counters["icmp refused: no_own_address"] += 1
            return
        answer = error_for(packet.frame, kind, own, mtu, self._fib.interfaces.broadcasts())
        # Tokens are taken only when all limits allow the error. So a refused error uses up no
        # budget.
        refusal = answer if isinstance(answer, IcmpErrorRefusal) else None
        if refusal is None and is_rejection:
            refusal = self._rejections.check_rate(source, now)
        refusal = refusal or self._limiter.refuse(source, now)
        if refusal is not None or isinstance(answer, IcmpErrorRefusal):
            self.counters[f"icmp refused: {refusal}"] += 1
            return
        if is_rejection:
            self._rejections.count_answer(source, now)
        self.counters[f"icmp sent: {kind.name}"] += 1
        # An error about a decrypted packet quotes plaintext. So the error must leave through the
        # bundle of the SA that decrypted the packet (RFC 4301, section 6). Otherwise the pipeline
        # drops it.
        metadata = self._packets.local_origin(0, packet.vrf, packet.bundle)
        outcome.packet_outs.append((local_frame(answer), metadata))

    def _answer_from(self, packet: PuntedPacket, size: int) -> Address | None:
        """Returns the source address of an error: an address of the ingress interface, as
        traceroute expects, or else another own address of the VRF."""
        return self._fib.interfaces.icmp_source(packet.ingress_l3_if, packet.vrf, size)

    # -- MTU

    def _too_big(self, packet: PuntedPacket, now: float, outcome: PuntActions) -> None:
        interface = self._fib.interfaces.by_l3_if.get(packet.egress_l3_if)
        if interface is None:
            self.counters["dropped: too big for an unknown interface"] += 1
            return
        try:
            ip = ip_payload(packet.frame)
            mtu = self._mtu(packet, interface.mtu)
            is_esp_over_ipv6 = packet.origin == self._packets.origin_encrypted and ip[0] >> 4 == 6
            if not is_esp_over_ipv6 and (ip[0] >> 4 != 4 or parse_ipv4(ip).dont_fragment):
                if packet.origin == self._packets.origin_local and packet.nexthop_id == 0:
                    self._tell_host(packet, ip, mtu, now, outcome)
                else:
                    self._answer(packet, IcmpErrorKind.TOO_BIG, now, outcome, mtu=mtu)
                return
            is_protected = packet.verdict == self._packets.verdict_protect
            if is_protected and packet.sa_bundle in self._without_later:
                self.counters["dropped: too big, its bundle carries no later fragments"] += 1
                return
            ethernet = packet.frame[: parse_ethernet(packet.frame).payload_offset]
            fragments = (
                fragment_esp_over_ipv6(ip, mtu, randbits(32))
                if is_esp_over_ipv6
                else fragment_ipv4(ip, mtu)
            )
        except WireError as error:
            self.counters[f"dropped: {error.name}"] += 1
            return
        self.counters["packets fragmented"] += 1
        metadata = self._packets.reinject_at_rewrite(packet, packet.nexthop_id)
        outcome.packet_outs += [(ethernet + fragment, metadata) for fragment in fragments]

    def _tell_host(
        self, packet: PuntedPacket, ip: bytes, mtu: int, now: float, outcome: PuntActions
    ) -> None:
        """Sends "too big" to the host stack, through the interface on which it sent the packet.

        The error's source address is the packet's destination. If the source were an own address,
        the stack would drop the error as a martian.
        """
        if ip[0] >> 4 == 4:
            source, destination = parse_ipv4(ip).source, parse_ipv4(ip).destination
        else:
            source, destination = parse_ipv6(ip).source, parse_ipv6(ip).destination
        if is_multicast(destination):
            self.counters["dropped: own packet, TOO_BIG"] += 1
            return
        broadcasts = self._fib.interfaces.broadcasts()
        answer = error_for(packet.frame, IcmpErrorKind.TOO_BIG, destination, mtu, broadcasts)
        refusal = (
            answer if isinstance(answer, IcmpErrorRefusal) else self._limiter.refuse(source, now)
        )
        if refusal is not None or isinstance(answer, IcmpErrorRefusal):
            self.counters[f"own packet too big, icmp refused: {refusal}"] += 1
            return
        self.counters["own packet too big: the host stack is told"] += 1
        frame = packet.frame
        ethernet = frame[6:12] + frame[:6] + local_frame(answer)[12:14]
        outcome.to_host.append((packet.egress_l3_if, ethernet + answer))

    def _mtu(self, packet: PuntedPacket, mtu: int) -> int:
        """Returns the MTU of the interface or of the tunnel, minus the bytes that ESP adds."""
        if packet.verdict != self._packets.verdict_protect:
            return mtu
        tunnel = self._tunnels.get(packet.sa_bundle)
        return mtu if tunnel is None else max(0, min(mtu, tunnel.path_mtu) - tunnel.overhead)

    # -- IPv4 options

    def _look_at_options(self, packet: PuntedPacket, outcome: PuntActions) -> None:
        """Handles a packet with IPv4 options that the target could not parse. Drops the packet only
        if it has a source route."""
        try:
            options = parse_ipv4(ip_payload(packet.frame)).options
            source_routed = has_source_route(options)
        except WireError as error:
            self.counters[f"dropped: {error.name}"] += 1
            return
        if source_routed:
            self.counters["dropped: source_route"] += 1
        else:
            outcome.packet_outs.append((packet.frame, self._packets.reinject_at_routing(packet)))

    # -- neighbours

    def _hold(self, packet: PuntedPacket, now: float, outcome: PuntActions) -> None:
        path = self._wanted_neighbor(packet)
        if path is None:
            self.counters["dropped: no neighbour to ask for"] += 1
            return
        first = path not in self._held
        if not self._held.hold(path, packet, now):
            return
        if self._fib.neighbors.mac_of(path) is not None:
            # The neighbour was resolved meanwhile. The switch has the next hop or is about to get
            # it.
            self._when_ready(path)
        elif first:
            outcome.resolve.append(path)

    def _wanted_neighbor(self, packet: PuntedPacket) -> Path | None:
        path = self._fib.nexthops.path_of(packet.nexthop_id)
        if path is not None and path.address is not None:
            return path
        if packet.egress_l3_if not in self._fib.interfaces.by_l3_if:
            return None
        try:
            ip = ip_payload(packet.frame)
            address = parse_ipv4(ip).destination if ip[0] >> 4 == 4 else parse_ipv6(ip).destination
        except WireError as error:
            self.counters[f"malformed: {error.name}"] += 1
            return None
        return Path(packet.egress_l3_if, address)

    def release(self, path: Path, outcome: PuntActions) -> None:
        """Releases the packets held for a neighbour to which the switch can now forward."""
        identifier = self._fib.nexthops.id_of(path)
        packets = self._held.release(path)
        if identifier is None:
            self.counters["dropped: neighbour gone again"] += len(packets)
            return
        for packet in packets:
            metadata = self._packets.reinject_at_rewrite(packet, identifier)
            outcome.packet_outs.append((packet.frame, metadata))

    def neighbor_changed(
        self, path: Path, state: NeighborState, now: float, outcome: PuntActions
    ) -> None:
        """Handles a neighbour notification of the kernel, after the Fib has applied it."""
        if path not in self._held:
            return
        if self._fib.neighbors.mac_of(path) is not None:
            if self._fib.nexthops.id_of(path) is None:
                # The neighbour is resolved, but may never become a next hop: it is off-link, or a
                # longer prefix overrides its route.
                self.unreachable(self._held.fail(path), now, outcome)
            else:
                self._when_ready(path)
        elif state is NeighborState.FAILED:
            self.unreachable(self._held.fail(path), now, outcome)

    def expire(self, now: float, outcome: PuntActions) -> None:
        """Handles packets that have waited too long: answers those that wait for a neighbour with
        ICMP errors, and drops fragments."""
        self._first_packets.expire(now)
        for path, packets in self._held.expired(now).items():
            outcome.unanswered.append(path)
            self.unreachable(packets, now, outcome)
