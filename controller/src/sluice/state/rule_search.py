# SPDX-License-Identifier: Apache-2.0
"""First match in an ordered list of rules: the specification, and an index that agrees with it.

`matches` and `first_match` are RFC 4301's ordered search, said plainly. `RuleIndex.first_match`
gives the same answer in time that hardly grows with the list: for each selector, the bit vector
of the rules that a value satisfies is found by bisection, and the lowest bit common to all vectors
is the first match (Lakshman and Stiliadis, SIGCOMM 1998). Depends on policy_model only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from sluice.policy_model import OPAQUE, AddressRange, Numbers, Rule, Selectors


def matches(rule: Rule, packet: Selectors) -> bool:
    """Whether every selector of `rule` accepts `packet`."""
    return (
        _in_ranges(rule.source, packet.source)
        and _in_ranges(rule.destination, packet.destination)
        and (rule.protocol is None or packet.protocol in rule.protocol)
        and _accepts(rule.source_port, packet.source_port)
        and _accepts(rule.destination_port, packet.destination_port)
        and _accepts(rule.icmp, packet.icmp)
    )


def first_match(rules: Sequence[Rule], packet: Selectors) -> int | None:
    """The position of the first rule that matches, None where none does."""
    return next((at for at, rule in enumerate(rules) if matches(rule, packet)), None)


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


class RuleIndex:
    """An immutable index over one list of rules."""

    __slots__ = ("_any_protocol", "_destination", "_icmp", "_ports", "_protocols", "_source")

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._source = _addresses(rule.source for rule in rules)
        self._destination = _addresses(rule.destination for rule in rules)
        self._ports = (
            _NumberVectors(rule.source_port for rule in rules),
            _NumberVectors(rule.destination_port for rule in rules),
        )
        self._icmp = _NumberVectors(rule.icmp for rule in rules)
        self._any_protocol = 0
        self._protocols: dict[int, int] = {}
        for at, rule in enumerate(rules):
            if rule.protocol is None:
                self._any_protocol |= 1 << at
            else:
                for protocol in set(rule.protocol):
                    self._protocols[protocol] = self._protocols.get(protocol, 0) | 1 << at

    def first_match(self, packet: Selectors) -> int | None:
        """The position of the first rule that matches, None where none does."""
        vector = (
            self._source[len(packet.source)].at(int.from_bytes(packet.source, "big"))
            & self._destination[len(packet.destination)].at(
                int.from_bytes(packet.destination, "big")
            )
            & (self._any_protocol | self._protocols.get(packet.protocol, 0))
        )
        if vector:
            vector &= self._ports[0].of(packet.source_port)
            vector &= self._ports[1].of(packet.destination_port)
            vector &= self._icmp.of(packet.icmp)
        return (vector & -vector).bit_length() - 1 if vector else None


class _Vectors:
    """Bit vectors over the intervals that a selector's ranges cut its values into."""

    __slots__ = ("_starts", "_vectors")

    def __init__(self, ranges: Sequence[tuple[int, int, int]], any_value: int) -> None:
        """`ranges`: (first, one past the last, position of the rule); a rule's may overlap."""
        changes: dict[int, list[tuple[int, int]]] = {0: []}
        for low, end, rule in ranges:
            changes.setdefault(low, []).append((rule, 1))
            changes.setdefault(end, []).append((rule, -1))
        self._starts = sorted(changes)
        self._vectors: list[int] = []
        depth: dict[int, int] = {}
        vector = any_value
        for start in self._starts:
            for rule, change in changes[start]:
                depth[rule] = depth.get(rule, 0) + change
            for rule in {rule for rule, _ in changes[start]}:
                vector = vector | 1 << rule if depth[rule] else vector & ~(1 << rule)
            self._vectors.append(vector)

    def at(self, value: int) -> int:
        """The rules that accept `value`."""
        return self._vectors[bisect_right(self._starts, value) - 1]


def _addresses(selectors: Iterable[tuple[AddressRange, ...] | None]) -> dict[int, _Vectors]:
    """Vectors by address length, 4 and 16."""
    any_value = 0
    ranges: dict[int, list[tuple[int, int, int]]] = {4: [], 16: []}
    for at, selector in enumerate(selectors):
        if selector is None:
            any_value |= 1 << at
            continue
        for low, high in selector:
            first, last = int.from_bytes(low, "big"), int.from_bytes(high, "big")
            ranges[len(low)].append((first, last + 1, at))
    return {size: _Vectors(listed, any_value) for size, listed in ranges.items()}


class _NumberVectors:
    """`_Vectors` over ports or ICMP values, and the vector for a packet that shows none."""

    __slots__ = ("_absent", "_vectors")

    def __init__(self, selectors: Iterable[Numbers]) -> None:
        any_value = 0
        opaque = 0
        ranges: list[tuple[int, int, int]] = []
        for at, selector in enumerate(selectors):
            if selector is None:
                any_value |= 1 << at
            elif selector is OPAQUE:
                opaque |= 1 << at
            else:
                ranges += [(low, high + 1, at) for low, high in selector]
        self._absent = any_value | opaque
        self._vectors = _Vectors(ranges, any_value)

    def of(self, value: int | None) -> int:
        """The rules that accept `value`."""
        return self._absent if value is None else self._vectors.at(value)
