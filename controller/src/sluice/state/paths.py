# SPDX-License-Identifier: Apache-2.0
"""Resolves the next hops of a routing daemon's routes to their targets in the switch.

A `PathSet` is the result of resolving one tuple of `NexthopSpec`s. All routes with an equal tuple
share it. Its target depends only on the specs and on the mapping of kernel interfaces. The state of
links and neighbours does not change the target, because `nexthops` changes its contents instead.
The routes' VRF does not change it either. `vrfs` has the VRFs of the path set's interfaces. The
caller compares them with a route's VRF to decide whether the route may use the path set.

Next hops through interfaces that the switch does not have are left out. If a route has no other
next hop, the router answers its packets with ICMP unreachable. Weights are scaled to fit the
switch's groups. `problems` reports groups in which scaling changes a next hop's share of the flows
by more than `REPORTED_ERROR`.

Depends on model, entities, interfaces, neighbors, nexthops, weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from sluice.entities import (
    BLACKHOLE,
    PROHIBITED,
    UNREACHABLE,
    EntityChanges,
    RouteTarget,
    RouteTargetKind,
)
from sluice.model import NexthopKind, NexthopSpec
from sluice.state.ids import OutOfIdsError
from sluice.state.interfaces import InterfaceTable
from sluice.state.neighbors import NeighborTable
from sluice.state.nexthops import (
    MAX_GROUP_MEMBERS,
    NexthopTable,
    Path,
    WeightedPath,
)
from sluice.state.weights import scale

NexthopSpecs: TypeAlias = tuple[NexthopSpec, ...]

_DISCARDS = {
    NexthopKind.BLACKHOLE: BLACKHOLE,
    NexthopKind.UNREACHABLE: UNREACHABLE,
    NexthopKind.PROHIBIT: PROHIBITED,
}

REPORTED_ERROR = 0.01
"""Relative error of a share above which `problems` reports the group."""

LISTED_WEIGHTS = 8
"""Maximum number of a group's weights that a problem lists."""


class _Inexact(NamedTuple):
    """Describes a group whose weights do not fit the switch: the wanted weights, the written
    weights, and the largest relative error of a next hop's share of the flows."""

    error: float
    group: int
    wanted: list[int]
    written: list[int]


class PathSet:
    """Holds a resolution: the next hops in use (`members`), the `vrfs` of their interfaces, and the
    `target` of the routes."""

    __slots__ = ("members", "specs", "target", "uses", "vrfs")

    def __init__(self, specs: NexthopSpecs) -> None:
        self.specs = specs
        self.uses = 0
        self.members: tuple[WeightedPath, ...] = ()
        self.target: RouteTarget = UNREACHABLE
        self.vrfs: frozenset[int] = frozenset()


class PathSets:
    """Holds all path sets in use. `group_size` is the largest sum of a group's weights."""

    def __init__(
        self,
        interfaces: InterfaceTable,
        neighbors: NeighborTable,
        nexthops: NexthopTable,
        group_size: int,
    ) -> None:
        self._interfaces = interfaces
        self._neighbors = neighbors
        self._nexthops = nexthops
        self._group_size = group_size
        self._inexact: dict[NexthopSpecs, _Inexact] = {}
        self._sets: dict[NexthopSpecs, PathSet] = {}

    def acquire(self, specs: NexthopSpecs, changes: EntityChanges) -> PathSet:
        """Adds a reference to a path set. Raises OutOfIdsError."""
        paths = self._sets.get(specs)
        if paths is None:
            paths = PathSet(specs)
            self._resolve(paths, changes)
            self._sets[specs] = paths
        paths.uses += 1
        return paths

    def release(self, paths: PathSet, changes: EntityChanges) -> None:
        """Drops a reference to a path set. Releases its target if this was the last reference."""
        paths.uses -= 1
        if paths.uses == 0:
            del self._sets[paths.specs]
            self._inexact.pop(paths.specs, None)
            self._release_target(paths.target, paths.members, changes)

    def remap(self, changes: EntityChanges) -> set[PathSet]:
        """Resolves all path sets again after the mapping of kernel interfaces changed. Returns the
        path sets with a new target. The caller must republish their routes."""
        moved = set()
        for paths in self._sets.values():
            target, members = paths.target, paths.members
            try:
                self._resolve(paths, changes)
            except OutOfIdsError:  # only new routes count as problems
                paths.members, paths.target, paths.vrfs = (), UNREACHABLE, frozenset()
            self._release_target(target, members, changes)
            if paths.target != target:
                moved.add(paths)
        return moved

    def __iter__(self) -> Iterable[PathSet]:
        return iter(self._sets.values())

    def problems(self) -> dict[str, int]:
        """Returns the number of path sets whose weights do not fit the switch's groups, as one
        entry. Empty if all weights fit.

        The entry's key is a text that describes the group with the largest error.
        """
        if not self._inexact:
            return {}
        worst = max(self._inexact.values())
        text = (
            f"weights do not fit the switch's groups, whose weights sum up to {self._group_size}"
            f" at most: group {worst.group} should have {_listed(worst.wanted)} but has"
            f" {_listed(worst.written)}, with an error of {worst.error:.1%} in a share"
        )
        return {text: len(self._inexact)}

    def _resolve(self, paths: PathSet, changes: EntityChanges) -> None:
        self._inexact.pop(paths.specs, None)
        weights: dict[Path, int] = {}
        discard = UNREACHABLE
        for spec in paths.specs:
            if spec.kind in _DISCARDS:
                discard = _DISCARDS[spec.kind]
                continue
            l3_if = self._interfaces.l3_if_towards(spec.ifindex, spec.address)
            if l3_if is not None:
                path = Path(l3_if, spec.address)
                weights[path] = weights.get(path, 0) + spec.weight
        ordered = sorted(weights, key=lambda path: (path.l3_if, path.address or b""))
        ordered = ordered[: min(MAX_GROUP_MEMBERS, self._group_size)]
        paths.vrfs = frozenset(self._interfaces.vrf_of(path.l3_if) for path in ordered)
        if not ordered:
            paths.members, paths.target = (), discard
            return
        macs = [self._neighbors.mac_of(path) for path in ordered]
        if len(ordered) == 1:
            identifier = self._nexthops.acquire(ordered[0], macs[0], changes)
            paths.members = (WeightedPath(ordered[0], 1),)
            paths.target = RouteTarget(RouteTargetKind.NEXTHOP, identifier)
        else:
            wanted = [weights[path] for path in ordered]
            scaled = scale(wanted, self._group_size)
            members = tuple(map(WeightedPath, ordered, scaled.weights))
            identifier = self._nexthops.acquire_group(members, macs, changes)
            if scaled.error > REPORTED_ERROR:
                inexact = _Inexact(scaled.error, identifier, wanted, scaled.weights)
                self._inexact[paths.specs] = inexact
            paths.members = members
            paths.target = RouteTarget(RouteTargetKind.GROUP, identifier)
        for path, mac in zip(ordered, macs, strict=True):
            if mac is None and path.address is not None:
                changes.resolve[path.l3_if, path.address] = None

    def _release_target(
        self, target: RouteTarget, members: tuple[WeightedPath, ...], changes: EntityChanges
    ) -> None:
        if target.kind is RouteTargetKind.NEXTHOP:
            self._nexthops.release(members[0].path, changes)
        elif target.kind is RouteTargetKind.GROUP:
            self._nexthops.release_group(members, changes)


def _listed(weights: list[int]) -> str:
    named = ":".join(map(str, weights[:LISTED_WEIGHTS]))
    return named if len(weights) <= LISTED_WEIGHTS else f"{named}:..."
