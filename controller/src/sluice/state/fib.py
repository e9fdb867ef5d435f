# SPDX-License-Identifier: Apache-2.0
"""Turns routes, connected prefixes and neighbours into the entities of the desired state.

`Fib.apply(events, now)` applies events in order and returns the `EntityChanges` of desired
entities. Every event passes these stages in this order. No stage calls an earlier one:

1. `interfaces` and `neighbors` apply events of the kernel. `rib` applies events of a routing
   daemon: `paths` and `nexthops` resolve its next hops, and `rib` returns the changed routes.
2. `usable_routes` selects the routes that their VRF may use.
3. `onlink` derives connected prefixes and neighbours' host routes, and returns the changed
   prefixes.
4. `_publish` and `_publish_on_link` choose the target of each changed prefix: the routing daemon's
   usable route, else the connected prefix, else the host route of a neighbour.

The prefixes are in a native table (`sluice._native.RouteTable`), which also holds the desired and
the installed state of the switch. Routes arrive as single events, or in bulk as a `RouteRun`.

A route's text consists of all fields of the route except its prefix. Most routes of a run share a
text with many others. So a run holds each distinct text once, and for each prefix the number of its
text. `Fib` resolves each text once, and the table inserts the prefixes. If a text cannot be
resolved at once, the whole run is applied as single events.

A change of a shared path set or next-hop object can change the targets of a million routes
(`moved_routes`). `apply` publishes the first of these routes. Each call of `publish_moved`
publishes more of them, until `has_moved_routes` is false.

Depends on model, entities and the other modules of `state`. No I/O, no clock. If an event needs an
id and none is free, the event has no effect and is counted in `problems`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

from sluice._native import RouteRun
from sluice.entities import (
    MAX_GROUP_WEIGHT,
    EntityChanges,
    EntityKind,
    Nexthop,
    NexthopGroup,
    RouteSlot,
    RouteTarget,
)
from sluice.model import (
    MAIN_TABLE,
    Address,
    AddressAdded,
    AddressRemoved,
    Event,
    FpmSessionClosed,
    FpmSessionOpened,
    InterfaceSpec,
    LinkChanged,
    LinkRemoved,
    NeighborChanged,
    NeighborState,
    NexthopObjectDeleted,
    NexthopObjectUpdated,
    Prefix,
    RouteDeleted,
    RouteKey,
    RouteUpdated,
    StaleRoutesGone,
    mask_address,
)
from sluice.namespaces import OWN_NAMESPACE
from sluice.state.ids import OutOfIdsError
from sluice.state.interfaces import InterfaceTable, why_not_routed
from sluice.state.moved_routes import MovedRoutes
from sluice.state.neighbors import NeighborTable
from sluice.state.nexthops import NexthopTable, Path
from sluice.state.onlink import OnLink
from sluice.state.paths import PathSets
from sluice.state.rib import Rib, RibEntry, RouteChange
from sluice.state.ribs import Ribs
from sluice.state.route_order import RouteOrder, new_table
from sluice.state.route_runs import RouteText, events_of
from sluice.state.usable_routes import UsableRoutes

UNROUTED_HEADS = frozenset({*range(224, 240), 169, 0xFE, 0xFF})
"""First octets of prefixes for which `why_not_routed` must be called. No run has such a prefix."""

_new_tuple = tuple.__new__
"""Makes a named tuple from a tuple. Takes half the time of the named tuple's constructor."""


class Fib:
    """Holds the desired forwarding state.

    `tables` maps kernel routing tables to VRFs. `next_hop_vrfs` maps a VRF to the other VRFs whose
    interfaces its routes may use. `group_size` is the largest sum of a next-hop group's weights in
    the switch. Some VRFs have a network namespace, and thus a routing daemon, of their own:
    `namespaces` maps the tables of these VRFs to their namespaces.
    """

    def __init__(
        self,
        interfaces: Iterable[InterfaceSpec],
        tables: dict[int, int] | None = None,
        next_hop_vrfs: Mapping[int, frozenset[int]] | None = None,
        group_size: int = MAX_GROUP_WEIGHT,
        namespaces: Mapping[int, int] | None = None,
    ) -> None:
        self.interfaces = InterfaceTable(interfaces, tables)
        self.neighbors = NeighborTable()
        self.nexthops = NexthopTable(self.neighbors.has_failed)
        self.path_sets = PathSets(self.interfaces, self.neighbors, self.nexthops, group_size)
        namespaces = self._namespaces = namespaces or {}
        self.routes = new_table()
        """All prefixes and their state; shared with the reconciler."""
        self._vrf_of_table = {MAIN_TABLE: 0} if tables is None else tables
        self.ribs = {
            namespace: Rib(
                self.path_sets,
                self.routes,
                {
                    table: vrf
                    for table, vrf in self._vrf_of_table.items()
                    if namespaces.get(table, OWN_NAMESPACE) == namespace
                },
            )
            for namespace in (OWN_NAMESPACE, *namespaces.values())
        }
        self.rib = Ribs(self.ribs, namespaces)
        self._rib_of_vrf = {
            vrf: self.rib.of_table(table) for table, vrf in self._vrf_of_table.items()
        }
        self.usable = UsableRoutes(self.routes, self._rib_of_vrf, next_hop_vrfs or {})
        self.onlink = OnLink(self.interfaces, self.neighbors, self.nexthops, self.usable)
        self.order = RouteOrder(self.routes)
        """Blocks of prefixes, for walks: daemons' routes, connected prefixes and neighbours' host
        routes."""
        self._moved = MovedRoutes(self.routes, self.order, self.ribs.values())
        self.problems: Counter[str] = Counter()
        self.unrouted: dict[RouteSlot, str] = {}
        """Routes of the routing daemon that the pipeline does not use, with the reason."""
        self.sessions: dict[int, str] = {}
        """The peer of each routing daemon's session, by network namespace."""
        self._table_of_vrf = {vrf: table for table, vrf in self._vrf_of_table.items()}
        self._neighbors_version = -1
        self._hosts_outdated = False
        self._handlers: dict[type[Any], Callable[[Any, float, EntityChanges], None]] = {
            RouteRun: self._run_received,
            RouteUpdated: self._route_updated,
            RouteDeleted: self._route_deleted,
            NexthopObjectUpdated: self._object_updated,
            NexthopObjectDeleted: self._object_deleted,
            FpmSessionOpened: self._session_opened,
            FpmSessionClosed: self._session_closed,
            StaleRoutesGone: self._stale_routes_gone,
            LinkChanged: self._link_changed,
            LinkRemoved: self._link_removed,
            AddressAdded: self._address_changed,
            AddressRemoved: self._address_changed,
            NeighborChanged: self._neighbor_changed,
        }

    # -- events

    def start(self) -> EntityChanges:
        """Returns the entities that follow from the configuration alone."""
        changes = EntityChanges()
        self.interfaces.start(changes)
        return changes

    def adopt(
        self,
        nexthops: dict[int, Nexthop | None],
        groups: dict[int, NexthopGroup | None],
        now: float,
    ) -> EntityChanges:
        """Adopts the next hops and groups found in the switch. The value None marks an entry that
        could not be decoded.

        Order: the caller adopts before it adds any route. Each next hop and group keeps its id. The
        neighbours of these next hops count as resolved until probes show otherwise.
        """
        changes = EntityChanges()
        self.nexthops.adopt(nexthops, groups)
        found = {
            path: mac
            for path, mac in self.nexthops.found_neighbors().items()
            if path.l3_if in self.interfaces.by_l3_if
        }
        for path in self.neighbors.adopt(found, now):
            self._publish_on_link(self.onlink.refresh_host(path, changes), changes)
            if path.address is not None:
                changes.resolve[path.l3_if, path.address] = None
        return changes

    def apply(self, events: Iterable[Event | RouteRun], now: float) -> EntityChanges:
        """Applies events in order; returns the changes for the switch."""
        changes = EntityChanges()
        handlers = self._handlers
        had_moved, target_changes = self.has_moved_routes, self.rib.target_changes
        for event in events:
            try:
                handlers[type(event)](event, now, changes)
            except OutOfIdsError as error:
                self.problems[str(error)] += 1
        if self.rib.target_changes != target_changes:
            self._moved.begin()
        if self.has_moved_routes and not had_moved:
            self._publish(self._moved.next_slice(), changes)
        self._refresh_hosts(changes)
        return changes

    @property
    def has_moved_routes(self) -> bool:
        """Whether some moved routes are not published yet."""
        return self._moved.unfinished

    def publish_moved(self) -> EntityChanges:
        """Publishes the next slice of moved routes.

        A route that is not yet published keeps its earlier target in the switch. The next hops of
        that target stay in the switch too.
        """
        changes = EntityChanges()
        self._publish(self._moved.next_slice(), changes)
        self._refresh_hosts(changes)
        return changes

    def _refresh_hosts(self, changes: EntityChanges) -> None:
        if self._hosts_outdated:
            self._hosts_outdated = False
            self._publish_on_link(self.onlink.refresh_hosts(changes), changes)

    def set_silent(self, paths: Iterable[Path]) -> EntityChanges:
        """Marks neighbours that did not answer in time as silent, except those that are
        resolved."""
        changes = EntityChanges()
        for path in paths:
            if self.neighbors.mac_of(path) is None:
                self.nexthops.set_silent(path, True, changes)
        return changes

    def confirm_deleted(self, kind: EntityKind, identifier: int) -> None:
        """Frees the id of a next hop or group that the switch no longer holds."""
        self.nexthops.confirm_deleted(kind, identifier)

    # -- routes

    def _route_updated(self, event: RouteUpdated, now: float, changes: EntityChanges) -> None:
        route = event.route
        key = route.key
        vrf = self._vrf_of_table.get(key.table)
        if vrf is None:
            self.problems[f"routes of kernel table {key.table}, which no VRF has"] += 1
            return
        slot = _new_tuple(RouteSlot, (vrf, key.prefix))
        self._publish(self._rib_of_vrf[vrf].update(slot, route, changes), changes)

    def _route_deleted(self, event: RouteDeleted, now: float, changes: EntityChanges) -> None:
        self._delete_route(event.key, changes)

    def _delete_route(self, key: RouteKey, changes: EntityChanges) -> None:
        vrf = self._vrf_of_table.get(key.table)
        if vrf is not None:
            slot = _new_tuple(RouteSlot, (vrf, key.prefix))
            self._publish(self._rib_of_vrf[vrf].delete(slot, changes), changes)

    def _run_received(self, run: RouteRun, now: float, changes: EntityChanges) -> None:
        unknown = self.routes.unknown_texts(run)
        entries: list[RibEntry] = []
        if not all(self._learn_text(number, text, entries, changes) for number, text in unknown):
            for event in events_of(run):
                try:
                    self._handlers[type(event)](event, now, changes)
                except OutOfIdsError as error:
                    self.problems[str(error)] += 1
            unused: Iterable[RibEntry] = ()
        else:
            if self._neighbors_version != self.neighbors.version:
                self._neighbors_version = self.neighbors.version
                self.routes.set_neighbors(*map(self.neighbors.addresses, (4, 16)))
            block, numbers, covers = self.routes.apply(run)
            changes.add_block(block)
            self._hosts_outdated |= covers
            unused = map(self.routes.entry_of, numbers)
        for entry in dict.fromkeys(chain(entries, unused)):
            entry.rib.drop_unused(entry, changes)

    def _learn_text(
        self, number: int, text: RouteText, entries: list[RibEntry], changes: EntityChanges
    ) -> bool:
        """Passes the VRF, entry and target of a route text to the native table. Appends the entry
        to `entries`.

        Returns False if the routes with this text must be applied as single events.
        """
        vrf = self._vrf_of_table.get(text[0])
        if vrf is None:
            return False
        if len(text) == 1:
            self.routes.set_deleted(number, vrf)
            return True
        _, protocol, _, nexthops, nexthop_id = text
        rib = self._rib_of_vrf[vrf]
        try:
            entry, resolved = rib.entry_for(protocol, nexthops, nexthop_id, changes)
        except OutOfIdsError:
            return False
        self._publish(resolved, changes)
        entries.append(entry)
        paths = entry.paths
        if paths is None or not self.usable.is_usable(vrf, paths):
            return False
        self.routes.set_updated(number, vrf, entry.number, paths.target)
        return True

    def _object_updated(
        self, event: NexthopObjectUpdated, now: float, changes: EntityChanges
    ) -> None:
        self._publish(self.ribs[event.namespace].update_object(event, changes), changes)

    def _object_deleted(
        self, event: NexthopObjectDeleted, now: float, changes: EntityChanges
    ) -> None:
        self._publish(self.ribs[event.namespace].delete_object(event, changes), changes)

    def _publish(self, routes: Iterable[RouteChange], changes: EntityChanges) -> None:
        """Sets the target of each prefix whose route from the routing daemon changed."""
        for slot, paths in routes:
            vrf, prefix = slot
            if prefix.address[0] in UNROUTED_HEADS and (reason := why_not_routed(prefix)):
                if self.routes.entry(slot) is None:
                    self.unrouted.pop(slot, None)
                else:
                    self.unrouted[slot] = reason
                continue
            if paths is not None and self.usable.is_usable(vrf, paths):
                target: RouteTarget | None = paths.target
            else:
                if paths is not None:
                    table = self._table_of_vrf[vrf]
                    self.problems[f"routes of kernel table {table} by another VRF's interface"] += 1
                target = self.onlink.target(slot)
            changes.of(EntityKind.ROUTE)[slot] = target
            if self.neighbors.covers_neighbor(prefix):
                self._hosts_outdated = True

    def _publish_on_link(self, slots: Iterable[RouteSlot], changes: EntityChanges) -> bool:
        """Sets the target of each prefix whose on-link target changed. Returns whether there was
        such a prefix."""
        slot = None
        for slot in slots:
            paths = self.usable.paths_of(slot)
            onlink = self.onlink.target(slot)
            self.routes.set_onlink(slot, onlink)
            changes.set(EntityKind.ROUTE, slot, onlink if paths is None else paths.target)
        return slot is not None

    def key_of(self, slot: RouteSlot) -> RouteKey:
        """Returns the key of the routing daemon's route for a prefix of a VRF.

        If the VRF has no kernel table, the key has the table -1, which no route has.
        """
        return RouteKey(self._table_of_vrf.get(slot.vrf, -1), slot.prefix)

    def slot_of(self, key: RouteKey) -> RouteSlot | None:
        """Returns the VRF and prefix of a route, or None if no VRF has the route's table."""
        vrf = self._vrf_of_table.get(key.table)
        return None if vrf is None else RouteSlot(vrf, key.prefix)

    def namespace_of(self, table: int) -> int:
        """Returns the network namespace whose routing daemon has this table."""
        return self._namespaces.get(table, OWN_NAMESPACE)

    def has_no_path(self, vrf: int, prefix: Prefix) -> bool:
        """Returns whether the routing daemon's route for a prefix has no next hop in the switch."""
        paths = self.usable.paths_of(RouteSlot(vrf, prefix))
        return paths is not None and not paths.members

    def interfaces_to(self, vrf: int, address: Address) -> frozenset[int]:
        """Returns the interfaces through which packets to an address leave. Empty without a route.

        Uses the longest matching prefix that has a usable route of the routing daemon or is
        on-link.
        """
        size = len(address)
        lengths = {8 * size, *self.routes.lengths(vrf, size), *self.onlink.lengths(vrf, size)}
        for length in sorted(lengths, reverse=True):
            slot = RouteSlot(vrf, Prefix(mask_address(address, length), length))
            paths = self.usable.paths_of(slot)
            if paths is not None:
                return frozenset(member.path.l3_if for member in paths.members)
            path = self.onlink.path(slot)
            if path is not None:
                return frozenset((path.l3_if,))
        return frozenset()

    # -- sessions

    def _session_opened(self, event: FpmSessionOpened, now: float, changes: EntityChanges) -> None:
        self.sessions[event.namespace] = event.peer
        self.ribs[event.namespace].open_session()

    def _session_closed(self, event: FpmSessionClosed, now: float, changes: EntityChanges) -> None:
        self.sessions.pop(event.namespace, None)

    def _stale_routes_gone(
        self, event: StaleRoutesGone, now: float, changes: EntityChanges
    ) -> None:
        for key in event.keys:
            if self.rib.is_stale(key):
                self._delete_route(key, changes)

    # -- links, addresses, neighbours

    def _link_changed(self, event: LinkChanged, now: float, changes: EntityChanges) -> None:
        remapped = self.interfaces.link_changed(event, changes)
        self._follow_links(remapped, changes)

    def _link_removed(self, event: LinkRemoved, now: float, changes: EntityChanges) -> None:
        l3_if = self.interfaces.l3_if_of(event.ifindex)
        remapped = self.interfaces.link_removed(event, changes)
        if l3_if is not None:
            for path in self.neighbors.remove_interface(l3_if):
                self.nexthops.set_mac(path, None, changes)
                self._publish_on_link(self.onlink.refresh_host(path, changes), changes)
        self._follow_links(remapped, changes)

    def _address_changed(
        self, event: AddressAdded | AddressRemoved, now: float, changes: EntityChanges
    ) -> None:
        if isinstance(event, AddressAdded):
            self.interfaces.address_added(event, changes)
        else:
            self.interfaces.address_removed(event, changes)
        self._follow_links(False, changes)

    def _follow_links(self, remapped: bool, changes: EntityChanges) -> None:
        for l3_if, interface in self.interfaces.by_l3_if.items():
            if self.nexthops.set_link(l3_if, interface.usable, changes) and interface.usable:
                self._resolve_again(l3_if, changes)
        connected = self.onlink.refresh_connected(changes)
        if self._publish_on_link(connected, changes) or remapped:
            self.routes.forget_texts()
            moved = self.path_sets.remap(changes)
            if moved:
                self._moved.begin(moved)
            self._publish_on_link(self.onlink.refresh_hosts(changes), changes)

    def _resolve_again(self, l3_if: int, changes: EntityChanges) -> None:
        """Resolves the unresolved gateways on a link that came up, immediately and without
        back-off."""
        for path in self.nexthops.paths():
            if path.l3_if == l3_if and path.address and not self.neighbors.mac_of(path):
                changes.resolve[l3_if, path.address] = None

    def _neighbor_changed(self, event: NeighborChanged, now: float, changes: EntityChanges) -> None:
        l3_if = self.interfaces.l3_if_of(event.ifindex)
        if l3_if is None:
            return
        path = Path(l3_if, event.address)
        before, after = self.neighbors.apply(path, event.mac, event.state, now)
        if before != after:
            self.nexthops.set_mac(path, after, changes)
            self._publish_on_link(self.onlink.refresh_host(path, changes), changes)
        if event.state is NeighborState.FAILED or after is not None:
            self.nexthops.set_silent(path, after is None, changes)
        removed = event.state is NeighborState.NONE
        if removed and self.nexthops.id_of(path) is not None:
            changes.resolve[l3_if, event.address] = None

    def on_link_routes(self) -> list[RouteSlot]:
        """Returns the routes that keep the router's own links reachable.

        These are the connected prefixes and the host routes of neighbours.
        """
        return [slot for slot, _ in (*self.onlink.connected(), *self.onlink.hosts())]

    def host_slot(self, path: Path) -> RouteSlot | None:
        """Returns the prefix of a neighbour's host route, whether or not it is installed."""
        interface = self.interfaces.by_l3_if.get(path.l3_if)
        if interface is None or path.address is None:
            return None
        return RouteSlot(interface.spec.vrf, Prefix.host(path.address))
