# SPDX-License-Identifier: Apache-2.0
"""The routing daemon's routes and next-hop objects, and what they resolve to.

Objects may come after the routes or groups that name them (zebra sends groups in hash order): such
a route waits, unpublished, until its object is complete. A new session starts with no objects; the
routes of the session before keep what they resolved to and are stale until named again; the caller
deletes those that `is_stale` names once the replay is over. An object's number may mean something
else in a new session, which is why objects are never looked up across sessions.

Depends on model, entities, paths. `publish(key, paths)` is called whenever an object gave a route
another path set or target, with None where it has none now; the caller chooses among other sources
of that prefix, there and after `update` and `delete`, which publish nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from sluice.entities import Changes
from sluice.model import (
    NexthopKind,
    NexthopObjectDeleted,
    NexthopObjectUpdated,
    NexthopSpec,
    Prefix,
    Route,
    RouteKey,
)
from sluice.state.paths import PathSet, PathSets, Specs

WAITING_AT_ONCE = 1024
"""Routes that are published as soon as their object comes: about 2 ms."""
_DEEPEST_GROUP = 8
"""Groups within groups, at most (the kernel refuses any; this only bounds bad input)."""


class _Object:
    """A next-hop object: `definition` None while only its number is known."""

    __slots__ = ("definition", "entries", "id", "paths", "waiting")

    def __init__(self, identifier: int) -> None:
        self.id = identifier
        self.definition: NexthopObjectUpdated | None = None
        self.paths: PathSet | None = None
        self.entries: list[RibEntry] = []
        """Those that lead by it; of one session there is one for each protocol."""
        self.waiting: dict[RouteKey, None] = {}
        """Routes that came before it; some may have gone since."""

    @property
    def uses(self) -> int:
        """How many routes lead by it."""
        return sum(entry.uses for entry in self.entries)


_Said: TypeAlias = tuple[int, Specs, int | None]
"""What a route says beside its prefix, as far as it counts here: protocol, next hops, object."""


class RibEntry:
    """Where routes lead that say the same in one session, by a path set or by that of an object.

    It is shared by all of them: a full table has a million routes and some hundred entries.
    """

    __slots__ = ("object", "own_paths", "said", "session", "uses")

    def __init__(
        self, said: _Said, obj: _Object | None, own_paths: PathSet | None, session: int
    ) -> None:
        self.said = said
        self.session = session
        self.object = obj
        self.own_paths = own_paths
        self.uses = 0

    @property
    def protocol(self) -> int:
        """Who made the routes: RTPROT_*."""
        return self.said[0]

    @property
    def paths(self) -> PathSet | None:
        """None while the routes wait for their object."""
        return self.own_paths if self.object is None else self.object.paths


class Rib:
    """All routes of the routing daemon."""

    def __init__(
        self, paths: PathSets, publish: Callable[[RouteKey, PathSet | None, Changes], None]
    ) -> None:
        self._paths = paths
        self._publish = publish
        self._tables: dict[int, dict[Prefix, RibEntry]] = {}
        self._entries: dict[_Said, RibEntry] = {}
        """Of this session."""
        self._objects: dict[int, _Object] = {}
        self._parents: dict[int, set[int]] = {}
        self.moved_objects: set[_Object] = set()
        """Objects that got another target: their routes are to be republished."""
        self.moves = 0
        """How often one did."""
        self._session = 0
        self._stale = 0

    # -- reading

    def get(self, key: RouteKey) -> RibEntry | None:
        """The route of this key."""
        routes = self._tables.get(key.table)
        return None if routes is None else routes.get(key.prefix)

    def is_current(self, key: RouteKey) -> bool:
        """Whether there is such a route, and this session has named it."""
        entry = self.get(key)
        return entry is not None and entry.session == self._session

    def __iter__(self) -> Iterator[RouteKey]:
        """All routes."""
        for table, routes in self._tables.items():
            for prefix in routes:
                yield RouteKey(table, prefix)

    def __len__(self) -> int:
        return sum(map(len, self._tables.values()))

    @property
    def stale(self) -> int:
        """How many routes are from an earlier session and not yet named by this one."""
        return self._stale

    def is_stale(self, key: RouteKey) -> bool:
        """Whether a route is one of them."""
        entry = self.get(key)
        return entry is not None and entry.session != self._session

    def waiting_objects(self) -> dict[int, int]:
        """Numbers of objects that routes wait for, and how many routes do."""
        return {
            obj.id: obj.uses for obj in self._objects.values() if obj.entries and obj.paths is None
        }

    # -- routes

    def update(self, key: RouteKey, route: Route, changes: Changes) -> tuple[PathSet | None, bool]:
        """A route, new or replaced; where it leads now, for the caller to publish, and whether it
        is new. Keeps the prefix of `key`, which equals the route's own. Raises OutOfIdsError with
        the old one in place."""
        routes = self._tables.get(key.table)
        if routes is None:
            routes = self._tables[key.table] = {}
        old = routes.get(key.prefix)
        said = (route.protocol, route.nexthops, route.nexthop_id)
        entry = self._entries.get(said)
        if entry is None:
            entry = self._new_entry(said, changes)
        elif entry.paths is None and entry.object is not None:
            self._resolve_object(entry.object, changes)  # there was no id for it before, perhaps
        if entry is not old:
            entry.uses += 1
            routes[key.prefix] = entry
            if old is not None:
                if old.session != self._session:
                    self._stale -= 1
                self._let_go(old, changes)
        paths = entry.paths
        if paths is None and entry.object is not None:
            entry.object.waiting[key] = None
        return paths, old is None

    def delete(self, key: RouteKey, changes: Changes) -> bool:
        """A route is gone, which the caller publishes; unknown ones are ignored (zebra deletes what
        it never sent). Returns whether there was one."""
        routes = self._tables.get(key.table)
        entry = None if routes is None else routes.pop(key.prefix, None)
        if entry is None:
            return False
        if entry.session != self._session:
            self._stale -= 1
        self._let_go(entry, changes)
        return True

    def _new_entry(self, said: _Said, changes: Changes) -> RibEntry:
        _, nexthops, nexthop_id = said
        if nexthops or nexthop_id is None:
            paths = self._paths.acquire(nexthops, changes)
            said = (said[0], paths.specs, nexthop_id)
            entry = RibEntry(said, None, paths, self._session)
        else:
            obj = self._objects.get(nexthop_id) or self._new_object(nexthop_id)
            entry = RibEntry(said, obj, None, self._session)
            if obj.paths is None:
                specs = self._expand(obj)
                if specs:
                    obj.paths = self._paths.acquire(specs, changes)
            obj.entries.append(entry)
        self._entries[said] = entry
        return entry

    def _let_go(self, entry: RibEntry, changes: Changes) -> None:
        entry.uses -= 1
        if entry.uses:
            return
        if self._entries.get(entry.said) is entry:
            del self._entries[entry.said]
        obj = entry.object
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
            if obj.definition is None and self._objects.get(obj.id) is obj:
                del self._objects[obj.id]

    # -- next-hop objects

    def update_object(self, event: NexthopObjectUpdated, changes: Changes) -> None:
        """An object, new or replaced; routes that use it follow."""
        obj = self._objects.get(event.id) or self._new_object(event.id)
        self._set_parent(obj, event)
        obj.definition = event
        self._object_changed(obj, changes, 0)

    def delete_object(self, event: NexthopObjectDeleted, changes: Changes) -> None:
        """An object is gone. Routes that still use it go with it, as they do in the kernel."""
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
        """The object that routes waited for is there. Many of them follow in slices, as those do
        whose object has moved."""
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
        """The object's next hops, those of a group with its weights; empty while none is known."""
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
        """All routes are stale until named again; the objects' numbers mean nothing any more."""
        self._session += 1
        self._stale = len(self)
        self._entries = {}
        self._objects = {}
        self._parents = {}

    def republish(self, keys: Iterable[RouteKey], moved: set[PathSet], changes: Changes) -> None:
        """Publish those of some routes whose path set is in `moved`, or whose object has moved."""
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
