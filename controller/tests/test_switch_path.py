# SPDX-License-Identifier: Apache-2.0
"""Tests how the path of a packet is read from the switch's trace of the packet."""

from __future__ import annotations

from sluice.model import Prefix
from sluice.p4runtime.session import TraceStep
from sluice.policy.model import Direction
from sluice.switch_path import ListPass, SwitchPath, read_path

INBOUND, OUTBOUND = "ipsec_inbound.inbound", "flow_cache.outbound"


def table(name: str, **details: str) -> TraceStep:
    named = {key.replace("__", "."): value for key, value in details.items()}
    return TraceStep("table", f"v1model_ingress.router.{name}", named)


def counter(name: str, index: str) -> TraceStep:
    of = f"v1model_ingress.router.punt.{name}"
    return TraceStep("extern", "counter", {"of": of, "index": index})


def test_a_verdict_of_the_rule_tables() -> None:
    steps = [
        table(f"{OUTBOUND}.list_state", key__list_id="0x3", epoch="0x4", generation="0x5"),
        table(f"{OUTBOUND}.ipv4_flow", result="miss"),
        table(
            f"{OUTBOUND}.ipv4_rule", result="hit", rule="0x10000", verdict="0x3", sa_bundle="0x7"
        ),
    ]
    passed = read_path(steps).lists[Direction.OUTBOUND]
    assert (passed.hit, passed.rule_hit) == (False, True)
    assert (passed.rule, passed.verdict, passed.bundle) == (0x10000, 3, 7)
    # a hit of `leave_to_cpu`, which has no parameters
    steps[-1] = table(f"{OUTBOUND}.ipv4_rule", result="hit")
    assert not read_path(steps).lists[Direction.OUTBOUND].rule_hit


def test_a_packet_without_steps_has_an_empty_path() -> None:
    assert read_path([]) == SwitchPath()


def test_a_forwarded_packet() -> None:
    path = read_path(
        [
            table("l3_admit.l3_interface", result="hit", l3_if="0x1", vrf="0x2"),
            table(f"{INBOUND}.list_state", key__list_id="0x3", epoch="0x4", generation="0x5"),
            table(
                f"{INBOUND}.ipv4_flow",
                result="hit",
                epoch="0x4",
                rule="0x6",
                verdict="0x1",
                sa_bundle="0x0",
            ),
            table("routing.fib.ipv4_fib", result="hit", entry="0x2,0xa000100/24"),
            table("routing.multipath.nexthop_group", group="7"),
            table("routing.nexthop_resolution.nexthop", key__nexthop_id="0x8", l3_if="0x9"),
            TraceStep("fate", "transmitted", {"port": "11", "bytes": "64"}),
        ]
    )
    assert path == SwitchPath(
        ingress_l3_if=1,
        vrf=2,
        lists={Direction.INBOUND: ListPass(3, 4, 5, hit=True, rule=6, verdict=1, bundle=0)},
        route=Prefix(bytes([10, 0, 1, 0]), 24),
        has_route=True,
        group=7,
        nexthop=8,
        egress_l3_if=9,
        ports=[11],
    )


def test_a_packet_of_a_retired_flow_that_is_punted() -> None:
    path = read_path(
        [
            table("routing.fib.ipv6_fib", result="hit", entry="0x0,0x0/0"),
            table(f"{OUTBOUND}.list_state", key__list_id="0x3", epoch="0x4", generation="0x5"),
            table(f"{OUTBOUND}.ipv6_flow", result="hit", epoch="0x3", rule="0x6"),
            counter("punt_counter", "16"),
            TraceStep("fate", "packet_in", {"port": "510", "bytes": "99"}),
        ]
    )
    assert path.route == Prefix(bytes(16), 0)
    assert path.lists == {Direction.OUTBOUND: ListPass(3, 4, 5)}
    assert (path.is_punted, path.punt_reasons, path.ports) == (True, [16], [])


def test_a_dropped_packet() -> None:
    path = read_path(
        [
            table("routing.fib.ipv4_fib", result="miss"),
            counter("drop_counter", "24"),
            TraceStep("fate", "dropped", {"reason": "dropped_ingress"}),
        ]
    )
    assert (path.has_route, path.route, path.drop_reasons) == (False, None, [24])


def test_steps_of_unknown_form_are_ignored() -> None:
    path = read_path(
        [
            table("l3_admit.l3_interface", result="hit", l3_if="x"),
            table("routing.fib.ipv4_fib", result="hit", entry="?"),
            table(f"{OUTBOUND}.ipv4_flow", result="hit", epoch="0x3"),
            TraceStep("extern", "counter", {}),
            TraceStep("fate", "transmitted", {}),
        ]
    )
    assert path == SwitchPath(has_route=True)
