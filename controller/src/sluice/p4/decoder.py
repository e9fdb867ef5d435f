# SPDX-License-Identifier: Apache-2.0
"""Makes the requests that read the switch's entities, and decodes the results.

An entry that no controller of this version has written decodes to its key and the value `UNKNOWN`.
The reconciler then replaces or removes the entry.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from sluice.entities import (
    ADMIT,
    GROUP_OF_SAME_ID,
    LOCAL,
    MARTIAN,
    MEMBER,
    UNKNOWN,
    Attachment,
    Egress,
    EntityKey,
    EntityKind,
    EntityValue,
    L3Interface,
    Nexthop,
    NexthopGroup,
    OwnAddress,
    RouterMac,
    RouteSlot,
    RouteTarget,
    RouteTargetKind,
)
from sluice.model import Prefix
from sluice.p4.entries import read_action as _action_of
from sluice.p4.entries import read_fields as _fields_of
from sluice.p4.policy import PolicyDecoder
from sluice.p4.tables import PipelineTables
from sluice.p4messages import p4r

DecodedEntity = tuple[EntityKind, EntityKey, EntityValue]


class Decoder:
    """Decodes the entities of one pipeline."""

    def __init__(self, tables: PipelineTables) -> None:
        self._tables = tables
        self._policy = PolicyDecoder(tables.policy)
        self._decoders = {
            **{table.id: self._decode_route for table in tables.fibs.values()},
            **{table.id: self._decode_local for table in tables.locals.values()},
            **{table.id: self._decode_own_source for table in tables.own_sources.values()},
            tables.l3_interface.id: self._decode_l3_interface,
            tables.router_mac.id: self._decode_router_mac,
            tables.nexthop.id: self._decode_nexthop,
            tables.group.id: self._decode_group_entry,
            tables.egress.id: self._decode_egress,
            **self._policy.decoders,
        }
        self._families = {
            table.id: size
            for by_size in (tables.fibs, tables.locals, tables.own_sources)
            for size, table in by_size.items()
        }

    def read_requests(self) -> list[p4r.Entity]:
        """Returns requests that together read all installed entities. `decode` decodes the results.

        Leaves out meters and the hash seed. The controller writes them at every start, and writing
        the same value again has no side effects.
        """
        tables = [
            self._tables.egress,
            self._tables.nexthop,
            self._tables.group,
            *self._tables.fibs.values(),
            *self._tables.locals.values(),
            *self._tables.own_sources.values(),
            self._tables.router_mac,
            self._tables.l3_interface,
            *self._policy.tables,
        ]
        return [
            *(p4r.Entity(table_entry=p4r.TableEntry(table_id=table.id)) for table in tables),
            p4r.Entity(
                action_profile_member=p4r.ActionProfileMember(
                    action_profile_id=self._tables.selector
                )
            ),
            p4r.Entity(
                action_profile_group=p4r.ActionProfileGroup(action_profile_id=self._tables.selector)
            ),
        ]

    def decode(self, entity: p4r.Entity) -> DecodedEntity | None:
        """Returns (kind, key, value) of an entity, or None if the controller does not manage it.

        Raises DecodeError if a field is too wide for the pipeline, or a prefix is too long for its
        field.
        """
        try:
            return self._decode(entity)
        except OverflowError as error:
            raise DecodeError(f"a field is too wide: {error}") from error

    def _decode(self, entity: p4r.Entity) -> DecodedEntity | None:
        match entity.WhichOneof("entity"):
            case "table_entry":
                entry = entity.table_entry
                decoder = self._decoders.get(entry.table_id)
                if decoder is None or entry.is_default_action:
                    return None
                return decoder(entry)
            case "action_profile_member":
                return self._decode_member(entity.action_profile_member)
            case "action_profile_group":
                return self._decode_group(entity.action_profile_group)
            case _:
                return None

    def _decode_route(self, entry: p4r.TableEntry) -> DecodedEntity:
        slot = self._slot(entry)
        actions = self._tables.fibs[4].actions
        identifier, params = _action_of(entry)
        value: EntityValue = UNKNOWN
        match params:
            case [number] if identifier == actions["set_nexthop"].id:
                value = RouteTarget(RouteTargetKind.NEXTHOP, number)
            case [number] if identifier == actions["set_nexthop_group"].id:
                value = RouteTarget(RouteTargetKind.GROUP, number)
            case [] if identifier == actions["blackhole"].id:
                value = RouteTarget(RouteTargetKind.BLACKHOLE)
            case [number] if identifier == actions["punt_route"].id:
                for kind, reason in self._tables.discards.items():
                    if reason == number:
                        value = RouteTarget(kind)
        return EntityKind.ROUTE, slot, value

    def _decode_local(self, entry: p4r.TableEntry) -> DecodedEntity:
        return EntityKind.LOCAL_PREFIX, self._slot(entry), LOCAL

    def _decode_own_source(self, entry: p4r.TableEntry) -> DecodedEntity:
        fields = _fields_of(entry)
        size = self._families[entry.table_id]
        table = self._tables.own_sources[size]
        address = fields.get(table.fields["src_addr"], 0).to_bytes(size, "big")
        return (
            EntityKind.OWN_SOURCE,
            OwnAddress(fields.get(table.fields["vrf"], 0), address),
            MARTIAN,
        )

    def _decode_l3_interface(self, entry: p4r.TableEntry) -> DecodedEntity:
        fields = _fields_of(entry)
        table = self._tables.l3_interface
        key = Attachment(
            fields.get(table.fields["ingress_port"], 0), fields.get(table.fields["vlan_id"], 0)
        )
        _, params = _action_of(entry)
        value: EntityValue = UNKNOWN
        for role, number in self._tables.roles.items():
            if params[2:] == [number]:
                value = L3Interface(params[0], params[1], role)
        return EntityKind.L3_INTERFACE, key, value

    def _decode_router_mac(self, entry: p4r.TableEntry) -> DecodedEntity:
        fields = _fields_of(entry)
        mac = fields.get(self._tables.router_mac.fields["dst_mac"], 0)
        l3_if = fields.get(self._tables.router_mac.fields["l3_if"], 0)
        return EntityKind.ROUTER_MAC, RouterMac(l3_if, mac.to_bytes(6, "big")), ADMIT

    def _decode_nexthop(self, entry: p4r.TableEntry) -> DecodedEntity:
        key = _fields_of(entry).get(self._tables.nexthop.fields["nexthop_id"], 0)
        identifier, params = _action_of(entry)
        actions = self._tables.nexthop.actions
        metadata = entry.metadata
        address = metadata[2:] or None
        if len(metadata) not in (2, 6, 18):
            return EntityKind.NEXTHOP, key, UNKNOWN
        l3_if = int.from_bytes(metadata[:2], "big")
        value: EntityValue = UNKNOWN
        match params:
            case [] if identifier == actions["discard_nexthop"].id:
                value = Nexthop(l3_if, address, None, up=False)
            case [number] if (identifier, number) == (actions["resolve_neighbor"].id, l3_if):
                value = Nexthop(l3_if, address, None, up=True)
            case [number, mac] if (identifier, number) == (actions["set_neighbor"].id, l3_if):
                value = Nexthop(l3_if, address, mac.to_bytes(6, "big"), up=True)
        return EntityKind.NEXTHOP, key, value

    def _decode_group_entry(self, entry: p4r.TableEntry) -> DecodedEntity:
        key = _fields_of(entry).get(self._tables.group.fields["group_id"], 0)
        same = entry.action.action_profile_group_id == key
        return EntityKind.GROUP_ENTRY, key, GROUP_OF_SAME_ID if same else UNKNOWN

    def _decode_egress(self, entry: p4r.TableEntry) -> DecodedEntity:
        key = _fields_of(entry).get(self._tables.egress.fields["l3_if"], 0)
        _, params = _action_of(entry)
        value: EntityValue = UNKNOWN
        if len(params) == 4:
            value = Egress(params[0], params[1], params[2].to_bytes(6, "big"), params[3])
        return EntityKind.EGRESS_INTERFACE, key, value

    def _decode_member(self, member: p4r.ActionProfileMember) -> DecodedEntity:
        params = [int.from_bytes(param.value, "big") for param in member.action.params]
        same = params == [member.member_id]
        return EntityKind.GROUP_MEMBER, member.member_id, MEMBER if same else UNKNOWN

    def _decode_group(self, group: p4r.ActionProfileGroup) -> DecodedEntity:
        """Decodes a group.

        A group is UNKNOWN if its maximum size is not the one that the controller uses. P4Runtime
        cannot change this size, so the group must be replaced.
        """
        members = sorted((member.member_id, member.weight) for member in group.members)
        same = group.max_size == self._tables.group_size
        return EntityKind.GROUP, group.group_id, NexthopGroup(tuple(members)) if same else UNKNOWN

    def _slot(self, entry: p4r.TableEntry) -> RouteSlot:
        size = self._families[entry.table_id]
        vrf, prefix = 0, Prefix(bytes(size), 0)
        for match in entry.match:
            if match.HasField("lpm"):
                length = match.lpm.prefix_len
                if not 0 <= length <= 8 * size:
                    raise DecodeError(f"a prefix of {length} bits in a field of {8 * size}")
                prefix = Prefix(match.lpm.value.rjust(size, b"\0")[-size:], length)
            else:
                vrf = int.from_bytes(match.exact.value, "big")
        return RouteSlot(vrf, prefix)
