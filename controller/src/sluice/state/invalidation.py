# SPDX-License-Identifier: Apache-2.0
"""Finds the cached flows of a list whose verdict a commit may change.

A commit need not make all flows of a list stale. A flow keeps its verdict if the flow cannot match
any rule that the commit adds, removes or moves. (All other rules keep their order.) So the rules
are searched again only for the flows that could match an added, removed or moved rule.

`changed_rules` compares two lists. `RuleTest` finds the flows that a rule could match.
`new_verdict` searches the new list for a flow. `wrapped_lists` returns the lists whose epoch
counter wraps. Pure; depends on policy.model, flow_cache and spd.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from sluice.policy.model import AddressRange, FlowKey, Rule
from sluice.state.flow_cache import FlowVerdict
from sluice.state.rule_search import is_restricting, matches
from sluice.state.spd import Commit, PolicyList, changed_since

_Identity: TypeAlias = tuple[str, int]
"""Fingerprint of a rule, and the number of its bundle."""


def changed_rules(before: PolicyList, after: PolicyList) -> list[Rule]:
    """Returns the rules that `after` adds, removes or moves. Returns both versions of a changed
    rule.

    All other rules have the same order in both lists. These unmoved rules are found as a longest
    increasing subsequence of positions, so that as few rules as possible count as moved.
    """
    start, end, end_before = changed_since(before, after)
    old_rules, new_rules = before.rules[start:end_before], after.rules[start:end]
    old, new = _identities(before, start, end_before), _identities(after, start, end)
    position = {identity: at for at, identity in enumerate(new)}
    common = [(at, position[one]) for at, one in enumerate(old) if one in position]
    stayed = {common[at] for at in _longest_increasing([to for _, to in common])}
    stayed_before, stayed_after = {at for at, _ in stayed}, {to for _, to in stayed}
    removed = [rule for at, rule in enumerate(old_rules) if at not in stayed_before]
    return removed + [rule for at, rule in enumerate(new_rules) if at not in stayed_after]


def span_of_changes(before: PolicyList, after: PolicyList) -> int:
    """Returns the number of rules that remain without the common start and end of two lists. Fast
    for long lists."""
    start, end, end_before = changed_since(before, after)
    return max(end, end_before) - start


def _identities(state: PolicyList, start: int, end: int) -> list[_Identity]:
    return list(zip(state.fingerprints[start:end], state.bundle_ids[start:end], strict=True))


def _longest_increasing(values: Sequence[int]) -> list[int]:
    """Returns the positions of a longest strictly increasing subsequence, in order."""
    ends: list[int] = []  # the smallest last value of any subsequence of each length
    ends_at: list[int] = []
    previous: list[int | None] = []
    for at, value in enumerate(values):
        length = bisect_left(ends, value)
        previous.append(ends_at[length - 1] if length else None)
        ends[length : length + 1] = [value]
        ends_at[length : length + 1] = [at]
    found: list[int] = []
    position = ends_at[-1] if ends_at else None
    while position is not None:
        found.append(position)
        position = previous[position]
    return found[::-1]


class RuleTest(NamedTuple):
    """Finds the flows that a rule could match. It may find too many flows, but never misses one.

    Ports, ICMP values and mobility types are compared for whole packets only. The protocol of a
    fragment is not compared, because the sender may write any value into a later IPv6 fragment (RFC
    8200, 4.5).

    A fragment may be part of an ICMP error. The error is judged by the packet that it quotes, which
    may come from any host. So a fragment's source is not compared if the rule protects or discards.
    """

    rule: Rule
    tests_source: Callable[[bytes], bool] | None
    tests_destination: Callable[[bytes], bool] | None

    @classmethod
    def of(cls, rule: Rule) -> RuleTest:
        """Returns the test of a rule."""
        return cls(rule, _address_test(rule.source), _address_test(rule.destination))

    def could_match(self, keys: Iterable[FlowKey]) -> list[FlowKey]:
        """Returns the flows among `keys` that the rule could match."""
        if self.tests_source is not None:
            tests_source, restricts = self.tests_source, is_restricting(self.rule)
            keys = [key for key in keys if tests_source(key[0]) or (restricts and key.fragment)]
        if self.tests_destination is not None:
            tests_destination = self.tests_destination
            keys = [key for key in keys if tests_destination(key[1])]
        return [key for key in keys if self._could_match(key)]

    def _could_match(self, key: FlowKey) -> bool:
        packet = key.selectors()
        if packet is not None:
            return matches(self.rule, packet)
        return self.rule.looks_at(is_own=key.is_local)


def _address_test(ranges: Sequence[AddressRange] | None) -> Callable[[bytes], bool] | None:
    """Returns a function that tests an address, or None if every address passes."""
    if ranges is None:
        return None
    if len(ranges) == 1:
        ((low, high),) = ranges
        size = len(low)
        return lambda address: low <= address <= high and len(address) == size
    return _RangeTest(ranges)


class _RangeTest:
    """Tests an address against many ranges by bisection."""

    def __init__(self, ranges: Iterable[AddressRange]) -> None:
        # The address length comes first in the tuples, so that IPv4 and IPv6 ranges are never
        # merged with each other.
        merged: list[tuple[int, bytes, bytes]] = []
        for size, low, high in sorted((len(one.low), *one) for one in ranges):
            if merged and merged[-1][0] == size and low <= merged[-1][2]:
                merged[-1] = (size, merged[-1][1], max(high, merged[-1][2]))
            else:
                merged.append((size, low, high))
        self._merged = merged

    def __call__(self, address: bytes) -> bool:
        size = len(address)
        at = bisect_left(self._merged, (size, address + b"\x00"))
        if at == 0:
            return False
        of_size, low, high = self._merged[at - 1]
        return of_size == size and low <= address <= high


def new_verdict(after: PolicyList, key: FlowKey, cached: FlowVerdict) -> FlowVerdict | None:
    """Returns the verdict of the rules of `after` on a cached flow, with the epoch of `cached`.

    Returns None for fragments, whose verdict depends on more than their key.
    """
    packet = key.selectors()
    return None if packet is None else FlowVerdict(cached.epoch, *after.search(packet))


def wrapped_lists(commit: Commit, epochs: Mapping[int, int]) -> set[int]:
    """Returns the lists of a commit whose epochs wrap at 2^32 and restart at 1.

    `epochs` has the highest epoch so far of each list and its flows. The caller must delete all
    flows of a wrapped list before the commit. Otherwise an old flow would become valid again when
    its epoch recurs.
    """
    return {one.list_id for one in commit.lists if one.version.epoch < epochs.get(one.list_id, 0)}
