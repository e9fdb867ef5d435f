# SPDX-License-Identifier: Apache-2.0
"""The routing daemon's routes and next-hop objects, and the path sets that they resolve to.

An object may arrive after the routes or groups that name it (zebra sends groups in hash order).
Such a route waits, unpublished, until its object is complete. A new session starts without
objects. Routes of the session before keep their path sets and are stale until this session names
them again; once the replay is over the caller deletes those for which `is_stale` is true. An
object's number may mean something else in a new session, so objects are never looked up across
sessions.

The prefixes are kept in a native table (`sluice._native.RouteTable`), which refers to an entry by
number and counts its routes. `Fib` writes routes in bulk there: `entry_for` returns their entry,
and `drop_unused` must be called for entries that may have lost their last route.

Depends on model, entities, paths. `publish(key, paths)` is called when an object changes a
route's path set or target; `paths` is None where the route has none now. `update` and `delete`
publish nothing: there the caller publishes. The caller chooses among the sources of a prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from sluice._native import RouteTable
from sluice.entities import Changes, RouteSlot
from sluice.model import (
    NexthopKind,
    NexthopObjectDeleted,
    NexthopObjectUpdated,
    NexthopSpec,
    Route,
    RouteKey,
)
from sluice.state.paths import PathSet, PathSets, Specs
from sluice.state.route_order import RouteOrder

WAITING_AT_ONCE = 1024
"""Maximum number of waiting routes published at once when their object arrives: about 2 ms."""
_DEEPEST_GROUP = 8
"""Maximum nesting of groups (the kernel refuses any nesting; this only bounds bad input)."""


class _Object:
    """A next-hop object; `definition` is None while only its number is known."""

    __slots__ = ("definition", "entries", "id", "paths", "waiting")

    def __init__(self, identifier: int) -> None:
        self.id = identifier
        self.definition: NexthopObjectUpdated | None = None
        self.paths: PathSet | None = None
        self.entries: list[RibEntry] = []
        """Entries that use this object, one for each protocol."""
        self.waiting: dict[RouteKey, None] = {}
        """Routes that arrived before this object; some may be deleted by now."""

    @property
    def uses(self) -> int:
        """Number of routes that use it."""
        return sum(entry.uses for entry in self.entries)


_Said: TypeAlias = tuple[int, Specs, int | None]
"""The fields that routes share: protocol, next hops, object number."""


class RibEntry:
    """Shared state of all routes of one session with equal fields: a path set, or an object's.

    A full table has a million routes and some hundred entries.
    """

    __slots__ = ("number", "object", "own_paths", "rib", "said", "session")

    def __init__(
        self, rib: Rib, said: _Said, obj: _Object | None, own_paths: PathSet | None, session: int
    ) -> None:
        self.rib = rib
        self.said = said
        self.session = session
        self.object = obj
        self.own_paths = own_paths
        self.number = rib.table.add_entry(self)
        """The entry's number in the table."""

    @property
    def uses(self) -> int:
        """Number of routes that use it."""
        return self.rib.table.entry_uses(self.number)

    @property
    def protocol(self) -> int:
        """The protocol that made the routes: RTPROT_*."""
        return self.said[0]

    @property
    def paths(self) -> PathSet | None:
        """The path set; None while the routes wait for their object."""
        return self.own_paths if self.object is None else self.object.paths


class Rib:
    """All routes of the routing daemon. `vrfs` maps kernel tables to VRFs; routes of other tables
    are not held."""

    def __init__(
        self,
        paths: PathSets,
        publish: Callable[[RouteKey, PathSet | None, Changes], None],
        table: RouteTable,
        vrfs: Mapping[int, int],
    ) -> None:
        self._paths = paths
        self._publish = publish
        self.table = table
        self._vrfs = vrfs
        self._entries: dict[_Said, RibEntry] = {}
        """Entries of this session."""
        self._objects: dict[int, _Object] = {}
        self._parents: dict[int, set[int]] = {}
        self.moved_objects: set[_Object] = set()
        """Objects whose target changed: their routes must be republished."""
        self.moves = 0
        """Number of target changes."""
        self._session = 0

    # -- reading

    def of_table(self, table: int) -> Rib:
        """Returns the RIB that has a routing table: this one."""
        return self

    def get(self, key: RouteKey) -> RibEntry | None:
        """Returns the entry of a route, or None."""
        vrf = self._vrfs.get(key.table)
        if vrf is None:
            return None
        entry: RibEntry | None = self.table.entry(RouteSlot(vrf, key.prefix))
        return entry

    def is_current(self, key: RouteKey) -> bool:
        """Returns whether the route exists and was named in this session."""
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
        """Number of routes from an earlier session that this one has not named yet."""
        return len(self) - sum(entry.uses for entry in self._entries.values())

    def is_stale(self, key: RouteKey) -> bool:
        """Returns whether a route is from an earlier session and not yet named by this one."""
        entry = self.get(key)
        return entry is not None and entry.session != self._session

    def waiting_objects(self) -> dict[int, int]:
        """Returns the numbers of missing objects, with the number of routes that wait for each."""
        return {
            obj.id: obj.uses for obj in self._objects.values() if obj.entries and obj.paths is None
        }

    # -- routes

    def update(self, key: RouteKey, route: Route, changes: Changes) -> PathSet | None:
        """Adds or replaces a route of one of the tables; returns its path set for the caller to
        publish. Raises OutOfIdsError and leaves the old route in place."""
        old = self.get(key)
        entry = self.entry_for(route.protocol, route.nexthops, route.nexthop_id, changes)
        if entry is not old:
            self.table.set_entry(RouteSlot(self._vrfs[key.table], key.prefix), entry.number)
            if old is not None:
                self.drop_unused(old, changes)
        paths = entry.paths
        if paths is None and entry.object is not None:
            entry.object.waiting[key] = None
        return paths

    def entry_for(
        self, protocol: int, nexthops: Specs, nexthop_id: int | None, changes: Changes
    ) -> RibEntry:
        """Returns this session's entry for routes with these fields. The caller must pass an entry
        that gets no route to `drop_unused`. Raises OutOfIdsError."""
        said = (protocol, nexthops, nexthop_id)
        entry = self._entries.get(said)
        if entry is None:
            return self._new_entry(said, changes)
        if entry.paths is None and entry.object is not None:
            self._resolve_object(entry.object, changes)  # there was no id for it before, perhaps
        return entry

    def delete(self, key: RouteKey, changes: Changes) -> bool:
        """Deletes a route, which the caller publishes; returns whether it existed. Unknown routes
        are ignored (zebra deletes routes that it never sent)."""
        entry = self.get(key)
        if entry is None:
            return False
        self.table.set_entry(RouteSlot(self._vrfs[key.table], key.prefix), 0)
        self.drop_unused(entry, changes)
        return True

    def _new_entry(self, said: _Said, changes: Changes) -> RibEntry:
        _, nexthops, nexthop_id = said
        if nexthops or nexthop_id is None:
            paths = self._paths.acquire(nexthops, changes)
            said = (said[0], paths.specs, nexthop_id)
            entry = RibEntry(self, said, None, paths, self._session)
        else:
            obj = self._objects.get(nexthop_id) or self._new_object(nexthop_id)
            if obj.paths is None:
                specs = self._expand(obj)
                if specs:
                    obj.paths = self._paths.acquire(specs, changes)
            entry = RibEntry(self, said, obj, None, self._session)
            obj.entries.append(entry)
        self._entries[said] = entry
        return entry

    def drop_unused(self, entry: RibEntry, changes: Changes) -> None:
        """Drops an entry without routes, and releases its path set or object."""
        if entry.uses or self.table.entry_of(entry.number) is not entry:
            return
        self.table.drop_entry(entry.number)
        self.table.forget_texts()
        if self._entries.get(entry.said) is entry:
            del self._entries[entry.said]
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

    def update_object(self, event: NexthopObjectUpdated, changes: Changes) -> None:
        """Adds or replaces an object; routes that use it follow."""
        self.table.forget_texts()
        obj = self._objects.get(event.id) or self._new_object(event.id)
        self._set_parent(obj, event)
        obj.definition = event
        self._object_changed(obj, changes, 0)

    def delete_object(self, event: NexthopObjectDeleted, changes: Changes) -> None:
        """Deletes an object. Routes that still use it are withdrawn, as in the kernel."""
        self.table.forget_texts()
        obj = self._objects.get(event.id)
        if obj is None:
            return
        self._set_parent(obj, None)
        obj.definition = None
        self._object_changed(obj, changes, 0)
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

    def _object_changed(self, obj: _Object, changes: Changes, depth: int) -> None:
        if obj.entries:
            self._resolve_object(obj, changes)
        if depth < _DEEPEST_GROUP:
            for parent in sorted(self._parents.get(obj.id, ())):
                if parent in self._objects:
                    self._object_changed(self._objects[parent], changes, depth + 1)

    def _resolve_object(self, obj: _Object, changes: Changes) -> None:
        old = obj.paths
        specs = self._expand(obj)
        if old is not None and old.specs == specs:
            return
        obj.paths = self._paths.acquire(specs, changes) if specs else None
        if old is None:
            if obj.paths is not None:
                self._publish_waiting(obj, changes)
        elif obj.paths is None or obj.paths.target != old.target:
            # Rare: zebra gives changed next hops a new object. A walk over all routes costs less
            # than an index of the routes of each object would on every route.
            self.moved_objects.add(obj)
            self.moves += 1
        if old is not None:
            self._paths.release(old, changes)

    def _publish_waiting(self, obj: _Object, changes: Changes) -> None:
        """Publishes the routes that waited for an object. Where they are many they are published in
        slices, like routes whose object changed its target."""
        waiting, obj.waiting = obj.waiting, {}
        if len(waiting) > WAITING_AT_ONCE:
            self.moved_objects.add(obj)
            self.moves += 1
            return
        for key in waiting:
            entry = self.get(key)
            if entry is not None and entry.object is obj:
                self._publish(key, entry.paths, changes)

    def _expand(self, obj: _Object) -> Specs:
        """Returns the object's next hops, a group's with weights; empty while none is known."""
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
        """Starts a session: makes all routes stale and forgets all objects."""
        self._session += 1
        self.table.forget_texts()
        self._entries = {}
        self._objects = {}
        self._parents = {}

    def republish(self, keys: Iterable[RouteKey], moved: set[PathSet], changes: Changes) -> None:
        """Publishes those of some routes whose path set is in `moved` or whose object has moved."""
        for key in keys:
            entry = self.get(key)
            if entry is None:
                continue
            obj = entry.object
            if obj is not None and obj in self.moved_objects:
                self._publish(key, entry.paths, changes)
                if obj.paths is None:
                    obj.waiting[key] = None
            elif entry.paths in moved:
                self._publish(key, entry.paths, changes)
