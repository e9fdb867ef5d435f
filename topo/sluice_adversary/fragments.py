# SPDX-License-Identifier: Apache-2.0
"""Makes plain packets, and fragments of all kinds."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from . import marks
from .datagram_maker import DatagramMaker
from .datagrams import Datagram, EntryPoint
from .drafts import Draft, in_chain, options_chain, transport
from .policy import ICMP_TYPES, PORTS
from .wire import (
    DESTINATION_OPTIONS,
    HOP_BY_HOP,
    ICMP,
    ICMPV6,
    ROUTING,
    SCTP,
    TCP,
    UDP,
    WITH_PORTS,
)


def _plain(maker: DatagramMaker) -> Datagram:
    entry = maker.entry()
    draft = maker.draft(entry)
    return maker.datagram(entry, [draft.whole()])


def _in_order(maker: DatagramMaker) -> Datagram:
    entry = maker.entry()
    draft = maker.draft(entry, 32)
    return maker.datagram(entry, draft.cut(*maker.cuts(draft)))


def _eight_byte_first(maker: DatagramMaker) -> Datagram:
    entry = maker.entry()
    draft = maker.draft(entry, 32)
    return maker.datagram(entry, draft.cut(8, *[c for c in maker.cuts(draft, 2) if c > 8]))


def _eight_bytes_each(maker: DatagramMaker) -> Datagram:
    entry = maker.entry()
    chosen = maker.select(entry, (UDP, TCP, ICMP))
    data = transport(chosen[1:3], chosen.protocol, chosen.numbers, maker.number, 60)
    ident = maker.ident(chosen.source, chosen.destination)
    draft = Draft(chosen.version, chosen.source, chosen.destination, chosen.protocol, data, ident)
    return maker.datagram(entry, draft.cut(*range(8, len(data), 8)))


def _shuffled(maker: DatagramMaker) -> Datagram:
    made = _in_order(maker)
    maker.random.shuffle(made.packets)
    return replace(made)


def _last_first(maker: DatagramMaker) -> Datagram:
    made = _in_order(maker)
    return replace(made, packets=made.packets[::-1])


def _duplicated(maker: DatagramMaker) -> Datagram:
    made = _in_order(maker)
    packets = list(made.packets)
    for _ in range(maker.random.randint(1, 3)):
        packets.insert(maker.random.randrange(len(packets) + 1), maker.random.choice(packets))
    return replace(made, packets=packets)


def _without_first(maker: DatagramMaker) -> Datagram:
    made = _in_order(maker)
    return replace(made, packets=made.packets[1:])


def _without_last(maker: DatagramMaker) -> Datagram:
    made = _in_order(maker)
    return replace(made, packets=made.packets[:-1])


def _two_firsts(maker: DatagramMaker) -> Datagram:
    """Makes two first fragments with different ports, and a later fragment.

    The position of the second first fragment is random.
    """
    entry = maker.entry()
    one = maker.draft(entry, 64, (UDP, TCP, SCTP, ICMP, ICMPV6))
    addresses = one.source, one.destination
    if one.start in WITH_PORTS:
        numbers = maker.random.choice(PORTS), maker.random.choice(PORTS)
    else:
        numbers = maker.random.choice(ICMP_TYPES[one.start]) << 8, 0
    other = transport(addresses, one.start, numbers, maker.number, 64)
    at = maker.random.choice((8, 16, 24, 32))
    packets = one.cut(at)
    packets.insert(maker.random.randrange(3), one.made_up(0, other[:at], True))
    return maker.datagram(entry, packets)


def _overlapping(maker: DatagramMaker) -> Datagram:
    """Makes overlapping fragments in random order. One fragment differs from the others in the
    overlapping bytes.
    """
    entry = maker.entry()
    draft = maker.draft(entry, 64)
    at = maker.random.randrange(16, 48, 8)
    packets = [draft.piece(0, at), draft.piece(at - 8, len(draft.payload))]
    packets.append(draft.made_up(at - 8, marks.fill(maker.number, 16), True))
    maker.random.shuffle(packets)
    return maker.datagram(entry, packets)


def _behind_tcp_ports(maker: DatagramMaker) -> Datagram:
    """Makes a fragment with offset 8, which lies inside the TCP header (RFC 1858, RFC 3128)."""
    entry = maker.entry()
    draft = maker.draft(entry, 32, (TCP,))
    return maker.datagram(entry, [draft.piece(0, 40), draft.piece(8, 48), draft.piece(40, 9999)])


def _other_protocol_behind(maker: DatagramMaker) -> Datagram:
    """Makes fragments of which the later ones have another protocol than the first."""
    entry = maker.entry()
    draft = maker.draft(entry, 64)
    others = [17, 6, 58, 50, 60, 59, 253, 1]
    bounds = [0, *maker.cuts(draft, 3), len(draft.payload)]
    packets = [draft.piece(0, bounds[1])]
    for low, high in pairwise(bounds[1:]):
        data, more = draft.payload[low:high], high < len(draft.payload)
        following = maker.random.choice(others)
        if draft.version == 6:
            packets.append(draft.made_up(low, data, more, following))
        else:
            packets.append(replace(draft, start=following).made_up(low, data, more))
    if maker.random.random() < 0.3:
        packets.reverse()
    return maker.datagram(entry, packets)


def _six(
    maker: DatagramMaker, entry: EntryPoint, smallest: int, protocols: tuple[int, ...] = ()
) -> Draft:
    """Makes a draft of an IPv6 datagram."""
    while True:
        chosen = maker.select(entry, protocols)
        if chosen.version == 6:
            return maker.draft(entry, smallest, selected=chosen)


def _options_in_fragments(maker: DatagramMaker) -> Datagram:
    """Makes fragments of a packet with destination options after the fragment header.

    The Next Header in the fragment headers is then 60, also in later fragments (RFC 8200, 4.5).
    """
    entry = maker.entry()
    draft = in_chain(options_chain(maker.random.randint(1, 3)), _six(maker, entry, 32))
    ports = len(draft.payload) - len(draft.payload) % 8
    first = maker.random.choice((40, 48, 56, 64))
    packets = draft.cut(min(first, ports)) if first < len(draft.payload) else [draft.whole()]
    if maker.random.random() < 0.4:
        packets.reverse()
    return maker.datagram(entry, packets)


def _chain_cut_off(maker: DatagramMaker) -> Datagram:
    """Makes fragments of which the first does not contain the whole header chain (RFC 7112)."""
    entry = maker.entry()
    draft = in_chain(options_chain(maker.random.randint(1, 4)), _six(maker, entry, 32))
    return maker.datagram(entry, draft.cut(8, *[c for c in maker.cuts(draft, 2) if c > 8]))


def _headers_before_fragment(maker: DatagramMaker) -> Datagram:
    """Makes fragments with extension headers before the fragment header, sometimes also after
    it.
    """
    entry = maker.entry()
    draft = _six(maker, entry, 48)
    if maker.random.random() < 0.5:
        draft = in_chain(options_chain(1), draft)
    kinds = (HOP_BY_HOP,), (DESTINATION_OPTIONS,), (HOP_BY_HOP, ROUTING), (ROUTING,)
    draft.before = maker.random.choice((*kinds, options_chain(3), options_chain(5)))
    return maker.datagram(entry, draft.cut(*[c for c in maker.cuts(draft) if c >= 40]))


def _atomic(maker: DatagramMaker) -> Datagram:
    """Makes a packet that has a fragment header although it is not fragmented (RFC 6946)."""
    entry = maker.entry()
    draft = _six(maker, entry, 0)
    if maker.random.random() < 0.3:
        draft = in_chain(options_chain(2), draft)
    return maker.datagram(entry, [draft.piece(0, len(draft.payload))])


def _fragmented_again(maker: DatagramMaker) -> Datagram:
    """Makes a fragment whose payload is itself a fragment."""
    entry = maker.entry()
    draft = _six(maker, entry, 64)
    inner = draft.piece(0, 40, True)[40:]
    outer = replace(draft, start=44, payload=inner, ident=draft.ident ^ 0x10000)
    packets = [outer.piece(0, len(inner), True), draft.piece(40, len(draft.payload))]
    return maker.datagram(entry, packets)


FRAGMENTS: tuple[tuple[str, int, Callable[[DatagramMaker], Datagram]], ...] = (
    ("plain", 26, _plain),
    ("fragments in order", 12, _in_order),
    ("first fragment of 8 bytes", 7, _eight_byte_first),
    ("fragments of 8 bytes", 2, _eight_bytes_each),
    ("fragments shuffled", 6, _shuffled),
    ("last fragment first", 5, _last_first),
    ("fragments duplicated", 3, _duplicated),
    ("first fragment missing", 4, _without_first),
    ("last fragment missing", 2, _without_last),
    ("two first fragments", 4, _two_firsts),
    ("overlapping fragments", 2, _overlapping),
    ("fragment inside the TCP header", 2, _behind_tcp_ports),
    ("later fragments of another protocol", 4, _other_protocol_behind),
    ("destination options in fragments", 6, _options_in_fragments),
    ("header chain cut off", 2, _chain_cut_off),
    ("headers before the fragment header", 4, _headers_before_fragment),
    ("atomic fragment", 2, _atomic),
    ("fragment of a fragment", 1, _fragmented_again),
)
