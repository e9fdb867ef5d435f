# SPDX-License-Identifier: Apache-2.0
"""Makes the parts of random datagrams: paths, selectors, drafts and cuts.

In about half of the cases, the selectors of a datagram match a rule on its path.
"""

from collections import deque
from random import Random
from typing import NamedTuple

from . import plan
from .datagrams import DECRYPTED, Datagram, EntryPoint, Shim
from .drafts import Draft, transport
from .plan import packed
from .policy import ICMP_TYPES, OTHER_PROTOCOLS, PORTS, Numbers, Policy, Rule
from .wire import ESP, ICMP, ICMPV6, SCTP, TCP, UDP, WITH_PORTS

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


class DatagramMaker:
    """Makes the parts of datagrams that are aimed at the rules of `policy`.

    A caller may replace `policy` between two datagrams.
    """

    def __init__(self, random: Random, policy: Policy):
        self.random = random
        self.policy = policy
        self._number = 0
        self._idents: dict[tuple[bytes, bytes], int] = {}
        self._recent: dict[tuple[str, int], deque[Selectors]] = {}

    @property
    def number(self) -> int:
        """Number of the datagram that is being made."""
        return self._number

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

    def addresses(self, entry: EntryPoint, version: int | None = None) -> tuple[bytes, bytes]:
        """Chooses source and destination addresses for a datagram that enters at `entry`."""
        random = self.random
        version = version or random.choice((4, 6))
        if entry.carrier:
            origin = plan.BY_SPD[plan.BUNDLES[entry.carrier].spd]
        else:
            origin = plan.LINKS[entry.port]
        others = [link for link in plan.LINKS.values() if link is not origin]
        to = origin if random.random() < 0.03 else random.choice(others)
        source = packed(origin.host(version, random.choice(plan.HOSTS)))
        kind = random.random()
        if kind < 0.08:
            return source, packed(random.choice((origin, to)).own(version))
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
        source, destination = self.addresses(entry)
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
        pair = source, destination
        self._idents[pair] = (self._idents.get(pair, self.random.randrange(65536)) + 1) & 0xFFFF
        return self._idents[pair]

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
