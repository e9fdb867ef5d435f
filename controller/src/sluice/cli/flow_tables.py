# SPDX-License-Identifier: Apache-2.0
"""Prints the API's data about flows as tables for people. Depends on rich."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import Console

from sluice.cli.table import Row, number_text, print_table
from sluice.policy.model import PROTOCOLS

PROTOCOL_NAMES = {number: name for name, number in PROTOCOLS.items()}


_LISTS_NAMED = 4
"""Number of lists that one note names. The other lists are counted."""


def _flows(console: Console, data: dict[str, Any]) -> None:
    flows: list[dict[str, Any]] = data["flows"]
    rows: list[Row] = [
        [
            f"{item['spd']} {item['direction']}",
            packet_end(item["source"], item["source_port"]),
            packet_end(item["destination"], item["destination_port"]),
            flow_protocol(item),
            item["action"] + (f"({item['bundle']})" if item["bundle"] else ""),
            "(stale)" if item["stale"] else str(item["rule"]),
            *_volumes(item),
            flow_notes(item),
        ]
        for item in flows
    ]
    columns = ["list", "source", "destination", "protocol", "action", "rule"]
    print_table(console, [*columns, *_volume_columns(flows), "notes"], rows, "no flows")
    _uncached(console, data["uncached"])


def _sums(console: Console, data: dict[str, Any]) -> None:
    sums: list[dict[str, Any]] = data["flows"]
    rows: list[Row] = [
        [*_summed_by(item), number_text(item["flows"]), *_volumes(item)] for item in sums
    ]
    first = sums[0] if sums else {}
    names = {"spd": "SPD", "direction": "list"}
    columns = [names.get(key, key) for key in first if key in _SUMMED_BY]
    print_table(console, [*columns, ">flows", *_volume_columns(sums)], rows, "no flows")
    _uncached(console, data["uncached"])


def _uncached(console: Console, lists: list[dict[str, Any]]) -> None:
    """Prints one line for each reason why flows of some lists are not in the cache."""
    by_reason: dict[str, list[str]] = {}
    for item in lists:
        by_reason.setdefault(item["why"], []).append(f"{item['spd']} {item['direction']}")
    for why, names in by_reason.items():
        named = names[:_LISTS_NAMED]
        if len(names) > len(named):
            named.append(f"{len(names) - len(named):,} more lists")
        console.print(f"{', '.join(named)}: {why}")


_SUMMED_BY = ("spd", "direction", "rule", "source", "destination", "protocol")


def _summed_by(item: dict[str, Any]) -> list[str]:
    """Returns the values by which a sum's flows were grouped."""
    if "protocol" in item:
        return [protocol_name(item["protocol"])]
    return ["(stale)" if item[key] is None else item[key] for key in _SUMMED_BY if key in item]


def _volume_columns(data: list[dict[str, Any]]) -> list[str]:
    if data and "packets_per_second" in data[0]:
        return [">packets/s", ">bytes/s"]
    return [">packets", ">bytes"]


def _volumes(item: dict[str, Any]) -> list[str]:
    """Returns packets and bytes a second if these were measured, else packets and bytes."""
    if "packets_per_second" in item:
        return [short_number(item[f"{what}_per_second"]) for what in ("packets", "bytes")]
    count = item["bytes"]
    return [number_text(item["packets"]), "-" if count is None else short_number(count)]


def short_number(value: float) -> str:
    """Returns a number as text. Numbers from 10,000 on have three digits and an SI prefix: `1.23
    M`."""
    if value < 10_000:
        return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
    prefixes = iter("kMGT")
    prefix = next(prefixes)
    value /= 1000
    while value >= 999.5 and (larger := next(prefixes, None)) is not None:
        value, prefix = value / 1000, larger
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:,.{digits}f} {prefix}"


def protocol_name(number: int) -> str:
    """Returns the name of an IP protocol, or its number."""
    return PROTOCOL_NAMES.get(number, str(number))


def flow_protocol(flow: dict[str, Any]) -> str:
    """Returns a flow's protocol with its ICMP or mobility type, for example `icmp 8/0`."""
    name = protocol_name(flow["protocol"])
    if flow["mobility_type"] is not None:
        return f"{name} {flow['mobility_type']}"
    return f"{name} {flow['icmp']}" if flow["icmp"] else name


def packet_end(address: str, port: int | None) -> str:
    """Returns an address with its port, if it has one."""
    if port is None:
        return address
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def flow_notes(item: dict[str, Any]) -> str:
    """Returns further properties of a flow as text: its fragment class, whether it is the router's
    own, and the bundle that carried it."""
    notes = ["later fragments"] if item["later_fragments"] else []
    inbound = item["direction"] == "inbound"
    notes += ["for this router" if inbound else "from this router"] if item["local"] else []
    notes += [f"by {item['carried_by']}"] if item["carried_by"] else []
    return ", ".join(notes)


VIEWS: dict[str, Callable[[Console, Any], None]] = {"flows": _flows, "flows --by": _sums}
