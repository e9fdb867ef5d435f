# SPDX-License-Identifier: Apache-2.0
"""Generates random IPsec policy for given tables: bindings, lists, flows, rules, bundles, SAs and
engines.

Flows belong to a few pairs of hosts. For each pair, several lists have flows, some in the list's
current epoch and some in others. So packets of these pairs (policy_packets.py) meet valid flows,
stale flows and misses. Most lists name a rule set (rule_sets.py). The interfaces of all members of
a group have the same bindings, because the target chooses among the members (canonical.py).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from sluice_ptf import raw
from sluice_ptf.differential import rule_sets
from sluice_ptf.differential.case import GROUP_IDS, RULE_IDS, TableEntry, TableState
from sluice_ptf.differential.rule_sets import RULE_SETS, RULE_TABLES
from sluice_ptf.schema import Value

INBOUND_LISTS, OUTBOUND_LISTS = (1, 2, 3), (4, 5, 6)
EPOCHS = (1, 2, 0x10002)
GENERATIONS = (1, 2, 0x10001)
BUNDLES = (1, 2, 0x4001)
SPIS = (0x100, 0x101, 0x80C0FFEE)
ENGINES = (1, 2)
VERDICTS = (*("BYPASS",) * 6, "DISCARD", "DISCARD", "PROTECT", "PROTECT", "PROTECT", "NONE")
PROTOCOLS = (6, 17, 17, 17, 132, 135, 1, 58, 50, 89)
AUDITED = ("FORGED_SHIM", "UNKNOWN_SPI", "INBOUND_CLEARTEXT", "INBOUND_WRONG_SA", "SHIM_INVALID")
FLOW_TABLES = tuple(f"{way}.ipv{n}_flow" for way in ("inbound", "outbound") for n in (4, 6))
LIST_TABLES = ("inbound.list_state", "outbound.list_state")


def unguarded(state: TableState) -> TableState:
    """Returns the state without policy: every interface has the role ROUTER and is bound to no
    SPD.
    """
    routers = [
        replace(entry, params={**entry.params, "role": "ROUTER"})
        if entry.table == "l3_interface"
        else entry
        for entry in state.entries
    ]
    bindings = [
        TableEntry(f"{way}_binding", {"l3_if": l3_if}, f"no_{way}_policy")
        for l3_if in _interfaces(state)
        for way in ("inbound", "outbound")
    ]
    return TableState([*routers, *bindings], state.groups)


def guarded(draw: Random, state: TableState) -> TableState:
    """Returns the state with random policy added. Some of the lists have no epoch, so they drop all
    packets.
    """
    lists = list(_lists(draw))
    epochs = {int(str(one.match["list_id"])): int(str(one.params["epoch"])) for one in lists}
    flows = list(_flows(draw, state, epochs))
    entries = [
        *_bindings(draw, state),
        *lists,
        *_bundles(draw),
        *_engines(draw, state),
        *flows,
        *rule_sets.rules(draw, flows, BUNDLES, VERDICTS),
        *_sources(draw, state),
        *_audited(draw),
    ]
    taken = {entry.key for entry in state.entries}
    fresh = {entry.key: entry for entry in entries if entry.key not in taken}
    return TableState([*state.entries, *fresh.values()], state.groups)


def changed(draw: Random, state: TableState) -> TableState:
    """Returns the state as after commits: some lists have another epoch, generation and rule set.
    Flows and rules are deleted, overwritten or kept.
    """
    flows = [entry for entry in state.entries if entry.table in FLOW_TABLES]
    rules = [entry for entry in state.entries if entry.table in RULE_TABLES]
    entries = rule_sets.changed(draw, rules)
    for entry in state.entries:
        if entry.table in RULE_TABLES:
            continue
        if entry.table in LIST_TABLES and draw.random() < 0.5:
            entries.append(replace(entry, params=_list_params(draw)))
        elif entry.table in FLOW_TABLES and draw.random() < 0.3:
            if draw.random() < 0.7:
                epoch = {"epoch": draw.choice(EPOCHS)}
                other = draw.choice([one for one in flows if one.table == entry.table])
                entries.append(replace(entry, params={**other.params, **epoch}))
        else:
            entries.append(entry)
    return TableState(entries, state.groups)


def _interfaces(state: TableState) -> list[int]:
    numbers = {int(str(entry.params["l3_if"])) for entry in state.of("l3_interface")}
    return sorted(numbers | {int(str(one.match["l3_if"])) for one in state.of("egress_interface")})


def _bindings(draw: Random, state: TableState) -> Iterator[TableEntry]:
    group_of = {nexthop: group.id for group in state.groups for nexthop in group.members}
    fates: dict[tuple[int, str], tuple[str, dict[str, Value]] | None] = {}
    share = draw.choice((0.4, 0.7, 0.95))
    for l3_if in _interfaces(state):
        for way, lists in (("inbound", INBOUND_LISTS), ("outbound", OUTBOUND_LISTS)):
            one: tuple[str, dict[str, Value]] | None = (f"no_{way}_policy", {})
            if draw.random() < share:
                one = (f"check_{way}", {"list_id": draw.choice(lists)})
            if draw.random() < 0.02:
                one = None
            if l3_if >= GROUP_IDS:
                one = fates.setdefault((group_of[l3_if], way), one)
            if one is not None:
                yield TableEntry(f"{way}_binding", {"l3_if": l3_if}, *one)


def _list_params(draw: Random) -> dict[str, Value]:
    epoch = 0 if draw.random() < 0.05 else draw.choice(EPOCHS)
    rule_set = draw.choice((0, *RULE_SETS, *RULE_SETS))
    return {"epoch": epoch, "generation": draw.choice(GENERATIONS), "rule_set": rule_set}


def _lists(draw: Random) -> Iterator[TableEntry]:
    for way, lists in (("inbound", INBOUND_LISTS), ("outbound", OUTBOUND_LISTS)):
        for number in lists:
            if draw.random() < 0.93:
                match = {"list_id": number}
                yield TableEntry(f"{way}.list_state", match, f"{way}.set_list", _list_params(draw))


def _bundles(draw: Random) -> Iterator[TableEntry]:
    for bundle in BUNDLES:
        if draw.random() < 0.85:
            params: dict[str, Value] = {"list_id": draw.choice(INBOUND_LISTS)}
            for vrf in _vrfs(draw):
                key: dict[str, Value] = {"vrf": vrf, "bundle": bundle}
                yield TableEntry("bundle_binding", key, "check_inbound", params)
        if draw.random() < 0.85:
            params = {
                "engine": draw.choice(ENGINES),
                "sa": draw.getrandbits(32),
                "path_mtu": draw.choice((1500, 1500, 1400, 600, 0, 65535)),
                "overhead": draw.choice((0, 40, 73, 73, 1400, 65535)),
            }
            for vrf in _vrfs(draw):
                key = {"vrf": vrf, "bundle": bundle}
                yield TableEntry("outbound_sa", key, "encrypt", params)
        for address in ("10.0.0.7", "172.16.0.7", "2001:db8::7", "2001:db8:1::7"):
            family = "ipv6" if ":" in address else "ipv4"
            if draw.random() < 0.7:
                key = {"vrf": 0, "bundle": bundle, "src_addr": address}
                yield TableEntry(f"esp_source_{family}", key, "from_bundle")
    for vrf in _vrfs(draw):
        params = {"engine": draw.choice(ENGINES)}
        yield TableEntry("reassembly_engine", {"vrf": vrf}, "reassemble", params)
    for spi in SPIS:
        for vrf in (0, 1):
            if draw.random() < 0.7:
                params = {
                    "bundle": draw.choice(BUNDLES),
                    "engine": draw.choice(ENGINES),
                    "sa": draw.getrandbits(32),
                }
                yield TableEntry("inbound_sa", {"vrf": vrf, "spi": spi}, "decrypt", params)


def _vrfs(draw: Random) -> list[int]:
    """Returns the VRFs that get entries: mostly VRF 0, sometimes also VRF 1."""
    return [vrf for vrf, share in ((0, 0.9), (1, 0.4)) if draw.random() < share]


def _sources(draw: Random, state: TableState) -> Iterator[TableEntry]:
    """Yields entries of the own sources, which received packets must not have. They are this
    router's addresses, and sometimes that of another host.
    """
    for family in ("ipv4", "ipv6"):
        ours = [
            str(one.match["dst_addr"]).partition("/")[0]
            for one in state.of(f"local_{family}")
            if str(one.match["dst_addr"]).endswith(("/32", "/128"))
        ]
        if draw.random() < 0.05:
            ours.append("172.16.0.7" if family == "ipv4" else "2001:db8:1::7")
        for address in ours:
            key: dict[str, Value] = {"vrf": draw.choice((0, 0, 0, 1)), "src_addr": address}
            yield TableEntry(f"own_source_{family}", key, "own_source")


def _audited(draw: Random) -> Iterator[TableEntry]:
    """Yields entries that copy drops of some reasons to the CPU, for the audit log."""
    for reason in AUDITED:
        if draw.random() < 0.3:
            params: dict[str, Value] = {"reason": draw.choice(("AUDIT", "ACQUIRE"))}
            yield TableEntry("copied_drop", {"drop_reason": reason}, "copy_to_cpu", params)


def _engines(draw: Random, state: TableState) -> Iterator[TableEntry]:
    """Yields the engines, all at one port. If possible, no other interface uses that port."""
    used = {entry.match["ingress_port"] for entry in state.of("l3_interface")}
    port = draw.choice(sorted({1, 2, 3, 4} - used) or [4])
    for engine in ENGINES:
        if draw.random() < 0.85:
            yield TableEntry("engine", {"engine": engine}, "set_engine", {"port": port})
    params: dict[str, Value] = {"l3_if": 90, "vrf": 0, "role": "ENGINE"}
    yield TableEntry(
        "l3_interface", {"ingress_port": port, "vlan_id": 0}, "set_l3_interface", params
    )


def _flows(draw: Random, state: TableState, epochs: Mapping[int, int]) -> Iterator[TableEntry]:
    for _ in range(draw.randint(4, 9)):
        talker = _flow_sender(draw, state)
        family = "ipv6" if ":" in str(talker["dst_addr"]) else "ipv4"
        for way, lists in (("inbound", INBOUND_LISTS), ("outbound", OUTBOUND_LISTS)):
            for number in lists:
                for is_local, bundle in _carriers(draw, way):
                    current = epochs.get(number, 1)
                    params: dict[str, Value] = {
                        "epoch": draw.choice((current, current, current, *EPOCHS, 0)),
                        "rule": draw.choice(RULE_IDS),
                        "verdict": "PROTECT" if bundle else draw.choice(VERDICTS),
                        "sa_bundle": draw.choice((bundle, bundle, bundle, *BUNDLES, 0)),
                    }
                    if draw.random() < 0.1:
                        params["verdict"] = draw.choice(VERDICTS)
                    key = {**talker, "list_id": number, "is_local": is_local, "bundle": bundle}
                    action = f"{way}.set_{family}_flow"
                    yield TableEntry(f"{way}.{family}_flow", key, action, params)


def _carriers(draw: Random, way: str) -> list[tuple[int, int]]:
    """Returns the pairs (is_local, bundle) for which a list gets flows of one pair of hosts."""
    if way == "outbound":
        return [one for one, share in (((0, 0), 0.8), ((1, 0), 0.3)) if draw.random() < share]
    every = [(local, bundle) for local in (0, 1) for bundle in (0, *BUNDLES)]
    return [one for one in every if draw.random() < (0.7 if one[1] == 0 else 0.3)]


def _flow_sender(draw: Random, state: TableState) -> dict[str, Value]:
    """Returns the main fields of a flow key: two hosts, protocol, ports and fragment class.

    A route or a local prefix covers `dst_addr`.
    """
    ipv6 = draw.random() < 0.5
    family = "ipv6" if ipv6 else "ipv4"
    ways = [one for one in state.of(f"{family}_fib") if one.action.startswith("set_nexthop")]
    ours = [one for one in state.of(f"local_{family}") if "/10" not in str(one.match["dst_addr"])]
    there = ours if draw.random() < 0.2 else ways
    prefixes = [str(one.match["dst_addr"]) for one in there if one.match["vrf"] == 0]
    sources = ("2001:db8::7", "2001:db8:1::7") if ipv6 else ("10.0.0.7", "172.16.0.7")
    protocol = draw.choice(PROTOCOLS)
    ports = [draw.choice((179, 500, 4500, 7000)) if protocol in (6, 17, 132) else 0 for _ in "12"]
    if protocol in (1, 58):
        ports[1] = draw.choice((8, 128, 135, 3)) << 8 | draw.choice((0, 1))
    if protocol == raw.MOBILITY:
        ports[1] = draw.choice((0, 5, 6, 255))
    fragment = draw.choice(("WHOLE",) * 7 + ("FIRST", "LATER", "LATER"))
    later = fragment == "LATER"
    return {
        "src_addr": draw.choice(sources),
        "dst_addr": _host(draw, prefixes or ["2001:db8::/32" if ipv6 else "10.0.0.0/8"]),
        "protocol": protocol,
        "src_port": 0 if later else ports[0],
        "dst_port": 0 if later else ports[1],
        "fragment": fragment,
    }


def _host(draw: Random, prefixes: list[str]) -> str:
    network: Any = ipaddress.ip_network(draw.choice(prefixes))
    if network.prefixlen < 4:
        network = ipaddress.ip_network("2001:db8::/32" if network.version == 6 else "10.0.0.0/8")
    host = draw.getrandbits(network.max_prefixlen) & int(network.hostmask)
    return str(network.network_address + host)


def lists_of(state: TableState) -> Mapping[int, int]:
    """Returns the generation of each list that has an entry, by list id."""
    return {
        int(str(entry.match["list_id"])): int(str(entry.params["generation"]))
        for table in LIST_TABLES
        for entry in state.of(table)
    }
