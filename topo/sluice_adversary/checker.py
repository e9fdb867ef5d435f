# SPDX-License-Identifier: Apache-2.0
"""Compares captured frames with the reference.

The checker assigns each captured frame to a datagram of the adversary, by its mark or its bytes.
Packets of the router itself are recognized by their source address. A frame is a **leak** if the
reference does not allow it, or if it belongs to no datagram. A datagram is **lost** if the
reference requires its arrival and not all of its packets have arrived.
"""

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field

from . import marks, plan
from .datagrams import DECRYPT, ENCRYPT, SHIM_LENGTH, Datagram, read_shim
from .errors import is_error, lengthened
from .lists import TO_DECRYPT, PacketOutcome, PacketOutcomes
from .reference import Expectation, Reference
from .wire import (
    ESP,
    ETHERTYPE_ARP,
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    ETHERTYPE_SHIM,
    Piece,
    read_piece,
    read_upper,
)

REMEMBERED = 60_000
"""Number of datagrams that the checker keeps. A frame of an older datagram counts as a leak."""
HOST_SOCKETS = "sockets"


@dataclass
class SentDatagram:
    """Holds a datagram that was sent, its permitted outcomes, and the indexes of its packets that
    have arrived.
    """

    datagram: Datagram
    expectation: Expectation
    round: int
    arrived: set[int] = field(default_factory=set)
    leaked: bool = False

    @property
    def is_pending(self) -> bool:
        """Whether the datagram must arrive and some of its packets are still missing."""
        return self.expectation.must and len(self.arrived) < len(self.datagram.packets)


@dataclass(frozen=True)
class Finding:
    """Describes a leak or a lost datagram, with the round in which it was found."""

    kind: str
    shape: str
    what: str
    case: SentDatagram | None
    frame: bytes = b""
    round: int = 0

    def __str__(self) -> str:
        return f"{self.kind}: {self.shape}: {self.what}"


class OutcomeChecker:
    """Assigns frames to datagrams, compares them with the permitted outcomes, and collects the
    findings.
    """

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.seen: Counter[str] = Counter()
        self.cases: OrderedDict[int, SentDatagram] = OrderedDict()
        self.pending: set[int] = set()
        self._carried: dict[tuple[bytes, bytes], set[int]] = {}
        self._by_bytes: dict[object, list[int]] = {}
        self._references: deque[Reference] = deque(maxlen=2)
        self._round = 0

    def new_round(self, reference: Reference) -> None:
        """Begins a round with the policy of `reference`.

        Until `settled` is called, the router's own packets may also be packets that the previous
        policy permits.
        """
        self._references.append(reference)
        self._round += 1

    def settled(self) -> None:
        """Removes the previous policy.

        Precondition: no packet to which that policy was applied is still on its way.
        """
        while len(self._references) > 1:
            self._references.popleft()

    @property
    def reference(self) -> Reference:
        """The reference for the policy in force."""
        return self._references[-1]

    def sent(self, datagram: Datagram) -> SentDatagram:
        """Registers a datagram that will be sent next. Computes its permitted outcomes."""
        case = SentDatagram(datagram, self.reference.expect(datagram), self._round)
        self.cases[datagram.number] = case
        for piece in datagram.pieces:
            if piece is not None:
                self._by_bytes.setdefault(_bytes_key(piece), []).append(datagram.number)
            if piece is not None and datagram.entry.carrier and any(case.expectation.allowed):
                ends = piece.source, piece.destination
                self._carried.setdefault(ends, set()).add(datagram.entry.carrier)
        if case.expectation.must:
            self.pending.add(datagram.number)
        while len(self.cases) > REMEMBERED:
            _, old = self.cases.popitem(last=False)
            self._forget(old.datagram)
        return case

    def _forget(self, datagram: Datagram) -> None:
        self.pending.discard(datagram.number)
        for piece in datagram.pieces:
            key = None if piece is None else _bytes_key(piece)
            left = [n for n in self._by_bytes.get(key, ()) if n != datagram.number]
            if left:
                self._by_bytes[key] = left
            else:
                self._by_bytes.pop(key, None)

    def give_up(self) -> list[Finding]:
        """Records the datagrams that are still missing as lost. Returns these findings."""
        lost = []
        for number in sorted(self.pending):
            case = self.cases[number]
            count = f"{len(case.arrived)} of {len(case.datagram.packets)} packets arrived"
            where = ", ".join(sorted({_name(o) for a in case.expectation.allowed for o in a}))
            text = f"{count} ({where})"
            lost.append(Finding("lost", case.datagram.shape, text, case, b"", self._round))
        self.pending.clear()
        self.findings += lost
        return lost

    # -- frames

    def saw(self, place: str, frame: bytes) -> None:
        """Checks a frame that left the router. `place` is a link or the engine's port."""
        ether_type = int.from_bytes(frame[12:14], "big")
        packet, shim = frame[14:], None
        if ether_type == ETHERTYPE_SHIM:
            shim = read_shim(packet)
            packet = packet[SHIM_LENGTH:]
            if place != plan.ENGINE or shim is None:
                self._leak("shim", f"a shim left by {place}", None, frame)
                return
        elif ether_type == ETHERTYPE_ARP and place != plan.ENGINE:
            return
        elif ether_type not in (ETHERTYPE_IPV4, ETHERTYPE_IPV6) or place == plan.ENGINE:
            self._leak("no IP", f"EtherType {ether_type:#06x} at {place}", None, frame)
            return
        outcome = PacketOutcome("out", place)
        if shim is not None:
            kinds = {ENCRYPT: PacketOutcome("protect", shim.bundle), DECRYPT: TO_DECRYPT}
            outcome = kinds.get(shim.kind, PacketOutcome("shim", shim.kind))
        self._check_outcome(outcome, packet, frame)

    def delivered(self, frame: bytes) -> None:
        """Checks a frame that the router delivered to its own host stack."""
        if int.from_bytes(frame[12:14], "big") in (ETHERTYPE_IPV4, ETHERTYPE_IPV6):
            self._check_outcome(PacketOutcome("host"), frame[14:], frame)

    def heard(self, data: bytes) -> None:
        """Checks a packet that one of the host's sockets has received, whole or reassembled.

        Ignores packets from loopback addresses: they come from the router's own processes.
        """
        if data[:1] >= b"\x45" and data[12:13] == b"\x7f":
            return
        number = marks.find(data)
        case = self.cases.get(number) if number is not None else None
        if case is None:
            return
        self.seen[HOST_SOCKETS] += 1
        if not any(PacketOutcome("host") in allowed for allowed in case.expectation.allowed):
            self._leak(case.datagram.shape, "a socket of the host received it", case, data)

    def _check_outcome(self, outcome: PacketOutcome, packet: bytes, frame: bytes) -> None:
        self.seen[outcome.kind] += 1
        piece = read_piece(packet)
        if piece is None:
            self._leak("no IP", f"no IP header at {_name(outcome)}", None, frame)
            return
        for case in self._candidates(piece, frame):
            if self._is_of(case, piece):
                self._check_piece(case, piece, outcome, frame)
                return
        self._check_own_packet(piece, outcome, frame)

    def _candidates(self, piece: Piece, frame: bytes) -> list[SentDatagram]:
        """Returns the datagrams to which a frame may belong, the most recent first."""
        number = marks.find(frame)
        found = [number] if number is not None else self._by_bytes.get(_bytes_key(piece), [])
        return [self.cases[one] for one in reversed(found) if one in self.cases]

    def _is_of(self, case: SentDatagram, piece: Piece) -> bool:
        ends = piece.source, piece.destination
        return any(
            p is not None and (p.source, p.destination) == ends for p in case.datagram.pieces
        )

    def _check_piece(
        self, case: SentDatagram, piece: Piece, outcome: PacketOutcome, frame: bytes
    ) -> None:
        same = [
            at
            for at, sent in enumerate(case.datagram.pieces)
            if sent is not None and _covers(sent, piece)
        ]
        exact = [at for at in same if _same_place(case.datagram.pieces[at], piece)] or same
        if not any(outcome in case.expectation.allowed[at] for at in exact):
            others = [] if marks.find(frame) is not None else self._candidates(piece, frame)
            if not any(outcome in a for other in others for a in other.expectation.allowed):
                self._leak(case.datagram.shape, self._difference(case, exact, outcome), case, frame)
            return
        case.arrived.update(same)
        if not case.expectation.may_overlap and _overlap(case, same):
            what = f"overlapping fragments at {_name(outcome)}"
            self._leak(case.datagram.shape, what, case, frame)
        if not case.is_pending:
            self.pending.discard(case.datagram.number)

    def _difference(self, case: SentDatagram, same: list[int], outcome: PacketOutcome) -> str:
        if not same:
            return f"altered bytes at {_name(outcome)}"
        allowed = sorted({_name(o) for at in same for o in case.expectation.allowed[at]})
        because = f" ({case.expectation.excuse})" if case.expectation.excuse else ""
        packets = "/".join(str(at + 1) for at in same)
        count = len(case.datagram.packets)
        wanted = " or ".join(allowed) or "nowhere"
        return f"packet {packets} of {count} at {_name(outcome)}, belongs {wanted}{because}"

    # -- the router's own packets

    def _check_own_packet(self, piece: Piece, outcome: PacketOutcome, frame: bytes) -> None:
        case = self._subject(piece, frame)
        shape = case.datagram.shape if case is not None else "own"
        if outcome.kind == "host":
            if not _is_error(piece):  # the controller sends errors about the host's packets
                self._leak(
                    shape,
                    "delivered to the host, although no datagram has this content",
                    case,
                    frame,
                )
            return
        ours = piece.source in plan.OWN or piece.source == bytes(16)
        if not ours and not plan.is_link_local(piece.source):
            self._leak(shape, f"unknown source at {_name(outcome)}", case, frame)
            return
        self.seen["the router's own"] += 1
        if read_upper(piece.version, piece.start, piece.payload).protocol == ESP:
            self._leak(shape, f"ESP that no SA explains at {_name(outcome)}", case, frame)
            return
        if _is_error(piece) and self._may_be_about(piece, outcome):
            self.seen["errors about what a bundle carried"] += 1
            return
        if case is not None and case.datagram.entry.carrier and _is_error(piece):
            self.seen["errors about what a bundle carried"] += 1
            allowed: PacketOutcomes = frozenset(
                {PacketOutcome("protect", case.datagram.entry.carrier)}
            )
            if outcome not in allowed:
                text = f"an error about what bundle {case.datagram.entry.carrier} carried"
                self._leak(shape, f"{text} at {_name(outcome)}", case, frame)
            return
        egress = str(outcome.where) if outcome.kind == "out" else None
        if not any(outcome in one.own(piece, egress) for one in self._references):
            self._leak(shape, f"the router's own packet at {_name(outcome)}", case, frame)

    def _may_be_about(self, piece: Piece, outcome: PacketOutcome) -> bool:
        """Returns whether an ICMP error leaves through a bundle that may have carried the quoted
        packet.

        That is the case if the bundle has carried a packet between the same addresses. From the
        quote alone, the checker cannot tell whether the quoted packet came by this bundle or in
        clear.
        """
        quoted = read_piece(lengthened(piece.payload[8:]))
        if quoted is None or outcome.kind != "protect":
            return False
        return outcome.where in self._carried.get((quoted.source, quoted.destination), ())

    def _subject(self, piece: Piece, frame: bytes) -> SentDatagram | None:
        """Returns the datagram that caused one of the router's own packets: the one whose mark or
        quoted packet it contains.
        """
        number = marks.find(frame)
        if number is None and _is_error(piece):
            quoted = read_piece(lengthened(piece.payload[8:]))
            numbers = [] if quoted is None else self._by_bytes.get(_bytes_key(quoted), [])
            number = numbers[-1] if numbers else None
        return None if number is None else self.cases.get(number)

    def _leak(self, shape: str, what: str, case: SentDatagram | None, frame: bytes) -> None:
        if case is not None:
            if case.leaked:
                return
            case.leaked = True
        self.findings.append(Finding("leak", shape, what, case, frame, self._round))

    def leaks(self) -> list[Finding]:
        """Returns the leaks found up to now."""
        return [finding for finding in self.findings if finding.kind == "leak"]


def _bytes_key(piece: Piece) -> tuple[object, ...]:
    ident = piece.ident if piece.version == 4 or piece.is_fragment else 0
    return piece.source, piece.destination, ident, piece.offset, piece.payload


def _same_place(sent: Piece | None, seen: Piece) -> bool:
    return sent is not None and sent.offset == seen.offset and sent.payload == seen.payload


def _covers(sent: Piece, seen: Piece) -> bool:
    """Returns whether the captured packet is the sent packet, or a fragment of it."""
    if (sent.version, sent.source, sent.destination) != (
        seen.version,
        seen.source,
        seen.destination,
    ):
        return False
    start = seen.offset - sent.offset
    return start >= 0 and sent.payload[start : start + len(seen.payload)] == seen.payload


def _repeats(one: Piece, other: Piece) -> bool:
    """Returns whether two fragments cover the same range of bytes. Two first fragments must also
    have the same selectors.
    """
    ends = [(piece.offset, len(piece.payload), piece.more) for piece in (one, other)]
    firsts = [read_upper(piece.version, piece.start, piece.payload) for piece in (one, other)]
    return ends[0] == ends[1] and (one.offset > 0 or firsts[0] == firsts[1])


def _overlap(case: SentDatagram, same: list[int]) -> bool:
    """Returns whether a fragment that has arrived overlaps another arrived fragment. Duplicates are
    no overlap.
    """
    pieces = [case.datagram.pieces[at] for at in case.arrived]
    mine = case.datagram.pieces[same[0]]
    assert mine is not None
    return any(
        other is not None
        and other.key == mine.key
        and other.offset < mine.offset + len(mine.payload)
        and mine.offset < other.offset + len(other.payload)
        and not _repeats(mine, other)
        for other in pieces
    )


def _is_error(piece: Piece) -> bool:
    upper = read_upper(piece.version, piece.start, piece.payload)
    return not piece.offset and is_error(piece.version, upper)


def _name(outcome: PacketOutcome) -> str:
    named = {
        "out": f"link {outcome.where} in clear",
        "protect": f"the engine for bundle {outcome.where}",
        "host": "the host",
        "decrypt": "the engine to be decrypted",
    }
    return named.get(outcome.kind, f"{outcome.kind} {outcome.where}")
