# SPDX-License-Identifier: Apache-2.0
"""Holds next hops and groups, which routes share. Deletes each of them when its last reference is
gone.

A next hop is (l3_if, gateway address), or (l3_if, None) for on-link destinations. A change of a
neighbour's MAC address or of a link changes next hops and groups only, and no route: the next hop's
entity is modified. A group loses a member whose link goes down or whose neighbour stops answering,
and regains it later.

A neighbour counts as silent from a failed resolution until it is resolved again. States between the
two (the kernel retries, or drops the entry) change nothing, so that a group does not flap.

Invariant: a group is never empty. If no member answers, the group keeps the members whose link is
up, so that packets still trigger neighbour resolution. If no link is up, the group keeps all
members, and each of them drops packets.

Depends on model, entities and ids. Ids come from `IdPool`, so a released id is not reused before
`confirm_deleted`. Every change of an entity is recorded in the given `EntityChanges`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from sluice.entities import (
    GROUP_OF_SAME_ID,
    MEMBER,
    EntityChanges,
    EntityKind,
    Nexthop,
    NexthopGroup,
)
from sluice.model import Address, Mac
from sluice.state.ids import IdPool

MAX_GROUP_MEMBERS = 64
"""Maximum number of next hops in a group."""


class Path(NamedTuple):
    """Identifies a next hop by its interface and gateway address."""

    l3_if: int
    address: Address | None


class WeightedPath(NamedTuple):
    """Holds a member of a group: a next hop and its weight."""

    path: Path
    weight: int


class _NexthopState:
    __slots__ = ("groups", "id", "mac", "path", "silent", "uses")

    def __init__(self, path: Path, identifier: int) -> None:
        self.path = path
        self.id = identifier
        self.uses = 0
        self.mac: Mac | None = None
        self.silent = False
        self.groups: dict[int, _GroupState] = {}


_Members: TypeAlias = tuple[tuple[_NexthopState, int], ...]


class _GroupState:
    __slots__ = ("id", "members", "uses")

    def __init__(self, identifier: int, members: _Members) -> None:
        self.id = identifier
        self.members = members
        self.uses = 0


class NexthopTable:
    """Holds all next hops and groups in use.

    `has_failed` returns whether the kernel last reported a neighbour's resolution as failed.
    """

    def __init__(self, has_failed: Callable[[Path], bool] = lambda _: False) -> None:
        self._has_failed = has_failed
        self._nexthops: dict[Path, _NexthopState] = {}
        self._groups: dict[tuple[WeightedPath, ...], _GroupState] = {}
        self._by_l3_if: dict[int, dict[Path, _NexthopState]] = {}
        self._paths_by_id: dict[int, Path] = {}
        self._groups_by_id: dict[int, tuple[WeightedPath, ...]] = {}
        self._down: set[int] = set()
        self._nexthop_ids = IdPool("next-hop")
        self._group_ids = IdPool("next-hop group")
        self._found_nexthops: dict[Path, tuple[int, Mac | None]] = {}
        self._found_groups: dict[NexthopGroup, int] = {}

    # -- entries found in the switch

    def adopt(
        self, nexthops: dict[int, Nexthop | None], groups: dict[int, NexthopGroup | None]
    ) -> None:
        """Reserves the ids found in the switch. Each id is used again only for the same next hop or
        group."""
        for identifier, nexthop in nexthops.items():
            self._nexthop_ids.reserve(identifier)
            if nexthop is not None:
                path = Path(nexthop.l3_if, nexthop.address)
                self._found_nexthops.setdefault(path, (identifier, nexthop.mac))
        for identifier, group in groups.items():
            self._group_ids.reserve(identifier)
            if group is not None:
                self._found_groups.setdefault(group, identifier)

    def found_neighbors(self) -> dict[Path, Mac]:
        """Returns the gateways and hosts for which the switch held a MAC address, with that
        address."""
        return {
            path: mac
            for path, (_, mac) in self._found_nexthops.items()
            if mac is not None and path.address is not None
        }

    def confirm_deleted(self, kind: EntityKind, identifier: int) -> None:
        """Frees the id of a next hop or group that the switch no longer holds."""
        if kind is EntityKind.NEXTHOP:
            self._nexthop_ids.confirm_deleted(identifier)
            self._forget_found_nexthop(identifier)
        elif kind is EntityKind.GROUP:
            self._group_ids.confirm_deleted(identifier)

    def _forget_found_nexthop(self, identifier: int) -> None:
        for path, (found, _) in list(self._found_nexthops.items()):
            if found == identifier:
                del self._found_nexthops[path]

    # -- next hops

    def path_of(self, identifier: int) -> Path | None:
        """Returns the next hop that has this id, or None."""
        return self._paths_by_id.get(identifier)

    def id_of(self, path: Path) -> int | None:
        """Returns the id of a next hop in use, or None."""
        state = self._nexthops.get(path)
        return None if state is None else state.id

    def paths(self) -> list[Path]:
        """Returns all next hops in use."""
        return list(self._nexthops)

    def identifiers(self) -> list[int]:
        """Returns the ids of all next hops in use."""
        return list(self._paths_by_id)

    def group_ids(self) -> list[int]:
        """Returns the ids of all groups in use."""
        return list(self._groups_by_id)

    def members_of(self, group: int) -> tuple[WeightedPath, ...]:
        """Returns the members of a group in use, including those that get no packets."""
        return self._groups_by_id.get(group, ())

    def acquire(self, path: Path, mac: Mac | None, changes: EntityChanges) -> int:
        """Adds a reference to a next hop; returns its id. Raises OutOfIdsError."""
        state = self._nexthops.get(path)
        if state is None:
            state = self._create(path, mac, changes)
        state.uses += 1
        return state.id

    def release(self, path: Path, changes: EntityChanges) -> None:
        """Drops a reference to a next hop. Deletes the next hop if this was the last reference."""
        state = self._nexthops[path]
        state.uses -= 1
        if state.uses == 0:
            del self._nexthops[path]
            del self._by_l3_if[path.l3_if][path]
            del self._paths_by_id[state.id]
            self._nexthop_ids.release(state.id)
            changes.set(EntityKind.NEXTHOP, state.id, None)

    def _create(self, path: Path, mac: Mac | None, changes: EntityChanges) -> _NexthopState:
        found = self._found_nexthops.pop(path, None)
        if found is not None:
            identifier = found[0]
            self._nexthop_ids.claim(identifier)
        else:
            identifier = self._nexthop_ids.take()
        state = _NexthopState(path, identifier)
        state.mac = mac
        state.silent = mac is None and self._has_failed(path)
        self._nexthops[path] = state
        self._by_l3_if.setdefault(path.l3_if, {})[path] = state
        self._paths_by_id[identifier] = path
        self._write_nexthop(state, changes)
        return state

    def set_mac(self, path: Path, mac: Mac | None, changes: EntityChanges) -> None:
        """Records a neighbour's MAC address, or None while it is unresolved."""
        state = self._nexthops.get(path)
        if state is not None and state.mac != mac:
            state.mac = mac
            self._write_nexthop(state, changes)

    def is_silent(self, path: Path) -> bool:
        """Returns whether the neighbour of a next hop in use does not answer."""
        state = self._nexthops.get(path)
        return state is not None and state.silent

    def set_silent(self, path: Path, silent: bool, changes: EntityChanges) -> None:
        """Records whether the neighbour of a next hop is silent. If this changes, writes the groups
        of the next hop again."""
        state = self._nexthops.get(path)
        if state is not None and state.silent != silent:
            state.silent = silent
            for group in state.groups.values():
                self._write_group(group, changes)

    def set_link(self, l3_if: int, up: bool, changes: EntityChanges) -> bool:
        """Records whether an interface can carry packets; returns whether that changed."""
        if up != (l3_if in self._down):
            return False
        (self._down.discard if up else self._down.add)(l3_if)
        groups: dict[int, _GroupState] = {}
        for state in self._by_l3_if.get(l3_if, {}).values():
            self._write_nexthop(state, changes)
            groups.update(state.groups)
        for group in groups.values():
            self._write_group(group, changes)
        return True

    def _write_nexthop(self, state: _NexthopState, changes: EntityChanges) -> None:
        path = state.path
        up = path.l3_if not in self._down
        mac = state.mac if up else None
        changes.set(EntityKind.NEXTHOP, state.id, Nexthop(path.l3_if, path.address, mac, up))

    # -- groups

    def acquire_group(
        self, members: tuple[WeightedPath, ...], macs: list[Mac | None], changes: EntityChanges
    ) -> int:
        """Adds a reference to the group of these members (sorted, distinct); returns its id."""
        group = self._groups.get(members)
        if group is None:
            group = self._create_group(members, macs, changes)
        group.uses += 1
        return group.id

    def release_group(self, members: tuple[WeightedPath, ...], changes: EntityChanges) -> None:
        """Drops a reference to a group. Deletes the group if this was the last reference."""
        group = self._groups[members]
        group.uses -= 1
        if group.uses:
            return
        del self._groups[members]
        del self._groups_by_id[group.id]
        self._group_ids.release(group.id)
        changes.set(EntityKind.GROUP_ENTRY, group.id, None)
        changes.set(EntityKind.GROUP, group.id, None)
        for state, _ in group.members:
            del state.groups[group.id]
            if not state.groups:
                changes.set(EntityKind.GROUP_MEMBER, state.id, None)
            self.release(state.path, changes)

    def _create_group(
        self, members: tuple[WeightedPath, ...], macs: list[Mac | None], changes: EntityChanges
    ) -> _GroupState:
        for member, mac in zip(members, macs, strict=True):
            self.acquire(member.path, mac, changes)
        states = tuple((self._nexthops[member.path], member.weight) for member in members)
        # The switch may hold this group without the members that are down. Then the group of the
        # switch is reused, because a new group would move flows to other members.
        found = self._found_groups.pop(_group_of(states), None)
        if found is None:
            found = self._found_groups.pop(_group_of(self._active(states)), None)
        if found is not None:
            self._group_ids.claim(found)
        try:
            identifier = self._group_ids.take() if found is None else found
        except Exception:
            for member in members:
                self.release(member.path, changes)
            raise
        group = _GroupState(identifier, states)
        for state, _ in states:
            if not state.groups:
                changes.set(EntityKind.GROUP_MEMBER, state.id, MEMBER)
            state.groups[identifier] = group
        self._groups[members] = group
        self._groups_by_id[identifier] = members
        self._write_group(group, changes)
        changes.set(EntityKind.GROUP_ENTRY, identifier, GROUP_OF_SAME_ID)
        return group

    def _write_group(self, group: _GroupState, changes: EntityChanges) -> None:
        changes.set(EntityKind.GROUP, group.id, _group_of(self._active(group.members)))

    def _active(self, members: _Members) -> _Members:
        """Returns the members that get packets."""
        linked = tuple(member for member in members if member[0].path.l3_if not in self._down)
        answering = tuple(member for member in linked if not member[0].silent)
        return answering or linked or members


def _group_of(members: _Members) -> NexthopGroup:
    return NexthopGroup(tuple(sorted((state.id, weight) for state, weight in members)))
