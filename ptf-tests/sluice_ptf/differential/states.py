# SPDX-License-Identifier: Apache-2.0
"""Generates random tables of routers: ordinary ones, unusual ones, and ones whose tables are
written only in part.

Addresses come from a few ranges, so that prefixes are nested and packets match them. All random
choices use the argument `Random`, so a seed reproduces them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import replace
from random import Random

from sluice_ptf.differential.case import GROUP_IDS, SelectorGroup, TableEntry, TableState
from sluice_ptf.schema import Value

PORTS = (1, 2, 3, 4)
VLANS = (0, 0, 0, 1, 100, 200)
VRFS = (0, 0, 0, 1, 300)
MTUS = (9000, 9000, 1500, 1500, 1500, 1500, 1280, 1280, 576, 68, 0, 65535)
PLACES4 = ("10.0.0.0", "10.1.0.0", "10.1.2.0", "10.1.2.128", "172.16.0.0", "192.0.2.0")
PLACES6 = ("2001:db8::", "2001:db8:1::", "2001:db8:1:2::", "2001:db8:1:2:8000::", "fd00::")


def random_state(draw: Random) -> TableState:
    """Returns random interfaces, next hops, groups, local addresses and routes."""
    interfaces = list(range(1, draw.randint(3, 8)))
    nexthops = list(range(1, draw.randint(4, 14)))
    groups = [
        SelectorGroup(
            number,
            {
                GROUP_IDS + number * 10 + index: draw.choice((1, 1, 1, 2, 5))
                for index in range(draw.randint(1, 5))
            },
        )
        for number in range(1, draw.randint(1, 4))
    ]
    entries = [
        *_interfaces(draw, interfaces),
        *(_nexthop(draw, nexthop, interfaces) for nexthop in nexthops),
        *(entry for group in groups for entry in _members(draw, group)),
        *_locals(draw),
        *_routes(draw, nexthops, [group.id for group in groups]),
    ]
    return TableState(list({entry.key: entry for entry in entries}.values()), groups)


def changed(draw: Random, state: TableState) -> TableState:
    """Returns the state with some routes deleted, changed or added, and with other group
    members.
    """
    other = random_state(draw)
    routes = ("ipv4_fib", "ipv6_fib", "local_ipv4", "local_ipv6")
    entries = {
        entry.key: entry
        for entry in state.entries
        if entry.table not in routes or draw.random() < 0.7
    }
    ways = [entry for entry in state.entries if entry.table in routes[:2]]
    for entry in draw.sample(ways, len(ways) // 4):
        way = draw.choice(ways)
        entries[entry.key] = replace(entry, action=way.action, params=way.params)
    for entry in other.entries:
        if entry.table in routes and draw.random() < 0.5:
            entries.setdefault(entry.key, entry)
    return TableState(
        list(entries.values()), [_changed_group(draw, group) for group in state.groups]
    )


def _changed_group(draw: Random, group: SelectorGroup) -> SelectorGroup:
    kept = {nexthop: draw.randint(1, 4) for nexthop in group.members if draw.random() < 0.6}
    return SelectorGroup(group.id, kept or group.members)


def _interfaces(draw: Random, interfaces: list[int]) -> Iterator[TableEntry]:
    for number in interfaces:
        port, vlan = draw.choice(PORTS), draw.choice(VLANS)
        mac = f"02:00:00:00:00:{number:02x}"
        params: dict[str, Value] = {"l3_if": number, "vrf": draw.choice(VRFS), "role": "ROUTER"}
        if draw.random() < 0.05:
            params["role"] = "ENGINE"
        match: dict[str, Value] = {"ingress_port": port, "vlan_id": vlan}
        yield TableEntry("l3_interface", match, "set_l3_interface", params)
        if draw.random() < 0.98:
            yield TableEntry("router_mac", {"l3_if": number, "dst_mac": mac}, "admit_unicast")
        if draw.random() < 0.98:
            yield _egress(number, port, vlan, mac, draw.choice(MTUS))


def _egress(number: int, port: int, vlan: int, mac: str, mtu: int) -> TableEntry:
    params: dict[str, Value] = {"port": port, "vlan_id": vlan, "src_mac": mac, "mtu": mtu}
    return TableEntry("egress_interface", {"l3_if": number}, "set_egress", params)


def _nexthop(draw: Random, number: int, interfaces: list[int]) -> TableEntry:
    l3_if = draw.choice(interfaces) if draw.random() < 0.97 else 99
    match = {"nexthop_id": number}
    kind = draw.random()
    if kind < 0.75:
        mac = f"02:bb:00:00:00:{number:02x}"
        return TableEntry("nexthop", match, "set_neighbor", {"l3_if": l3_if, "dst_mac": mac})
    if kind < 0.9:
        return TableEntry("nexthop", match, "resolve_neighbor", {"l3_if": l3_if})
    return TableEntry("nexthop", match, "discard_nexthop")


def _members(draw: Random, group: SelectorGroup) -> Iterator[TableEntry]:
    """Yields the next hops of one group and their interfaces.

    All next hops are resolved or none, and all interfaces have the same MTU.
    """
    mtu, resolved = draw.choice(MTUS), draw.random() < 0.85
    for nexthop in group.members:
        port, vlan, l3_if = draw.choice(PORTS), draw.choice(VLANS), nexthop
        yield _egress(l3_if, port, vlan, f"02:00:00:01:{nexthop >> 8:02x}:{nexthop & 255:02x}", mtu)
        match = {"nexthop_id": nexthop}
        if resolved:
            mac = f"02:bc:00:00:{nexthop >> 8:02x}:{nexthop & 255:02x}"
            yield TableEntry("nexthop", match, "set_neighbor", {"l3_if": l3_if, "dst_mac": mac})
        else:
            yield TableEntry("nexthop", match, "resolve_neighbor", {"l3_if": l3_if})


def _locals(draw: Random) -> Iterator[TableEntry]:
    for vrf in sorted(set(VRFS)):
        prefixes = ["224.0.0.0/24", "255.255.255.255/32", "fe80::/10", "ff02::/16"]
        prefixes += [f"{place[:-1]}1/32" for place in draw.sample(PLACES4, 2)]
        prefixes += [f"{place}1/128" for place in draw.sample(PLACES6, 2)]
        for prefix in prefixes:
            if draw.random() < 0.9:
                table = "local_ipv6" if ":" in prefix else "local_ipv4"
                yield TableEntry(table, {"vrf": vrf, "dst_addr": prefix}, "deliver_local")


def _routes(draw: Random, nexthops: list[int], groups: list[int]) -> Iterator[TableEntry]:
    for _ in range(draw.randint(5, 60)):
        ipv6 = draw.random() < 0.5
        place = draw.choice(PLACES6 if ipv6 else PLACES4)
        width = 128 if ipv6 else 32
        length = draw.choice((0, width, draw.randint(1, width), draw.randint(1, width)))
        base = int(ipaddress.ip_address(place)) | draw.getrandbits(width) >> draw.randint(8, width)
        network = ipaddress.IPv6Network if ipv6 else ipaddress.IPv4Network
        prefix = network((base >> (width - length) << (width - length), length))
        action, params = _route_action(draw, nexthops, groups)
        match: dict[str, Value] = {"vrf": draw.choice(VRFS), "dst_addr": str(prefix)}
        yield TableEntry("ipv6_fib" if ipv6 else "ipv4_fib", match, action, params)


def _route_action(
    draw: Random, nexthops: list[int], groups: list[int]
) -> tuple[str, dict[str, Value]]:
    kind = draw.random()
    if kind < 0.03:
        return "set_nexthop", {"nexthop_id": draw.choice((0, 500))}
    if kind < 0.65:
        return "set_nexthop", {"nexthop_id": draw.choice(nexthops)}
    if kind < 0.85:
        return "set_nexthop_group", {"group_id": draw.choice([*groups, 77])}
    if kind < 0.92:
        return "blackhole", {}
    return "punt_route", {"reason": draw.choice(("UNREACHABLE", "PROHIBITED"))}
