# SPDX-License-Identifier: Apache-2.0
"""Counts as Prometheus text (exposition format 0.0.4), made from the API's own views.

Pure: plain data in, lines of text out, made as they are taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

Sample = tuple[dict[str, str], float]


def lines(
    *,
    router: str,
    status: dict[str, Any],
    punts: dict[str, Any],
    counters: dict[str, Any],
    interfaces: list[dict[str, Any]],
    policy: list[dict[str, Any]],
) -> Iterator[str]:
    """Yields the lines of all metrics; what the switch did not tell is left out."""
    metrics = chain(_metrics(status, punts, counters, interfaces), _policy_metrics(policy))
    for name, form, text, samples in metrics:
        yield f"# HELP {name} {text}"
        yield f"# TYPE {name} {form}"
        for labels, value in samples:
            joined = ",".join(
                f'{label}="{_escape(content)}"'
                for label, content in {"router": router, **labels}.items()
            )
            yield f"{name}{{{joined}}} {value:g}"


def _metrics(
    status: dict[str, Any],
    punts: dict[str, Any],
    counters: dict[str, Any],
    interfaces: list[dict[str, Any]],
) -> Iterator[tuple[str, str, str, Iterable[Sample]]]:
    reconciler, switch = status["reconciler"], status["switch"]
    yield (
        "sluice_synced",
        "gauge",
        "1 when the switch holds what is desired",
        [({}, status["synced"])],
    )
    yield "sluice_switch_connected", "gauge", "1 with a session", [({}, switch["connected"])]
    fpm_connected = status["fpm"]["peer"] is not None
    yield "sluice_fpm_connected", "gauge", "1 with a routing daemon", [({}, fpm_connected)]
    found = len(status["problems"])
    yield "sluice_problems", "gauge", "what `show status` names as problems", [({}, found)]
    uptime = status["uptime"]
    yield "sluice_uptime_seconds", "gauge", "since the controller started", [({}, uptime)]
    up: list[Sample] = [({"interface": one["name"]}, one["up"]) for one in interfaces]
    yield "sluice_interface_up", "gauge", "1 while an interface is up", up
    yield "sluice_routes", "gauge", "routes of the routing daemon", [({}, status["fpm"]["routes"])]
    unrouted = status["fpm"]["not_installed"].items()
    yield (
        "sluice_routes_not_installed",
        "gauge",
        "routes that are never installed, by why not",
        [({"reason": reason}, count) for reason, count in unrouted],
    )
    yield "sluice_pending_updates", "gauge", "updates to be made", [({}, reconciler["pending"])]
    yield "sluice_failed_updates", "gauge", "updates refused", [({}, reconciler["failed"])]
    installed = [({"kind": kind}, count) for kind, count in switch["installed"].items()]
    yield "sluice_installed_entities", "gauge", "entities in the switch", installed
    for field, name, text in (
        ("longest_stall", "sluice_loop_longest_stall_seconds", "since the start"),
        ("last_minute", "sluice_loop_longest_stall_last_minute_seconds", "in the last minute"),
    ):
        samples: list[Sample] = [
            ({"name": part}, stall[field]) for part, stall in status["loop"].items()
        ]
        yield name, "gauge", f"longest time without a turn for others, {text}", samples
    audit = status["auditor"].items()
    repairs = [
        ({"part": part, "kind": kind}, count)
        for part, report in audit
        for kind, count in report["repaired"].items()
    ]
    yield "sluice_auditor_repairs_total", "counter", "entries that somebody else wrote", repairs
    for field, text in (
        ("rounds", "complete rounds of the audit"),
        ("entries", "entries compared in the last complete round"),
        ("seconds", "what the last complete round took"),
    ):
        form = "counter" if field == "rounds" else "gauge"
        name = "sluice_auditor_rounds_total" if field == "rounds" else f"sluice_auditor_{field}"
        yield name, form, text, [({"part": part}, report[field]) for part, report in audit]
    for field, text in (
        ("to_cpu", "packets sent to the CPU"),
        ("metered_away", "packets that a punt meter dropped"),
        ("queue_full", "packets that the full punt queue dropped"),
        ("handled", "punted packets handled"),
    ):
        samples = [
            ({"reason": reason}, values[field])
            for reason, values in punts["reasons"].items()
            if values[field] is not None
        ]
        yield f"sluice_punt_{field}_total", "counter", text, samples
    drops = counters["switch_drops"] or {}
    samples = [({"reason": reason}, count["packets"]) for reason, count in drops.items()]
    yield "sluice_switch_drops_total", "counter", "packets dropped by the switch", samples
    for direction in ("received", "sent"):
        for unit in ("packets", "bytes"):
            samples = [
                ({"interface": interface["name"]}, interface[direction][unit])
                for interface in interfaces
                if interface[direction] is not None
            ]
            yield (
                f"sluice_interface_{direction}_{unit}_total",
                "counter",
                f"{unit} {direction}",
                samples,
            )
    samples = [
        ({"part": part, "what": what}, count)
        for part, values in counters["controller"].items()
        for what, count in values.items()
    ]
    yield "sluice_controller_events_total", "counter", "the controller's own counters", samples


def _policy_metrics(
    lists: list[dict[str, Any]],
) -> Iterator[tuple[str, str, str, Iterable[Sample]]]:
    """One item of `lists` for each list of each SPD."""
    named = [({"spd": one["spd"], "direction": one["direction"]}, one) for one in lists]
    for field, text in (
        ("epoch", "epoch of the list: retires flows"),
        ("generation", "generation of the list: retires answers under way"),
        ("flows", "flows in the switch, stale ones too"),
        ("stale_flows", "flows in the switch that serve nobody"),
    ):
        samples = [(labels, one[field]) for labels, one in named if one[field] is not None]
        yield f"sluice_spd_{field}", "gauge", text, samples
    for field, text in (
        ("hits", "packets that the flow cache served by a rule"),
        ("searched", "packets that the controller searched and found a rule for"),
    ):
        yield f"sluice_rule_{field}_total", "counter", text, _rule_samples(named, field)


def _rule_samples(
    named: list[tuple[dict[str, str], dict[str, Any]]], field: str
) -> Iterator[Sample]:
    """One at a time: lists may have tens of thousands of rules."""
    for labels, one in named:
        for rule in chain(one["rules"], ({"name": "(final)", **one["final_discard"]},)):
            if rule[field] is not None:
                yield {**labels, "rule": rule["name"]}, rule[field]


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
