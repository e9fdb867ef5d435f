# SPDX-License-Identifier: Apache-2.0
"""Looks up the tables, actions and enums that the controller uses, by their P4 names.

Only this module contains the names. `encoder` and `decoder` use the results. A pipeline that lacks
one of the names is refused; SchemaError lists all missing names.
"""

from __future__ import annotations

from typing import NamedTuple

from sluice.entities import MAX_GROUP_WEIGHT, EntityKind, PortRole, RouteTargetKind
from sluice.p4.schema import NO_ACTION, ActionSchema, Schema, TableSchema

_FIB_KEY = ("vrf", "dst_addr")
_FIB_ACTIONS: dict[str, tuple[str, ...]] = {
    "set_nexthop": ("nexthop_id",),
    "set_nexthop_group": ("group_id",),
    "blackhole": (),
    "punt_route": ("reason",),
}


class SingleAction(NamedTuple):
    """Holds a table and the only action that the controller uses in it."""

    table: TableSchema
    action: ActionSchema


class BindingTable(NamedTuple):
    """Holds a table that binds interfaces or bundles to lists.

    The action `check` binds to a list. The action `none` says that no policy applies. It is None
    for a table in which every entry must bind to a list.
    """

    table: TableSchema
    check: ActionSchema
    none: ActionSchema | None


class EngineTable(NamedTuple):
    """Holds the table of engines and its actions. An entry has action `up` if the engine can be
    used, else `down`."""

    table: TableSchema
    up: ActionSchema
    down: ActionSchema


class RuleTable(NamedTuple):
    """Holds a rule table and its two actions: one gives a verdict, the other leaves the packet to
    the CPU."""

    table: TableSchema
    verdict: ActionSchema
    leave: ActionSchema


class PolicyTables:
    """Holds the tables of IPsec policy that the controller writes, except flows."""

    def __init__(self, schema: Schema) -> None:
        sa = ("engine", "sa", "path_mtu", "overhead")
        bundle = ("vrf", "bundle")
        engine = schema.table("engine", ("engine",), {"set_engine": ("port",), "engine_down": ()})
        self.engine = EngineTable(
            engine,
            engine.actions.get("set_engine", NO_ACTION),
            engine.actions.get("engine_down", NO_ACTION),
        )
        self.reassembly_engine = _single(
            schema, "reassembly_engine", ("vrf",), "reassemble", ("engine",)
        )
        self.outbound_sa = _single(schema, "outbound_sa", bundle, "encrypt", sa)
        self.esp_sources = {
            size: _single(schema, f"esp_source_{family}", (*bundle, "src_addr"), "from_bundle", ())
            for size, family in ((4, "ipv4"), (16, "ipv6"))
        }
        self.copied_drop = _single(
            schema, "copied_drop", ("drop_reason",), "copy_to_cpu", ("reason",)
        )
        self.drop_reasons = schema.enum("drop_reason_t")
        self.punt_reasons = schema.enum("punt_reason_t")
        self.inbound_sa = _single(
            schema, "inbound_sa", ("vrf", "spi"), "decrypt", ("bundle", "engine", "sa")
        )
        counts = ("epoch", "generation", "rule_set")
        self.lists = {
            kind: _single(schema, f"{name}.list_state", ("list_id",), f"{name}.set_list", counts)
            for kind, name in (
                (EntityKind.INBOUND_LIST, "inbound"),
                (EntityKind.OUTBOUND_LIST, "outbound"),
            )
        }
        self.rules = {
            (kind, size): _rules(schema, direction, family)
            for kind, direction in (
                (EntityKind.INBOUND_RULE, "inbound"),
                (EntityKind.OUTBOUND_RULE, "outbound"),
            )
            for size, family in ((4, "ipv4"), (16, "ipv6"))
        }
        self.bindings = {
            kind: _binding(
                schema, kind.name.lower(), ("l3_if",), f"check_{way}", f"no_{way}_policy"
            )
            for kind, way in (
                (EntityKind.INBOUND_BINDING, "inbound"),
                (EntityKind.OUTBOUND_BINDING, "outbound"),
            )
        }
        self.bindings[EntityKind.BUNDLE_BINDING] = _binding(
            schema, "bundle_binding", bundle, "check_inbound", None
        )
        schema.check()


def _single(
    schema: Schema, name: str, fields: tuple[str, ...], action: str, params: tuple[str, ...]
) -> SingleAction:
    table = schema.table(name, fields, {action: params})
    return SingleAction(table, table.actions.get(action, NO_ACTION))


_RULE_KEY = ("rule_set", "is_local", "src_addr", "dst_addr", "protocol", "src_port", "dst_port")


def _rules(schema: Schema, direction: str, family: str) -> RuleTable:
    verdict, leave = f"{direction}.set_rule", f"{direction}.leave_to_cpu"
    actions = {verdict: ("rule", "verdict", "sa_bundle"), leave: ()}
    table = schema.table(f"{direction}.{family}_rule", _RULE_KEY, actions)
    found = table.actions
    return RuleTable(table, found.get(verdict, NO_ACTION), found.get(leave, NO_ACTION))


def _binding(
    schema: Schema, name: str, fields: tuple[str, ...], check: str, none: str | None
) -> BindingTable:
    actions: dict[str, tuple[str, ...]] = {check: ("list_id",)}
    if none is not None:
        actions[none] = ()
    table = schema.table(name, fields, actions)
    found = table.actions.get(check, NO_ACTION)
    return BindingTable(table, found, None if none is None else table.actions.get(none, NO_ACTION))


class PipelineTables:
    """Holds all tables that the controller writes.

    The keys of `fibs`, `locals` and `own_sources` are address sizes in bytes, 4 or 16.
    """

    def __init__(self, schema: Schema) -> None:
        self.fibs = {
            4: schema.table("ipv4_fib", _FIB_KEY, _FIB_ACTIONS),
            16: schema.table("ipv6_fib", _FIB_KEY, _FIB_ACTIONS),
        }
        self.locals = {
            4: schema.table("local_ipv4", _FIB_KEY, {"deliver_local": ()}),
            16: schema.table("local_ipv6", _FIB_KEY, {"deliver_local": ()}),
        }
        self.own_sources = {
            size: schema.table(f"own_source_{family}", ("vrf", "src_addr"), {"own_source": ()})
            for size, family in ((4, "ipv4"), (16, "ipv6"))
        }
        self.l3_interface = schema.table(
            "l3_interface",
            ("ingress_port", "vlan_id"),
            {"set_l3_interface": ("l3_if", "vrf", "role")},
        )
        self.router_mac = schema.table("router_mac", ("l3_if", "dst_mac"), {"admit_unicast": ()})
        self.nexthop = schema.table(
            "nexthop",
            ("nexthop_id",),
            {
                "set_neighbor": ("l3_if", "dst_mac"),
                "resolve_neighbor": ("l3_if",),
                "discard_nexthop": (),
            },
        )
        self.group = schema.table(
            "nexthop_group", ("group_id",), {"set_group_nexthop": ("nexthop_id",)}
        )
        self.egress = schema.table(
            "egress_interface", ("l3_if",), {"set_egress": ("port", "vlan_id", "src_mac", "mtu")}
        )
        self.hash_seed = schema.table("hash_seed", (), {"set_hash_seed": ("value",)})
        self.selector, *sizes = schema.action_profile("nexthop_selector")
        self.group_size = min(size for size in (*sizes, MAX_GROUP_WEIGHT) if size > 0)
        """Largest sum of a next-hop group's weights."""
        self.punt_meter = schema.meter("punt_meter")
        self.reasons = schema.enum("punt_reason_t")
        self.roles = {role: schema.member("role_t", role.name) for role in PortRole}
        self.policy = PolicyTables(schema)
        self.discards = {
            RouteTargetKind.UNREACHABLE: schema.member("punt_reason_t", "UNREACHABLE"),
            RouteTargetKind.PROHIBITED: schema.member("punt_reason_t", "PROHIBITED"),
        }
        schema.check()
