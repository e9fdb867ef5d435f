# SPDX-License-Identifier: Apache-2.0
"""Extracts the path of a packet through the pipeline from the switch's trace of a dry run.

Knows the names of the tables in p4src/, and the fields of their keys and actions. If the trace
lacks a table, the packet did not reach its stage, and the corresponding field stays None. Pure;
depends on p4runtime.session for the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sluice.model import Prefix
from sluice.p4runtime.session import TraceStep
from sluice.policy.model import Direction


@dataclass(slots=True)
class ListPass:
    """Describes how one list of an SPD treated a packet.

    `hit`: the cache holds a flow of the current epoch. `rule_hit`: the cache holds none, but an
    entry of the rule tables gives a verdict. `rule`, `verdict` and `bundle` are those of this flow
    or entry.
    """

    list_id: int
    epoch: int | None = None
    generation: int | None = None
    hit: bool = False
    rule_hit: bool = False
    rule: int | None = None
    verdict: int | None = None
    bundle: int | None = None


@dataclass(slots=True)
class SwitchPath:
    """Holds a packet's path through the pipeline. Numbers are those of the pipeline."""

    ingress_l3_if: int | None = None
    vrf: int | None = None
    lists: dict[Direction, ListPass] = field(default_factory=dict)
    route: Prefix | None = None
    """Prefix of the route that matched."""
    has_route: bool | None = None
    """Whether a route matched. None if the packet was not routed."""
    group: int | None = None
    nexthop: int | None = None
    egress_l3_if: int | None = None
    drop_reasons: list[int] = field(default_factory=list)
    """Indices of the drop counter, in order."""
    punt_reasons: list[int] = field(default_factory=list)
    """Indices of the punt counter, in order."""
    ports: list[int] = field(default_factory=list)
    """Ports to which the packet or a copy is sent, without the CPU port."""
    is_punted: bool = False
    """Whether the packet is sent to the CPU port."""


_DIRECTIONS = {"ipsec_inbound": Direction.INBOUND, "flow_cache": Direction.OUTBOUND}


def read_path(steps: Sequence[TraceStep]) -> SwitchPath:
    """Returns the path that a trace shows."""
    path = SwitchPath()
    for step in steps:
        if step.kind == "table":
            _read_table(path, step)
        elif step.kind == "extern" and step.name == "counter":
            of = step.details.get("of", "").rpartition(".")[2]
            index = _number(step, "index")
            if of == "drop_counter" and index is not None:
                path.drop_reasons.append(index)
            elif of == "punt_counter" and index is not None:
                path.punt_reasons.append(index)
        elif step.kind == "fate":
            port = _number(step, "port")
            if step.name == "packet_in":
                path.is_punted = True
            elif step.name == "transmitted" and port is not None:
                path.ports.append(port)
    return path


def _read_table(path: SwitchPath, step: TraceStep) -> None:
    names = step.name.split(".")
    table, hit = names[-1], step.details.get("result") == "hit"
    if table == "l3_interface" and hit:
        path.ingress_l3_if, path.vrf = _number(step, "l3_if"), _number(step, "vrf")
    elif table in ("ipv4_fib", "ipv6_fib"):
        path.has_route = hit
        path.route = _prefix(step.details.get("entry", ""), 4 if table == "ipv4_fib" else 16)
    elif table == "nexthop_group":
        path.group = _number(step, "group")
    elif table == "nexthop":
        path.nexthop = _number(step, "key.nexthop_id")
        path.egress_l3_if = _number(step, "l3_if")
    else:
        _read_list(path, step, names, hit=hit)


def _read_list(path: SwitchPath, step: TraceStep, names: list[str], *, hit: bool) -> None:
    """Reads a step of a lookup in a list: `...ipsec_inbound.inbound.list_state`, for example."""
    direction = next((_DIRECTIONS[name] for name in names if name in _DIRECTIONS), None)
    if direction is None:
        return
    table = names[-1]
    if table == "list_state":
        list_id = _number(step, "key.list_id")
        if list_id is not None:
            epoch, generation = _number(step, "epoch"), _number(step, "generation")
            path.lists[direction] = ListPass(list_id, epoch, generation)
    elif table in ("ipv4_flow", "ipv6_flow") and direction in path.lists:
        passed = path.lists[direction]
        passed.hit = hit and _number(step, "epoch") == passed.epoch
        if passed.hit:
            _read_verdict(passed, step)
    elif table in ("ipv4_rule", "ipv6_rule") and direction in path.lists:
        passed = path.lists[direction]
        passed.rule_hit = hit and _number(step, "rule") is not None
        if passed.rule_hit:
            _read_verdict(passed, step)


def _read_verdict(passed: ListPass, step: TraceStep) -> None:
    passed.rule, passed.verdict = _number(step, "rule"), _number(step, "verdict")
    passed.bundle = _number(step, "sa_bundle")


def _prefix(entry: str, size: int) -> Prefix | None:
    """Parses the key of a route, such as `0x0,0x0a010000/16` (VRF, prefix)."""
    value, _, length = entry.partition(",")[2].partition("/")
    try:
        return Prefix(int(value, 0).to_bytes(size, "big"), int(length))
    except (ValueError, OverflowError):
        return None


def _number(step: TraceStep, name: str) -> int | None:
    text = step.details.get(name)
    try:
        return None if text is None else int(text, 0)
    except ValueError:
        return None
