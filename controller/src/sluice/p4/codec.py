# SPDX-License-Identifier: Apache-2.0
"""Entities as P4Runtime updates, and back.

`Codec.update` gives the bytes of one update, `Codec.decode` takes an entity read from the switch.
What is read and does not say anything the controller could have written decodes to the value
`UNKNOWN` under its key, so that the reconciler corrects or removes it.

Routes are encoded by hand: table and VRF are a constant prefix, the action a constant suffix shared
by all routes of a target, and only the LPM field in between is made for each (about 1 µs instead of
10). tests/p4/test_codec.py holds it against protobuf's own encoding.
"""

from __future__ import annotations

from finsy.proto import p4r

from sluice.entities import (
    ADMIT,
    GROUP_OF_SAME_ID,
    LOCAL,
    MEMBER,
    UNKNOWN,
    Attachment,
    Egress,
    Group,
    HashSeed,
    Key,
    Kind,
    L3Interface,
    Nexthop,
    PuntLimit,
    RouterMac,
    RouteSlot,
    Target,
    TargetKind,
    Value,
)
from sluice.model import Prefix
from sluice.p4.schema import Action, Schema, Table
from sluice.p4runtime.messages import Operation, field, update

MAX_GROUP_SIZE = 64
_ENTITY_TABLE_ENTRY = 2
_FIB_ACTIONS: dict[str, tuple[str, ...]] = {
    "set_nexthop": ("nexthop_id",),
    "set_nexthop_group": ("group_id",),
    "blackhole": (),
    "punt_route": ("reason",),
}

Decoded = tuple[Kind, Key, Value]


class Codec:
    """The updates of one pipeline. Raises SchemaError when the pipeline is another."""

    def __init__(self, schema: Schema) -> None:
        fib = ("vrf", "dst_addr")
        self._fibs = {
            4: schema.table("ipv4_fib", fib, _FIB_ACTIONS),
            16: schema.table("ipv6_fib", fib, _FIB_ACTIONS),
        }
        self._locals = {
            4: schema.table("local_ipv4", fib, {"deliver_local": ()}),
            16: schema.table("local_ipv6", fib, {"deliver_local": ()}),
        }
        self._l3_interface = schema.table(
            "l3_interface",
            ("ingress_port", "vlan_id"),
            {"set_l3_interface": ("l3_if", "vrf", "role")},
        )
        self._router_mac = schema.table("router_mac", ("l3_if", "dst_mac"), {"admit_unicast": ()})
        self._nexthop = schema.table(
            "nexthop",
            ("nexthop_id",),
            {
                "set_neighbor": ("l3_if", "dst_mac"),
                "resolve_neighbor": ("l3_if",),
                "discard_nexthop": (),
            },
        )
        self._group = schema.table(
            "nexthop_group", ("group_id",), {"set_group_nexthop": ("nexthop_id",)}
        )
        self._egress = schema.table(
            "egress_interface", ("l3_if",), {"set_egress": ("port", "vlan_id", "src_mac", "mtu")}
        )
        self._hash_seed = schema.table("hash_seed", (), {"set_hash_seed": ("value",)})
        self._selector = schema.action_profile("nexthop_selector")
        self._punt_meter = schema.meter("punt_meter")
        self._reasons = schema.enum("punt_reason_t")
        self._reason_names = {number: name for name, number in self._reasons.items()}
        self._router_role = schema.member("role_t", "ROUTER")
        self._discards = {
            TargetKind.UNREACHABLE: schema.member("punt_reason_t", "UNREACHABLE"),
            TargetKind.PROHIBITED: schema.member("punt_reason_t", "PROHIBITED"),
        }
        schema.check()
        self._route_heads: dict[tuple[int, int], bytes] = {}
        self._route_tails: dict[Target, bytes] = {}
        self._lpm_ids = {
            size: bytes([8, table.fields["dst_addr"]]) for size, table in self._fibs.items()
        }
        self._decoders = {
            **{table.id: self._decode_route for table in self._fibs.values()},
            **{table.id: self._decode_local for table in self._locals.values()},
            self._l3_interface.id: self._decode_l3_interface,
            self._router_mac.id: self._decode_router_mac,
            self._nexthop.id: self._decode_nexthop,
            self._group.id: self._decode_group_entry,
            self._egress.id: self._decode_egress,
        }
        self._families = {
            table.id: size
            for tables in (self._fibs, self._locals)
            for size, table in tables.items()
        }

    # -- entities to updates

    def update(self, operation: Operation, kind: Kind, key: Key, value: Value | None) -> bytes:
        """The update as a field of a write request; `value` is not looked at for DELETE."""
        if kind is Kind.ROUTE and isinstance(key, RouteSlot):
            target = value if isinstance(value, Target) else None
            return update(operation, self._route(key, target))
        entity = self._entity(kind, key, value if operation is not Operation.DELETE else None)
        return update(operation, entity.SerializeToString())

    def _route(self, slot: RouteSlot, target: Target | None) -> bytes:
        """The serialized Entity of a route."""
        vrf, (address, length) = slot
        size = len(address)
        head = self._route_heads.get((size, vrf)) or self._route_head(size, vrf)
        tail = b"" if target is None else self._route_tails.get(target) or self._route_tail(target)
        if length:
            value = address.lstrip(b"\0") or b"\0"
            # FieldMatch { field_id, lpm { value, prefix_len } }: every length here fits one octet
            width = len(value)
            lpm = b"\x0a%c%b\x10%b" % (
                width,
                value,
                bytes((length,)) if length < 0x80 else b"\x80\x01",
            )
            match = b"%b\x22%c%b" % (self._lpm_ids[size], len(lpm), lpm)
            entry = b"%b\x12%c%b%b" % (head, len(match), match, tail)
        else:
            entry = head + tail
        return field(_ENTITY_TABLE_ENTRY, entry)

    def _route_head(self, size: int, vrf: int) -> bytes:
        table = self._fibs[size]
        entry = p4r.TableEntry(table_id=table.id, match=[_exact(table, "vrf", vrf)])
        head = self._route_heads[size, vrf] = entry.SerializeToString()
        return head

    def _route_tail(self, target: Target) -> bytes:
        actions = self._fibs[4].actions
        if target.kind is TargetKind.NEXTHOP:
            action = _action(actions["set_nexthop"], nexthop_id=target.id)
        elif target.kind is TargetKind.GROUP:
            action = _action(actions["set_nexthop_group"], group_id=target.id)
        elif target.kind is TargetKind.BLACKHOLE:
            action = _action(actions["blackhole"])
        else:
            action = _action(actions["punt_route"], reason=self._discards[target.kind])
        tail = p4r.TableEntry(action=action).SerializeToString()
        if len(self._route_tails) > 100_000:  # targets that no route uses any more
            self._route_tails.clear()
        self._route_tails[target] = tail
        return tail

    def _entity(self, kind: Kind, key: Key, value: Value | None) -> p4r.Entity:
        match kind, key:
            case Kind.LOCAL_PREFIX, RouteSlot():
                return self._local_entity(key, value)
            case Kind.L3_INTERFACE, Attachment():
                return self._l3_interface_entity(key, value)
            case Kind.ROUTER_MAC, RouterMac():
                return self._router_mac_entity(key, value)
            case Kind.EGRESS_INTERFACE, int():
                return self._egress_entity(key, value)
            case Kind.NEXTHOP, int():
                return self._nexthop_entity(key, value)
            case Kind.GROUP_MEMBER, int():
                return self._member_entity(key)
            case Kind.GROUP, int():
                return self._group_entity(key, value)
            case Kind.GROUP_ENTRY, int():
                return self._group_entry_entity(key, value)
            case Kind.PUNT_METER, str():
                return self._meter_entity(key, value)
            case Kind.HASH_SEED, _:
                return self._hash_seed_entity(value)
            case _:
                raise TypeError(f"{kind!r} has no key {key!r}")

    def _local_entity(self, slot: RouteSlot, value: Value | None) -> p4r.Entity:
        table = self._locals[len(slot.prefix.address)]
        matches = [_exact(table, "vrf", slot.vrf)]
        if slot.prefix.length:
            matches.append(_lpm(table, "dst_addr", slot.prefix))
        action = None if value is None else _action(table.actions["deliver_local"])
        return _entry(table, matches, action)

    def _l3_interface_entity(self, key: Attachment, value: Value | None) -> p4r.Entity:
        table = self._l3_interface
        matches = [_exact(table, "ingress_port", key.port), _exact(table, "vlan_id", key.vlan)]
        action = None
        if isinstance(value, L3Interface):
            action = _action(
                table.actions["set_l3_interface"],
                l3_if=value.l3_if,
                vrf=value.vrf,
                role=self._router_role,
            )
        return _entry(table, matches, action)

    def _router_mac_entity(self, key: RouterMac, value: Value | None) -> p4r.Entity:
        table = self._router_mac
        mac = int.from_bytes(key.mac, "big")
        matches = [_exact(table, "l3_if", key.l3_if), _exact(table, "dst_mac", mac)]
        return _entry(
            table, matches, None if value is None else _action(table.actions["admit_unicast"])
        )

    def _egress_entity(self, l3_if: int, value: Value | None) -> p4r.Entity:
        table = self._egress
        action = None
        if isinstance(value, Egress):
            action = _action(
                table.actions["set_egress"],
                port=value.port,
                vlan_id=value.vlan,
                src_mac=int.from_bytes(value.mac, "big"),
                mtu=value.mtu,
            )
        return _entry(table, [_exact(table, "l3_if", l3_if)], action)

    def _nexthop_entity(self, identifier: int, value: Value | None) -> p4r.Entity:
        """The neighbour's address travels as the entry's metadata, for who reads it back."""
        table = self._nexthop
        action, metadata = None, b""
        if isinstance(value, Nexthop):
            metadata = value.l3_if.to_bytes(2, "big") + (value.address or b"")
            if not value.up:
                action = _action(table.actions["discard_nexthop"])
            elif value.mac is None:
                action = _action(table.actions["resolve_neighbor"], l3_if=value.l3_if)
            else:
                mac = int.from_bytes(value.mac, "big")
                action = _action(table.actions["set_neighbor"], l3_if=value.l3_if, dst_mac=mac)
        return _entry(table, [_exact(table, "nexthop_id", identifier)], action, metadata)

    def _member_entity(self, nexthop: int) -> p4r.Entity:
        """A member has the number of its next hop."""
        action = _action(self._group.actions["set_group_nexthop"], nexthop_id=nexthop)
        member = p4r.ActionProfileMember(
            action_profile_id=self._selector, member_id=nexthop, action=action.action
        )
        return p4r.Entity(action_profile_member=member)

    def _group_entity(self, identifier: int, value: Value | None) -> p4r.Entity:
        group = p4r.ActionProfileGroup(
            action_profile_id=self._selector, group_id=identifier, max_size=MAX_GROUP_SIZE
        )
        if isinstance(value, Group):
            for member, weight in value.members:
                group.members.add(member_id=member, weight=weight)
        return p4r.Entity(action_profile_group=group)

    def _group_entry_entity(self, identifier: int, value: Value | None) -> p4r.Entity:
        action = None
        if value is not None:
            action = p4r.TableAction(action_profile_group_id=identifier)
        return _entry(self._group, [_exact(self._group, "group_id", identifier)], action)

    def _meter_entity(self, reason: str, value: Value | None) -> p4r.Entity:
        meter = p4r.MeterEntry(
            meter_id=self._punt_meter, index=p4r.Index(index=self._reasons[reason])
        )
        if isinstance(value, PuntLimit):
            # Two rates, one limit: what exceeds the committed rate also exceeds the peak.
            meter.config.CopyFrom(
                p4r.MeterConfig(
                    cir=value.rate, cburst=value.burst, pir=value.rate, pburst=value.burst
                )
            )
        return p4r.Entity(meter_entry=meter)

    def _hash_seed_entity(self, value: Value | None) -> p4r.Entity:
        seed = value.seed if isinstance(value, HashSeed) else 0
        entry = p4r.TableEntry(
            table_id=self._hash_seed.id,
            action=_action(self._hash_seed.actions["set_hash_seed"], value=seed),
            is_default_action=True,
        )
        return p4r.Entity(table_entry=entry)

    # -- entities read back

    def read_requests(self) -> list[p4r.Entity]:
        """What to read to know all that is installed; every entity in it is understood by decode.

        Meters and the hash seed are not read: they are written at every start, which disturbs
        nothing.
        """
        tables = [
            self._egress,
            self._nexthop,
            self._group,
            *self._fibs.values(),
            *self._locals.values(),
            self._router_mac,
            self._l3_interface,
        ]
        return [
            *(p4r.Entity(table_entry=p4r.TableEntry(table_id=table.id)) for table in tables),
            p4r.Entity(
                action_profile_member=p4r.ActionProfileMember(action_profile_id=self._selector)
            ),
            p4r.Entity(
                action_profile_group=p4r.ActionProfileGroup(action_profile_id=self._selector)
            ),
        ]

    def decode(self, entity: p4r.Entity) -> Decoded | None:
        """The entity's (kind, key, value); None for what is none of the controller's business."""
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
                group = entity.action_profile_group
                members = sorted((member.member_id, member.weight) for member in group.members)
                return Kind.GROUP, group.group_id, Group(tuple(members))
            case _:
                return None

    def _decode_route(self, entry: p4r.TableEntry) -> Decoded:
        slot = self._slot(entry)
        actions = self._fibs[4].actions
        identifier, params = _action_of(entry)
        value: Value = UNKNOWN
        if identifier == actions["set_nexthop"].id:
            value = Target(TargetKind.NEXTHOP, params[0])
        elif identifier == actions["set_nexthop_group"].id:
            value = Target(TargetKind.GROUP, params[0])
        elif identifier == actions["blackhole"].id:
            value = Target(TargetKind.BLACKHOLE)
        elif identifier == actions["punt_route"].id:
            for kind, reason in self._discards.items():
                if reason == params[0]:
                    value = Target(kind)
        return Kind.ROUTE, slot, value

    def _decode_local(self, entry: p4r.TableEntry) -> Decoded:
        return Kind.LOCAL_PREFIX, self._slot(entry), LOCAL

    def _decode_l3_interface(self, entry: p4r.TableEntry) -> Decoded:
        fields = _fields_of(entry)
        table = self._l3_interface
        key = Attachment(
            fields.get(table.fields["ingress_port"], 0), fields.get(table.fields["vlan_id"], 0)
        )
        _, params = _action_of(entry)
        value: Value = UNKNOWN
        if len(params) == 3 and params[2] == self._router_role:
            value = L3Interface(params[0], params[1])
        return Kind.L3_INTERFACE, key, value

    def _decode_router_mac(self, entry: p4r.TableEntry) -> Decoded:
        fields = _fields_of(entry)
        mac = fields.get(self._router_mac.fields["dst_mac"], 0)
        l3_if = fields.get(self._router_mac.fields["l3_if"], 0)
        return Kind.ROUTER_MAC, RouterMac(l3_if, mac.to_bytes(6, "big")), ADMIT

    def _decode_nexthop(self, entry: p4r.TableEntry) -> Decoded:
        key = _fields_of(entry).get(self._nexthop.fields["nexthop_id"], 0)
        identifier, params = _action_of(entry)
        actions = self._nexthop.actions
        metadata = entry.metadata
        address = metadata[2:] or None
        if len(metadata) not in (2, 6, 18):
            return Kind.NEXTHOP, key, UNKNOWN
        l3_if = int.from_bytes(metadata[:2], "big")
        value: Value = UNKNOWN
        if identifier == actions["discard_nexthop"].id:
            value = Nexthop(l3_if, address, None, up=False)
        elif identifier == actions["resolve_neighbor"].id and params[0] == l3_if:
            value = Nexthop(l3_if, address, None, up=True)
        elif identifier == actions["set_neighbor"].id and params[0] == l3_if:
            value = Nexthop(l3_if, address, params[1].to_bytes(6, "big"), up=True)
        return Kind.NEXTHOP, key, value

    def _decode_group_entry(self, entry: p4r.TableEntry) -> Decoded:
        key = _fields_of(entry).get(self._group.fields["group_id"], 0)
        same = entry.action.action_profile_group_id == key
        return Kind.GROUP_ENTRY, key, GROUP_OF_SAME_ID if same else UNKNOWN

    def _decode_egress(self, entry: p4r.TableEntry) -> Decoded:
        key = _fields_of(entry).get(self._egress.fields["l3_if"], 0)
        _, params = _action_of(entry)
        value: Value = UNKNOWN
        if len(params) == 4:
            value = Egress(params[0], params[1], params[2].to_bytes(6, "big"), params[3])
        return Kind.EGRESS_INTERFACE, key, value

    def _decode_member(self, member: p4r.ActionProfileMember) -> Decoded:
        params = [int.from_bytes(param.value, "big") for param in member.action.params]
        same = params == [member.member_id]
        return Kind.GROUP_MEMBER, member.member_id, MEMBER if same else UNKNOWN

    def _slot(self, entry: p4r.TableEntry) -> RouteSlot:
        size = self._families[entry.table_id]
        vrf, prefix = 0, Prefix(bytes(size), 0)
        for match in entry.match:
            if match.HasField("lpm"):
                prefix = Prefix(match.lpm.value.rjust(size, b"\0")[-size:], match.lpm.prefix_len)
            else:
                vrf = int.from_bytes(match.exact.value, "big")
        return RouteSlot(vrf, prefix)


def canonical(number: int) -> bytes:
    """P4Runtime's shortest byte string of a number."""
    return number.to_bytes((number.bit_length() + 7) // 8 or 1, "big")


def _exact(table: Table, name: str, value: int) -> p4r.FieldMatch:
    exact = p4r.FieldMatch.Exact(value=canonical(value))
    return p4r.FieldMatch(field_id=table.fields[name], exact=exact)


def _lpm(table: Table, name: str, prefix: Prefix) -> p4r.FieldMatch:
    value = prefix.address.lstrip(b"\0") or b"\0"
    lpm = p4r.FieldMatch.LPM(value=value, prefix_len=prefix.length)
    return p4r.FieldMatch(field_id=table.fields[name], lpm=lpm)


def _action(action: Action, **values: int) -> p4r.TableAction:
    params = [
        p4r.Action.Param(param_id=action.params[name], value=canonical(value))
        for name, value in values.items()
    ]
    return p4r.TableAction(action=p4r.Action(action_id=action.id, params=params))


def _entry(
    table: Table,
    matches: list[p4r.FieldMatch],
    action: p4r.TableAction | None,
    metadata: bytes = b"",
) -> p4r.Entity:
    entry = p4r.TableEntry(table_id=table.id, match=matches, action=action, metadata=metadata)
    return p4r.Entity(table_entry=entry)


def _fields_of(entry: p4r.TableEntry) -> dict[int, int]:
    return {match.field_id: int.from_bytes(match.exact.value, "big") for match in entry.match}


def _action_of(entry: p4r.TableEntry) -> tuple[int, list[int]]:
    """The action's id and its parameters in the order of their ids."""
    action = entry.action.action
    params = sorted(action.params, key=lambda param: param.param_id)
    return action.action_id, [int.from_bytes(param.value, "big") for param in params]
