# SPDX-License-Identifier: Apache-2.0
"""Holds the entities known to be installed in the switch, with their reference counts.

An entity counts as installed once the switch has acknowledged it. The reference counts show whether
an installed entity still uses another one, which must then not be deleted. Routes are in a native
table (`sluice._native.RouteTable`), which counts the routes to each target. Depends on entities and
state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, MutableMapping

from sluice._native import RouteTable
from sluice.entities import (
    EntityKey,
    EntityKind,
    EntityReference,
    EntityValue,
    RouteTarget,
    RouteTargetKind,
    references,
)
from sluice.state.route_order import new_table

_TARGETS = {
    EntityKind.NEXTHOP: RouteTargetKind.NEXTHOP,
    EntityKind.GROUP_ENTRY: RouteTargetKind.GROUP,
}
"""Entity kinds that routes refer to, each with its kind of route target in the native table."""


class Inventory:
    """Holds the installed entities by kind. The constructor clears the installed routes in
    `table`."""

    def __init__(self, table: RouteTable | None = None) -> None:
        self.routes = table or new_table()
        """The native table of routes; `by_kind` holds its installed routes."""
        self.routes.installed.clear()
        self.routes.forget_ready()
        self.routes.forget_forms()
        self.by_kind: dict[EntityKind, MutableMapping[EntityKey, EntityValue]] = {
            kind: {} for kind in EntityKind
        }
        self.by_kind[EntityKind.ROUTE] = self.routes.installed
        self._uses: Counter[EntityReference] = Counter()

    def __contains__(self, reference: EntityReference) -> bool:
        kind, key = reference
        return key in self.by_kind[kind]

    def uses(self, reference: EntityReference) -> int:
        """Returns the number of installed entities that refer to the entity `reference`."""
        kind, key = reference
        uses = self._uses.get(reference, 0)
        if kind in _TARGETS and isinstance(key, int):
            uses += self.routes.installed_uses(RouteTarget(_TARGETS[kind], key))
        return uses

    def items(self) -> Iterator[tuple[EntityKind, EntityKey]]:
        """Yields all installed entities, in the order of their kinds."""
        for kind, held in self.by_kind.items():
            for key in held:
                yield kind, key

    def put(self, kind: EntityKind, entries: Iterable[tuple[EntityKey, EntityValue]]) -> None:
        """Records entities as installed. An entity may replace another value under the same key."""
        held = self.by_kind[kind]
        if kind is EntityKind.ROUTE:
            self.routes.installed.update(entries)
            return
        entries = list(dict(entries).items())  # BMv2 reports the members of a group twice
        replaced = [(key, held[key]) for key, _ in entries if key in held]
        held.update(entries)
        self._count(kind, entries, 1)
        self._count(kind, replaced, -1)

    def remove(self, kind: EntityKind, keys: Iterable[EntityKey]) -> None:
        """Records entities as no longer installed."""
        held = self.by_kind[kind]
        if kind is EntityKind.ROUTE:
            for key in keys:
                held.pop(key, None)
            return
        self._count(kind, [(key, held.pop(key)) for key in keys if key in held], -1)
        if kind in _TARGETS:
            self.routes.forget_ready()

    def _count(
        self, kind: EntityKind, entries: list[tuple[EntityKey, EntityValue]], step: int
    ) -> None:
        for key, value in entries:
            for reference in references(kind, key, value):
                self._add(reference, step)

    def _add(self, reference: EntityReference, step: int) -> None:
        self._uses[reference] += step
        if not self._uses[reference]:
            del self._uses[reference]
