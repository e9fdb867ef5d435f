# SPDX-License-Identifier: Apache-2.0
"""The routing daemon's routes and next-hop objects, and what they resolve to.

Objects may come after the routes or groups that name them (zebra sends groups in hash order): such
a route waits, unpublished, until its object is complete. A new session starts with no objects; the
routes of the session before keep what they resolved to and are stale until named again; the caller
deletes those that `is_stale` names once the replay is over. An object's number may mean something
else in a new session, which is why objects are never looked up across sessions.

Depends on model, entities, paths. `publish(key, paths)` is called whenever a route's path set or
its target may have changed, with None where it has none; the caller chooses among other sources of
that prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from sluice.entities import Changes
from sluice.model import (
    NexthopKind,
    NexthopObjectDeleted,
    NexthopObjectUpdated,
    NexthopSpec,
    Route,
    RouteKey,
)
from sluice.state.paths import PathSet, PathSets, Specs

_DEEPEST_GROUP = 8
"""Groups within groups, at most (the kernel refuses any; this only bounds bad input)."""


class _Object:
    """A next-hop object: `definition` None while only its number is known."""

    __slots__ = ("definition", "id", "paths", "uses", "waiting")

    def __init__(self, identifier: int) -> None:
        self.id = identifier
        self.definition: NexthopObjectUpdated | None = None
        self.paths: PathSet | None = None
        self.uses = 0
        self.waiting: list[RibEntry] = []


class RibEntry:
    """A route and how it is resolved: by its own path set, or by that of its object."""

    __slots__ = ("object", "own_paths", "route", "session")

    def __init__(
        self, route: Route, obj: _Object | None, own_paths: PathSet | None, session: int
    ) -> None:
        self.session = session
        self.route = route
        self.object = obj
        self.own_paths = own_paths

    @property
    def paths(self) -> PathSet | None:
        """None while the route waits for its object."""
        return self.own_paths if self.object is None else self.object.paths


class Rib:
    """All routes of the routing daemon."""

    def __init__(
        self, paths: PathSets, publish: Callable[[RouteKey, PathSet | None, Changes], None]
    ) -> None:
        self._paths = paths
        self._publish = publish
        self._routes: dict[RouteKey, RibEntry] = {}
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
        return self._routes.get(key)

    def is_current(self, key: RouteKey) -> bool:
        """Whether there is such a route, and this session has named it."""
        entry = self._routes.get(key)
        return entry is not None and entry.session == self._session

    def entries(self) -> Iterator[RibEntry]:
        """All routes."""
        return iter(self._routes.values())

    def __len__(self) -> int:
        return len(self._routes)

    @property
    def stale(self) -> int:
        """How many routes are from an earlier session and not yet named by this one."""
        return self._stale

    def is_stale(self, key: RouteKey) -> bool:
        """Whether a route is one of them."""
        entry = self._routes.get(key)
        return entry is not None and entry.session != self._session

    def waiting_objects(self) -> dict[int, int]:
        """Numbers of objects that routes wait for, and how many routes do."""
        return {
            obj.id: obj.uses for obj in self._objects.values() if obj.uses and obj.paths is None
        }

    # -- routes

    def update(self, route: Route, changes: Changes) -> None:
        """A route, new or replaced. Raises OutOfIdsError with the old one still in place."""
        key = route.key
        old = self._routes.get(key)
        if route.nexthops or route.nexthop_id is None:
            entry = RibEntry(
                route, None, self._paths.acquire(route.nexthops, changes), self._session
            )
        else:
            obj = self._objects.get(route.nexthop_id) or self._new_object(route.nexthop_id)
            entry = RibEntry(route, obj, None, self._session)
            self._use_object(obj, entry, changes)
        self._routes[key] = entry
        if old is not None and old.session != self._session:
            self._stale -= 1
        self._publish(key, entry.paths, changes)
        if old is not None:
            self._let_go(old, changes)

    def delete(self, key: RouteKey, changes: Changes) -> None:
        """A route is gone; unknown ones are ignored (zebra deletes what it never sent)."""
        entry = self._routes.pop(key, None)
        if entry is None:
            return
        if entry.session != self._session:
            self._stale -= 1
        self._publish(key, None, changes)
        self._let_go(entry, changes)

    def _use_object(self, obj: _Object, entry: RibEntry, changes: Changes) -> None:
        if obj.paths is None:
            specs = self._expand(obj)
            if specs:
                obj.paths = self._paths.acquire(specs, changes)
            else:
                obj.waiting.append(entry)
        obj.uses += 1

    def _let_go(self, entry: RibEntry, changes: Changes) -> None:
        obj = entry.object
        if obj is None:
            if entry.own_paths is not None:
                self._paths.release(entry.own_paths, changes)
            return
        obj.uses -= 1
        if obj.uses == 0:
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
        if obj.uses == 0:
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
        if obj.uses:
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
        waiting, obj.waiting = obj.waiting, []
        if old is None:
            for entry in waiting:
                if self._routes.get(entry.route.key) is entry:
                    self._publish(entry.route.key, entry.paths, changes)
        elif obj.paths is None or obj.paths.target != old.target:
            # Rare: zebra gives changed next hops a new object. A walk over all routes costs less
            # than an index of the routes of each object would on every route.
            self.moved_objects.add(obj)
            self.moves += 1
        if obj.paths is None and old is None:
            obj.waiting = waiting
        if old is not None:
            self._paths.release(old, changes)

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
        self._stale = len(self._routes)
        self._objects = {}
        self._parents = {}

    def republish(self, keys: Iterable[RouteKey], moved: set[PathSet], changes: Changes) -> None:
        """Publish those of some routes whose path set is in `moved`, or whose object has moved."""
        for key in keys:
            entry = self._routes.get(key)
            if entry is None:
                continue
            obj = entry.object
            if obj is not None and obj in self.moved_objects:
                self._publish(key, entry.paths, changes)
                if obj.paths is None:
                    obj.waiting.append(entry)
            elif entry.paths in moved:
                self._publish(key, entry.paths, changes)
