# SPDX-License-Identifier: Apache-2.0
"""Measures the costs of the rule tables, by which the limits of `mode: auto` were chosen.

    python -m bench.table_bounds {lookup,commit} [--target TARGET]

    lookup    CPU time of the switch for a packet, by number of entries in the table that the packet
              is looked up in. Only the last entries match. For comparison: with the flow cache.
    commit    `spd add` and `spd delete` of one rule, by number of rules: time until the rule is in
              force, and CPU time of controller and switch. For comparison: with the flow cache.

The limits are in `sluice.policy.table_use`. Writes no results; prints one line for each case.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence

from bench import new_flows, policy_router
from bench.cpu import process_seconds
from sluice_testkit.controller import Controller
from sluice_testkit.namespaces import Lab
from sluice_testkit.wait import wait_until

CACHE, TABLES = "cache", "rules"
SCANNED = (10, 100, 1_000, 3_000, 10_000)
COMMITTED = (100, 1_000, 1_900, 10_000)
SPD = policy_router.SPD
RATE, PACKETS = 500.0, 1_000
ROUNDS = 5
REST_SECONDS = 1.0
"""Time after a commit in which the entries of the old list are deleted."""


def wait_for_tables(controller: Controller, mode: str) -> None:
    """Waits until the rule tables hold the whole list, if the mode uses them."""

    def held() -> bool:
        lists = controller.ask(command="show", what="flow-cache", spd=SPD)
        return all(one["rule_tables"]["is_complete"] for one in lists)

    if mode == TABLES:
        wait_until(held, 120, "the list in the rule tables")


def lookup_costs(target: str, mode: str, rules: int) -> list[float]:
    """Returns the switch's CPU time for a packet in µs, of each round."""
    config = new_flows.configuration(target)
    lists = {"inbound": new_flows.rules(1), "outbound": new_flows.rules(rules)}
    config["spds"] = [{"name": SPD, "mode": mode} | lists]
    for interface in config["interfaces"]:
        interface["spd"] = SPD if interface["port"] == 2 else "none"
    workload = new_flows.Workload(mode, 1, 2, cached=True)
    costs = []
    with Lab() as lab, new_flows.started(lab, target, config) as router:
        wait_for_tables(router.controller, mode)
        router.warm(workload)
        for _ in range(ROUNDS):
            before, punted = process_seconds(router.target.pid), router.punted()
            received = router.send_cached_flows(workload, PACKETS, RATE)
            costs.append((process_seconds(router.target.pid) - before) / received * 1e6)
            if router.punted() != punted:
                raise RuntimeError("packets were punted")
    return costs


def commit_costs(mode: str, rules: int) -> list[tuple[float, float]]:
    """Returns the time until a rule is in force, and the CPU time, in ms, of each commit."""
    added = {"name": "added", "action": "discard", "destination": "192.168.3.0/24"}
    requests = (
        {"command": "spd add", "rule": json.dumps(added), "at": "first"},
        {"command": "spd delete", "name": added["name"]},
    )
    costs = []
    lists = new_flows.rules(rules)
    with Lab() as lab, policy_router.started(lab, lists, {}, mode=mode) as router:
        wait_for_tables(router.controller, mode)
        pids = (router.controller.pid, router.target.pid)
        for request in requests * ROUNDS:
            before, began = sum(map(process_seconds, pids)), time.monotonic()
            router.controller.ask(spd=SPD, direction="outbound", **request)
            seconds = time.monotonic() - began
            time.sleep(REST_SECONDS)
            costs.append((seconds * 1e3, (sum(map(process_seconds, pids)) - before) * 1e3))
    return costs


def main(words: Sequence[str] | None = None) -> int:
    """Parses the command line, measures and prints."""
    parser = argparse.ArgumentParser(prog="table_bounds")
    parser.add_argument("part", choices=("lookup", "commit"))
    parser.add_argument("--target", choices=(new_flows.OURS, new_flows.PEER), default="bmv2")
    given = parser.parse_args(words)
    if given.part == "lookup":
        cases = [(CACHE, SCANNED[0]), *((TABLES, number) for number in SCANNED)]
        for mode, number in cases:
            cost = statistics.median(lookup_costs(given.target, mode, number))
            print(f"{given.target}, {mode}, {number:,} rules: {cost:.0f} µs of CPU a packet")
        return 0
    for number in COMMITTED:
        for mode in (CACHE, TABLES):
            costs = commit_costs(mode, number)
            in_force, cpu = (statistics.median(one) for one in zip(*costs, strict=True))
            print(
                f"{mode}, {number:,} rules: in force after {in_force:.0f} ms, {cpu:.0f} ms of CPU"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
