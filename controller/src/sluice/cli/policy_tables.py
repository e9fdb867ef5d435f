# SPDX-License-Identifier: Apache-2.0
"""Prints the API's data about IPsec policy as tables for people. Depends on rich."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.text import Text

from sluice.cli.flow_tables import flow_notes, flow_protocol, packet_end
from sluice.cli.table import Row, counted, good_or_bad, number_text, print_table
from sluice.policy.coverage import quoted_names


def _spd(console: Console, data: list[dict[str, Any]], *, all_rules: bool = False) -> None:
    if not data:
        console.print("no SPD: no interface is guarded")
    for item in data:
        _list_title(console, item)
        rows: list[Row] = [
            [
                "" if rule["position"] is None else str(rule["position"]),
                rule["name"],
                rule["text"],
                number_text(rule["hits"]),
                number_text(rule["searched"]),
            ]
            for rule in item["rules"]
            if all_rules or not rule["generated"]
        ]
        if not all_rules:
            rows[:0] = _folded([rule for rule in item["rules"] if rule["generated"]])
        final = item["final_discard"]
        rows.append(
            ["", "(final)", "discard", number_text(final["hits"]), number_text(final["searched"])]
        )
        columns = [">number", "name", "rule", ">switch hits", ">searched"]
        print_table(console, columns, rows, "")
        console.print()


def _all_rules(console: Console, data: list[dict[str, Any]]) -> None:
    _spd(console, data, all_rules=True)


def _folded(generated: list[dict[str, Any]]) -> list[Row]:
    """Returns one row that sums up all generated rules, or no row if there are none."""
    if not generated:
        return []
    hits = [rule["hits"] for rule in generated]
    return [
        [
            "",
            "(generated)",
            f"{counted(len(generated), 'rule')} for this router's ND and IKE: --generated",
            number_text(None if None in hits else sum(hits)),
            number_text(sum(rule["searched"] for rule in generated)),
        ]
    ]


def _list_title(console: Console, item: dict[str, Any]) -> None:
    cache = f"{number_text(item['flows'])} flows" if item["cache"] else "flow cache off"
    console.print(
        f"{item['spd']} {item['direction']}: epoch {item['epoch']}, generation"
        f" {item['generation']}, {cache}"
    )
    console.print(f"  {_choice(item['rule_tables'])}")


def _choice(held: dict[str, Any]) -> str:
    """Returns text that says where packets of a list find a verdict, and why.

    For example `auto: cache+rules, all 12 rules in the tables`.
    """
    setting = "auto" if held["mode"] == "auto" else "pinned"
    return f"{setting}: {held['chosen']}" + (f", {held['why']}" if held["why"] else "")


def _expansion(held: dict[str, Any]) -> str:
    """Returns text that says how much of a list the rule tables would hold."""
    families = (("IPv4", "ipv4"), ("IPv6", "ipv6"))
    entries, room = (
        ", ".join(f"{held[part][key]:,} {name}" for name, key in families)
        for part in ("entries", "room")
    )
    what = "the whole list" if held["is_complete"] else f"the first {held['rules']:,}"
    if not held["is_complete"]:
        what += f" of {counted(held['of'], 'rule')}"
        if held["mode"] == "auto":
            what = f"nothing, since only {what} would fit"
    return f"rule tables: {what} ({entries} entries; room for {room})"


def _rules_in_tables(held: dict[str, Any]) -> str:
    if held["is_complete"]:
        return "all"
    return f"{held['rules']:,} of {held['of']:,}" if held["rules"] else "none"


def _flow_cache(console: Console, data: list[dict[str, Any]]) -> None:
    rows: list[Row] = [
        [
            item["spd"],
            item["direction"],
            good_or_bad(item["cache"], "on", "off"),
            _rules_in_tables(item["rule_tables"]),
            number_text(item["flows"]),
            number_text(item["stale_flows"]),
            number_text(item["capacity"]),
            f"{item['idle_timeout']:g}s",
            str(item["epoch"]),
            str(item["generation"]),
        ]
        for item in data
    ]
    columns = [
        *("SPD", "list", "cache", "rules in tables", ">flows", ">stale", ">at most", ">idle time"),
        *(">epoch", ">generation"),
    ]
    print_table(console, columns, rows, "no SPD: nothing is cached")


def _spd_check(console: Console, data: list[dict[str, Any]]) -> None:
    for item in data:
        counts = ", ".join(
            counted(count, f"{direction} rule") for direction, count in item["rules"].items()
        )
        console.print(f"{item['spd']}: {counts}: fine")
        _warnings(console, item["warnings"])
        for group in item["fragments"]:
            console.print(f"{item['spd']} {_fragments(group)}")
        for direction, held in item.get("rule_tables", {}).items():
            console.print(f"{item['spd']} {direction}, {_expansion(held)}")
    if any(group["served_by"] != "cache" for item in data for group in item["fragments"]):
        rate = data[0]["fragments_per_second"]
        bound = "" if rate is None else f" ({rate:,} fragments a second)"
        console.print(
            "The controller applies the rule of the first fragment to the other fragments."
            f" Limits: punt_rates.FRAGMENT{bound}, limits.fragment_*"
        )
    for why in dict.fromkeys(item["sessions_unchecked"] for item in data):
        if why is not None:
            console.print(f"BGP and OSPF sessions are not checked: {why}")


_SERVED_BY = {
    "cache": "by the flow cache",
    "controller": "by the controller, since {} could match too",
    "either": "by the controller where {} could match too, else by the flow cache",
    "unknown": "by the controller where {} could match too (the list is too long to say where)",
}


def _fragments(group: dict[str, Any]) -> str:
    """Returns one line that says where fragments matching these rules get their verdict."""
    served_by = _SERVED_BY[group["served_by"]].format(
        quoted_names(group["because"] or ["(no rule)"])
    )
    families = " and ".join(group["families"])
    return (
        f"{group['direction']}, {families} fragments of {quoted_names(group['rules'])}: {served_by}"
    )


def _warnings(console: Console, warnings: list[str]) -> None:
    for warning in warnings:
        console.print(Text(f"warning: {warning}", style="yellow"))


def _spd_diff(console: Console, data: list[dict[str, Any]]) -> None:
    for item in data:
        for direction, changes in item["lists"].items():
            console.print(f"{item['spd']} {direction}:" + ("" if changes else " no change"))
            for change in changes:
                _rule_change(console, change)
            if direction in item["flows"]:
                _changed_flows(console, item["flows"][direction])


def _changed_flows(console: Console, flows: dict[str, Any]) -> None:
    """Prints a list's cached flows whose verdict would change."""
    if flows["live"] is None:
        console.print(
            "  flows: not known: the switch is not connected, or its entries are being read"
        )
        return
    if flows["changed"] is None:
        console.print(f"  flows: any of {flows['live']:,} may change: too many to test")
        return
    if flows["rule_tables"]:
        console.print(f"  {_expansion(flows['rule_tables'])}")
    first, changed = flows["first"], flows["changed"]
    console.print(f"  flows: {changed:,} of {flows['live']:,} would change" + ":" * bool(first))
    for flow in first:
        ends = [packet_end(flow[end], flow[f"{end}_port"]) for end in ("source", "destination")]
        after = "searched again" if flow["after"] is None else _treatment(flow["after"])
        notes = flow_notes(flow)
        console.print(
            f"    {flow_protocol(flow)} {' -> '.join(ends)}: {_treatment(flow)} -> {after}"
            + (f" ({notes})" if notes else "")
        )
    if changed > len(first):
        console.print(f"    and {changed - len(first):,} more")


def _treatment(flow: dict[str, Any]) -> str:
    """Returns a flow's action, bundle and rule as text, for example `protect(branch) by site`."""
    bundle = f"({flow['bundle']})" if flow["bundle"] else ""
    return f"{flow['action']}{bundle} by {flow['rule']}"


def _rule_change(console: Console, change: dict[str, Any]) -> None:
    before, after = change["position_before"], change["position_after"]
    name = change["name"]
    if change["change"] == "moved":
        console.print(f"  {name}: from {before} to {after}: {change['after']}")
        return
    if before is not None:
        console.print(Text(f"- {before} {name}: {change['before']}", style="red"))
    if after is not None:
        console.print(Text(f"+ {after} {name}: {change['after']}", style="green"))


def _spd_commit(console: Console, data: dict[str, Any]) -> None:
    for item in data["changed"]:
        console.print(
            f"{item['spd']} {item['direction']}: {counted(item['rules'], 'rule')},"
            f" epoch {item['epoch']}, generation {item['generation']}"
        )
        console.print(f"  {_choice(item['rule_tables'])}")
    if not data["changed"]:
        console.print(f"{', '.join(data['spds'])}: no change")
    else:
        console.print(f"in force after {data['seconds'] * 1000:.1f} ms")
    _warnings(console, data["warnings"])
    for spd in data["unchecked"]:
        console.print(f"{spd}: long list, not checked for warnings (`sluice spd check --commit`)")


def _spd_log(console: Console, data: list[dict[str, Any]]) -> None:
    rows: list[Row] = [
        [
            str(item["number"]),
            item["time"],
            _author(item["author"]),
            item["change"],
            _counts(item["changed"]),
            item["message"] or "",
        ]
        for item in data
    ]
    columns = [">number", "time", "user", "change", "rules", "message"]
    print_table(console, columns, rows, "no commit yet")


def _author(author: dict[str, Any] | None) -> str:
    if author is None:
        return "(router)"
    return str(author["user"] or author["uid"])


def _counts(changed: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Returns the counts of changed rules by list, for example `corp outbound +1 ~2 reordered`."""
    lists = []
    for spd, directions in changed.items():
        for direction, counts in directions.items():
            words = [f"{spd} {direction}"]
            words += [
                f"{sign}{counts[key]}"
                for sign, key in (("+", "added"), ("-", "removed"), ("~", "changed"))
                if counts[key]
            ]
            words += ["reordered"] if counts["reordered"] else []
            lists.append(" ".join(words))
    return ", ".join(lists)


VIEWS: dict[str, Callable[[Console, Any], None]] = {
    "spd": _spd,
    "spd --generated": _all_rules,
    "flow-cache": _flow_cache,
    "spd check": _spd_check,
    "spd diff": _spd_diff,
    "spd commit": _spd_commit,
    "spd log": _spd_log,
}
