# SPDX-License-Identifier: Apache-2.0
"""Rules for people to look at: as a line of text, what a commit would change, what may surprise.

`describe` for `sluice show spd`, `diff` for `sluice spd diff`, `warnings` for `sluice spd check`.
Pure; depends on policy_model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import Enum
from typing import NamedTuple

from sluice.model import Address
from sluice.policy_model import (
    OPAQUE,
    PROTOCOLS,
    TCP,
    Action,
    AddressRange,
    Direction,
    Numbers,
    Rule,
)

_PROTOCOL_NAMES = {number: name for name, number in PROTOCOLS.items()}
BGP = 179
FIRST_EPHEMERAL_PORT = 1024


# -- one rule as text


def describe(rule: Rule) -> str:
    """One line: `protect(branch) tcp 10.1.0.0-10.1.255.255 -> any dport 80,443`."""
    words = [rule.action.name.lower() + (f"({rule.bundle})" if rule.bundle else "")]
    if rule.protocol is not None:
        words.append(",".join(_PROTOCOL_NAMES.get(one, str(one)) for one in rule.protocol))
    words += [_ranges(rule.source), "->", _ranges(rule.destination)]
    for name, numbers in (("sport", rule.source_port), ("dport", rule.destination_port)):
        if numbers is not None:
            words += [name, "opaque" if numbers is OPAQUE else ",".join(map(str, numbers))]
    if rule.icmp is not None:
        words += ["icmp", "opaque" if rule.icmp is OPAQUE else _icmp(rule.icmp)]
    return " ".join(words)


def _ranges(ranges: tuple[AddressRange, ...] | None) -> str:
    return "any" if ranges is None else ",".join(map(str, ranges))


def _icmp(numbers: Iterable[tuple[int, int]]) -> str:
    parts = []
    for low, high in numbers:
        first, last = low >> 8, high >> 8
        if low == high:
            parts.append(f"{first}/{low & 0xFF}")
        else:
            parts.append(str(first) if first == last else f"{first}-{last}")
    return ",".join(parts)


# -- two lists compared


class Change(Enum):
    """What a new list does to a rule of that name."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    MOVED = "moved"


@dataclass(frozen=True, slots=True)
class RuleChange:
    """One difference. Positions count from 1, None where the list has no such rule.

    `before` and `after` are None likewise. A rule that moved and changed is CHANGED.
    """

    change: Change
    name: str
    position_before: int | None
    position_after: int | None
    before: Rule | None
    after: Rule | None


def diff(before: Sequence[Rule], after: Sequence[Rule]) -> list[RuleChange]:
    """What turns one list into the other, removed rules first, then in the new order.

    Rules are told apart by name. Only those count as moved that the fewest moves need.
    """
    old = {rule.name: (at, rule) for at, rule in enumerate(before, 1)}
    new = {rule.name: (at, rule) for at, rule in enumerate(after, 1)}
    stayed = _in_order([name for name in old if name in new], [name for name in new if name in old])
    changes = [
        RuleChange(Change.REMOVED, name, at, None, rule, None)
        for name, (at, rule) in old.items()
        if name not in new
    ]
    for name, (at, rule) in new.items():
        if name not in old:
            changes.append(RuleChange(Change.ADDED, name, None, at, None, rule))
            continue
        was_at, was = old[name]
        if was != rule:
            changes.append(RuleChange(Change.CHANGED, name, was_at, at, was, rule))
        elif name not in stayed:
            changes.append(RuleChange(Change.MOVED, name, was_at, at, was, rule))
    return changes


def _in_order(before: list[str], after: list[str]) -> set[str]:
    """Names that can be said to have kept their place."""
    blocks = SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    return {name for block in blocks for name in before[block.a : block.a + block.size]}


# -- what may surprise


class _Shape(NamedTuple):
    """Packets of a TCP session seen from this router; a port that is None is an ephemeral one."""

    own: AddressRange
    own_port: int | None
    peer_port: int | None


def warnings(
    rules: Mapping[Direction, Sequence[Rule]], own: Iterable[Address], spd: str
) -> list[str]:
    """What an SPD does that its author may not mean; `own` are this router's addresses on the
    interfaces that it guards. Sentences, none where there is nothing to say.
    """
    found = []
    for address in sorted(set(own)):
        passive = _Shape(AddressRange(address, address), BGP, None)
        active = _Shape(AddressRange(address, address), None, BGP)
        if not any(_passes_both(rules, shape) for shape in (passive, active)):
            found.append(
                f"{spd}: no BGP session of {passive.own} can come up: TCP port {BGP} needs a bypass"
                " or protect rule in both lists"
            )
    for direction, listed in rules.items():
        if not any(rule.action is not Action.DISCARD and not rule.generated for rule in listed):
            found.append(f"{spd}: the {direction.value} list discards everything")
    return found


def _passes_both(rules: Mapping[Direction, Sequence[Rule]], shape: _Shape) -> bool:
    return all(_passes(rules.get(direction, ()), direction, shape) for direction in Direction)


def _passes(rules: Iterable[Rule], direction: Direction, shape: _Shape) -> bool:
    """Whether some such packet is bypassed or protected: searched in order."""
    for rule in rules:
        ends = (rule.source, rule.source_port), (rule.destination, rule.destination_port)
        own, peer = ends if direction is Direction.OUTBOUND else reversed(ends)
        touches = (
            (rule.protocol is None or TCP in rule.protocol)
            and _holds(own[0], shape.own)
            and _accepts(own[1], shape.own_port)
            and _accepts(peer[1], shape.peer_port)
            and (peer[0] is None or any(len(low) == len(shape.own.low) for low, _ in peer[0]))
            and not isinstance(rule.icmp, tuple)
        )
        if touches and rule.action is not Action.DISCARD:
            return True
        if touches and peer[0] is None and own[1] is None and peer[1] is None:
            return False  # discarded whoever the peer is
    return False


def _holds(ranges: tuple[AddressRange, ...] | None, own: AddressRange) -> bool:
    return ranges is None or any(
        len(low) == len(own.low) and low <= own.low <= high for low, high in ranges
    )


def _accepts(numbers: Numbers, port: int | None) -> bool:
    if numbers is None:
        return True
    if numbers is OPAQUE:
        return False
    if port is None:
        return any(high >= FIRST_EPHEMERAL_PORT for _, high in numbers)
    return any(low <= port <= high for low, high in numbers)
