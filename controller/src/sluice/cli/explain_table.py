# SPDX-License-Identifier: Apache-2.0
"""Prints the answer of `sluice explain` for people. Depends on rich."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.text import Text

from sluice.cli.flow_tables import packet_end, protocol_name
from sluice.cli.route_table import nexthop

_WIDTH = 11  # width of the first column
LINE = 80
"""Length of a packet's description, in characters, above which it is printed in two lines."""


def explanation(console: Console, data: dict[str, Any]) -> None:
    """Prints one section for each processing stage of the packet, then its outcome.

    Then prints the result of the switch's dry runs, and each difference from the model's result.
    """
    for title, lines in _sections(data):
        for number, line in enumerate(lines):
            head = title if number == 0 else ""
            console.print(Text(f"{head:<{_WIDTH}}{line}"), soft_wrap=True)
    if data["switch"] is None:
        console.print("the switch was not asked: it is not connected, or has no dry runs")
        return
    for one in data["disagreements"]:
        console.print(Text(f"DISAGREEMENT: {one}", style="red"), soft_wrap=True)
    if not data["disagreements"]:
        console.print("model and switch agree")


def _sections(data: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    yield "packet", _packet(data["packet"])
    yield "interface", [_interface(data["interface"])]
    if data["inbound"] is not None:
        yield "inbound", _list(data["inbound"])
    if data["route"] is not None:
        yield "route", _route(data["route"])
    for outbound in data["outbound"]:
        yield "outbound", _list(outbound)
    yield "outcome", [_outcome(data["outcome"])]
    if data["switch"] is not None:
        yield "switch", _switch(data["switch"])


def _packet(packet: dict[str, Any]) -> list[str]:
    """Describes the packet in one line, or in two lines if the addresses are long."""
    ends = [packet_end(packet[end], packet[f"{end}_port"]) for end in ("source", "destination")]
    protocol = "?" if packet["protocol"] is None else protocol_name(packet["protocol"])
    first, second = f"{protocol} {ends[0]}", f"-> {ends[1]}"
    kind = packet["icmp"] or packet["mobility_type"]
    words = [] if kind is None else [f"type {kind}"]
    words += [f"{packet['fragment']} fragment"] if packet["fragment"] != "whole" else []
    second = ", ".join([second, *words, f"{packet['bytes']} bytes"])
    if len(first) + len(second) > LINE:
        return [first, second]
    return [f"{first} {second}"]


def _interface(interface: dict[str, Any] | None) -> str:
    if interface is None:
        return "none: this router sends the packet"
    vlan = "" if interface["vlan"] is None else f", VLAN {interface['vlan']}"
    return (
        f"{interface['name']} (port {interface['port']}{vlan}, VRF {interface['vrf']},"
        f" SPD {interface['spd'] or 'none'})"
    )


def _list(account: dict[str, Any]) -> list[str]:
    lines = [
        f"SPD {account['spd']}, epoch {account['epoch']}, generation {account['generation']};"
        f" flow cache: {account['cache']}"
    ]
    for number, rule in enumerate(account["matches"]):
        position = "-" if rule["position"] is None else rule["position"]
        decides = " <- decides" if number == 0 and account["note"] is None else ""
        lines.append(f"  {position} {rule['name']}: {rule['text']}{decides}")
    more = account["matching"] - len(account["matches"])
    lines += [f"  and {more:,} more rules that match"] if more else []
    if account["note"] is not None:
        lines.append(f"  {account['note']}")
    if account["verdict"] is not None:
        verdict = account["verdict"]
        bundle = f"({verdict['bundle']})" if verdict["bundle"] else ""
        lines.append(f"  verdict: {verdict['action']}{bundle} by {verdict['rule']}")
    return lines


def _route(route: dict[str, Any]) -> list[str]:
    found = route["route"]
    if found is None:
        return ["no route"]
    legs = [
        f"  {nexthop(leg)}, share {leg['share']:.0%}" + (" <- taken" if leg["taken"] else "")
        for leg in route["legs"]
    ]
    return [f"{found['prefix']} ({found['protocol']})", *(legs or [f"  {found['action']}"])]


def _outcome(outcome: dict[str, Any]) -> str:
    reason = outcome["reason"]
    return str(outcome["result"]) + (f": {reason}" if reason else "")


def _switch(switch: dict[str, Any]) -> list[str]:
    lines = []
    for direction, one in switch["lists"].items():
        cached = "the cache has the flow" if one["hit"] else "the cache lacks the flow"
        if one["rule_hit"]:
            cached += ", the rule tables have the rule"
        asks = ", so the switch asks the controller" if one["asked"] else ""
        lines.append(f"{direction} list: {cached}{asks}")
    if switch["route"] is not None:
        group = "" if switch["group"] is None else f", group {switch['group']}"
        lines.append(f"route {switch['route']}{group}, next hop {switch['nexthop']}")
    return [*lines, _outcome(switch["outcome"])]
