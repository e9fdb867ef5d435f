# SPDX-License-Identifier: Apache-2.0
"""Holds the routing daemon's routes and next-hop objects, and resolves them to path sets.

A route or group may arrive before the object that it names (zebra sends groups in hash order). Then
the route waits, unpublished, until its object is complete. A new session starts without objects,
because it may number them differently. Routes of the previous session keep their path sets, and are
stale until the new session announces them. After the replay the caller deletes the routes for which
`is_stale` is true.

The prefixes are kept in a native table (`sluice._native.RouteTable`). The table refers to an entry
by its number, and counts the entry's routes. `Fib` writes routes to this table in bulk, after it
has got their entry from `entry_for`. `drop_unused` must be called for entries that may have lost
their last route.

The methods that apply an event return the routes whose path set or target changed, as
`RouteChange`s. If a prefix has routes from several sources, the caller chooses among them. The
caller must exhaust iterators of changes. If ids run out, such an iterator first yields the changes
made so far, then raises OutOfIdsError.

Depends on model, entities, paths.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from sluice._native import RouteTable
from sluice.entities import EntityChanges, RouteSlot
from sluice.model import (
    NexthopKind,
    NexthopObjectDeleted,
    NexthopObjectUpdated,
    NexthopSpec,
    Route,
    RouteKey,
)
from sluice.state.paths import NexthopSpecs, PathSet, PathSets
from sluice.state.route_order import RouteOrder

WAITING_AT_ONCE = 1024
"""Maximum number of waiting routes published at once when their object arrives: about 2 ms."""
_DEEPEST_GROUP = 8
"""Maximum nesting of groups. The kernel refuses any nesting, so this only bounds invalid input."""


class _Object:
    """Holds a next-hop object. `definition` is None while a route or group names the object's
    number but the object has not arrived."""

    __slots__ = ("definition", "entries", "id", "paths", "waiting")

    def __init__(self, identifier: int) -> None:
        self.id = identifier
        self.definition: NexthopObjectUpdated | None = None
        self.paths: PathSet | None = None
        self.entries: list[RibEntry] = []
        """Entries that use this object, one for each protocol."""
        self.waiting: dict[RouteSlot, None] = {}
        """Routes that arrived before this object. Some of them may be deleted by now."""

    @property
    def uses(self) -> int:
        """Number of routes that use the object."""
        return sum(entry.uses for entry in self.entries)


RouteAttributes: TypeAlias = tuple[int, NexthopSpecs, int | None]
"""The attributes that routes share: protocol, next hops, object number."""


class RibEntry:
    """Holds the attributes that routes of one session have in common. Routes with equal attributes
    share an entry.

    The path set belongs to the entry, or to the next-hop object that the entry names. A full table
    has a million routes and some hundred entries.
    """

    __slots__ = ("attributes", "number", "object", "own_paths", "rib", "session")

    def __init__(
        self,
        rib: Rib,
        attributes: RouteAttributes,
        obj: _Object | None,
        own_paths: PathSet | None,
        session: int,
    ) -> None:
        self.rib = rib
        self.attributes = attributes
        self.session = session
        self.object = obj
        self.own_paths = own_paths
        self.number = rib.table.add_entry(self)
        """The entry's number in the table."""

    @property
    def uses(self) -> int:
        """Number of routes that use the entry."""
        return self.rib.table.entry_uses(self.number)

    @property
    def protocol(self) -> int:
        """The protocol that the routes come from: RTPROT_*."""
        return self.attributes[0]

    @property
    def paths(self) -> PathSet | None:
        """The path set; None while the routes wait for their object."""
        return self.own_paths if self.object is None else self.object.paths


class RouteChange(NamedTuple):
    """Describes a changed route of the routing daemon. `paths` is the new path set, or None."""

    slot: RouteSlot
    paths: PathSet | None


_change = tuple.__new__
"""Makes a RouteChange from a tuple. Takes half the time of its constructor."""


class Rib:
    """Holds all routes of one routing daemon.

    `vrfs` maps the daemon's kernel tables to VRFs. The RIB has no routes of other tables.
    """

    def __init__(self, paths: PathSets, table: RouteTable, vrfs: Mapping[int, int]) -> None:
        self._paths = paths
        self.table = table
        self._vrfs = vrfs
        self._entries: dict[RouteAttributes, RibEntry] = {}
        """Entries of this session."""
        self._objects: dict[int, _Object] = {}
        self._parents: dict[int, set[int]] = {}
        self.moved_objects: set[_Object] = set()
        """Objects whose target changed: their routes must be republished."""
        self.target_changes = 0
        """Number of target changes."""
        self._session = 0

    # -- reading

    def get(self, key: RouteKey) -> RibEntry | None:
        """Returns the entry of a route, or None."""
        vrf = self._vrfs.get(key.table)
        if vrf is None:
            return None
        entry: RibEntry | None = self.table.entry(RouteSlot(vrf, key.prefix))
        return entry

    def is_current(self, key: RouteKey) -> bool:
        """Returns whether a route exists and the current session has announced it."""
        entry = self.get(key)
        return entry is not None and entry.session == self._session

    def __iter__(self) -> Iterator[RouteKey]:
        """Iterates over all routes."""
        tables = {vrf: table for table, vrf in self._vrfs.items()}
        for slots in RouteOrder(self.table).walk():
            for slot in slots:
                if slot.vrf in tables and self.table.entry(slot) is not None:
                    yield RouteKey(tables[slot.vrf], slot.prefix)

    def __len__(self) -> int:
        return sum(map(self.table.routes, self._vrfs.values()))

    @property
    def stale(self) -> int:
        """Number of routes from an earlier session that the current session has not announced
        yet."""
        return len(self) - sum(entry.uses for entry in self._entries.values())

    def is_stale(self, key: RouteKey) -> bool:
        """Returns whether a route is from an earlier session, and the current session has not
        announced it yet."""
        entry = self.get(key)
        return entry is not None and entry.session != self._session

    def waiting_objects(self) -> dict[int, int]:
        """Returns the numbers of missing objects, with the number of routes that wait for each."""
        return {
            obj.id: obj.uses for obj in self._objects.values() if obj.entries and obj.paths is None
        }

    # -- routes

    def update(
        self, slot: RouteSlot, route: Route, changes: EntityChanges
    ) -> Sequence[RouteChange]:
        """Adds or replaces a route of one of the VRFs. Returns the changed routes, the added one
        last.

        Raises OutOfIdsError. Then an earlier route stays in force.
        """
        old: RibEntry | None = self.table.entry(slot)
        entry, resolved = self.entry_for(route.protocol, route.nexthops, route.nexthop_id, changes)
        if entry is not old:
            self.table.set_entry(slot, entry.number)
            if old is not None:
                self.drop_unused(old, changes)
        paths = entry.paths
        if paths is None and entry.object is not None:
            entry.object.waiting[slot] = None
        return (*resolved, _change(RouteChange, (slot, paths)))

    def entry_for(
        self, protocol: int, nexthops: NexthopSpecs, nexthop_id: int | None, changes: EntityChanges
    ) -> tuple[RibEntry, Sequence[RouteChange]]:
        """Returns this session's entry for routes with these attributes, and the routes that this
        call changed.

        The changed routes had waited for the object that the entry names. If the caller adds no
        route to the entry, it must pass the entry to `drop_unused`. Raises OutOfIdsError.
        """
        attributes = (protocol, nexthops, nexthop_id)
        entry = self._entries.get(attributes)
        if entry is None:
            return self._new_entry(attributes, changes), ()
        if entry.paths is None and entry.object is not None:
            # The first resolution of the object may have failed because ids ran out. So it is tried
            # again.
            return entry, tuple(self._resolve_object(entry.object, changes))
        return entry, ()

    def delete(self, slot: RouteSlot, changes: EntityChanges) -> Sequence[RouteChange]:
        """Deletes a route. Returns it if it existed. Ignores unknown routes, because zebra deletes
        routes that it never sent."""
        entry: RibEntry | None = self.table.entry(slot)
        if entry is None:
            return ()
        self.table.set_entry(slot, 0)
        self.drop_unused(entry, changes)
        return (_change(RouteChange, (slot, None)),)

    def _new_entry(self, attributes: RouteAttributes, changes: EntityChanges) -> RibEntry:
        protocol, nexthops, nexthop_id = attributes
        if nexthops or nexthop_id is None:
            paths = self._paths.acquire(nexthops, changes)
            attributes = (protocol, paths.specs, nexthop_id)
            entry = RibEntry(self, attributes, None, paths, self._session)
        else:
            obj = self._objects.get(nexthop_id) or self._new_object(nexthop_id)
            if obj.paths is None:
                specs = self._expand(obj)
                if specs:
                    obj.paths = self._paths.acquire(specs, changes)
            entry = RibEntry(self, attributes, obj, None, self._session)
            obj.entries.append(entry)
        self._entries[attributes] = entry
        return entry

    def drop_unused(self, entry: RibEntry, changes: EntityChanges) -> None:
        """Drops an entry without routes, and releases its path set or object."""
        if entry.uses or self.table.entry_of(entry.number) is not entry:
            return
        self.table.drop_entry(entry.number)
        self.table.forget_texts()
        if self._entries.get(entry.attributes) is entry:
            del self._entries[entry.attributes]
        obj: _Object | None = entry.object
        if obj is None:
            if entry.own_paths is not None:
                self._paths.release(entry.own_paths, changes)
            return
        obj.entries.remove(entry)
        if not obj.entries:
            obj.waiting.clear()
            if obj.paths is not None:
                self._paths.release(obj.paths, changes)
                obj.paths = None
            identifier = obj.id
            if obj.definition is None and self._objects.get(identifier) is obj:
                del self._objects[identifier]

    # -- next-hop objects

    def update_object(
        self, event: NexthopObjectUpdated, changes: EntityChanges
    ) -> Iterator[RouteChange]:
        """Adds or replaces an object. Yields the routes that change immediately.

        The object's other routes change later, by a walk: the object is added to `moved_objects`.
        """
        self.table.forget_texts()
        obj = self._objects.get(event.id) or self._new_object(event.id)
        self._set_parent(obj, event)
        obj.definition = event
        yield from self._object_changed(obj, changes, 0)

    def delete_object(
        self, event: NexthopObjectDeleted, changes: EntityChanges
    ) -> Iterator[RouteChange]:
        """Deletes an object, and withdraws the routes that still use it, as the kernel does. Yields
        changed routes like `update_object`."""
        self.table.forget_texts()
        obj = self._objects.get(event.id)
        if obj is None:
            return
        self._set_parent(obj, None)
        obj.definition = None
        yield from self._object_changed(obj, changes, 0)
        if not obj.entries:
            del self._objects[event.id]

    def _new_object(self, identifier: int) -> _Object:
        obj = self._objects[identifier] = _Object(identifier)
        return obj

    def _set_parent(self, obj: _Object, definition: NexthopObjectUpdated | None) -> None:
        if obj.definition is not None:
            for member, _ in obj.definition.group:
                self._parents.get(member, set()).discard(obj.id)
        if definition is not None:
            for member, _ in definition.group:
                self._parents.setdefault(member, set()).add(obj.id)

    def _object_changed(
        self, obj: _Object, changes: EntityChanges, depth: int
    ) -> Iterator[RouteChange]:
        if obj.entries:
            yield from self._resolve_object(obj, changes)
        if depth < _DEEPEST_GROUP:
            for parent in sorted(self._parents.get(obj.id, ())):
                if parent in self._objects:
                    yield from self._object_changed(self._objects[parent], changes, depth + 1)

    def _resolve_object(self, obj: _Object, changes: EntityChanges) -> Iterator[RouteChange]:
        old = obj.paths
        specs = self._expand(obj)
        if old is not None and old.specs == specs:
            return
        obj.paths = self._paths.acquire(specs, changes) if specs else None
        if old is None:
            if obj.paths is not None:
                yield from self._resume_waiting(obj)
        elif obj.paths is None or obj.paths.target != old.target:
            # The routes change by a walk over all routes. An index of each object's routes would
            # have to be updated for every route. The walk costs less, because zebra rarely changes
            # an object: for changed next hops it makes a new one.
            self.moved_objects.add(obj)
            self.target_changes += 1
        if old is not None:
            self._paths.release(old, changes)

    def _resume_waiting(self, obj: _Object) -> Iterator[RouteChange]:
        """Yields the routes that waited for an object. If there are many, yields none, and adds the
        object to `moved_objects` so that a walk publishes its routes in slices."""
        waiting, obj.waiting = obj.waiting, {}
        if len(waiting) > WAITING_AT_ONCE:
            self.moved_objects.add(obj)
            self.target_changes += 1
            return
        for slot in waiting:
            entry = self.table.entry(slot)
            if entry is not None and entry.object is obj:
                yield RouteChange(slot, entry.paths)

    def _expand(self, obj: _Object) -> NexthopSpecs:
        """Returns the next hops of an object, with weights if it is a group. Empty if no next hop
        is known."""
        weights: dict[tuple[bytes | None, int | None, NexthopKind], int] = {}
        self._collect(obj, 1, weights, 0)
        return tuple(
            NexthopSpec(address, ifindex, min(weight, 256), kind)
            for (address, ifindex, kind), weight in weights.items()
        )

    def _collect(
        self,
        obj: _Object,
        weight: int,
        weights: dict[tuple[bytes | None, int | None, NexthopKind], int],
        depth: int,
    ) -> None:
        definition = obj.definition
        if definition is None or depth > _DEEPEST_GROUP:
            return
        if definition.nexthop is not None:
            spec = definition.nexthop
            key = (spec.address, spec.ifindex, spec.kind)
            weights[key] = weights.get(key, 0) + weight
            return
        for member, member_weight in definition.group:
            child = self._objects.get(member)
            if child is not None:
                self._collect(child, weight * member_weight, weights, depth + 1)

    # -- sessions

    def open_session(self) -> None:
        """Starts a session: marks all routes as stale and forgets all objects."""
        self._session += 1
        self.table.forget_texts()
        self._entries = {}
        self._objects = {}
        self._parents = {}


def moved_routes(
    table: RouteTable, slots: Iterable[RouteSlot], moved: Container[PathSet | None]
) -> Iterator[RouteChange]:
    """Yields the routes of `slots` whose path set is in `moved` or whose object has moved."""
    for slot in slots:
        entry: RibEntry | None = table.entry(slot)
        if entry is None:
            continue
        obj = entry.object
        if obj is not None and obj in entry.rib.moved_objects:
            yield RouteChange(slot, entry.paths)
            if obj.paths is None:
                obj.waiting[slot] = None
        elif entry.paths in moved:
            yield RouteChange(slot, entry.paths)
