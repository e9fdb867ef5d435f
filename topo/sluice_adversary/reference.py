# SPDX-License-Identifier: Apache-2.0
"""Computes the permitted outcomes of a datagram (RFC 4301, sections 5 to 7). Simple and slow.

The reference gets all fragments of a datagram at once, reassembles them, and searches each ordered
list once. It is written from the RFCs, and has no caches, no state and no notion of time. For each
packet of a datagram, it returns where the packet may be captured (`allowed`). For the datagram, it
returns whether all packets must arrive (`must`), or why the datagram may be dropped (`excuse`).

The permitted outcomes of a fragment depend on the first fragments of its datagram:

    one first fragment               outcomes for the selectors of that first fragment
    no first fragment                outcomes, if all verdicts that the whole could get agree
    several different ones           a later fragment: outcomes of any of them;
                                     a first fragment: its own outcomes
"""

from dataclasses import dataclass

from . import plan
from .datagrams import DECRYPTED, ENCRYPTED, Datagram
from .errors import is_error, quotes_later_fragment
from .lists import (
    NOTHING,
    TO_DECRYPT,
    Lists,
    PacketOutcome,
    PacketOutcomes,
    PacketPath,
    PolicyQuery,
)
from .policy import ND_TYPES, Policy, Seen
from .wire import (
    ESP,
    ICMPV6,
    NAT_TRAVERSAL,
    TCP,
    UDP,
    Piece,
    Upper,
    read_upper,
)

MTU = 1500
SHALLOW_EXTENSIONS, SHALLOW_OPTIONS = 6, 10
"""Numbers of headers up to which the pipeline reads a packet. If no list applies to a packet with
more headers, it is routed or delivered by its addresses.
"""
GROUP_FRAME = "a frame to a group of stations for a single address"
MOST_EXTENSIONS = 12
"""A packet with more extension headers may be dropped."""


@dataclass(frozen=True)
class Expectation:
    """Holds the permitted outcomes of each packet of a datagram. `must`: all packets must arrive.

    `may_overlap`: overlapping fragments may all pass. There are two such cases:

    - All verdicts that the datagram could get are the same.
    - Some of the fragments complete the datagram. Later fragments with the same identification then
      belong to another datagram.
    """

    allowed: tuple[PacketOutcomes, ...]
    must: bool
    excuse: str
    may_overlap: bool = True


class Reference:
    """Computes the permitted outcomes of datagrams under one policy."""

    def __init__(self, policy: Policy):
        self._lists = Lists(policy)

    # -- a datagram from outside

    def expect(self, datagram: Datagram) -> Expectation:
        """Returns the permitted outcomes of a datagram."""
        pieces = datagram.pieces
        nothing = (NOTHING,) * len(pieces)
        if any(piece is None for piece in pieces):
            return Expectation(nothing, False, "no IP packet")
        known = [piece for piece in pieces if piece is not None]
        refused = self._refused_entry(datagram, known)
        if refused:
            # If such a frame contains ESP, it may go to the engine. The engine drops it unless it
            # is authentic.
            to_engine = frozenset({TO_DECRYPT}) if refused == GROUP_FRAME else NOTHING
            return Expectation((to_engine,) * len(pieces), False, refused)
        if datagram.entry.port == plan.ENGINE and _kind(datagram) == ENCRYPTED:
            return self._encrypted(datagram, known)
        groups: dict[object, list[int]] = {}
        for at, piece in enumerate(known):
            groups.setdefault(piece.key if piece.is_fragment else at, []).append(at)
        allowed: list[PacketOutcomes] = [NOTHING] * len(known)
        excuses = ["" if len(groups) == 1 else "pieces of several datagrams"]
        may_overlap = True
        for places in groups.values():
            group = [known[at] for at in places]
            outcomes, excuse = self._group(datagram, group)
            excuses.append(excuse)
            agreed = self._without_first(_path_of(datagram, group[0]), group[0])
            may_overlap &= bool(agreed) or _can_be_whole(group)
            for at, outcome in zip(places, outcomes, strict=True):
                allowed[at] = outcome
        excuse = next(filter(None, excuses), "")
        must = not excuse and all(allowed)
        return Expectation(tuple(allowed), must, excuse, may_overlap)

    def _refused_entry(self, datagram: Datagram, pieces: list[Piece]) -> str:
        entry = datagram.entry
        if entry.port != plan.ENGINE:
            if entry.shim is not None:
                return "forged shim"
            return _refused_frame(datagram, pieces) or self._refused_source(pieces)
        if entry.shim is None or datagram.vlan is not None:
            return "from the engine without a shim"
        if entry.shim.kind not in (ENCRYPTED, DECRYPTED):
            return "no answer of the engine's"
        if entry.shim.bundle not in plan.BUNDLES:
            return "unknown bundle"
        return "another VRF than the bundle's" if entry.shim.vrf else ""

    def _refused_source(self, pieces: list[Piece]) -> str:
        """Returns "martian source" if a source address is invalid or is the router's own. Neighbour
        advertisements may have the router's own address.
        """
        for piece in pieces:
            if piece.version == 4 and (piece.source[0] in (0, 127) or piece.source[0] >= 224):
                return "martian source"
            if piece.source in plan.OWN:
                upper = read_upper(piece.version, piece.start, piece.payload)
                advertises = upper.protocol == ICMPV6 and (upper.icmp or 0) >> 8 == 136
                group = piece.version == 6 and plan.is_group(piece.destination)
                if not (advertises and group and piece.ttl == 255 and not piece.is_fragment):
                    return "martian source"
        return ""

    def _encrypted(self, datagram: Datagram, pieces: list[Piece]) -> Expectation:
        """Returns the permitted outcomes of packets that the engine sends as encrypted.

        No list applies to them. They must be ESP with the bundle's own address as source.
        """
        assert datagram.entry.shim is not None
        bundle = plan.BUNDLES[datagram.entry.shim.bundle]
        allowed = []
        for piece in pieces:
            upper = read_upper(piece.version, piece.start, piece.payload)
            is_esp = not piece.is_fragment and (upper.protocol == ESP or _esp_in_udp(upper, piece))
            link = plan.route(piece.destination)
            is_own = bundle.local is not None and piece.source == plan.packed(bundle.local)
            fine = is_esp and is_own and not piece.broken and not upper.broken and link is not None
            fine = fine and not plan.is_local(piece.destination)
            where = frozenset({PacketOutcome("out", link.name)}) if link is not None else NOTHING
            allowed.append(where if fine else NOTHING)
        excuse = "" if all(allowed) else "not the engine's to send"
        return Expectation(tuple(allowed), not excuse, excuse)

    # -- the packets of one datagram

    def _group(self, datagram: Datagram, group: list[Piece]) -> tuple[list[PacketOutcomes], str]:
        """Returns the permitted outcomes of each fragment of a datagram, and a reason why the
        datagram may be dropped, or "".
        """
        piece = group[0]
        path = _path_of(datagram, piece)
        firsts = {p.payload: self._first(path, p) for p in group if p.offset == 0}
        usable = [p for p in group if p.offset == 0 and firsts[p.payload][0] is not None]
        if usable:
            later = frozenset().union(*(self._behind(path, first) for first in usable))
        else:
            later = self._without_first(path, piece)
        if path.is_local and not path.carrier:
            later |= self._local_later(path, group)
        allowed = []
        for one in group:
            unseen = _is_deep(one) and self._needs_no_list(path)
            if one.broken or (_overlaps_tcp_header(one) and not unseen):
                allowed.append(NOTHING)
            elif one.offset == 0:
                allowed.append(firsts[one.payload][0] or NOTHING)
            elif one.source_routed:
                allowed.append(NOTHING)
            elif one.segments_left and not self._needs_no_list(path):
                allowed.append(later & {TO_DECRYPT})
            else:
                allowed.append(later)
        excuses = [excuse for _, excuse in firsts.values()]
        excuses += [
            self._excuse(path, group, allowed),
            "" if usable else "no usable first fragment",
        ]
        return allowed, next(filter(None, excuses), "")

    def _first(self, path: PacketPath, piece: Piece) -> tuple[PacketOutcomes | None, str]:
        """Returns the permitted outcomes of a whole datagram or a first fragment, and a reason why
        it may be dropped.

        The outcomes are None if the packet is dropped for a reason other than the lists. Then its
        selectors do not apply to later fragments either.
        """
        upper = read_upper(piece.version, piece.start, piece.payload, piece.unfragmentable)
        if piece.broken or upper.broken:
            return None, "headers cut off"
        if piece.source_routed or upper.source_routed:
            return self._without_lists(path, piece, upper), "source route"
        if upper.fragmented_again:
            return None, "fragment of a fragment"
        if upper.protocol == ICMPV6 and (upper.icmp or 0) >> 8 in ND_TYPES:
            outcome = self._neighbor_discovery(path, piece, upper)
            return outcome, "neighbour discovery"
        is_local = path.is_local
        if is_local and not path.carrier:
            sealed = self._sealed(piece, upper)
            if sealed is not None and not _is_deep(piece, upper):
                return sealed
            if sealed is not None:  # the host can do no harm with ESP if the lists admit it
                outcomes = self._lists.decide(path, PolicyQuery.about(piece, upper))
                return outcomes | (sealed[0] or NOTHING), "ESP behind a deep chain"
        outcomes = self._lists.decide(path, PolicyQuery.about(piece, upper))
        if piece.segments_left or upper.segments_left:  # this router is not the last destination
            return outcomes if self._needs_no_list(path) else None, "segments left"
        excuse = "extension headers" if upper.extensions > MOST_EXTENSIONS else ""
        if upper.protocol == UDP and not piece.is_fragment and _udp_length_lies(upper, piece):
            excuse = "lying length"
        if piece.is_fragment and is_error(path.version, upper):
            excuse = "a fragmented ICMP error"
        elif is_error(path.version, upper) and quotes_later_fragment(piece, upper):
            excuse = "an ICMP error about a later fragment"
        return outcomes, excuse

    def _behind(self, path: PacketPath, first: Piece) -> PacketOutcomes:
        """Returns the permitted outcomes of the later fragments of this first fragment.

        They are those of the first fragment, unless a rule matches fragments without ports
        (`opaque`).
        """
        outcomes, _ = self._first(path, first)
        upper = read_upper(first.version, first.start, first.payload, first.unfragmentable)
        is_local = path.is_local and not path.carrier
        if is_local and self._sealed(first, upper) is not None:
            return outcomes or NOTHING
        protocol = first.start if first.version == 4 else None
        own = Seen(path.source, path.destination, protocol)
        return self._lists.decide(path, PolicyQuery.about(first, upper, own))

    def _neighbor_discovery(
        self, path: PacketPath, piece: Piece, upper: Upper
    ) -> PacketOutcomes | None:
        """Returns the permitted outcomes of neighbour discovery.

        Neighbour discovery is never routed. It is delivered if its hop limit is 255 and it is no
        fragment. In an IPv4 packet, these ICMPv6 types have no special meaning.
        """
        if path.version == 4:
            return self._lists.decide(path, PolicyQuery.about(piece, upper))
        if piece.is_fragment or piece.ttl != 255 or not path.is_local:
            return self._without_lists(path, piece, upper)
        return self._lists.decide(path, PolicyQuery.about(piece, upper))

    def _without_lists(self, path: PacketPath, piece: Piece, upper: Upper) -> PacketOutcomes | None:
        """Returns the permitted outcomes of a packet with more headers than the pipeline reads, if
        no list applies to it.

        The switch does not detect errors behind these headers, so such a packet may pass. Returns
        None for all other packets.
        """
        if not (_is_deep(piece, upper) and self._needs_no_list(path)):
            return None
        return self._lists.decide(path, PolicyQuery.about(piece, upper))

    def _needs_no_list(self, path: PacketPath) -> bool:
        link = plan.route(path.destination)
        leaves_guarded = (
            not path.is_local and link is not None and self._lists.is_guarded(link.name)
        )
        return not (path.carrier or self._lists.is_guarded(path.entry_link) or leaves_guarded)

    def _sealed(self, piece: Piece, upper: Upper) -> tuple[PacketOutcomes | None, str] | None:
        """Returns the permitted outcomes of ESP to this router, and a reason why it may be dropped.

        ESP goes to the engine, and no list applies. Returns None if the packet is not ESP.
        """
        if upper.protocol == ESP:
            if piece.is_fragment:
                return frozenset({TO_DECRYPT}), "fragmented ESP"
            spi = int.from_bytes(piece.payload[upper.offset : upper.offset + 4], "big")
            return (frozenset({TO_DECRYPT}), "") if spi in plan.SPIS else (NOTHING, "unknown SPI")
        if _esp_in_udp(upper, piece):
            if piece.is_fragment:
                return None, "fragmented ESP in UDP"
            spi = int.from_bytes(piece.payload[upper.offset + 8 : upper.offset + 12], "big")
            return (frozenset({TO_DECRYPT}), "") if spi in plan.SPIS else (NOTHING, "unknown SPI")
        return None

    def _without_first(self, path: PacketPath, piece: Piece) -> PacketOutcomes:
        """Returns the permitted outcomes of a later fragment whose first fragment is missing: those
        on which all possible verdicts of its datagram agree.
        """
        outcomes = self._lists.decide(path, PolicyQuery.about_later(piece))
        is_local = path.is_local and not path.carrier
        may_be_esp = is_local and (piece.version == 6 or piece.start == ESP)
        return outcomes | {TO_DECRYPT} if may_be_esp else outcomes

    def _local_later(self, path: PacketPath, group: list[Piece]) -> PacketOutcomes:
        """Returns the additional outcomes that are permitted for later fragments to this router.

        Engine and host ignore fragments that they cannot reassemble. So a fragment that may be ESP
        may go to either of them.
        """
        found = self._without_first(path, group[0])
        return found | {TO_DECRYPT} if any(p.start == ESP for p in group) else found

    def _excuse(self, path: PacketPath, group: list[Piece], allowed: list[PacketOutcomes]) -> str:
        """Returns the reason why a datagram may be dropped although policy admits it, or ""."""
        if path.is_local and len({p.start for p in group}) > 1:
            return "later fragments name another protocol"
        ends = sorted({(p.offset, p.offset + len(p.payload), p.more, p.payload) for p in group})
        at = 0
        for start, end, more, _ in ends:
            if start != at:
                return "overlaps" if start < at else "pieces missing"
            if more and (end - start) % 8:
                return "an odd fragment"
            at = end
        if ends[-1][2]:
            return "pieces missing"
        if any(p.ttl <= 1 for p in group) and not path.is_local:
            return "hop limit"
        if not frozenset.intersection(*allowed):
            return "policy"
        longest = max(_length(p) for p in group)
        protecting = [o.where for outcomes in allowed for o in outcomes if o.kind == "protect"]
        room = MTU - max((plan.BUNDLES[int(w)].overhead for w in protecting), default=0)
        return "too big" if longest > room else ""

    def own(self, piece: Piece, egress: str | None) -> PacketOutcomes:
        """Returns the permitted outcomes of a packet that the router itself has sent.

        `egress` is the link on which it was captured, or None.
        """
        return self._lists.own(piece, egress)


def _path_of(datagram: Datagram, piece: Piece) -> PacketPath:
    entry = datagram.entry
    return PacketPath(piece.source, piece.destination, piece.version, entry.port, entry.carrier)


def _refused_frame(datagram: Datagram, pieces: list[Piece]) -> str:
    """Returns why the frame is refused, or "": it has an unknown VLAN (0 means no VLAN), or a
    foreign MAC address.
    """
    if datagram.vlan:
        return "a VLAN of nobody's"
    if datagram.to_mac is None:
        return ""
    if not int(datagram.to_mac[:2], 16) & 1:
        return "another's MAC address"
    return "" if all(plan.is_group(piece.destination) for piece in pieces) else GROUP_FRAME


def _kind(datagram: Datagram) -> int:
    return datagram.entry.shim.kind if datagram.entry.shim is not None else 0


def _can_be_whole(pieces: list[Piece]) -> bool:
    """Returns whether some of these fragments form a complete datagram without overlaps."""
    ranges = {(piece.offset, piece.offset + len(piece.payload), piece.more) for piece in pieces}
    reached, ends = {0}, False
    for start, end, more in sorted(ranges):
        if start in reached:
            reached.add(end)
            ends |= not more
    return ends


def _length(piece: Piece) -> int:
    """Returns the length of a packet with the shortest possible headers, in bytes."""
    header = 20 if piece.version == 4 else 40 + 8 * piece.unfragmentable
    return header + len(piece.payload)


def _is_deep(piece: Piece, upper: Upper | None = None) -> bool:
    extensions = piece.unfragmentable if upper is None else upper.extensions
    return extensions > SHALLOW_EXTENSIONS or piece.options > SHALLOW_OPTIONS


def _overlaps_tcp_header(piece: Piece) -> bool:
    return piece.version == 4 and piece.start == TCP and piece.offset == 8


def _esp_in_udp(upper: Upper, piece: Piece) -> bool:
    """Returns whether the packet is ESP in UDP (RFC 3948).

    It must be long enough for an ESP header, and its payload must not begin with four zero bytes,
    which would mark IKE.
    """
    if upper.protocol != UDP or NAT_TRAVERSAL not in (upper.source_port, upper.destination_port):
        return False
    data = piece.payload[upper.offset :]
    says = int.from_bytes(data[4:6], "big")
    return says >= 16 and len(data) >= 16 and data[8:12] != bytes(4)


def _udp_length_lies(upper: Upper, piece: Piece) -> bool:
    data = piece.payload[upper.offset :]
    return int.from_bytes(data[4:6], "big") != len(data)
