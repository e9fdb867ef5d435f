# SPDX-License-Identifier: Apache-2.0
"""Finds shadowed rules. A rule is shadowed if one earlier rule matches all of its packets.

The earlier rule **covers** the shadowed rule. The test whether a rule covers another is exact. To
avoid testing all pairs, each rule is indexed by its blocks: the smallest prefixes that contain the
rule's addresses and ports, where only a few prefix lengths are allowed. A rule can cover another
rule only if its blocks contain the other rule's blocks. If the rules are for different hosts or
ports, the search takes linear time in the number of rules. Pure; depends on model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

from sluice.policy.model import (
    ICMP_PROTOCOLS,
    MOBILITY_PROTOCOLS,
    OPAQUE,
    PORT_PROTOCOLS,
    AddressRange,
    Direction,
    NumberRange,
    Numbers,
    Opaque,
    Rule,
)

TESTS = 1_000_000
"""Limit of tested pairs of rules. A million tests take about a second."""
NAMED = 4
"""Largest number of items in a warning's list of rules. The last item may be the count of the
rest."""

_LEVELS = {2: (8, 16), 4: (8, 16, 24, 32), 16: (16, 32, 48, 64, 128)}
_ANY = (0, 0, 0)
_Block = tuple[int, int, int]
"""Size of the address or port in bytes, prefix length, prefix. _ANY contains all blocks."""


class Coverage(NamedTuple):
    """Holds the result of a search for covered rules.

    `by_rule` maps the position of a rule to the positions of the rules that it covers.
    `is_complete` is False if the search ended at the limit of tests.
    """

    by_rule: dict[int, list[int]]
    is_complete: bool


def warn_of_unreached(rules: Sequence[Rule], direction: Direction) -> Iterator[str]:
    """Yields a warning for each rule that covers others, in the order of the list.

    Then yields warnings about rules that can match no packet, and about an incomplete search.
    """
    operators = [rule for rule in rules if not rule.generated]
    coverage = find_covered(operators)
    for at, covered in sorted(coverage.by_rule.items()):
        is_one = len(covered) == 1
        yield (
            f"the {direction.value} {'rule' if is_one else 'rules'}"
            f" {quoted_names([operators[one].name for one in covered])}"
            f" {'is' if is_one else 'are'} never reached: the earlier rule {operators[at].name!r}"
            f" matches all of {'its' if is_one else 'their'} packets"
        )
    if not coverage.is_complete:
        yield (
            f"the {direction.value} list is too long: it may have more rules that are never reached"
        )
    unmatched = [rule.name for rule in operators if _matches_nothing(rule)]
    if unmatched:
        yield (
            f"the {direction.value} list has rules that match nothing: {quoted_names(unmatched)}:"
            " the protocol of an IPv4 packet is never opaque"
        )


def quoted_names(names: Sequence[str]) -> str:
    """Returns the names in quotes. If there are many, returns the first ones and the number of the
    rest."""
    quoted = [repr(name) for name in names[:NAMED]]
    if len(names) > NAMED:
        quoted[NAMED - 1] = f"{len(names) - NAMED + 1} more"
    return " and ".join(filter(None, [", ".join(quoted[:-1]), *quoted[-1:]]))


def find_covered(rules: Sequence[Rule], tests: int = TESTS) -> Coverage:
    """Finds the covered rules and assigns each to the first earlier rule that covers it."""
    earlier: dict[tuple[_Block, ...], list[int]] = {}
    by_rule: dict[int, list[int]] = {}
    used: tuple[set[_Block], ...] = set(), set(), set()
    for at, rule in enumerate(rules):
        blocks = _blocks(rule)
        around = product(
            *(known.intersection(_around(one)) for known, one in zip(used, blocks, strict=True))
        )
        candidates = sorted(one for key in around for one in earlier.get(key, ()))
        tests -= len(candidates)
        if tests < 0:
            return Coverage(by_rule, False)
        by = next((one for one in candidates if covers(rules[one], rule)), None)
        if by is not None:
            by_rule.setdefault(by, []).append(at)
        else:
            # Only rules that are not covered are indexed. This is enough: if rule A covers B and B
            # covers C, then A covers C.
            earlier.setdefault(blocks, []).append(at)
            for known, one in zip(used, blocks, strict=True):
                known.add(one)
    return Coverage(by_rule, True)


def covers(rule: Rule, other: Rule) -> bool:
    """Returns whether `rule` matches every packet that `other` matches."""
    sizes = {len(low) for ranges in (other.source, other.destination) for low, _ in ranges or ()}
    return (
        all(rule.looks_at(is_own=own) or not other.looks_at(is_own=own) for own in (True, False))
        and _covers_protocols(rule.protocol, other.protocol)
        and _covers_numbers(rule.source_port, _shown(other, other.source_port, PORT_PROTOCOLS))
        and _covers_numbers(
            rule.destination_port, _shown(other, other.destination_port, PORT_PROTOCOLS)
        )
        and _covers_numbers(rule.icmp, _shown(other, other.icmp, ICMP_PROTOCOLS))
        and _covers_numbers(
            rule.mobility_type, _shown(other, other.mobility_type, MOBILITY_PROTOCOLS)
        )
        and all(
            _covers_ranges(_ranges(rule.source, size), _ranges(other.source, size))
            and _covers_ranges(_ranges(rule.destination, size), _ranges(other.destination, size))
            for size in sizes or (4, 16)
        )
    )


def _matches_nothing(rule: Rule) -> bool:
    ranges = (*(rule.source or ()), *(rule.destination or ()))
    return rule.protocol is OPAQUE and any(len(low) == 4 for low, _ in ranges)


# -- comparing selectors


def _covers_protocols(
    wide: tuple[int, ...] | Opaque | None, narrow: tuple[int, ...] | Opaque | None
) -> bool:
    if wide is None or wide is narrow:
        return True
    return isinstance(wide, tuple) and isinstance(narrow, tuple) and {*wide} >= {*narrow}


def _shown(rule: Rule, numbers: Numbers, protocols: frozenset[int]) -> Numbers:
    """Returns the ports, ICMP numbers or mobility types that the packets of a rule may have.

    `numbers` is the rule's selector. `protocols` are the protocols whose packets have such numbers.
    Returns OPAQUE if the rule matches no such protocol.
    """
    if numbers is not None or rule.protocol is None:
        return numbers
    shows = rule.protocol is not OPAQUE and not protocols.isdisjoint(rule.protocol)
    return None if shows else OPAQUE


def _covers_numbers(wide: Numbers, narrow: Numbers) -> bool:
    if wide is None or wide is narrow:
        return True
    if wide is OPAQUE or narrow is OPAQUE or narrow is None:
        return False
    return _covers_ranges(_merged(wide), narrow)


def _ranges(ranges: tuple[AddressRange, ...] | None, size: int) -> Sequence[tuple[int, int]]:
    return ((0, (1 << size * 8) - 1),) if ranges is None else merged_ranges(ranges, size)


def merged_ranges(ranges: Iterable[AddressRange], size: int) -> list[tuple[int, int]]:
    """Returns the ranges of addresses of `size` bytes as sorted pairs of numbers.

    Merges adjacent and overlapping ranges.
    """
    return _merged(
        (int.from_bytes(low, "big"), int.from_bytes(high, "big"))
        for low, high in ranges
        if len(low) == size
    )


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged


def _covers_ranges(
    wide: Sequence[tuple[int, int]], narrow: Iterable[tuple[int, int] | NumberRange]
) -> bool:
    return all(any(low <= first and last <= high for low, high in wide) for first, last in narrow)


# -- blocks of addresses and of ports


def _blocks(rule: Rule) -> tuple[_Block, _Block, _Block]:
    """Returns the three blocks of a rule: those of its source addresses, its destination addresses
    and its destination ports."""
    ports = rule.destination_port if isinstance(rule.destination_port, tuple) else ()
    return (
        _address_block(rule.source),
        _address_block(rule.destination),
        _block(2, [*ports]) if ports else _ANY,
    )


def _address_block(ranges: tuple[AddressRange, ...] | None) -> _Block:
    if not ranges or len({len(one.low) for one in ranges}) > 1:
        return _ANY
    size = len(ranges[0].low)
    return _block(size, merged_ranges(ranges, size))


def _block(size: int, ranges: Sequence[tuple[int, int]]) -> _Block:
    """Returns the smallest block that contains all ranges.

    Only blocks of the prefix lengths in `_LEVELS` are considered. Returns _ANY if none of them
    contains all ranges.
    """
    low, high = min(one[0] for one in ranges), max(one[1] for one in ranges)
    common = size * 8 - (low ^ high).bit_length()
    level = max((one for one in _LEVELS[size] if one <= common), default=0)
    return (size, level, low >> size * 8 - level) if level else _ANY


def _around(block: _Block) -> list[_Block]:
    """Returns all blocks that contain `block`, including `block`."""
    size, level, prefix = block
    if not level:
        return [_ANY]
    levels = (one for one in _LEVELS[size] if one <= level)
    return [_ANY, *((size, one, prefix >> level - one) for one in levels)]
