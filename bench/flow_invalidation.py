# SPDX-License-Identifier: Apache-2.0
"""Measures which cached flows survive a change of rules: `make bench-flow-invalidation`.

    python -m bench.flow_invalidation [--rounds N] [--rules N] [--look]

A real switch and controller have a list of 10,000 rules and 100,000 flows in the cache. While
sluice-traffic uses all flows in turn, one rule changes. The changes are

    add, delete    `spd add` and `spd delete` of a rule that no flow matches
    edit           `spd commit` of a list that differs in one rule, which no flow matches
    related add    `spd add` of a rule that changes the verdict of 1,000 flows
    related delete `spd delete` of that rule
    clear          `flow-cache clear`, which makes all flows invalid by a new epoch

After the commit, each flow gets at least one packet. The switch's counters show how many packets
found their flow in the cache. The benchmark then reads all flows from the switch, and compares
their verdicts with a plain search of the ordered rules. Exactly the flows whose verdict changes
must have been deleted, and `spd diff` must name them beforehand.

With `--look` or other numbers, no results are written.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sluice.p4.flows import FlowSlot
from sluice.policy.model import Direction, Rule, Selectors
from sluice.policy.spdfile import parse_rule
from sluice.state.flow_cache import FlowVerdict
from sluice.state.rule_search import matches

from bench.bars import compare_with_bars
from bench.cpu import process_seconds
from bench.policy_router import INBOUND, SPD, PolicyRouter, load_averages, started
from sluice_testkit.bench import BenchCase, write_results
from sluice_testkit.namespaces import Lab
from sluice_testkit.wait import wait_until

RULES, ROUNDS = 10_000, 2
SOURCES, SOURCE_PORTS, DESTINATION_PORTS = 100, 10, 100
FLOWS = SOURCES * SOURCE_PORTS * DESTINATION_PORTS
FIRST_SOURCE_PORT, FIRST_DESTINATION_PORT = 1024, 2000
SOURCE = bytes([10, 1, 1])
"""First octets of the flows' source addresses."""
OPTIONS = [
    *("--src", f"10.1.1.0+{SOURCES}", "--dst", "10.2.0.2"),
    *("--sport", f"{FIRST_SOURCE_PORT}+{SOURCE_PORTS}"),
    *("--dport", f"{FIRST_DESTINATION_PORT}+{DESTINATION_PORTS}"),
]
FLOW_CACHE = {"size": 200_000, "idle_timeout": 3600}
FILL_RATE, RATE = 4_000, 15_000
PACKETS = 3 * FLOWS
BEFORE_COMMIT = 1.0
"""Seconds of traffic before the commit."""
DEADLINE = 120.0
UNRELATED = {"name": "unrelated", "action": "discard", "source": "172.31.9.0/24"}
RELATED_PORTS = [FIRST_DESTINATION_PORT + 5]
RELATED = {
    "name": "related",
    "action": "discard",
    "protocol": "udp",
    "destination_ports": RELATED_PORTS,
}
CHANGED = SOURCES * SOURCE_PORTS  # flows that RELATED matches

RuleText = Mapping[str, Any]


def rules_of(number: int) -> list[RuleText]:
    """Returns the rules of the list. One rule in a hundred matches some of the flows. The last rule
    matches everything.
    """
    others: list[RuleText] = [
        {
            "name": f"rule-{i}",
            "action": "discard",
            "source": f"172.{16 + i // 2560}.{i // 10 % 256}.0/24",
            "protocol": "udp",
            "destination_ports": [1 + i],
        }
        for i in range(number - DESTINATION_PORTS - 1)
    ]
    gap = max(1, len(others) // DESTINATION_PORTS)
    for i in range(DESTINATION_PORTS):
        port = FIRST_DESTINATION_PORT + i
        action = "discard" if i % 10 == 0 else "bypass"
        rule = {"name": f"port-{port}", "action": action, "protocol": "udp"}
        others.insert(i * (gap + 1), rule | {"destination_ports": [port]})
    return [*others, {"name": "rest", "action": "bypass"}]


class OrderedList:
    """Holds the rules of the list as this benchmark expects them, and searches them in order."""

    def __init__(self, texts: Iterable[RuleText]) -> None:
        self.texts = list(texts)
        self._parsed: dict[str, Rule] = {}

    def document(self) -> str:
        """Returns the SPD as `spd commit` and `spd diff` read it."""
        return json.dumps({"spd": SPD, "inbound": INBOUND, "outbound": self.texts})

    def verdicts(self, flows: Iterable[FlowSlot]) -> dict[FlowSlot, Rule]:
        """Returns the first rule that matches each flow, by trying each rule in turn.

        To save time, flows with the same addresses are grouped. Flows of one group differ in their
        ports only. So a rule that does not match one of them even without its ports is skipped for
        the whole group.
        """
        pending: dict[tuple[bytes, bytes], list[tuple[FlowSlot, Selectors]]] = defaultdict(list)
        for slot in flows:
            packet = slot.key.selectors()
            assert packet is not None, f"a fragment is in the cache: {slot}"
            pending[packet.source, packet.destination].append((slot, packet))
        found: dict[FlowSlot, Rule] = {}
        for rule in self._rules():
            without_ports = rule._replace(source_port=None, destination_port=None)
            for pair in pending.values():
                if pair and matches(without_ports, pair[0][1]):
                    found |= {slot: rule for slot, packet in pair if matches(rule, packet)}
                    pair[:] = [one for one in pair if one[0] not in found]
        assert not any(pending.values()), "some flows match no rule"
        return found

    def _rules(self) -> Iterator[Rule]:
        for text in self.texts:
            written = json.dumps(text)
            if written not in self._parsed:
                self._parsed[written] = parse_rule(written, "", Direction.OUTBOUND, None)
            yield self._parsed[written]


class EditResult(NamedTuple):
    """Holds the effect of a change on the flows. Packets are counted from the request to the end of
    the measurement.
    """

    hit_rate: float
    misses: int
    deleted: int  # flows that the commit deleted
    differ: int  # flows whose verdict is another one than before
    wrong: int  # valid flows whose verdict is not that of the ordered search
    seconds: float  # from request to answer
    cpu_seconds: float  # CPU time of the controller from request to answer
    kept_epoch: bool

    @property
    def kept(self) -> float:
        """Lower bound of the share of flows that had no miss: assumes one miss per flow."""
        return max(0.0, 1 - self.misses / FLOWS)


@dataclass(frozen=True)
class Edit:
    """Describes a change. `ask` makes the request; `expected` returns the rules after it."""

    name: str
    kind: str
    ask: Callable[[PolicyRouter, OrderedList], object]
    expected: Callable[[list[RuleText]], list[RuleText]] = field(default=lambda texts: texts)
    changes: int | None = 0  # flows whose verdict changes; None: all flows get a new epoch


def add(rule: RuleText) -> Callable[[PolicyRouter, OrderedList], object]:
    """Returns the request that adds a rule before all others."""
    place = {"spd": SPD, "direction": "outbound", "at": "first"}
    request = place | {"rule": json.dumps(rule)}
    return lambda router, _: router.controller.ask(command="spd add", **request)


def delete(rule: RuleText) -> Callable[[PolicyRouter, OrderedList], object]:
    """Returns the request that deletes a rule."""
    request = {"spd": SPD, "direction": "outbound", "name": rule["name"]}
    return lambda router, _: router.controller.ask(command="spd delete", **request)


def commit(router: PolicyRouter, rules: OrderedList) -> object:
    """Commits the expected rules as a file."""
    files = [{"name": "guard.yaml", "text": rules.document()}]
    return router.controller.ask(command="spd commit", files=files)


def clear(router: PolicyRouter, _: OrderedList) -> object:
    """Retires all flows."""
    return router.controller.ask(command="flow-cache clear", spd=SPD)


def edited(texts: list[RuleText]) -> list[RuleText]:
    """Returns the rules with another network in one that no flow matches."""
    at = len(texts) // 2
    while "source" not in texts[at]:
        at += 1
    second = str(texts[at]["source"]).split(".")[1]
    another = "172.30.77.0/24" if second != "30" else "172.29.77.0/24"
    return [*texts[:at], {**texts[at], "source": another}, *texts[at + 1 :]]


def without_first(texts: list[RuleText]) -> list[RuleText]:
    """Returns the rules without the first one."""
    return texts[1:]


EDITS = (
    Edit("add", "unrelated", add(UNRELATED), lambda texts: [UNRELATED, *texts]),
    Edit("delete", "unrelated", delete(UNRELATED), without_first),
    Edit("edit", "unrelated", commit, edited),
    Edit("related add", "related", add(RELATED), lambda texts: [RELATED, *texts], CHANGED),
    Edit("related delete", "related", delete(RELATED), without_first, CHANGED),
    Edit("clear", "retired", clear, changes=None),
)


class Bench:
    """Changes the rules of a router while all its flows are in use."""

    def __init__(self, router: PolicyRouter, rules: OrderedList) -> None:
        self._router, self._rules = router, rules

    def fill(self) -> None:
        """Sends packets of all flows until each has a cached flow."""

        def all_cached() -> bool:
            before = self._router.switch.settled([])
            pace = ["--count", str(FLOWS), "--rate", str(FILL_RATE)]
            self._router.wait_sent(self._router.send(OPTIONS, pace), DEADLINE)
            return self._router.switch.settled([]).since(before).misses == 0

        wait_until(all_cached, 600, "all flows to be cached")

    def check_diff(self, edit: Edit) -> None:
        """Checks that `spd diff` names the flows that an edit will change."""
        after = OrderedList(edit.expected(self._rules.texts))
        files = [{"name": "guard.yaml", "text": after.document()}]
        (found,) = self._router.controller.ask(command="spd diff", files=files, flows=FLOWS)
        flows = found["flows"].get("outbound", {"changed": 0, "first": []})
        named = {
            (one["source"], one["source_port"], one["destination_port"]) for one in flows["first"]
        }
        assert flows["changed"] == len(named) == edit.changes, (edit.name, flows["changed"])
        assert {port for *_, port in named} <= set(RELATED_PORTS), named

    def measure(self, edit: Edit) -> EditResult:
        """Applies an edit under traffic."""
        router, switch = self._router, self._router.switch
        flows, epoch, deleted = self._flows(), router.epoch(), self._deleted()
        ids = [identifier for identifier, _ in router.rules()]
        self._rules.texts = edit.expected(self._rules.texts)
        traffic = router.send(OPTIONS, ["--count", str(PACKETS), "--rate", str(RATE)])
        try:
            time.sleep(BEFORE_COMMIT)
            before = switch.outbound(ids)
            cpu, start = process_seconds(router.controller.pid), time.monotonic()
            edit.ask(router, self._rules)
            seconds = time.monotonic() - start
            cpu = process_seconds(router.controller.pid) - cpu
            on_answer = switch.outbound(ids)
            # The counters of new rules start at 0. Deleted rules keep their counts.
            ids = list(dict.fromkeys([*ids, *(identifier for identifier, _ in router.rules())]))
            router.wait_sent(traffic, DEADLINE)
        finally:
            traffic.stop()
        last = switch.settled(ids)
        since, after = last.since(before), last.since(on_answer)
        assert after.packets >= FLOWS, f"only {after.packets} packets came after the commit"
        found = self._flows()
        assert len(found) == FLOWS, f"{len(found)} flows are in the switch"
        return EditResult(
            since.hit_rate,
            since.misses,
            self._deleted() - deleted,
            sum(flows[slot][1:] != verdict[1:] for slot, verdict in found.items()),
            self._wrong(found),
            seconds,
            cpu,
            router.epoch() == epoch,
        )

    def _flows(self) -> dict[FlowSlot, FlowVerdict]:
        """Reads the flows from the switch, without those of the router's own packets."""
        found = self._router.switch.flows()
        return {slot: found[slot] for slot in found if slot.key.source.startswith(SOURCE)}

    def _deleted(self) -> int:
        return self._router.counters("flow_invalidation").get("flows that a commit deleted", 0)

    def _wrong(self, flows: Mapping[FlowSlot, FlowVerdict]) -> int:
        """Returns the number of flows whose verdict differs from that of the ordered search."""
        numbered = self._router.rules()
        assert [name for _, name in numbered] == [one["name"] for one in self._rules.texts]
        ids = {name: identifier for identifier, name in numbered}
        epoch = self._router.epoch()
        expected = self._rules.verdicts(flows)
        return sum(
            verdict != FlowVerdict(epoch, ids[expected[slot].name], expected[slot].action)
            for slot, verdict in flows.items()
            if verdict.epoch == epoch
        )


def tell(edit: Edit, result: EditResult) -> None:
    """Prints the result of one edit."""
    print(
        f"{edit.name}: {result.kept:.3%} of the flows kept, {result.hit_rate:.3%} hits,"
        f" {result.deleted:,} flows deleted, {result.differ:,} verdicts changed, {result.wrong}"
        f" wrong, {'same' if result.kept_epoch else 'new'} epoch, {result.seconds * 1e3:.0f} ms"
        f" ({result.cpu_seconds * 1e3:.0f} ms of the controller's CPU)",
        flush=True,
    )


def measure(rules: int, rounds: int) -> dict[Edit, list[EditResult]]:
    """Applies all edits in turn, in each round."""
    results: dict[Edit, list[EditResult]] = {edit: [] for edit in EDITS}
    texts = rules_of(rules)
    with Lab() as lab, started(lab, texts, FLOW_CACHE) as router:
        bench = Bench(router, OrderedList(texts))
        for _ in range(rounds):
            bench.fill()
            for edit in EDITS:
                if edit.changes is not None:
                    bench.check_diff(edit)
                results[edit].append(bench.measure(edit))
                tell(edit, results[edit][-1])
    return results


def cases_of(results: Mapping[Edit, Sequence[EditResult]]) -> Iterator[BenchCase]:
    """Yields the cases that have a bar."""
    for edit, found in results.items():
        details = {
            "kind": edit.kind,
            "hit rate": statistics.median(one.hit_rate for one in found),
            "misses": statistics.median(one.misses for one in found),
            "flows deleted": statistics.median(one.deleted for one in found),
            "milliseconds": statistics.median(one.seconds for one in found) * 1e3,
            "controller's CPU, ms": statistics.median(one.cpu_seconds for one in found) * 1e3,
        }
        if edit.kind == "unrelated":
            name = f"{edit.name}: flows kept"
            yield BenchCase(name, [one.kept for one in found], details=details)
        elif edit.kind == "related":
            exact = [float(edit.changes == one.deleted == one.differ) for one in found]
            yield BenchCase(
                f"{edit.name}: exactly the changed flows deleted", exact, details=details
            )
        else:
            name = f"{edit.name}: hits"
            yield BenchCase(name, [one.hit_rate for one in found], details=details)
        right = [1 - one.wrong / FLOWS for one in found]
        yield BenchCase(f"{edit.name}: right verdicts", right, details={"kind": "verdicts"})


def main(words: Iterable[str] | None = None) -> int:
    """Parses the command line, measures and writes the results."""
    parser = argparse.ArgumentParser(
        prog="flow_invalidation", description="Measures which flows survive a change of rules"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default: {ROUNDS}")
    parser.add_argument("--rules", type=int, default=RULES, help=f"default: {RULES:,}")
    parser.add_argument("--look", action="store_true", help="write no results")
    arguments = parser.parse_args(None if words is None else list(words))
    cases = list(cases_of(measure(arguments.rules, arguments.rounds)))
    bars = compare_with_bars("flow-invalidation", [one.as_dict() for one in cases])
    more = {"bars": [one.as_dict() for one in bars], "load average": load_averages()}
    if not arguments.look and arguments.rules == RULES:
        unit = f"share of {FLOWS:,} flows, with {RULES:,} rules"
        print(write_results("flow-invalidation", unit, cases, more=more))
    for bar in bars:
        print(bar)
    return 0


if __name__ == "__main__":
    sys.exit(main())
