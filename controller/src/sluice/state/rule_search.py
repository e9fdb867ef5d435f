# SPDX-License-Identifier: Apache-2.0
"""Finds the first match in an ordered list of rules, by a plain search or by an index.

`matches` and `first_match` implement RFC 4301's ordered search rule by rule. `could_match` and
`first_match_of_fragment` implement section 7 of RFC 4301 for later fragments. Later fragments have
no ports and, in IPv6, no protocol. The rule that matches the first fragment of a datagram also
decides on the datagram's later fragments.

`RuleIndex` gives the same answers as the plain search, in a time that hardly grows with the length
of the list. It is a decision tree in native code (`sluice._native.RuleTree`). The tree's memory
grows linearly with the number of rules. Depends on policy.model, common_ends and `sluice._native`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sluice._native import FirstPacket, RuleTree
from sluice.policy.model import (
    OPAQUE,
    Action,
    AddressRange,
    Numbers,
    Protocols,
    Rule,
    Scope,
    Selectors,
)
from sluice.state.common_ends import ChangedPart, changed_part


class FragmentMatch(NamedTuple):
    """Holds the result of a search for a later fragment: the position of the matching rule, or None
    if no rule matches."""

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
    """Returns whether `rule` may match the datagram to which a later fragment belongs.

    The fragment does not show the datagram's ports, ICMP type and mobility type, and in IPv6 not
    its protocol. These may have any value.
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
    """Returns the rule for a later fragment, given its own selectors (`later`) and those of the
    first fragment (`first`).

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
    """Returns whether `rule` forbids to send its packets in clear: it protects or discards them,
    and is no default of the kernel."""
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
    """Indexes one list of rules. Immutable.

    If the list differs little from the list of the index `before`, the new index shares most of the
    earlier index's memory and is built quickly. `part` is the part of `rules` that differs from
    that list, if the caller knows it.
    """

    __slots__ = ("_rules", "_tree")

    _rules: tuple[Rule, ...]
    _tree: RuleTree

    def __init__(
        self,
        rules: Sequence[Rule],
        before: RuleIndex | None = None,
        part: ChangedPart | None = None,
    ) -> None:
        self._rules = tuple(rules)
        known, tree = ((), _EMPTY) if before is None else (before._rules, before._tree)
        changed = part or changed_part(self._rules, known)
        if changed.is_empty:
            self._tree = tree
            return
        start, end, end_before = changed
        removed, added = tree.batch(), tree.batch()
        for batch, listed in ((removed, known[start:end_before]), (added, self._rules[start:end])):
            for at in range(0, len(listed), _SLICE):
                batch.extend(listed[at : at + _SLICE])
        self._tree = tree.replaced(start, removed, added)

    def first_match(self, packet: Selectors) -> int | None:
        """Returns the position of the first rule that matches, or None if no rule matches."""
        return self._tree.first_match(*packet)

    def first_match_of(self, packet: FirstPacket) -> int | None:
        """Returns the position of the first rule that matches a first packet, like `first_match`.
        Does not make the packet's selectors in Python."""
        return self._tree.first_match_of(packet)

    def first_match_of_fragment(
        self, later: Selectors, first: Selectors | None
    ) -> FragmentMatch | None:
        """Returns the rule for a later fragment, like the function `first_match_of_fragment`."""
        certain = self._tree.first_match(*later)
        if first is not None:
            of_datagram = self._tree.first_match(*first)
            if certain is None or (of_datagram is not None and of_datagram < certain):
                return FragmentMatch(of_datagram)
            return FragmentMatch(certain)
        wanted = NOTHING_MATCHES if certain is None else effect_of(self._rules[certain])
        if self._tree.has_other_effect(
            later.source, later.destination, later.protocol, later.is_own, wanted, certain
        ):
            return None
        return FragmentMatch(certain)

    def restricts_to(self, destination: bytes, *, is_own: bool) -> bool:
        """Returns whether a restricting rule accepts packets to `destination`, from any source."""
        return self._tree.restricts_to(destination, is_own)

    def memory_bytes(self) -> int:
        """Returns the memory of the index in bytes, including memory shared with other indexes."""
        return self._tree.memory_bytes()


_EMPTY = RuleTree(Rule._fields, OPAQUE, Scope.OWN, Scope.TRANSIT, Action.BYPASS)
_SLICE = 256
"""Rules that are read without letting other threads run."""
