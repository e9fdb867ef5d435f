# SPDX-License-Identifier: Apache-2.0
"""The tables, actions and enums of the pipeline that the controller writes, by their P4 names.

The only list of those names; `encoder` and `decoder` work with what it finds. A pipeline that lacks
one is refused (SchemaError names all that are missing).
"""

from __future__ import annotations

from sluice.entities import TargetKind
from sluice.p4.schema import Schema

_FIB_KEY = ("vrf", "dst_addr")
_FIB_ACTIONS: dict[str, tuple[str, ...]] = {
    "set_nexthop": ("nexthop_id",),
    "set_nexthop_group": ("group_id",),
    "blackhole": (),
    "punt_route": ("reason",),
}


class PipelineTables:
    """What the controller writes to. `fibs` and `locals` are by octets of an address, 4 or 16."""

    def __init__(self, schema: Schema) -> None:
        self.fibs = {
            4: schema.table("ipv4_fib", _FIB_KEY, _FIB_ACTIONS),
            16: schema.table("ipv6_fib", _FIB_KEY, _FIB_ACTIONS),
        }
        self.locals = {
            4: schema.table("local_ipv4", _FIB_KEY, {"deliver_local": ()}),
            16: schema.table("local_ipv6", _FIB_KEY, {"deliver_local": ()}),
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
        self.selector = schema.action_profile("nexthop_selector")
        self.punt_meter = schema.meter("punt_meter")
        self.reasons = schema.enum("punt_reason_t")
        self.router_role = schema.member("role_t", "ROUTER")
        self.discards = {
            TargetKind.UNREACHABLE: schema.member("punt_reason_t", "UNREACHABLE"),
            TargetKind.PROHIBITED: schema.member("punt_reason_t", "PROHIBITED"),
        }
        schema.check()
