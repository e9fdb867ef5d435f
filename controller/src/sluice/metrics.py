# SPDX-License-Identifier: Apache-2.0
"""Renders metrics as Prometheus text (exposition format 0.0.4) from the API's views.

The metrics follow Prometheus' conventions: base units, `_total` for counters, names of parts and
reasons as labels. Some label values come neither from this module nor from the configuration. Each
metric has at most `MOST` of them, and the samples beyond this limit are summed under the label
value `other`. At most `RULES` rules and `SAS` SAs have metrics of their own.

Pure: takes plain data, and yields lines of text lazily.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

Sample = tuple[dict[str, str], float]
Metric = tuple[str, str, str, Iterable[Sample]]

MOST = 64
OTHER = "other"
RULES = 1000
SAS = 1000
ROLES = ("primary", "standby", "waiting for the switch")
TICKS, PAGE = 100, 4096
"""USER_HZ and page size (bytes) of Linux: proc(5)."""


def lines(
    *,
    router: str,
    status: dict[str, Any],
    punts: dict[str, Any],
    counters: dict[str, Any],
    interfaces: list[dict[str, Any]],
    policy: list[dict[str, Any]],
    sas: list[dict[str, Any]],
    engines: dict[int, bool],
) -> Iterator[str]:
    """Yields the lines of all metrics. Omits values that the switch did not report."""
    found = chain(
        _of_the_process(status),
        _metrics(status, punts, counters, interfaces),
        _policy_metrics(policy),
        _sa_metrics(sas, engines),
    )
    return _text(router, found)


def standby_lines(status: dict[str, Any]) -> Iterator[str]:
    """Yields the lines of a controller that is not primary."""
    return _text(str(status["router"]), _of_the_process(status))


def _text(router: str, metrics: Iterable[Metric]) -> Iterator[str]:
    for name, form, text, samples in metrics:
        yield f"# HELP {name} {text[0].upper()}{text[1:]}."
        yield f"# TYPE {name} {form}"
        for labels, value in samples:
            joined = ",".join(
                f'{label}="{_escape(content)}"'
                for label, content in {"router": router, **labels}.items()
            )
            yield f"{name}{{{joined}}} {_number(value)}"


def _number(value: float) -> str:
    """Formats a number with all its digits. Python's default of six digits would truncate packet
    counts."""
    return str(int(value)) if value == int(value) else repr(float(value))


def _bounded(samples: Iterable[tuple[str, float]]) -> Iterator[tuple[str, float]]:
    """Yields the first `MOST` samples, then the sum of the remaining samples.

    The limit bounds the number of labels, because some labels are error texts.
    """
    known = iter(samples)
    yield from islice(known, MOST)
    rest = [value for _, value in known]
    if rest:
        yield OTHER, sum(rest)


def _of_the_process(status: dict[str, Any]) -> Iterator[Metric]:
    """Yields the metrics that every controller has, primary or standby."""
    build = {"version": str(status["version"])}
    yield "sluice_build_info", "gauge", "1, with the running version as a label", [(build, 1)]
    roles: list[Sample] = [({"role": role}, role == status["role"]) for role in ROLES]
    yield (
        "sluice_role",
        "gauge",
        "1 for the present role of this controller, 0 for the others",
        roles,
    )
    found = len(status["problems"])
    yield "sluice_problems", "gauge", "problems that `sluice show status` lists", [({}, found)]
    yield (
        "sluice_switch_connected",
        "gauge",
        "1 while this controller is primary",
        [({}, status["switch"]["connected"])],
    )
    uptime = status["uptime"]
    yield "sluice_uptime_seconds", "gauge", "time since the controller started", [({}, uptime)]
    configuration = status["configuration"]
    yield (
        "sluice_config_last_reload_successful",
        "gauge",
        "1 unless the last reload was refused",
        [({}, configuration["refused"] is None)],
    )
    yield (
        "sluice_config_last_reload_success_timestamp_seconds",
        "gauge",
        "time when the configuration in force was read, since the epoch",
        [({}, configuration["succeeded_at"])],
    )
    yield from _process()


def _process() -> Iterator[Metric]:
    """Yields the process metrics that Prometheus' client libraries define. Yields none without
    /proc."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return
    busy = (int(fields[11]) + int(fields[12])) / TICKS
    resident = int(fields[21]) * PAGE
    yield "process_cpu_seconds_total", "counter", "CPU time, user and system", [({}, busy)]
    yield "process_resident_memory_bytes", "gauge", "memory in RAM", [({}, resident)]


def _metrics(
    status: dict[str, Any],
    punts: dict[str, Any],
    counters: dict[str, Any],
    interfaces: list[dict[str, Any]],
) -> Iterator[Metric]:
    reconciler, switch = status["reconciler"], status["switch"]
    yield (
        "sluice_synced",
        "gauge",
        "1 while the switch holds the desired entities",
        [({}, status["synced"])],
    )
    fpm_connected = status["fpm"]["peer"] is not None
    yield "sluice_fpm_connected", "gauge", "1 while zebra is connected", [({}, fpm_connected)]
    up: list[Sample] = [({"interface": one["name"]}, one["up"]) for one in interfaces]
    yield "sluice_interface_up", "gauge", "1 while an interface is up", up
    yield "sluice_routes", "gauge", "routes of the routing daemon", [({}, status["fpm"]["routes"])]
    unrouted = status["fpm"]["not_installed"].items()
    yield (
        "sluice_routes_not_installed",
        "gauge",
        "routes that are not installed, by reason",
        [({"reason": reason}, count) for reason, count in _bounded(unrouted)],
    )
    yield (
        "sluice_pending_updates",
        "gauge",
        "updates that wait to be written to the switch",
        [({}, reconciler["pending"])],
    )
    yield (
        "sluice_failed_updates",
        "gauge",
        "updates that the switch refused",
        [({}, reconciler["failed"])],
    )
    installed = [({"kind": kind}, count) for kind, count in switch["installed"].items()]
    yield "sluice_installed_entities", "gauge", "entities installed in the switch", installed
    for field, name, text in (
        ("longest_stall", "sluice_loop_longest_stall_seconds", "since the start"),
        ("last_minute", "sluice_loop_longest_stall_last_minute_seconds", "in the last minute"),
    ):
        samples: list[Sample] = [
            ({"name": part}, stall[field]) for part, stall in status["loop"].items()
        ]
        yield name, "gauge", f"longest run of a task without a yield, {text}", samples
    audit = status["auditor"].items()
    repairs = [
        ({"part": part, "kind": kind}, count)
        for part, report in audit
        for kind, count in report["repaired"].items()
    ]
    yield (
        "sluice_auditor_repairs_total",
        "counter",
        "entries of other clients that the auditor corrected",
        repairs,
    )
    for field, text in (
        ("rounds", "complete rounds of the audit"),
        ("entries", "entries compared in the last complete round"),
        ("seconds", "duration of the last complete round"),
    ):
        form = "counter" if field == "rounds" else "gauge"
        name = "sluice_auditor_rounds_total" if field == "rounds" else f"sluice_auditor_{field}"
        yield name, form, text, [({"part": part}, report[field]) for part, report in audit]
    for field, text in (
        ("to_cpu", "packets sent to the CPU"),
        ("metered_away", "packets that a punt meter dropped"),
        ("queue_full", "packets dropped because the punt queue was full"),
        ("handled", "punted packets that the controller handled"),
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
        for what, count in _bounded(values.items())
    ]
    yield "sluice_controller_events_total", "counter", "events that the controller counted", samples


def _policy_metrics(
    lists: list[dict[str, Any]],
) -> Iterator[Metric]:
    """Yields the policy metrics. `lists` has one item for each list (inbound, outbound) of each
    SPD."""
    named = [({"spd": one["spd"], "direction": one["direction"]}, one) for one in lists]
    for field, text in (
        ("epoch", "epoch of the list (a new epoch retires all cached flows)"),
        ("generation", "generation of the list (a new one retires all verdicts in flight)"),
        ("flows", "cached flows in the switch, including stale flows"),
        ("stale_flows", "cached flows in the switch that no longer apply to packets"),
    ):
        samples = [(labels, one[field]) for labels, one in named if one[field] is not None]
        yield f"sluice_spd_{field}", "gauge", text, samples
    held = [(labels, one["rule_tables"]["rules"]) for labels, one in named]
    yield "sluice_spd_rules_in_tables", "gauge", "rules in the switch's rule tables", held
    whole = [(labels, one["rule_tables"]["is_complete"]) for labels, one in named]
    text = "whether the rule tables hold the whole list, so that new flows need no search"
    yield "sluice_spd_whole_list_in_tables", "gauge", text, whole
    for field, text in (
        ("hits", "packets to which the switch's tables applied a rule"),
        ("searched", "packets for which the controller's search found a rule"),
    ):
        samples = [(labels, _sum(one, field)) for labels, one in named if _is_known(one, field)]
        of_list = text.replace("a rule", "a rule of the list")
        yield f"sluice_spd_{field}_total", "counter", of_list, samples
        yield f"sluice_rule_{field}_total", "counter", text, _rule_samples(named, field)
    left_out = sum(len(one["rules"]) + 1 for one in lists) - RULES
    yield (
        "sluice_rules_left_out",
        "gauge",
        f"rules after the first {RULES}, which have no metrics of their own",
        [({}, max(0, left_out))],
    )


def _sa_metrics(sas: list[dict[str, Any]], engines: dict[int, bool]) -> Iterator[Metric]:
    """Yields the metrics of SAs. The first `SAS` SAs have metrics of their own."""
    up: list[Sample] = [({"engine": str(number)}, up) for number, up in engines.items()]
    yield "sluice_esp_engine_up", "gauge", "1 while an ESP engine answers", up
    states: dict[str, int] = {}
    for sa in sas:
        states[sa["state"]] = states.get(sa["state"], 0) + 1
    counts: list[Sample] = [({"state": state}, count) for state, count in states.items()]
    yield "sluice_sas", "gauge", "security associations, by state", counts
    named = [
        (
            {
                "sa": sa["name"],
                "bundle": sa["bundle"],
                "direction": sa["direction"],
                "spi": f"{sa['spi']:#x}",
            },
            sa,
        )
        for sa in sas[:SAS]
    ]
    for field in ("packets", "bytes"):
        samples = [(labels, sa[field]) for labels, sa in named if sa[field] is not None]
        text = f"{field} of a security association, counted without encryption"
        yield f"sluice_sa_{field}_total", "counter", text, samples
    drops = [
        ({**labels, "reason": reason}, count)
        for labels, sa in named
        for reason, count in sa["drops"].items()
    ]
    yield "sluice_sa_drops_total", "counter", "packets that an engine dropped, by SA", drops
    yield (
        "sluice_sas_left_out",
        "gauge",
        f"security associations after the first {SAS}, which have no metrics of their own",
        [({}, max(0, len(sas) - SAS))],
    )


def _rule_samples(
    named: list[tuple[dict[str, str], dict[str, Any]]], field: str
) -> Iterator[Sample]:
    """Yields samples of the first `RULES` rules. Does so lazily, because a list may have tens of
    thousands of rules."""
    rules = ((labels, rule) for labels, one in named for rule in _rules(one))
    for labels, rule in islice(rules, RULES):
        if rule[field] is not None:
            yield {**labels, "rule": rule["name"]}, rule[field]


def _rules(one: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the rules of a list in their order, then the final discard."""
    return chain(one["rules"], ({"name": "(final)", **one["final_discard"]},))


def _is_known(one: dict[str, Any], field: str) -> bool:
    return one["final_discard"][field] is not None


def _sum(one: dict[str, Any], field: str) -> int:
    return sum(rule[field] or 0 for rule in _rules(one))


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
