# SPDX-License-Identifier: Apache-2.0
"""Finds for each rule where its fragments get their verdict: in the flow cache or in the
controller.

A later fragment has no ports, no ICMP type, no mobility type and, in IPv6, no trustworthy protocol.
So a later fragment gets the verdict of its datagram's first fragment. Consider fragments with given
addresses and protocol. Let D be the first rule that certainly matches the later fragments: a rule
whose selectors are `any` or `opaque` wherever a later fragment has no value. If there is no such
rule, D is the final discard. If all rules before D that could match have the same verdict as D, the
flow cache serves the later fragments. Otherwise all fragments of such datagrams go to the
controller.

The result is exact. The bounds of all rules' address ranges divide the source and destination
addresses into intervals, and each combination of intervals is tested once. Rules that never apply
to transit packets, such as generated rules, are left out. Pure; depends on model, coverage and
state.spd.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

from sluice.policy.coverage import merged_ranges
from sluice.policy.model import OPAQUE, Action, Direction, Rule
from sluice.policy.populated import LATER_FRAGMENTS_LACK
from sluice.state.spd import FINAL_DISCARD

TESTS = 1_000_000
"""Limit of tested rules per list and family, over all intervals. The tests take about a second."""
IPV4_BYTES = 4
FAMILIES = {IPV4_BYTES: "IPv4", 16: "IPv6"}

_Range: TypeAlias = tuple[int, int]
_ALL_PROTOCOLS = (1 << 256) - 1


class ServedBy(Enum):
    """Where fragments that match a rule get their verdict. EITHER: some in the cache, some in the
    controller."""

    CACHE = "cache"
    EITHER = "either"
    CONTROLLER = "controller"
    UNKNOWN = "unknown"


class Expectation(NamedTuple):
    """A group of a list's rules whose fragments get their verdict in the same place.

    `because` names the rules that prevent caching: they could match later fragments, and their
    verdict differs from that of rule D (see above). `rules` may contain FINAL_DISCARD, for packets
    that no rule matches.
    """

    direction: Direction
    families: tuple[str, ...]
    served_by: ServedBy
    rules: tuple[str, ...]
    because: tuple[str, ...]


class _TooManyError(Exception):
    """Raised when the limit of tests is reached."""


def expectations(
    rules: Mapping[Direction, Sequence[Rule]], tests: int = TESTS
) -> list[Expectation]:
    """Groups the rules of each list and address family by where their fragments get a verdict."""
    found: dict[tuple[Direction, ServedBy, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for direction, listed in rules.items():
        for size, family in FAMILIES.items():
            entries = [*_entries(listed, size)]
            if len(entries) == 1:
                continue  # no rule applies to this family
            for served_by, names, because in _groups(entries, tests):
                found.setdefault((direction, served_by, names, because), []).append(family)
    return [
        Expectation(direction, tuple(families), served_by, names, because)
        for (direction, served_by, names, because), families in found.items()
    ]


class _ListEntry(NamedTuple):
    """The part of a rule that later fragments of an address family can be compared with.

    Ranges are pairs of numbers, sorted and disjoint. `protocols` has one bit for each protocol. For
    IPv6, a single bit stands for all protocols, because a later fragment's protocol is not trusted.
    """

    name: str
    verdict: tuple[Action, str | None]
    sources: Sequence[_Range]
    destinations: Sequence[_Range]
    protocols: int
    is_certain: bool


def _entries(rules: Iterable[Rule], size: int) -> Iterator[_ListEntry]:
    """Yields the rules that fragments of an address family can match, then the final discard."""
    every = [(0, (1 << size * 8) - 1)]
    for rule in rules:
        entry = _ListEntry(
            rule.name,
            _verdict(rule),
            every if rule.source is None else merged_ranges(rule.source, size),
            every if rule.destination is None else merged_ranges(rule.destination, size),
            _protocols(rule) if size == 4 else 1,
            not any(
                isinstance(one, tuple)
                for one in (
                    rule.source_port,
                    rule.destination_port,
                    rule.icmp,
                    rule.mobility_type,
                )
            )
            and (size == 4 or not isinstance(rule.protocol, tuple)),
        )
        in_transit = rule.looks_at(is_own=False)
        if in_transit and entry.sources and entry.destinations and entry.protocols:
            if _populates_hidden(rule, size):
                # Values that later fragments lack decide which SA carries them.
                carrier = (rule.action, f"{rule.bundle}, by values")
                yield entry._replace(verdict=carrier, is_certain=False)
            yield entry
    protocols = _ALL_PROTOCOLS if size == 4 else 1
    yield _ListEntry(FINAL_DISCARD, (Action.DISCARD, None), every, every, protocols, True)


def _verdict(rule: Rule) -> tuple[Action, str | None]:
    """Returns action and bundle of a rule. The text for the bundle of a rule with `from_packet`
    contains the populated selectors, because such a rule never shares SAs with other rules."""
    if rule.action is not Action.PROTECT or rule.bundle is None:
        return rule.action, None
    populated = ",".join(rule.from_packet)
    return rule.action, f"{rule.bundle}, by {populated}" if populated else rule.bundle


def _populates_hidden(rule: Rule, size: int) -> bool:
    """Returns whether a rule populates a selector that later fragments of a family lack."""
    hidden = LATER_FRAGMENTS_LACK if size == IPV4_BYTES else LATER_FRAGMENTS_LACK | {"protocol"}
    return not hidden.isdisjoint(rule.from_packet)


def _protocols(rule: Rule) -> int:
    """Returns a rule's protocols as bits, for IPv4.

    A rule with an opaque protocol has no bits, because an IPv4 packet always shows its protocol.
    """
    if rule.protocol is None:
        return _ALL_PROTOCOLS
    if rule.protocol is OPAQUE:
        return 0
    return sum(1 << one for one in set(rule.protocol))


FragmentGroup: TypeAlias = tuple[ServedBy, tuple[str, ...], tuple[str, ...]]


def _groups(entries: Sequence[_ListEntry], tests: int) -> Iterator[FragmentGroup]:
    """Yields triples (served by, rules, because). The group served by the cache comes last."""
    try:
        found = _Search(entries, tests).served_by()
    except _TooManyError:
        uncertain = tuple(one.name for one in entries if not one.is_certain)
        yield ServedBy.UNKNOWN, tuple(one.name for one in entries), uncertain
        return
    for served_by in (ServedBy.CONTROLLER, ServedBy.EITHER, ServedBy.CACHE):
        group = [at for at, (one, _) in found.items() if one is served_by]
        because = sorted({one for at in group for one in found[at][1]})
        if group:
            yield (
                served_by,
                tuple(dict.fromkeys(entries[at].name for at in group)),
                tuple(dict.fromkeys(entries[at].name for at in because)),
            )


class _Search:
    """Tests the rules of one list for one address family."""

    def __init__(self, entries: Sequence[_ListEntry], tests: int) -> None:
        self._entries = entries
        self._tests = tests
        self._served: dict[int, set[ServedBy]] = {}
        self._because: dict[int, set[int]] = {}
        self._tried: set[tuple[int, ...]] = set()

    def served_by(self) -> dict[int, tuple[ServedBy, set[int]]]:
        """Returns, by rule position, where fragments that match the rule get their verdict.

        The set in each result has the positions of the rules that prevent caching. Rules that no
        fragment reaches are omitted. Raises _TooManyError.
        """
        everything = range(len(self._entries))
        for same_source in self._cells(everything, [one.sources for one in self._entries]):
            destinations = [self._entries[at].destinations for at in same_source]
            for active in self._cells(same_source, destinations):
                if active not in self._tried:
                    self._tried.add(active)
                    self._try(active)
        return {
            at: (seen.pop() if len(seen) == 1 else ServedBy.EITHER, self._because.get(at, set()))
            for at, seen in sorted(self._served.items())
        }

    def _cells(
        self, positions: Sequence[int], ranges: Sequence[Sequence[_Range]]
    ) -> Iterator[tuple[int, ...]]:
        """Divides the addresses into intervals at all bounds of `ranges`.

        Yields, for each interval, the positions of the rules whose ranges contain the interval.
        `ranges` has the ranges of each rule in `positions`. Positions are sorted, also in the
        results.
        """
        changes: dict[int, list[int]] = {}
        for at, listed in zip(positions, ranges, strict=True):
            for low, high in listed:
                changes.setdefault(low, []).append(at)
                changes.setdefault(high + 1, []).append(~at)
        active: list[int] = []
        for _, changed in sorted(changes.items()):
            for at in changed:
                if at >= 0:
                    insort(active, at)
                else:
                    active.remove(~at)
            self._tests -= len(active) + len(changed)
            if self._tests < 0:
                raise _TooManyError
            if active:
                yield tuple(active)

    def _try(self, active: Sequence[int]) -> None:
        """Tests all protocols, for addresses that all rules at these positions match."""
        left = _ALL_PROTOCOLS
        uncertain: list[int] = []
        for at in active:
            entry = self._entries[at]
            if not entry.is_certain:
                uncertain.append(at)
            elif entry.protocols & left:
                self._record_match(at, entry.protocols & left, uncertain)
                left &= ~entry.protocols

    def _record_match(self, at: int, decided: int, uncertain: Sequence[int]) -> None:
        """Records where fragments of some protocols get their verdict.

        The rule at `at` is the first certain match for the protocols `decided`. `uncertain` has the
        positions of the rules before it that could match.
        """
        self._tests -= len(uncertain)
        entries = self._entries
        others = [one for one in uncertain if entries[one].verdict != entries[at].verdict]
        stateful = 0
        for one in others:
            stateful |= entries[one].protocols & decided
        for one in (*uncertain, at):
            protocols = entries[one].protocols
            if protocols & decided & ~stateful:
                self._served.setdefault(one, set()).add(ServedBy.CACHE)
            if protocols & stateful:
                self._served.setdefault(one, set()).add(ServedBy.CONTROLLER)
                known = self._because.setdefault(one, set())
                known.update(n for n in others if entries[n].protocols & protocols & stateful)
