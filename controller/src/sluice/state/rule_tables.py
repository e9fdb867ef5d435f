# SPDX-License-Identifier: Apache-2.0
"""Compiles the first rules of an ordered list into entries of the switch's rule tables. If all
rules fit, compiles all.

The switch looks up a rule table only for whole packets whose headers it has parsed. The first entry
that matches decides. Invariant: for each such packet, this entry gives the verdict that
`PolicyList.search` gives, or leaves the packet to the CPU. A packet without an entry goes to the
CPU too.

An entry with a verdict matches no packet that its rule does not match. An entry that leaves packets
to the CPU may match more packets than its rule. So if entries cannot describe a rule's packets
exactly, these packets are left to the CPU.

The ordered search (`rule_search`) is the specification. Pure: no I/O, no clock. Depends on
policy.model, entities and spd.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from sluice.entities import LEAVE_TO_CPU, Presence, RuleEntry, RuleMatch, RuleVerdict
from sluice.model import Prefix
from sluice.policy.model import (
    ICMP,
    ICMP_PROTOCOLS,
    ICMPV6,
    MOBILITY_PROTOCOLS,
    OPAQUE,
    PORT_PROTOCOLS,
    Action,
    AddressRange,
    Numbers,
    Rule,
)
from sluice.state.spd import PolicyList

MAXIMUM_EXPANSION = 256
"""Largest number of entries of one rule in one family."""

_IPV4, _IPV6 = 4, 16
_FAMILIES = ((0, _IPV4), (1, _IPV6))
_WITH_NUMBERS = tuple(sorted(PORT_PROTOCOLS | ICMP_PROTOCOLS | MOBILITY_PROTOCOLS))
_ALL_NUMBERS = 0, 0xFFFF
_ANY_NUMBER = (None,)
# ICMP errors, as ranges of type << 8 | code. The controller decides on such a packet by the packet
# that it quotes (`is_icmp_error` in wire/selectors.py). Each family of addresses may carry either
# ICMP protocol.
_ICMP_ERRORS = ((ICMP, (0x0300, 0x03FF)), (ICMP, (0x0B00, 0x0CFF)), (ICMPV6, (0x0100, 0x04FF)))

RuleValue: TypeAlias = RuleVerdict | Presence
"""The value of an entry: a verdict, or LEAVE_TO_CPU."""
_Range: TypeAlias = tuple[int, int]
_Prefixes: TypeAlias = tuple[Prefix | None, ...]
# Protocol, source port and destination port of an entry.
_Transport: TypeAlias = tuple[int | None, _Range | None, _Range | None]
# Address size, matches and value of a group of entries.
_Group: TypeAlias = tuple[int, list[RuleMatch], RuleValue]

_ANY_PREFIXES: tuple[_Prefixes, _Prefixes] = ((None,), (None,))
_ANY_TRANSPORT: tuple[_Transport, ...] = ((None, None, None),)


class EntryCounts(NamedTuple):
    """Holds a number of entries for each address family."""

    ipv4: int
    ipv6: int


class CompiledList(NamedTuple):
    """Holds the entries of one list, in the list's order: the first entry that matches decides.

    - `rules`: the entries cover this number of rules, from the start of the list.
    - `is_complete`: the entries cover all rules and the final discard. So every packet finds an
      entry.
    - `used`: number of entries for each family.
    """

    entries: tuple[tuple[RuleMatch, RuleValue], ...]
    rules: int
    is_complete: bool
    used: EntryCounts


def compile_list(
    state: PolicyList, capacity: EntryCounts, *, asks_final: bool = False
) -> CompiledList:
    """Compiles as many of a list's first rules as have entries that fit into `capacity`.

    The compilation stops before the first of the kernel's defaults, because an ICMP error that
    matches no earlier rule is decided by its quote (policy/decisions.py). If all rules fit, entries
    for the final discard follow, for each family in which they fit. With `asks_final`, these
    entries leave the packets to the CPU.
    """
    entries = _Entries(capacity)
    expansions = _Expansions()
    covered = 0
    for rule, number, bundle in zip(state.rules, state.rule_ids, state.bundle_ids, strict=True):
        if rule.is_default:
            break
        verdict = RuleVerdict(number, int(rule.action), bundle)
        wanted = expansions.entries_of(rule, verdict)
        if wanted is None or not entries.add(wanted):
            break
        covered += 1
    is_complete = covered == len(state.rules)
    if is_complete:
        final = RuleVerdict(state.final_id, int(Action.DISCARD), 0)
        for size in (_IPV4, _IPV6):
            is_complete &= entries.add_final(size, LEAVE_TO_CPU if asks_final else final)
    return CompiledList(
        tuple(entries.values.items()), covered, is_complete, EntryCounts(*entries.used)
    )


def entries_of(compiled: CompiledList, rule_set: int) -> dict[RuleEntry, RuleValue]:
    """Returns the entries of the rule tables for one rule set. The last entry has the priority
    1."""
    first = len(compiled.entries)
    return {
        RuleEntry(rule_set, first - at, match): value
        for at, (match, value) in enumerate(compiled.entries)
    }


class _Entries:
    """Holds the entries of one list, keyed by match, in the list's order."""

    __slots__ = ("_capacity", "used", "values")

    def __init__(self, capacity: EntryCounts) -> None:
        self._capacity = capacity
        self.used = [0, 0]
        self.values: dict[RuleMatch, RuleValue] = {}

    def add(self, wanted: Sequence[_Group]) -> bool:
        """Adds all of these entries and returns True, or adds none if they do not fit.

        Leaves out an entry whose match equals that of an earlier entry, because the earlier one
        decides.
        """
        values = self.values
        number, used = len(values), self.used.copy()
        for size, matches, value in wanted:
            held = len(values)
            for match in matches:
                values.setdefault(match, value)
            self.used[size == _IPV6] += len(values) - held
        if self.used[0] <= self._capacity.ipv4 and self.used[1] <= self._capacity.ipv6:
            return True
        while len(values) > number:
            values.popitem()
        self.used = used
        return False

    def add_final(self, size: int, final: RuleValue) -> bool:
        """Adds the entries of the final discard for one family. Returns whether they fit.

        ICMP errors that no rule matches are left to the CPU, which reads the packet that they
        quote.
        """
        rest = RuleMatch(size)
        if rest in self.values:
            return True  # an earlier entry matches all packets of the family
        errors = [
            RuleMatch(size, protocol=protocol, destination_port=types)
            for protocol, types in _ICMP_ERRORS
        ]
        if final == LEAVE_TO_CPU:
            errors = []  # `rest` leaves them to the CPU
        return self.add([(size, errors, LEAVE_TO_CPU), (size, [rest], final)])


class _Expansions:
    """Expands the rules of one list to entries.

    Caches the prefixes of selectors with several ranges, because many rules may share them. Any
    other selector is expanded again, which is faster than a lookup.
    """

    __slots__ = ("_prefixes",)

    def __init__(self) -> None:
        self._prefixes: dict[tuple[AddressRange, ...], tuple[_Prefixes, _Prefixes]] = {}

    def entries_of(self, rule: Rule, verdict: RuleVerdict) -> list[_Group] | None:
        """Returns the entries of a rule, or None if there are too many."""
        own, transit = rule.looks_at(is_own=True), rule.looks_at(is_own=False)
        if not own and not transit:
            return []
        is_own = None if own and transit else own
        value: RuleValue = verdict
        if (rule.audit or rule.reject) and rule.action is Action.DISCARD:
            value = LEAVE_TO_CPU
        transports = _transports(rule)
        if transports is None:
            transports, value = _ANY_TRANSPORT, LEAVE_TO_CPU
        groups: list[_Group] = []
        both_sources = self._prefixes_of(rule.source)
        both_destinations = self._prefixes_of(rule.destination)
        for family, size in _FAMILIES:
            sources, destinations = both_sources[family], both_destinations[family]
            if not sources or not destinations:
                continue
            of_family = value
            if len(sources) * len(destinations) * len(transports) > MAXIMUM_EXPANSION:
                sources, destinations = (
                    _wider_prefixes(rule.source, size),
                    _wider_prefixes(rule.destination, size),
                )
                of_family = LEAVE_TO_CPU
                if len(sources) * len(destinations) * len(transports) > MAXIMUM_EXPANSION:
                    return None
            matches = [
                RuleMatch(size, source, destination, protocol, from_port, to_port, is_own)
                for source in sources
                for destination in destinations
                for protocol, from_port, to_port in transports
            ]
            groups.append((size, matches, of_family))
        return groups

    def _prefixes_of(
        self, selector: tuple[AddressRange, ...] | None
    ) -> tuple[_Prefixes, _Prefixes]:
        """Returns the prefixes of an address selector, of IPv4 and of IPv6."""
        if selector is None:
            return _ANY_PREFIXES
        only = _only_prefix(selector)
        if only is not None:
            return only
        known = self._prefixes.get(selector)
        if known is None:
            known = _prefixes(selector, _IPV4), _prefixes(selector, _IPV6)
            self._prefixes[selector] = known
        return known


def _only_prefix(selector: tuple[AddressRange, ...]) -> tuple[_Prefixes, _Prefixes] | None:
    """Returns the results of `_prefixes` for both families, if the addresses are those of one
    prefix.

    Most rules have such a selector. Returns None if the addresses are not one prefix.
    """
    if len(selector) != 1:
        return None
    low, high = selector[0]
    first = int.from_bytes(low, "big")
    host_bits = int.from_bytes(high, "big") - first
    if host_bits < 0 or host_bits & (host_bits + 1) or first & host_bits:
        return None
    length = len(low) * 8 - host_bits.bit_length()
    found = (Prefix(low, length) if length else None,)
    return (found, ()) if len(low) == _IPV4 else ((), found)


def _union(selector: tuple[AddressRange, ...], size: int) -> list[_Range]:
    """Returns the addresses of one family as disjoint ranges (first, one past the last)."""
    ranges = [
        (int.from_bytes(low, "big"), int.from_bytes(high, "big") + 1)
        for low, high in selector
        if len(low) == size
    ]
    return _merged(ranges) if ranges else ranges


def _prefixes(selector: tuple[AddressRange, ...], size: int) -> _Prefixes:
    """Returns the fewest prefixes that contain exactly these addresses. A prefix None contains all
    addresses."""
    prefixes: list[Prefix | None] = []
    bits = size * 8
    for low, end in _union(selector, size):
        at = low
        while at < end:
            largest = 1 << (end - at).bit_length() - 1
            alignment = at & -at
            width = alignment if 0 < alignment < largest else largest
            length = bits - width.bit_length() + 1
            prefixes.append(Prefix(at.to_bytes(size, "big"), length) if length else None)
            at += width
    return tuple(prefixes)


def _wider_prefixes(selector: tuple[AddressRange, ...] | None, size: int) -> _Prefixes:
    """Returns the smallest prefix around each range of addresses. A prefix None contains all
    addresses."""
    if selector is None:
        return (None,)
    wider: list[Prefix | None] = []
    for low, end in _union(selector, size):
        length = size * 8 - (low ^ end - 1).bit_length()
        wider.append(Prefix.of(low.to_bytes(size, "big"), length) if length else None)
    return tuple(wider)


def _transports(rule: Rule) -> tuple[_Transport, ...] | None:
    """Returns the protocols and ports that a rule accepts.

    Returns None if the rule accepts all protocols without ports, or all without types. Entries
    cannot express these, because they cannot exclude protocols.
    """
    protocols = rule.protocol
    if protocols is OPAQUE:
        return ()  # every whole packet has a visible protocol
    if protocols is None:
        numbers = rule.source_port, rule.destination_port, rule.icmp, rule.mobility_type
        if not any(isinstance(one, tuple) for one in numbers):
            return None if OPAQUE in numbers else _ANY_TRANSPORT
        protocols = _WITH_NUMBERS  # no other protocol has numbers to match
    transports: list[_Transport] = []
    for protocol in protocols if len(protocols) == 1 else dict.fromkeys(protocols):
        has_ports = protocol in PORT_PROTOCOLS
        # The key has one field for destination port, ICMP type and mobility type. No protocol has
        # two of them.
        transports += [
            (protocol, from_port, to_port or icmp or mobility_type)
            for from_port in _ranges(rule.source_port, has_ports)
            for to_port in _ranges(rule.destination_port, has_ports)
            for icmp in _ranges(rule.icmp, protocol in ICMP_PROTOCOLS)
            for mobility_type in _ranges(rule.mobility_type, protocol in MOBILITY_PROTOCOLS)
        ]
    return tuple(transports)


def _ranges(selector: Numbers, are_present: bool) -> Sequence[_Range | None]:
    """Returns the ranges that a selector of ports or types accepts. A range None accepts any value.

    `are_present`: packets of the protocol have such numbers.
    """
    if selector is None:
        return _ANY_NUMBER
    if selector is OPAQUE:
        return () if are_present else _ANY_NUMBER
    if not are_present:
        return ()
    if len(selector) == 1:
        ranges = [(selector[0].low, selector[0].high)]
    else:
        ranges = [
            (low, end - 1) for low, end in _merged([(low, high + 1) for low, high in selector])
        ]
    return _ANY_NUMBER if _ALL_NUMBERS in ranges else ranges


def _merged(ranges: Sequence[_Range]) -> list[_Range]:
    """Returns the union of ranges (first, one past the last) as disjoint ranges."""
    if len(ranges) == 1:
        return [*ranges]
    union: list[_Range] = []
    for low, end in sorted(ranges):
        if union and low <= union[-1][1]:
            union[-1] = union[-1][0], max(end, union[-1][1])
        else:
            union.append((low, end))
    return union
