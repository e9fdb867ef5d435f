# SPDX-License-Identifier: Apache-2.0
"""Prints the API's data as tables for people. Depends on rich; colours only on a terminal.

All tables fit 100 columns. Text is folded where needed, and never truncated.

Invariant: data is printed as it is. Markup, emoji codes and highlighting have no effect in it, and
characters that are not printable are escaped. Only the code sets styles, with `Text`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sluice.cli import flow_tables, policy_tables, sa_tables
from sluice.cli.explain_table import explanation
from sluice.cli.printable import printable_data
from sluice.cli.route_table import nexthop
from sluice.cli.table import Row, good_or_bad, number_text, print_table

PRIMARY, STANDBY = "primary", "standby"
WIDE = 240
"""Number of columns if the output is not a terminal, large enough that no line is broken."""

_WITH_LINES = {"status", "metrics"}
"""Views with texts of several lines: errors that list problems, and metrics."""


def show(what: str, data: Any) -> None:
    """Prints one view. `data` is the daemon's answer."""
    console = Console(
        width=None if sys.stdout.isatty() else WIDE,
        soft_wrap=False,
        markup=False,
        emoji=False,
        highlight=False,
    )
    _VIEWS[what](console, printable_data(data, lines=what in _WITH_LINES))


def _count(count: dict[str, int] | None, unit: str) -> str:
    return "-" if count is None else number_text(count[unit])


# --- views ---------------------------------------------------------------------------------------


def _status(console: Console, data: dict[str, Any]) -> None:
    switch, fpm, reconciler = data["switch"], data["fpm"], data["reconciler"]
    lines: list[tuple[str, str | Text]] = [
        ("router", f"{data['router']}, up {_duration(data['uptime'])}"),
        *(("problem", Text(text, style="red")) for text in data["problems"]),
        ("synced", good_or_bad(data["synced"], "yes", "no")),
        ("switch", f"{switch['target']} at {switch['address']} ({switch['transport']})"),
        ("role", _role(data["role"], switch["arbitration"])),
        ("fpm", f"{fpm['peer'] or 'no routing daemon connected'}"),
        (
            "routes",
            f"{fpm['routes']:,}" + _stale(fpm["stale_routes"]) + _kept_routes(fpm["kept_routes"]),
        ),
        ("pending", f"{reconciler['pending']:,} updates" + _orphans(reconciler["orphans"])),
    ]
    lines += [(f"VRF {vrf['name']}", _host_stack(vrf)) for vrf in data["vrfs"][1:]]
    lines.append(("progress", _progress(data["progress"], data["ready"])))
    if data["loop"]:
        lines.append(("longest stall", _stalls(data["loop"])))
    lines += [(f"auditor: {part}", _auditor(report)) for part, report in data["auditor"].items()]
    lines += [
        ("repaired", Text(repair, style="red"))
        for report in data["auditor"].values()
        for repair in report["last_repairs"][-3:]
    ]
    if data.get("counters_cleared") is not None:
        ago = _duration(data["counters_cleared"])
        lines.append(("counters", f"cleared {ago} ago; metrics are not reset"))
    if switch["last_error"]:
        lines.append(("last error", Text(switch["last_error"], style="red")))
    if fpm["refused"]:
        lines.append(("fpm", Text(f"{fpm['refused']:,} connections refused", style="red")))
    if reconciler["failed"]:
        lines.append(("refused", Text(f"{reconciler['failed']:,} updates", style="red")))
    lines += [("", f"{item['what']}: {item['error']}") for item in reconciler["failures"]]
    lines += [
        ("remark", text if count == 1 else f"{text} ({count:,})")
        for text, count in data["remarks"].items()
    ]
    unrouted = fpm["not_installed"].items()
    lines += [("not installed", f"{n:,} routes, {reason}") for reason, n in unrouted]
    waiting = fpm["waiting_for_objects"].items()
    lines += [("waiting", f"{n:,} routes for next-hop object {number}") for number, n in waiting]
    grid = Table.grid(padding=(0, 2))
    for name, value in lines:
        grid.add_row(name, value)
    console.print(grid)


def _role(role: str, arbitration: str) -> Text:
    """Returns this controller's role as coloured text.

    If this controller is not primary, adds the state of the election: who is primary, or why there
    is no primary.
    """
    if role == PRIMARY:
        return Text("primary, connected", style="green")
    return Text(f"{role}: {arbitration}", style="yellow" if role == STANDBY else "red")


def _stale(routes: int) -> str:
    return f", {routes:,} of them not confirmed since FPM reconnected" if routes else ""


def _kept_routes(routes: int) -> str:
    return (
        f"; {routes:,} more kept: the kernel has them, FPM has not sent them yet" if routes else ""
    )


def _orphans(entries: int) -> str:
    return f"; {entries:,} unused entries are still to be deleted" if entries else ""


def _duration(seconds: float) -> str:
    """Returns a duration as `2 d 3 h`, `3 h 4 min`, `4 min 5 s` or `5 s`."""
    left, parts = int(seconds), []
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count or unit == "s":
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def _host_stack(vrf: dict[str, Any]) -> str | Text:
    """Describes how the host's network stack isolates a VRF other than the default VRF."""
    if vrf["device"] is not None:
        return f"table {vrf['table']}, VRF device {vrf['device']} in the kernel"
    if vrf["namespace"] is not None:
        peer = vrf["fpm"] or "no routing daemon"
        return f"network namespace {vrf['namespace']}, FPM peer {peer}"
    text = f"table {vrf['table']}, shares the host stack: limited, see docs/how-to/vrfs.md"
    return Text(text, style="yellow")


def _progress(progress: dict[str, Any], ready: bool) -> str:
    """Returns the controller's phase, the number of routes read back, and the route rate."""
    text = str(progress["phase"])
    if progress["routes_read_back"] is not None:
        text += f": {progress['routes_read_back']:,} routes so far"
    if progress["routes_per_second"]:
        text += f"; {progress['routes_per_second']:,} routes a second come in"
    return text if ready else f"{text} (not ready yet)"


def _stalls(loop: dict[str, dict[str, float]]) -> str:
    """Returns the event loop's longest stalls, and the part of the controller that caused the
    longest one."""
    whole = loop["loop"]
    text = (
        f"{whole['last_minute'] * 1000:.0f} ms in the last minute,"
        f" {whole['longest_stall'] * 1000:.0f} ms since the start"
    )
    parts = {name: part["longest_stall"] for name, part in loop.items() if name != "loop"}
    if not parts:
        return text
    worst = max(parts, key=parts.__getitem__)
    return f"{text} ({worst}: {parts[worst] * 1000:.0f} ms)"


def _auditor(report: dict[str, Any]) -> str | Text:
    """Summarizes an audit: the last round, and the repairs of differences that it found."""
    repaired = sum(report["repaired"].values())
    if report["seconds_ago"] is None:
        text = "no round complete yet"
    else:
        text = (
            f"{report['entries']:,} entries in {report['seconds']:.1f} s,"
            f" {report['seconds_ago']:.0f} s ago; {repaired:,} repaired since the start"
        )
    if report["problem"]:
        text += f"; the last round stopped: {report['problem']}"
    return Text(text, style="red") if repaired or report["problem"] else text


def _interfaces(console: Console, data: list[dict[str, Any]]) -> None:
    rows: list[Row] = [
        [
            item["name"],
            _port_of(item),
            item["vrf"],
            _interface_state(item),
            str(item["mtu"]),
            _count(item["received"], "packets"),
            _count(item["sent"], "packets"),
            "\n".join(item["addresses"]),
        ]
        for item in data
    ]
    columns = ["=name", "=port", "VRF", "state", ">MTU", ">received", ">sent", "addresses"]
    print_table(console, columns, rows, "no interfaces")


def _interface_state(item: dict[str, Any]) -> str | Text:
    if item["switch_port"] == "absent":
        return Text("no port", style="red")
    if not item["up"]:
        return Text("down", style="red")
    return "up" if item["carrier"] else Text("no carrier", style="yellow")


def _interface(console: Console, data: list[dict[str, Any]]) -> None:
    """Prints all details of interfaces, one line for each."""
    for item in data:
        grid = Table.grid(padding=(0, 2))
        lines: list[tuple[str, str | Text]] = [
            ("interface", item["name"]),
            ("state", _interface_state(item)),
            ("switch port", f"{_port_of(item)}, {item['switch_port'] or 'not known'}"),
            ("port's device", item["device"] or "-"),
            ("carrier", good_or_bad(item["carrier"], "yes", "no")),
            ("VRF", item["vrf"]),
            ("MAC address", item["mac"]),
            *(("of VRRP", mac) for mac in item["virtual_macs"]),
            ("MTU", str(item["mtu"])),
            *(("address", address) for address in item["addresses"]),
            *((name, _traffic(item[name])) for name in ("received", "sent")),
        ]
        for name, value in lines:
            grid.add_row(name, value)
        console.print(grid)


def _traffic(count: dict[str, int] | None) -> str:
    if count is None:
        return "not known"
    return f"{number_text(count['packets'])} packets, {number_text(count['bytes'])} bytes"


def _route(console: Console, data: dict[str, Any]) -> None:
    """Prints the result of a route lookup.

    Prints the route, its next hops, and longer prefixes that are not installed.
    """
    console.print(f"{data['address']} in VRF {data['vrf']}:", highlight=False)
    route = data["route"]
    if data["own"]:
        console.print("  this router's own address")
    elif route is None:
        console.print(
            Text("  no route in the switch: packets to this address are refused", style="red")
        )
    else:
        group = f", group {route['id']}" if route["action"] == "group" else ""
        console.print(f"  {route['prefix']} ({route['protocol']}), {route['action']}{group}")
    rows: list[Row] = [
        [
            leg["interface"] or "-",
            _port_of(leg),
            leg["gateway"] or "on link",
            leg["neighbor"] or "-",
            leg["mac"] or "-",
            _leg_state(leg),
            _share(leg),
        ]
        for leg in data["legs"]
    ]
    columns = ["interface", "port", "next hop", "neighbour", "=MAC address", "state", ">of flows"]
    print_table(console, columns, rows, "")
    if data.get("flow") is not None and not any(leg["taken"] for leg in data["legs"]):
        console.print(Text("  " + _path_outside_table(data["flow"]), style="yellow"))
    for one in data["not_installed"]:
        why = one["unrouted"] or one["error"] or "not in the switch yet"
        text = f"  {one['prefix']} ({one['protocol']}) is not in the switch: {why}"
        console.print(Text(text, style="yellow"))


def _share(leg: dict[str, Any]) -> str | Text:
    """Returns the share of a route's flows that use this next hop.

    If the request named a flow, returns whether the flow uses this next hop.
    """
    if leg.get("taken") is None:
        return f"{leg['share']:.0%}"
    return Text("this one", style="green") if leg["taken"] else "-"


def _path_outside_table(path: dict[str, Any]) -> str:
    """Describes the path of a flow that uses none of the next hops shown."""
    if path["nexthop"] is not None:
        return f"the flow takes next hop {path['nexthop']}, which has changed meanwhile: ask again"
    if path["group"] is not None:
        return f"group {path['group']} has no next hop that is up: the flow's packets are dropped"
    return "the flow's packets take no next hop"


def _port_of(item: dict[str, Any]) -> str:
    return f"{item['port']}" + (f".{item['vlan']}" if item["vlan"] else "")


def _leg_state(leg: dict[str, Any]) -> str | Text:
    if leg["error"]:
        return Text(leg["error"], style="red")
    if leg["switch_port"] == "absent":
        return Text("the switch has no such port", style="red")
    if not leg["up"]:
        return Text("down", style="red")
    if leg["silent"]:
        return Text("no answer", style="red")
    return "installed" if leg["installed"] else Text("pending", style="yellow")


def _nexthops(console: Console, data: dict[str, Any]) -> None:
    rows: list[Row] = [
        [
            str(item["id"]),
            item["interface"] or "-",
            item["gateway"] or "on link",
            item["mac"] or ("-" if item["gateway"] is None else "unresolved"),
            good_or_bad(item["up"], "up", "down"),
            number_text(item["used_by"]),
            _count(item["sent"], "packets"),
        ]
        for item in data["nexthops"]
    ]
    columns = [">id", "interface", "gateway", "=MAC address", "link", ">used by", ">packets"]
    print_table(console, columns, rows, "no next hops")
    if data["groups"]:
        console.print()
    rows = []
    for group in data["groups"]:
        legs = [nexthop(member) for member in group["members"]]
        rows.append([str(group["id"]), number_text(group["used_by"]), legs[0] if legs else "-"])
        rows += [["", "", leg] for leg in legs[1:]]
    if rows:
        print_table(console, [">group", ">used by", "members"], rows, "")


def _neighbors(console: Console, data: list[dict[str, Any]]) -> None:
    rows: list[Row] = [
        [
            item["address"],
            item["interface"] or "-",
            item["mac"] or "-",
            item["state"],
            f"{item['age']:.0f}s",
            str(item["nexthop"] or "-"),
        ]
        for item in data
    ]
    columns = ["address", "interface", "=MAC address", "state", ">since", ">next hop"]
    print_table(console, columns, rows, "no neighbors")


def _punts(console: Console, data: dict[str, Any]) -> None:
    rows: list[Row] = [
        [
            reason,
            number_text(item["to_cpu"]),
            number_text(item["metered_away"]),
            number_text(item["queue_full"]),
            number_text(item["handled"]),
            number_text(item["rate"]),
        ]
        for reason, item in data["reasons"].items()
    ]
    columns = ["reason", ">to CPU", ">over the limit", ">queue full", ">handled", ">rate limit"]
    print_table(console, columns, rows, "")
    console.print(
        f"{data['waiting']} packets wait for the controller, {data['held']} for a neighbour"
    )
    results = {**data["results"], **data["held_packets"]}
    print_table(
        console, [">count", "result"], [[f"{n:,}", text] for text, n in results.items()], ""
    )


def _counters(console: Console, data: dict[str, Any]) -> None:
    drops = data["switch_drops"]
    if drops is None:
        console.print("the switch is not connected: its counters are not known")
    else:
        rows: list[Row] = [
            [reason, _count(count, "packets"), _count(count, "bytes")]
            for reason, count in drops.items()
            if count["packets"]
        ]
        columns = ["dropped by the switch", ">packets", ">bytes"]
        print_table(console, columns, rows, "nothing dropped by the switch")
    rows = [
        [part, what, f"{count:,}"]
        for part, counters in data["controller"].items()
        for what, count in sorted(counters.items())
    ]
    print_table(console, ["part", "what", ">count"], rows, "")


def _metrics(console: Console, data: str) -> None:
    console.file.write(data)


_VIEWS: dict[str, Callable[[Console, Any], None]] = {
    "status": _status,
    "interfaces": _interfaces,
    "interface": _interface,
    "route": _route,
    "nexthops": _nexthops,
    "neighbors": _neighbors,
    "punts": _punts,
    "counters": _counters,
    "metrics": _metrics,
    "explain": explanation,
    **flow_tables.VIEWS,
    **policy_tables.VIEWS,
    **sa_tables.VIEWS,
}
