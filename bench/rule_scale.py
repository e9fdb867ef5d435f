# SPDX-License-Identifier: Apache-2.0
"""Measures long lists of rules in a running router: `make bench-rule-scale`.

    python -m bench.rule_scale [--rules N ...] [--edits N] [--look]

A real switch and controller run for each number of rules (10,000 and 1,000,000). The steps are

    load         `sluice spd commit` of a file of rules
    add          `spd add` of a rule that no flow matches, at different positions in the list,
                 while flows in the cache are in use. Half of the rules are added by the command,
                 half by the API
    restart      a start of the controller with the committed rules
    first start  a start of a controller whose configuration names the file

The times of `load` and `add` begin at the start of the command, or when the request is sent. They
end when the switch has acknowledged the change, which the audit log records. Afterwards, `load`
still analyses the rules for warnings.

`stall` is the longest time for which the controller answered no other request during a step. If
other programs use the processor, `stall` and all other times are longer. So the results also have
the CPU time of controller, switch and command, and the load average. With `--look` or other
numbers, no results are written.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple, TypeVar

from bench.bars import compare_with_bars
from bench.cpu import process_seconds
from bench.policy_router import SPD, PolicyRouter, load_averages, started
from sluice_testkit import where
from sluice_testkit.bench import BenchCase, write_results
from sluice_testkit.namespaces import Lab

T = TypeVar("T")
RULES = (10_000, 1_000_000)
EDITS = 6
FLOW_CACHE = {"size": 65_536, "idle_timeout": 3600}
FLOWS = 1_000
TRAFFIC = ["--src", "10.1.1.1", "--dst", "10.2.0.2", "--sport", f"1024+{FLOWS}", "--dport", "2000"]
RATE = 2_000
"""Packets a second during the edits."""
DEADLINE = 900.0
RANGES = ("/32", "/32", "/28", "/24", "/24")
PROBE_SECONDS = 0.005
"""Time between two requests of the stall meter."""
LIMITS = {"load": 60.0, "restart": 60.0, "first start": 60.0, "bytes": 2e9, "stall": 0.05}
"""Limits in seconds and bytes."""
ADD_LIMITS = {10_000: 0.1, 1_000_000: 1.0}
"""Limits of the time until an added rule is in force, in seconds, by number of rules."""


def write_rules(path: Path, number: int) -> None:
    """Writes a file of rules. Packets of the benchmark match the last rule only."""
    draw = random.Random(1)

    def network() -> str:
        length = draw.choice(RANGES)
        bits = 32 - int(length[1:])
        address = (172 << 24 | draw.getrandbits(24)) >> bits << bits
        return ".".join(map(str, address.to_bytes(4, "big"))) + length

    with path.open("w", encoding="utf-8") as file:
        file.write(f"spd: {SPD}\ninbound:\n- {{name: all, action: bypass}}\noutbound:\n")
        for i in range(number - 1):
            action = "discard" if i % 3 else "bypass"
            file.write(
                f"- {{name: rule-{i}, action: {action}, source: {network()},"
                f" destination: {network()}, protocol: tcp,"
                f" destination_ports: [{1 + i % 50_000}]}}\n"
            )
        file.write("- {name: rest, action: bypass}\n")


class Cost(NamedTuple):
    """Holds the cost of one step. Times are in seconds, memory is in bytes."""

    seconds: float
    controller: float  # CPU time
    switch: float  # CPU time
    command: float  # CPU time
    stall: float
    memory: int  # largest resident memory of the controller during the step


class Addition(NamedTuple):
    """Holds the cost of an added rule. `in_force` is the time until the switch had acknowledged the
    rule, in seconds. `missed` counts the packets that did not find their flow."""

    cost: Cost
    by_command: bool
    in_force: float
    missed: int


@dataclass
class Results:
    """Holds the costs of all steps for one number of rules."""

    rules: int
    steps: dict[str, Cost] = field(default_factory=dict)
    additions: list[Addition] = field(default_factory=list)
    progress: list[str] = field(default_factory=list)
    loaded: float = 0.0
    """Seconds until the file of rules was in force."""


class StallMeter:
    """Measures the longest time for which a client waits for a small answer.

    The client sends one request after the other while the `with` block runs.
    """

    def __init__(self, path: Path) -> None:
        self.longest = 0.0
        self._path = path
        self._ended = Event()
        self._thread = Thread(target=self._ask)

    def __enter__(self) -> StallMeter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _ask(self) -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(DEADLINE)
            connection.connect(str(self._path))
            with connection.makefile("rb") as answers:
                while not self._ended.wait(PROBE_SECONDS):
                    start = time.monotonic()
                    connection.sendall(b'{"command": "spd progress"}\n')
                    answers.readline()
                    self.longest = max(self.longest, time.monotonic() - start)


def largest_memory(pid: int) -> int:
    """Returns the largest resident memory of a process since `reset_memory`, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel does not report VmHWM")


def reset_memory(pid: int) -> None:
    """Resets the kernel's record of a process's largest resident memory (VmHWM)."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def command_seconds() -> float:
    """Returns the CPU time of all commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Bench:
    """Changes the rules of a router, and measures the changes."""

    def __init__(self, router: PolicyRouter, results: Results) -> None:
        self._router, self._results = router, results

    def load(self, path: Path) -> None:
        """Commits a file."""
        start = time.time()
        cost, shown = self._measured(partial(self._command, "spd", "commit", str(path)))
        self._results.loaded = self._last_change() - start
        print(f"in force after {self._results.loaded:.1f} s")
        self._results.progress = list(dict.fromkeys(line.split(":")[0] for line in shown))
        self._record("load", cost)

    def add(self, number: int) -> None:
        """Adds a rule that no packet matches, at a position that depends on `number`."""
        router, rules = self._router, self._results.rules
        after = f"rule-{(2 * number + 1) * (rules - 1) // (2 * EDITS) % (rules - 1)}"
        rule = f"{{name: added-{number}, action: discard, source: 172.16.0.{number}}}"
        by_command = number % 2 == 0
        if by_command:
            words = ("spd", "add", SPD, "outbound", rule, "--after", after)
            change: Callable[[], object] = partial(self._command, *words)
        else:
            place = {"spd": SPD, "direction": "outbound", "at": "after", "next_to": after}
            change = partial(router.controller.ask, command="spd add", rule=rule, **place)
        before, start = router.switch.outbound([]), time.time()
        cost, _ = self._measured(change)
        missed = router.switch.outbound([]).since(before).misses
        addition = Addition(cost, by_command, self._last_change() - start, missed)
        self._results.additions.append(addition)
        way = "the command" if by_command else "the API"
        tell(f"add by {way}, in force after {addition.in_force:.3f} s, {missed} misses", cost)

    def restart(self) -> None:
        """Ends the controller and starts it again."""
        router = self._router
        router.controller.stop()
        start = time.monotonic()
        router.controller.start(deadline=DEADLINE)
        self.started("restart", time.monotonic() - start)

    def started(self, step: str, seconds: float) -> None:
        """Records the cost of the controller's start. The switch's CPU time is not measured."""
        pid = self._router.controller.pid
        loop = self._router.controller.ask(command="show", what="status")["loop"]
        stall = float(loop["loop"]["longest_stall"])
        self._record(
            step, Cost(seconds, process_seconds(pid), 0.0, 0.0, stall, largest_memory(pid))
        )

    def _measured(self, change: Callable[[], T]) -> tuple[Cost, T]:
        pid, switch_pid = self._router.controller.pid, self._switch()
        reset_memory(pid)
        before = process_seconds(pid), process_seconds(switch_pid), command_seconds()
        with StallMeter(self._router.controller.socket) as meter:
            start = time.monotonic()
            result = change()
            seconds = time.monotonic() - start
        after = process_seconds(pid), process_seconds(switch_pid), command_seconds()
        controller, switch, command = (now - then for now, then in zip(after, before, strict=True))
        memory = largest_memory(pid)
        return Cost(seconds, controller, switch, command, meter.longest, memory), result

    def _command(self, *words: str) -> list[str]:
        """Runs a `sluice` command. Returns the lines that it shows meanwhile."""
        argv = [str(where.sluice()), *words, "--socket", str(self._router.controller.socket)]
        done = subprocess.run(argv, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stderr.splitlines()

    def _last_change(self) -> float:
        """Returns the time of the last change in the audit log, in seconds since 1970."""
        path = Path(self._router.controller.config["state_dir"]) / "audit.log"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        times = [one["time"] for one in lines if one["event"] == "policy changed"]
        return datetime.fromisoformat(times[-1]).timestamp()

    def _switch(self) -> int:
        assert self._router.target.process is not None
        return self._router.target.process.pid

    def _record(self, step: str, cost: Cost) -> None:
        self._results.steps[step] = cost
        tell(step, cost)


def tell(step: str, cost: Cost) -> None:
    """Prints the cost of a step."""
    print(
        f"{step}: {cost.seconds:.3f} s; CPU: controller {cost.controller:.3f} s, switch"
        f" {cost.switch:.3f} s, command {cost.command:.3f} s; stall {cost.stall * 1e3:.0f} ms;"
        f" {cost.memory / 1e6:,.0f} MB; load average {load_averages()[0]}",
        flush=True,
    )


def measure(rules: int, edits: int) -> Results:
    """Runs all steps with one number of rules."""
    print(f"{rules:,} rules", flush=True)
    results = Results(rules)
    with Lab() as lab:
        path = lab.directory / "guard-rules.yaml"
        write_rules(path, rules)
        with started(lab, [{"name": "rest", "action": "bypass"}], FLOW_CACHE) as router:
            bench = Bench(router, results)
            bench.load(path)
            cached = router.send(TRAFFIC, ["--count", str(FLOWS), "--rate", "1000"])
            router.wait_sent(cached, DEADLINE)
            router.switch.settled([])
            traffic = router.send(TRAFFIC, ["--count", "100000000", "--rate", str(RATE)])
            try:
                for number in range(edits):
                    bench.add(number)
            finally:
                traffic.stop()
            bench.restart()
    with Lab() as lab:
        path = lab.directory / "guard-rules.yaml"
        write_rules(path, rules)
        start = time.monotonic()
        with started(lab, [], FLOW_CACHE, rule_file=path) as router:
            Bench(router, results).started("first start", time.monotonic() - start)
    return results


def cases_of(results: Results) -> Iterator[BenchCase]:
    """Yields the cases. The peer `limit` has the bar; a ratio of at least 1 means that it is met.

    The ratio is limit / value, since less is better.
    """
    rules = f"{results.rules:,} rules"

    def case(
        name: str, kind: str, values: list[float], limit: float, more: Any = None
    ) -> BenchCase:
        details = {"kind": kind} | (more or {})
        ratios = [limit / max(value, 1e-9) for value in values]
        return BenchCase(f"{name}, {rules}", ratios, {"limit": [1.0]}, details)

    for step, cost in results.steps.items():
        until = results.loaded if step == "load" else cost.seconds
        more = {"seconds": until, "whole command, s": cost.seconds} | _details(cost)
        yield case(f"{step}: seconds", "seconds", [until], LIMITS[step], more)
        yield case(f"{step}: bytes", "bytes", [float(cost.memory)], LIMITS["bytes"], more)
        if step == "load":
            yield case(f"{step}: stall", "stall", [cost.stall], LIMITS["stall"], more)
    for by_command, name in ((True, "from the command"), (False, "from the request")):
        found = [one for one in results.additions if one.by_command is by_command]
        seconds = [one.in_force for one in found]
        median = sorted(found, key=lambda one: one.in_force)[len(found) // 2]
        more = {"seconds": statistics.median(seconds)} | _details(median.cost)
        limit = ADD_LIMITS.get(results.rules, 1.0)
        yield case(f"add {name}: in force", f"add {name}", seconds, limit, more)
    stalls = [one.cost.stall for one in results.additions]
    yield case("add: stall", "stall", stalls, LIMITS["stall"])
    misses = [one.missed for one in results.additions]
    hits = [1.0 if missed == 0 else 0.0 for missed in misses]
    yield BenchCase(f"add: no flow missed, {rules}", hits, details={"kind": "hits"})


def _details(cost: Cost) -> dict[str, float]:
    return {
        "controller's CPU, s": cost.controller,
        "switch's CPU, s": cost.switch,
        "command's CPU, s": cost.command,
        "longest stall, ms": cost.stall * 1e3,
        "memory, MB": cost.memory / 1e6,
    }


def main(words: Iterable[str] | None = None) -> int:
    """Parses the command line, measures and writes the results."""
    parser = argparse.ArgumentParser(
        prog="rule_scale", description="Measures long lists of rules in a running router"
    )
    parser.add_argument("--rules", type=int, nargs="+", default=list(RULES))
    parser.add_argument("--edits", type=int, default=EDITS, help=f"default: {EDITS}")
    parser.add_argument("--look", action="store_true", help="write no results")
    arguments = parser.parse_args(None if words is None else list(words))
    before = load_averages()
    results = [measure(rules, arguments.edits) for rules in arguments.rules]
    cases = [case for one in results for case in cases_of(one)]
    bars = compare_with_bars("rule-scale", [one.as_dict() for one in cases])
    more = {
        "bars": [one.as_dict() for one in bars],
        "progress": {f"{one.rules:,} rules": one.progress for one in results},
        "load average": {"before": before, "after": load_averages()},
    }
    if not arguments.look and tuple(arguments.rules) == RULES and arguments.edits == EDITS:
        print(write_results("rule-scale", "limit / value", cases, more=more))
    for bar in bars:
        print(bar)
    return 0


if __name__ == "__main__":
    sys.exit(main())
