# SPDX-License-Identifier: Apache-2.0
"""Finds the first match in an ordered list of rules, by a plain search or by an index.

`matches` and `first_match` implement RFC 4301's ordered search rule by rule. `could_match` and
`first_match_of_fragment` implement section 7 of RFC 4301 for later fragments. Later fragments have
no ports and, in IPv6, no protocol. The rule that matches the first fragment of a datagram also
decides on the datagram's later fragments.

`RuleIndex` gives the same answers, in a time that hardly grows with the length of the list. For
each selector, a bisection finds the bit vector of the rules that accept the value. The lowest bit
set in all vectors is the first match (Lakshman and Stiliadis, SIGCOMM 1998). Depends on
policy.model only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sluice.policy.model import OPAQUE, Action, AddressRange, Numbers, Protocols, Rule, Selectors


class FragmentMatch(NamedTuple):
    """Holds the result for a later fragment: the position of the matching rule, or None if no rule
    matches."""

    at: int | None


def matches(rule: Rule, packet: Selectors) -> bool:
    """Returns whether every selector of `rule` accepts `packet`."""
    return (
        _in_ranges(rule.source, packet.source)
        and _in_ranges(rule.destination, packet.destination)
        and _accepts_protocol(rule.protocol, packet.protocol)
        and _accepts(rule.source_port, packet.source_port)
        and _accepts(rule.destination_port, packet.destination_port)
        and _accepts(rule.icmp, packet.icmp)
        and _accepts(rule.mobility_type, packet.mobility_type)
        and rule.looks_at(is_own=packet.is_own)
    )


def first_match(rules: Sequence[Rule], packet: Selectors) -> int | None:
    """Returns the position of the first rule that matches, or None if no rule matches."""
    return next((at for at, rule in enumerate(rules) if matches(rule, packet)), None)


def could_match(rule: Rule, later: Selectors) -> bool:
    """Returns whether `rule` may match the datagram of a later fragment.

    The ports, ICMP type and mobility type of the datagram, and in IPv6 its protocol, may have any
    value.
    """
    return (
        _in_ranges(rule.source, later.source)
        and _in_ranges(rule.destination, later.destination)
        and (later.protocol is None or _accepts_protocol(rule.protocol, later.protocol))
        and rule.looks_at(is_own=later.is_own)
    )


def first_match_of_fragment(
    rules: Sequence[Rule], later: Selectors, first: Selectors | None
) -> FragmentMatch | None:
    """Returns the rule for a later fragment, given its own selectors and those of the first
    fragment.

    Without the first fragment, returns None unless all rules that could match have the same effect.
    """
    certain = first_match(rules, later)
    if first is not None:
        of_datagram = first_match(rules, first)
        found = [at for at in (certain, of_datagram) if at is not None]
        return FragmentMatch(min(found, default=None))
    wanted = NOTHING_MATCHES if certain is None else effect_of(rules[certain])
    for rule in rules[:certain]:
        if could_match(rule, later) and effect_of(rule) != wanted:
            return None
    return FragmentMatch(certain)


Effect = tuple[int, str | None]


def effect_of(rule: Rule) -> Effect:
    """Returns the action and the bundle of a rule."""
    return int(rule.action), rule.bundle


NOTHING_MATCHES: Effect = (2, None)
"""The nominal final discard (RFC 4301, 4.4.1)."""


def is_restricting(rule: Rule) -> bool:
    """Returns whether packets of `rule` may not pass in clear: it protects or discards them, and is
    no default of the kernel."""
    return rule.action is not Action.BYPASS and not rule.is_default


def _in_ranges(ranges: tuple[AddressRange, ...] | None, address: bytes) -> bool:
    return ranges is None or any(
        len(low) == len(address) and low <= address <= high for low, high in ranges
    )


def _accepts(numbers: Numbers, value: int | None) -> bool:
    if numbers is None:
        return True
    if numbers is OPAQUE:
        return value is None
    return value is not None and any(low <= value <= high for low, high in numbers)


def _accepts_protocol(protocols: Protocols, value: int | None) -> bool:
    if protocols is None:
        return True
    if protocols is OPAQUE:
        return value is None
    return value is not None and value in protocols


class RuleIndex:
    """Indexes one list of rules. Immutable."""

    __slots__ = (
        "_any_protocol",
        "_destination",
        "_effects",
        "_for_own",
        "_for_transit",
        "_icmp",
        "_mobility",
        "_opaque_protocol",
        "_ports",
        "_protocols",
        "_restricting",
        "_rules",
        "_source",
    )

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._source = _addresses([rule.source for rule in rules])
        self._destination = _addresses([rule.destination for rule in rules])
        self._ports = (
            _NumberVectors([rule.source_port for rule in rules]),
            _NumberVectors([rule.destination_port for rule in rules]),
        )
        self._icmp = _NumberVectors([rule.icmp for rule in rules])
        self._mobility = _NumberVectors([rule.mobility_type for rule in rules])
        own, transit, restricting, any_protocol, opaque_protocol = [], [], [], [], []
        protocols: defaultdict[int, list[int]] = defaultdict(list)
        effects: defaultdict[Effect, list[int]] = defaultdict(list)
        for at, rule in enumerate(rules):
            if rule.looks_at(is_own=True):
                own.append(at)
            if rule.looks_at(is_own=False):
                transit.append(at)
            effects[effect_of(rule)].append(at)
            if is_restricting(rule):
                restricting.append(at)
            if rule.protocol is None:
                any_protocol.append(at)
            elif rule.protocol is OPAQUE:
                opaque_protocol.append(at)
            else:
                for protocol in set(rule.protocol):
                    protocols[protocol].append(at)
        self._for_own, self._for_transit = _vector(own), _vector(transit)
        self._restricting = _vector(restricting)
        self._any_protocol, self._opaque_protocol = _vector(any_protocol), _vector(opaque_protocol)
        self._protocols = {protocol: _vector(some) for protocol, some in protocols.items()}
        self._effects = {effect: _vector(some) for effect, some in effects.items()}

    def first_match(self, packet: Selectors) -> int | None:
        """Returns the position of the first rule that matches, or None if no rule matches."""
        vector = self._by_addresses(packet)
        if packet.protocol is None:
            vector &= self._any_protocol | self._opaque_protocol
        else:
            vector &= self._any_protocol | self._protocols.get(packet.protocol, 0)
        if vector:
            vector &= self._ports[0].of(packet.source_port)
            vector &= self._ports[1].of(packet.destination_port)
            vector &= self._icmp.of(packet.icmp)
            vector &= self._mobility.of(packet.mobility_type)
        return (vector & -vector).bit_length() - 1 if vector else None

    def first_match_of_fragment(
        self, later: Selectors, first: Selectors | None
    ) -> FragmentMatch | None:
        """Returns the rule for a later fragment, like the function `first_match_of_fragment`."""
        certain = self.first_match(later)
        if first is not None:
            of_datagram = self.first_match(first)
            if certain is None or (of_datagram is not None and of_datagram < certain):
                return FragmentMatch(of_datagram)
            return FragmentMatch(certain)
        could = self._by_addresses(later)
        if later.protocol is not None:
            could &= self._any_protocol | self._protocols.get(later.protocol, 0)
        if certain is not None:
            could &= (1 << certain) - 1
        wanted = NOTHING_MATCHES if certain is None else effect_of(self._rules[certain])
        return None if could & ~self._effects.get(wanted, 0) else FragmentMatch(certain)

    def restricts_to(self, destination: bytes, *, is_own: bool) -> bool:
        """Returns whether a restricting rule accepts packets to `destination`, from any source."""
        vector = self._destination[len(destination)].at(int.from_bytes(destination, "big"))
        return bool(vector & self._restricting & (self._for_own if is_own else self._for_transit))

    def _by_addresses(self, packet: Selectors) -> int:
        """Returns the vector of the rules that accept a packet's addresses and its origin (this
        router or transit)."""
        vector = self._source[len(packet.source)].at(int.from_bytes(packet.source, "big"))
        vector &= self._destination[len(packet.destination)].at(
            int.from_bytes(packet.destination, "big")
        )
        return vector & (self._for_own if packet.is_own else self._for_transit)


class _Vectors:
    """Maps each value of a selector to the bit vector of the rules that accept it.

    All values between two adjacent range ends share one vector.
    """

    __slots__ = ("_starts", "_vectors")

    def __init__(self, ranges: Iterable[tuple[int, int, int]], any_value: int) -> None:
        """`ranges`: (first, one past the last, position of the rule). The ranges of one rule must
        not overlap."""
        changes: defaultdict[int, list[int]] = defaultdict(list, {0: []})
        for low, end, rule in ranges:
            changes[low].append(rule)
            changes[end].append(rule)
        self._starts = sorted(changes)
        self._vectors: list[int] = []
        vector = any_value
        for start in self._starts:
            for rule in changes[start]:
                vector ^= 1 << rule
            self._vectors.append(vector)

    def at(self, value: int) -> int:
        """Returns the vector of the rules that accept `value`."""
        return self._vectors[bisect_right(self._starts, value) - 1]


def _vector(positions: Sequence[int]) -> int:
    """Returns the bit vector of the rules at these positions, which are in ascending order."""
    octets = bytearray((positions[-1] >> 3) + 1 if positions else 0)
    for at in positions:
        octets[at >> 3] |= 1 << (at & 7)
    return int.from_bytes(octets, "little")


def merged(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the union of ranges (first, one past the last) as ranges that do not overlap."""
    if len(ranges) == 1:
        return [*ranges]
    merged: list[tuple[int, int]] = []
    for low, end in sorted(ranges):
        if merged and low <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((low, end))
    return merged


def _addresses(selectors: Iterable[tuple[AddressRange, ...] | None]) -> dict[int, _Vectors]:
    """Returns the vectors of an address selector by address length in bytes, 4 and 16."""
    any_value: list[int] = []
    ranges: dict[int, list[tuple[int, int, int]]] = {4: [], 16: []}
    for at, selector in enumerate(selectors):
        if selector is None:
            any_value.append(at)
            continue
        for size, of_size in ranges.items():
            numbers = [
                (int.from_bytes(low, "big"), int.from_bytes(high, "big") + 1)
                for low, high in selector
                if len(low) == size
            ]
            of_size += [(low, end, at) for low, end in merged(numbers)]
    return {size: _Vectors(listed, _vector(any_value)) for size, listed in ranges.items()}


class _NumberVectors:
    """Holds `_Vectors` over ports, ICMP values or mobility types, and the vector for packets
    without them."""

    __slots__ = ("_absent", "_vectors")

    def __init__(self, selectors: Iterable[Numbers]) -> None:
        any_value: list[int] = []
        opaque: list[int] = []
        ranges: list[tuple[int, int, int]] = []
        for at, selector in enumerate(selectors):
            if selector is None:
                any_value.append(at)
            elif selector is OPAQUE:
                opaque.append(at)
            else:
                numbers = [(low, high + 1) for low, high in selector]
                ranges += [(low, end, at) for low, end in merged(numbers)]
        self._absent = _vector(any_value) | _vector(opaque)
        self._vectors = _Vectors(ranges, _vector(any_value))

    def of(self, value: int | None) -> int:
        """Returns the vector of the rules that accept `value`."""
        return self._absent if value is None else self._vectors.at(value)
