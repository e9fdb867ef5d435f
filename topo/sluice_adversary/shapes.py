# SPDX-License-Identifier: Apache-2.0
"""Makes random datagrams of all shapes, aimed at the rules in force.

`Shapes.next` makes one datagram. It chooses a path through the router. In about half of the cases,
it takes the selectors from a rule on this path. Then it gives the datagram a random shape. The same
seed and policies give the same datagrams. This module contains plain packets and fragments. The
modules `oddities` and `sealed` contain the other shapes.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import NamedTuple

from . import marks, plan
from .datagrams import DECRYPTED, Datagram, EntryPoint, Shim
from .drafts import Draft, in_chain, options_chain, transport
from .plan import packed
from .policy import ICMP_TYPES, OTHER_PROTOCOLS, PORTS, Numbers, Policy, Rule
from .wire import (
    DESTINATION_OPTIONS,
    ESP,
    HOP_BY_HOP,
    ICMP,
    ICMPV6,
    ROUTING,
    SCTP,
    TCP,
    UDP,
    WITH_PORTS,
)

SIZES = (16, 16, 24, 64, 100, 256, 400, 800)
AIMED = 0.75
REPEATED = 0.35
"""Fraction of datagrams that repeat a recent flow. Later packets of a flow can hit the caches."""
RECENT = 40


class Selectors(NamedTuple):
    """Holds the selectors that a datagram is to have."""

    version: int
    source: bytes
    destination: bytes
    protocol: int
    numbers: tuple[int, int]


class Shapes:
    """Generates datagrams of all shapes except those in `without`.

    A caller may replace `policy` between two datagrams.
    """

    def __init__(self, random: Random, policy: Policy, without: frozenset[str] = frozenset()):
        from .oddities import ODDITIES
        from .sealed import SEALED

        self.random = random
        self.policy = policy
        self.made: Counter[str] = Counter()
        self._number = 0
        self._idents: dict[tuple[bytes, bytes], int] = {}
        self._recent: dict[tuple[str, int], deque[Selectors]] = {}
        kinds: tuple[tuple[str, int, Callable[[Shapes], Datagram]], ...] = (
            *FRAGMENTS,
            *ODDITIES,
            *SEALED,
        )
        kinds = tuple(kind for kind in kinds if kind[0] not in without)
        self._names = [name for name, _, _ in kinds]
        self._weights = [weight for _, weight, _ in kinds]
        self._makers = {name: maker for name, _, maker in kinds}

    def next(self) -> Datagram:
        """Returns a datagram of a random shape."""
        return self.of_shape(self.random.choices(self._names, self._weights)[0])

    def of_shape(self, shape: str) -> Datagram:
        """Returns a datagram of this shape."""
        self._number += 1
        made = self._makers[shape](self)
        made.shape = shape
        self.made[shape] += 1
        return made

    @property
    def names(self) -> list[str]:
        """Names of all shapes."""
        return list(self._names)

    @property
    def number(self) -> int:
        """Number of the datagram that is being made."""
        return self._number

    # -- parts of datagrams

    def entry(self, decrypted: float = 0.2) -> EntryPoint:
        """Chooses how a datagram enters the router: on a link, or decrypted by the engine (with
        probability `decrypted`).
        """
        if self.random.random() >= decrypted:
            return EntryPoint(self.random.choice(tuple(plan.LINKS)))
        bundle = self.random.choice((1, 1, 2, 3, 3, 4))
        return EntryPoint(
            plan.ENGINE, Shim(DECRYPTED, bundle, ingress_l3_if=self.random.randint(1, 3))
        )

    def way(self, entry: EntryPoint, version: int | None = None) -> tuple[bytes, bytes]:
        """Chooses source and destination addresses for a datagram that enters at `entry`."""
        random = self.random
        version = version or random.choice((4, 6))
        if entry.carrier:
            home = plan.BY_SPD[plan.BUNDLES[entry.carrier].spd]
        else:
            home = plan.LINKS[entry.port]
        others = [link for link in plan.LINKS.values() if link is not home]
        to = home if random.random() < 0.03 else random.choice(others)
        source = packed(home.host(version, random.choice(plan.HOSTS)))
        kind = random.random()
        if kind < 0.08:
            return source, packed(random.choice((home, to)).own(version))
        if kind < 0.09:
            return source, packed(plan.NOWHERE[version])
        return source, packed(to.host(version, random.choice(plan.HOSTS)))

    def select(self, entry: EntryPoint, protocols: tuple[int, ...] = ()) -> Selectors:
        """Chooses the selectors of a datagram that enters at `entry`. Often they match a rule on
        its path.
        """
        random = self.random
        recent = self._recent.setdefault((entry.port, entry.carrier), deque(maxlen=RECENT))
        if recent and random.random() < REPEATED:
            again = random.choice(recent)
            if not protocols or again.protocol in protocols:
                return again
        source, destination = self.way(entry)
        version = 4 if len(source) == 4 else 6
        rule = self._target(entry, destination) if random.random() < AIMED else None
        if rule is not None:
            source, destination = _aim_addresses(random, rule, source, destination)
        offered = rule.protocols if rule is not None and isinstance(rule.protocols, tuple) else None
        choices = protocols or offered or (UDP, UDP, UDP, TCP, SCTP, ICMP, ICMPV6, *OTHER_PROTOCOLS)
        protocol = random.choice(choices)
        if protocol in (ICMP, ICMPV6) and not protocols and random.random() < 0.8:
            protocol = ICMP if version == 4 else ICMPV6
        numbers = self._numbers(protocol, rule)
        chosen = Selectors(version, source, destination, protocol, numbers)
        recent.append(chosen)
        return chosen

    def _target(self, entry: EntryPoint, destination: bytes) -> Rule | None:
        """Chooses a rule from a list that the datagram will meet, or None."""
        lists: list[tuple[Rule, ...]] = []
        if entry.carrier:
            lists.append(self.policy.spds[plan.BUNDLES[entry.carrier].spd].inbound)
        elif (spd := self.policy.of_link(plan.LINKS[entry.port])) is not None:
            lists.append(spd.inbound)
        link = plan.route(destination)
        if link is not None and (spd := self.policy.of_link(link)) is not None:
            lists.append(spd.outbound)
        rules = [rule for one in lists for rule in one if not rule.is_sentinels]
        return self.random.choice(rules) if rules else None

    def _numbers(self, protocol: int, rule: Rule | None) -> tuple[int, int]:
        random = self.random
        if protocol in WITH_PORTS:
            source = rule.source_ports if rule is not None else None
            destination = rule.destination_ports if rule is not None else None
            return self._of(source, PORTS), self._of(destination, PORTS)
        if protocol in (ICMP, ICMPV6):
            types = [kind << 8 for kind in ICMP_TYPES[protocol] if not 133 <= kind <= 137]
            asked = rule.icmp if rule is not None else None
            return self._of(asked, tuple(types)) | random.choice((0, 0, 1, 4)), 0
        return (random.choice((0x1001, 0x1003, 0x7777)) if protocol == ESP else 0), 0

    def _of(self, ranges: Numbers, otherwise: tuple[int, ...]) -> int:
        if not isinstance(ranges, tuple) or self.random.random() < 0.2:
            return self.random.choice(otherwise)
        low, high = self.random.choice(ranges)
        return self.random.randint(low, min(high, low + 4))

    def draft(
        self,
        entry: EntryPoint,
        smallest: int = 0,
        protocols: tuple[int, ...] = (),
        selected: Selectors | None = None,
    ) -> Draft:
        """Makes a draft of a datagram with random selectors and at least `smallest` bytes behind
        the transport header.
        """
        chosen = self.select(entry, protocols) if selected is None else selected
        addresses = chosen.source, chosen.destination
        size = smallest + self.random.choice(SIZES)
        data = transport(addresses, chosen.protocol, chosen.numbers, self._number, size)
        ident = self.ident(*addresses)
        return Draft(chosen.version, *addresses, chosen.protocol, data, ident)

    def ident(self, source: bytes, destination: bytes) -> int:
        """Returns an identification that the last 65,535 datagrams between these addresses have not
        used.
        """
        way = source, destination
        self._idents[way] = (self._idents.get(way, self.random.randrange(65536)) + 1) & 0xFFFF
        return self._idents[way]

    def datagram(self, entry: EntryPoint, packets: list[bytes], trailer: bytes = b"") -> Datagram:
        """Returns the datagram that is being made, with these packets."""
        return Datagram(self._number, "", entry, packets, trailer)

    def cuts(self, draft: Draft, most: int = 4) -> list[int]:
        """Chooses up to `most` offsets at which to fragment the payload. They are multiples of
        eight.
        """
        places = range(8, len(draft.payload), 8)
        count = min(self.random.randint(1, most), len(places))
        return sorted(self.random.sample(places, count))


def _aim_addresses(
    random: Random, rule: Rule, source: bytes, destination: bytes
) -> tuple[bytes, bytes]:
    found = []
    for address, ranges in ((source, rule.source), (destination, rule.destination)):
        fitting = [pair for pair in ranges or () if len(pair[0]) == len(address)]
        if fitting and not fitting[0][0] <= address <= fitting[0][1]:
            low, high = (int.from_bytes(end, "big") for end in random.choice(fitting))
            chosen = random.randint(low, min(high, low + 4))
            candidate = chosen.to_bytes(len(address), "big")
            address = address if candidate in plan.OWN and address is source else candidate
        found.append(address)
    return found[0], found[1]


# -- plain packets, and fragments of all kinds


def _plain(shapes: Shapes) -> Datagram:
    entry = shapes.entry()
    draft = shapes.draft(entry)
    return shapes.datagram(entry, [draft.whole()])


def _in_order(shapes: Shapes) -> Datagram:
    entry = shapes.entry()
    draft = shapes.draft(entry, 32)
    return shapes.datagram(entry, draft.cut(*shapes.cuts(draft)))


def _eight_byte_first(shapes: Shapes) -> Datagram:
    entry = shapes.entry()
    draft = shapes.draft(entry, 32)
    return shapes.datagram(entry, draft.cut(8, *[c for c in shapes.cuts(draft, 2) if c > 8]))


def _eight_bytes_each(shapes: Shapes) -> Datagram:
    entry = shapes.entry()
    chosen = shapes.select(entry, (UDP, TCP, ICMP))
    data = transport(chosen[1:3], chosen.protocol, chosen.numbers, shapes.number, 60)
    ident = shapes.ident(chosen.source, chosen.destination)
    draft = Draft(chosen.version, chosen.source, chosen.destination, chosen.protocol, data, ident)
    return shapes.datagram(entry, draft.cut(*range(8, len(data), 8)))


def _shuffled(shapes: Shapes) -> Datagram:
    made = _in_order(shapes)
    shapes.random.shuffle(made.packets)
    return replace(made)


def _last_first(shapes: Shapes) -> Datagram:
    made = _in_order(shapes)
    return replace(made, packets=made.packets[::-1])


def _duplicated(shapes: Shapes) -> Datagram:
    made = _in_order(shapes)
    packets = list(made.packets)
    for _ in range(shapes.random.randint(1, 3)):
        packets.insert(shapes.random.randrange(len(packets) + 1), shapes.random.choice(packets))
    return replace(made, packets=packets)


def _without_first(shapes: Shapes) -> Datagram:
    made = _in_order(shapes)
    return replace(made, packets=made.packets[1:])


def _without_last(shapes: Shapes) -> Datagram:
    made = _in_order(shapes)
    return replace(made, packets=made.packets[:-1])


def _two_firsts(shapes: Shapes) -> Datagram:
    """Makes two first fragments with different ports, and a later fragment.

    The position of the second first fragment is random.
    """
    entry = shapes.entry()
    one = shapes.draft(entry, 64, (UDP, TCP, SCTP, ICMP, ICMPV6))
    addresses = one.source, one.destination
    if one.start in WITH_PORTS:
        numbers = shapes.random.choice(PORTS), shapes.random.choice(PORTS)
    else:
        numbers = shapes.random.choice(ICMP_TYPES[one.start]) << 8, 0
    other = transport(addresses, one.start, numbers, shapes.number, 64)
    at = shapes.random.choice((8, 16, 24, 32))
    packets = one.cut(at)
    packets.insert(shapes.random.randrange(3), one.made_up(0, other[:at], True))
    return shapes.datagram(entry, packets)


def _overlapping(shapes: Shapes) -> Datagram:
    """Makes overlapping fragments in random order. One fragment differs from the others in the
    overlapping bytes.
    """
    entry = shapes.entry()
    draft = shapes.draft(entry, 64)
    at = shapes.random.randrange(16, 48, 8)
    packets = [draft.piece(0, at), draft.piece(at - 8, len(draft.payload))]
    packets.append(draft.made_up(at - 8, marks.fill(shapes.number, 16), True))
    shapes.random.shuffle(packets)
    return shapes.datagram(entry, packets)


def _behind_tcp_ports(shapes: Shapes) -> Datagram:
    """Makes a fragment with offset 8, which lies inside the TCP header (RFC 1858, RFC 3128)."""
    entry = shapes.entry()
    draft = shapes.draft(entry, 32, (TCP,))
    return shapes.datagram(entry, [draft.piece(0, 40), draft.piece(8, 48), draft.piece(40, 9999)])


def _other_protocol_behind(shapes: Shapes) -> Datagram:
    """Makes fragments of which the later ones have another protocol than the first."""
    entry = shapes.entry()
    draft = shapes.draft(entry, 64)
    others = [17, 6, 58, 50, 60, 59, 253, 1]
    bounds = [0, *shapes.cuts(draft, 3), len(draft.payload)]
    packets = [draft.piece(0, bounds[1])]
    for low, high in pairwise(bounds[1:]):
        data, more = draft.payload[low:high], high < len(draft.payload)
        following = shapes.random.choice(others)
        if draft.version == 6:
            packets.append(draft.made_up(low, data, more, following))
        else:
            packets.append(replace(draft, start=following).made_up(low, data, more))
    if shapes.random.random() < 0.3:
        packets.reverse()
    return shapes.datagram(entry, packets)


def _six(
    shapes: Shapes, entry: EntryPoint, smallest: int, protocols: tuple[int, ...] = ()
) -> Draft:
    """Makes a draft of an IPv6 datagram."""
    while True:
        chosen = shapes.select(entry, protocols)
        if chosen.version == 6:
            return shapes.draft(entry, smallest, selected=chosen)


def _options_in_fragments(shapes: Shapes) -> Datagram:
    """Makes fragments of a packet with destination options after the fragment header.

    The Next Header in the fragment headers is then 60, also in later fragments (RFC 8200, 4.5).
    """
    entry = shapes.entry()
    draft = in_chain(options_chain(shapes.random.randint(1, 3)), _six(shapes, entry, 32))
    ports = len(draft.payload) - len(draft.payload) % 8
    first = shapes.random.choice((40, 48, 56, 64))
    packets = draft.cut(min(first, ports)) if first < len(draft.payload) else [draft.whole()]
    if shapes.random.random() < 0.4:
        packets.reverse()
    return shapes.datagram(entry, packets)


def _chain_cut_off(shapes: Shapes) -> Datagram:
    """Makes fragments of which the first does not contain the whole header chain (RFC 7112)."""
    entry = shapes.entry()
    draft = in_chain(options_chain(shapes.random.randint(1, 4)), _six(shapes, entry, 32))
    return shapes.datagram(entry, draft.cut(8, *[c for c in shapes.cuts(draft, 2) if c > 8]))


def _headers_before_fragment(shapes: Shapes) -> Datagram:
    """Makes fragments with extension headers before the fragment header, sometimes also after
    it.
    """
    entry = shapes.entry()
    draft = _six(shapes, entry, 48)
    if shapes.random.random() < 0.5:
        draft = in_chain(options_chain(1), draft)
    kinds = (HOP_BY_HOP,), (DESTINATION_OPTIONS,), (HOP_BY_HOP, ROUTING), (ROUTING,)
    draft.before = shapes.random.choice((*kinds, options_chain(3), options_chain(5)))
    return shapes.datagram(entry, draft.cut(*[c for c in shapes.cuts(draft) if c >= 40]))


def _atomic(shapes: Shapes) -> Datagram:
    """Makes a packet that has a fragment header although it is not fragmented (RFC 6946)."""
    entry = shapes.entry()
    draft = _six(shapes, entry, 0)
    if shapes.random.random() < 0.3:
        draft = in_chain(options_chain(2), draft)
    return shapes.datagram(entry, [draft.piece(0, len(draft.payload))])


def _fragmented_again(shapes: Shapes) -> Datagram:
    """Makes a fragment whose payload is itself a fragment."""
    entry = shapes.entry()
    draft = _six(shapes, entry, 64)
    inner = draft.piece(0, 40, True)[40:]
    outer = replace(draft, start=44, payload=inner, ident=draft.ident ^ 0x10000)
    packets = [outer.piece(0, len(inner), True), draft.piece(40, len(draft.payload))]
    return shapes.datagram(entry, packets)


FRAGMENTS: tuple[tuple[str, int, Callable[[Shapes], Datagram]], ...] = (
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
