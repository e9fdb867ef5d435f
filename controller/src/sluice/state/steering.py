# SPDX-License-Identifier: Apache-2.0
"""Decides for each destination prefix whether the switch or the kernel gets its packets.

The switch gets a packet unless the longest matching prefix says otherwise:

- The kernel gets all packets to the prefixes of its local table, because they are for this host. It
  also gets the prefixes that the pipeline never routes (`NEVER_ROUTED`). As in the kernel, all
  these prefixes take precedence over routes.
- The kernel gets the packets of a route that the switch cannot use, for example a route through an
  interface that was not taken over. The kernel forwards them, as before.
- The switch gets the packets of a more specific route that it can use.

Only prefixes whose verdict differs from that of a packet without a match are stored. On most
routers these are only the local prefixes. Pure. Depends on model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import Enum

from sluice.model import Prefix, mask_address

NEVER_ROUTED = frozenset(
    Prefix.parse(text)
    for text in (
        *("127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32"),
        *("::1/128", "fe80::/10", "ff00::/8"),
    )
)
"""Prefixes whose packets the kernel always gets: loopback, link-local, multicast, broadcast."""


class SteeringVerdict(Enum):
    """Says who gets the packets of a prefix."""

    KERNEL = "kernel"
    SWITCH = "switch"


class SteeredPrefixes:
    """Keeps the verdicts. Methods that change verdicts return the changes as (prefix, verdict)
    pairs.

    A verdict None means that the prefix no longer has a verdict of its own.
    """

    def __init__(self) -> None:
        self._dominant = _PrefixSet()
        self._foreign = _PrefixSet()
        self._usable: set[Prefix] = set()
        self._given: dict[Prefix, SteeringVerdict] = {}

    def __len__(self) -> int:
        return len(self._given)

    def set_local(self, prefixes: Iterable[Prefix]) -> list[tuple[Prefix, SteeringVerdict | None]]:
        """Sets the prefixes of the kernel's local table."""
        wanted = NEVER_ROUTED | frozenset(prefixes)
        changed = set(self._dominant) ^ wanted
        self._dominant.replace(wanted)
        return self._decide(self._affected(changed))

    def set_route(
        self, prefix: Prefix, usable: bool | None
    ) -> list[tuple[Prefix, SteeringVerdict | None]]:
        """Sets a route: whether the switch can use it, or None if it is gone."""
        was_foreign = prefix in self._foreign
        self._usable.discard(prefix)
        if usable:
            self._usable.add(prefix)
        if was_foreign != (usable is False):
            (self._foreign.discard if was_foreign else self._foreign.add)(prefix)
            return self._decide(self._affected({prefix}))
        return self._decide({prefix}) if self._foreign or prefix in self._given else []

    def _affected(self, changed: set[Prefix]) -> set[Prefix]:
        """Returns the prefixes whose verdict may change when the prefixes `changed` are added to
        the kernel's share or removed from it. These are `changed` and the usable routes inside
        them."""
        if not changed:
            return set()
        inside = _PrefixSet()
        inside.replace(changed)
        return changed | {prefix for prefix in self._usable if inside.covers(prefix)}

    def _decide(self, prefixes: Iterable[Prefix]) -> list[tuple[Prefix, SteeringVerdict | None]]:
        changes: list[tuple[Prefix, SteeringVerdict | None]] = []
        for prefix in prefixes:
            verdict = self._verdict(prefix)
            if verdict is not self._given.get(prefix):
                changes.append((prefix, verdict))
                if verdict is None:
                    del self._given[prefix]
                else:
                    self._given[prefix] = verdict
        return changes

    def _verdict(self, prefix: Prefix) -> SteeringVerdict | None:
        if prefix in self._dominant or prefix in self._foreign:
            return SteeringVerdict.KERNEL
        if prefix not in self._usable or not self._foreign.covers(prefix):
            return None
        return None if self._dominant.covers(prefix) else SteeringVerdict.SWITCH


class _PrefixSet:
    """Holds prefixes, and finds whether one of them covers another prefix."""

    def __init__(self) -> None:
        self._prefixes: set[Prefix] = set()
        # Number of prefixes of each length, by size of the address in octets.
        self._lengths: dict[int, Counter[int]] = {4: Counter(), 16: Counter()}

    def __contains__(self, prefix: Prefix) -> bool:
        return prefix in self._prefixes

    def __iter__(self) -> Iterator[Prefix]:
        return iter(self._prefixes)

    def __len__(self) -> int:
        return len(self._prefixes)

    def add(self, prefix: Prefix) -> None:
        self._prefixes.add(prefix)
        self._lengths[len(prefix.address)][prefix.length] += 1

    def discard(self, prefix: Prefix) -> None:
        self._prefixes.discard(prefix)
        lengths = self._lengths[len(prefix.address)]
        lengths[prefix.length] -= 1
        if not lengths[prefix.length]:
            del lengths[prefix.length]

    def replace(self, prefixes: Iterable[Prefix]) -> None:
        self._prefixes, self._lengths = set(), {4: Counter(), 16: Counter()}
        for prefix in prefixes:
            self.add(prefix)

    def covers(self, prefix: Prefix) -> bool:
        """Returns whether this set has the prefix or one that contains it."""
        return any(
            length <= prefix.length
            and Prefix(mask_address(prefix.address, length), length) in self._prefixes
            for length in self._lengths[len(prefix.address)]
        )
