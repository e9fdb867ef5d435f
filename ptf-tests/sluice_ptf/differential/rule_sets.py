# SPDX-License-Identifier: Apache-2.0
"""Generates random entries of the rule tables for given flows.

The entries of a rule set overlap. Each entry is made from the key of a flow. For each field, it
matches the flow's value exactly, a prefix or a range around this value, a value just beside it, or
any value. Some entries leave their packets to the CPU. In some sets, the entry of the lowest
priority matches all packets.

Invariant: no two entries of one rule set have the same priority. Otherwise the target would choose
between them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from sluice_ptf.differential.case import RULE_IDS, TableEntry
from sluice_ptf.schema import Match, Value

RULE_SETS = (1, 2, 0x101, 0x8001)  # sets that lists name
UNUSED_SETS = (0, 3)  # sets with entries that no list names, or whose number means "none"
RULE_TABLES = tuple(f"{way}.ipv{n}_rule" for way in ("inbound", "outbound") for n in (4, 6))
PRIORITIES = (1, 2, 255, 256, 65536, 1 << 24)
_LAST_PORT = 0xFFFF
_ARBITRARY_MASKS = (0xFF0000FF, 0x00FFFF00, 0x1, 0xFFFFFFFE)


def rules(
    draw: Random, flows: Sequence[TableEntry], bundles: Sequence[int], verdicts: Sequence[str]
) -> Iterator[TableEntry]:
    """Yields entries for the rule tables of both directions and families."""
    for table in RULE_TABLES:
        way, family = table.removesuffix("_rule").split(".")
        near = [one for one in flows if one.table == f"{way}.{family}_flow"]
        for rule_set in (*RULE_SETS, *UNUSED_SETS):
            if draw.random() < 0.1:
                continue
            priorities = _priorities(draw, draw.choice((1, 4, 8, 20)))
            last = min(priorities) if draw.random() < 0.5 else None
            for priority in priorities:
                match: dict[str, Match] = {"rule_set": rule_set}
                if near and priority != last:
                    match |= _match(draw, draw.choice(near))
                answer = _answer(draw, way, bundles, verdicts)
                yield TableEntry(table, match, *answer, priority)


def changed(draw: Random, entries: Sequence[TableEntry]) -> list[TableEntry]:
    """Returns the entries of the rule tables as after a commit: some are deleted, and some have the
    action of another entry.
    """
    kept = []
    for entry in entries:
        if draw.random() < 0.2:
            continue
        if draw.random() < 0.2:
            other = draw.choice([one for one in entries if one.table == entry.table])
            entry = replace(entry, action=other.action, params=other.params)
        kept.append(entry)
    return kept


def _priorities(draw: Random, count: int) -> list[int]:
    drawn = {
        draw.choice((draw.choice(PRIORITIES), draw.randint(1, 40), draw.randint(1, 1 << 30)))
        for _ in range(count)
    }
    return draw.sample(sorted(drawn), len(drawn))


def _answer(
    draw: Random, way: str, bundles: Sequence[int], verdicts: Sequence[str]
) -> tuple[str, dict[str, Value]]:
    if draw.random() < 0.15:
        return f"{way}.leave_to_cpu", {}
    params: dict[str, Value] = {
        "rule": draw.choice(RULE_IDS),
        "verdict": draw.choice(verdicts),
        "sa_bundle": draw.choice((*bundles, *bundles, 0)),
    }
    return f"{way}.set_rule", params


def _match(draw: Random, flow: TableEntry) -> dict[str, Match]:
    """Returns match fields around the key of a flow."""
    key, match = flow.match, dict[str, Match]()
    share = draw.choice((0.1, 0.4, 0.4, 0.9))  # of the fields that the entry matches on
    for name in ("src_addr", "dst_addr"):
        if draw.random() < share:
            match[name] = _addresses(draw, str(key[name]))
    for name in ("src_port", "dst_port"):
        if draw.random() < share:
            match[name] = _ports(draw, int(str(key[name])))
    if draw.random() < share:
        protocol = int(str(key["protocol"]))
        match["protocol"] = protocol ^ draw.choice((0, 0, 0, 0, 0, 1, 0x80))
    if draw.random() < share / 2:
        match["is_local"] = int(str(key["is_local"])) ^ (draw.random() < 0.2)
    return match


def _addresses(draw: Random, address: str) -> Match:
    """Returns a prefix that covers the address or lies beside it, or another mask."""
    host: Any = ipaddress.ip_address(address)
    width = host.max_prefixlen
    length = draw.choice((width, width, width - 1, draw.randint(1, width), draw.randint(1, width)))
    if draw.random() < 0.1:
        mask = draw.choice(_ARBITRARY_MASKS) << draw.choice((0, width - 32))
        return str(host.__class__(int(host) & mask)), str(host.__class__(mask))
    if draw.random() < 0.15:
        host = host.__class__(int(host) ^ 1 << width - length)
    return str(ipaddress.ip_network(f"{host}/{length}", strict=False))


def _ports(draw: Random, port: int) -> Match:
    """Returns a range with the port at or near one of its ends."""
    kind = draw.random()
    if kind < 0.3:
        return port
    near = min(max(port + draw.choice((-1, 0, 0, 0, 1)), 0), _LAST_PORT)
    other = draw.choice((0, _LAST_PORT, draw.randint(0, _LAST_PORT)))
    low, high = min(near, other), max(near, other)
    # P4Runtime refuses a range of all values: the field must be left out (9.1.1).
    return (low, high) if (low, high) != (0, _LAST_PORT) else near
