# SPDX-License-Identifier: Apache-2.0
"""Formats events (`sluice.model`) as text for golden files, one line for each event."""

from __future__ import annotations

from sluice.model import (
    AddressAdded,
    AddressRemoved,
    KernelEvent,
    LinkChanged,
    LinkRemoved,
    NeighborChanged,
    NexthopObjectDeleted,
    NexthopObjectUpdated,
    NexthopSpec,
    Route,
    RouteDeleted,
    RouteEvent,
    RouteUpdated,
    format_address,
    format_mac,
)


def spec_text(spec: NexthopSpec) -> str:
    words = [spec.kind.name.lower()]
    words += [format_address(spec.address)] if spec.address is not None else []
    words += [f"dev {spec.ifindex}"] if spec.ifindex is not None else []
    return " ".join([*words, f"weight {spec.weight}"])


def event_text(event: RouteEvent | KernelEvent) -> str:
    match event:
        case RouteUpdated(Route(key, protocol, metric, nexthops, nexthop_id)):
            target = f"object {nexthop_id}" if nexthop_id else " | ".join(map(spec_text, nexthops))
            origin = f"proto {protocol} metric {metric}"
            return f"route {key.prefix} table {key.table} {origin}: {target}"
        case RouteDeleted(key):
            return f"no route {key.prefix} table {key.table}"
        case NexthopObjectUpdated(identity, None, group):
            members = " ".join(f"{member}*{weight}" for member, weight in group)
            return f"object {identity}: {members}"
        case NexthopObjectUpdated(identity, spec) if spec is not None:
            return f"object {identity}: {spec_text(spec)}"
        case NexthopObjectDeleted(identity):
            return f"no object {identity}"
        case LinkChanged(ifindex, name, up, carrier, mtu, mac, macvlan_on, held_down):
            state = f"{'up' if up else 'down'} {'carrier' if carrier else 'no carrier'}"
            state += " held down" if held_down else ""
            above = "" if macvlan_on is None else f" macvlan on {macvlan_on}"
            return f"link {ifindex} {name}: {state} mtu {mtu} mac {format_mac(mac)}{above}"
        case LinkRemoved(ifindex):
            return f"no link {ifindex}"
        case AddressAdded(ifindex, address):
            return f"address {address} dev {ifindex}"
        case AddressRemoved(ifindex, address):
            return f"no address {address} dev {ifindex}"
        case NeighborChanged(ifindex, neighbor, mac, state):
            at = "" if mac is None else f" at {format_mac(mac)}"
            return f"neighbour {format_address(neighbor)} dev {ifindex} {state.name}{at}"
    raise AssertionError(event)
