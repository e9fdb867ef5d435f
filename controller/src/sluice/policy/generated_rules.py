# SPDX-License-Identifier: Apache-2.0
"""Generates the first rules of every list: bypass for ND and IKE.

Without these rules, an SPD would isolate its own router, which could neither find IPv6 neighbours
nor negotiate SAs. RFC 4301, 4.4.1 requires an explicit BYPASS for IKE. The rules name only this
router's own addresses, link-local addresses and the multicast groups of neighbour discovery. They
match this router's own packets only, never transit packets. `sluice show spd --generated` shows
them. Their names have a colon, which names of operators' rules must not have. Pure; depends on
model.
"""

from __future__ import annotations

from collections.abc import Iterable

from sluice.model import Address, Prefix, parse_address
from sluice.policy.model import (
    ICMPV6,
    UDP,
    Action,
    AddressRange,
    Direction,
    NumberRange,
    Rule,
    prefix_range,
)

# The ICMPv6 types 133 to 137 of neighbour discovery (RFC 4861), with all codes.
ND_TYPES = NumberRange(133 << 8, 137 << 8 | 0xFF)
IKE_PORTS = (NumberRange(500, 500), NumberRange(4500, 4500))
LINK_LOCAL = prefix_range(Prefix.parse("fe80::/10"))
UNSPECIFIED = AddressRange(bytes(16), bytes(16))
"""The source address of duplicate address detection (RFC 4862)."""
ND_GROUPS = (
    AddressRange(parse_address("ff02::1"), parse_address("ff02::2")),
    prefix_range(Prefix.parse("ff02::1:ff00:0/104")),
)


def generated_rules(direction: Direction, own: Iterable[Address]) -> tuple[Rule, ...]:
    """Returns the generated rules of a list, for a router with these addresses.

    The rules do not restrict the peer's address. For ND this is safe: the pipeline never routes ND,
    and accepts it only with hop limit 255, which no packet from another link can have. The order of
    `own` does not matter.
    """
    addresses = sorted(set(own))
    ipv4, ipv6 = (
        tuple(AddressRange(one, one) for one in addresses if len(one) == size) for size in (4, 16)
    )
    families = ("ipv4", ipv4), ("ipv6", ipv6)
    rules = [_neighbor_discovery(direction, ipv6)]
    rules += [_ike(direction, name, ranges) for name, ranges in families if ranges]
    return tuple(rules)


def _neighbor_discovery(direction: Direction, own: tuple[AddressRange, ...]) -> Rule:
    rule = Rule("generated:nd", Action.BYPASS, protocol=(ICMPV6,), icmp=(ND_TYPES,), generated=True)
    if direction is Direction.INBOUND:
        return rule._replace(destination=(*own, LINK_LOCAL, *ND_GROUPS))
    return rule._replace(source=(*own, LINK_LOCAL, UNSPECIFIED))


def _ike(direction: Direction, name: str, own: tuple[AddressRange, ...]) -> Rule:
    rule = Rule(f"generated:ike-{name}", Action.BYPASS, protocol=(UDP,), generated=True)
    if direction is Direction.INBOUND:
        return rule._replace(destination=own, destination_port=IKE_PORTS)
    return rule._replace(source=own, source_port=IKE_PORTS)
