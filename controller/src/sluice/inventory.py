# SPDX-License-Identifier: Apache-2.0
"""What the switch is known to hold, and how often each entity is referred to.

An entity counts as held from the moment the switch acknowledged it. The reference counts keep the
reconciler from deleting a next hop that an installed route still uses. Depends on entities.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from sluice.entities import Key, Kind, Reference, Value, references


class Inventory:
    """The installed entities by kind."""

    def __init__(self) -> None:
        self.by_kind: dict[Kind, dict[Key, Value]] = {kind: {} for kind in Kind}
        self._uses: Counter[Reference] = Counter()

    def __contains__(self, reference: Reference) -> bool:
        kind, key = reference
        return key in self.by_kind[kind]

    def uses(self, reference: Reference) -> int:
        """How many installed entities refer to this one."""
        return self._uses.get(reference, 0)

    def items(self) -> Iterator[tuple[Kind, Key]]:
        """All installed entities, in the order of their kinds."""
        for kind, held in self.by_kind.items():
            for key in held:
                yield kind, key

    def put(self, kind: Kind, entries: Iterable[tuple[Key, Value]]) -> None:
        """These are installed, new or replaced."""
        held = self.by_kind[kind]
        new = dict(entries)  # BMv2 tells members of its selector twice
        if not held.keys().isdisjoint(new):
            self._count(kind, [(key, held[key]) for key in new if key in held], -1)
        held.update(new)
        self._count(kind, new.items(), 1)

    def remove(self, kind: Kind, keys: Iterable[Key]) -> None:
        """These are not installed any more."""
        held = self.by_kind[kind]
        self._count(kind, [(key, held.pop(key)) for key in keys if key in held], -1)

    def _count(self, kind: Kind, entries: Collection[tuple[Key, Value]], step: int) -> None:
        if kind is Kind.ROUTE:
            # A batch of routes has few targets, and a route's references depend on its target only.
            for value, number in Counter([value for _, value in entries]).items():
                for reference in references(kind, 0, value):
                    self._add(reference, step * number)
            return
        for key, value in entries:
            for reference in references(kind, key, value):
                self._add(reference, step)

    def _add(self, reference: Reference, step: int) -> None:
        self._uses[reference] += step
        if not self._uses[reference]:
            del self._uses[reference]
