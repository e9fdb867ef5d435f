# SPDX-License-Identifier: Apache-2.0
"""Defines the bars of each benchmark, and compares results with the bars.

A bar is a value that a benchmark must reach. If it applies to several cases, the worst case must
reach it. If a peer could not be measured, the bars that compare with this peer are not met.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ComparisonBar:
    """Holds the lowest allowed ratio of Sluice's result to that of a peer.

    The bar applies to all cases of the benchmark, or only to the cases of one kind or size.
    """

    peer: str
    least: float
    aim: float | None = None
    kind: str | None = None
    size: str | None = None  # prefix of the names of the cases

    @property
    def name(self) -> str:
        """Name of the bar in reports."""
        about = ", ".join(filter(None, (self.size, self.kind)))
        return f"{self.peer} ({about})" if about else self.peer


@dataclass(frozen=True)
class RateBar:
    """Holds the lowest allowed value of Sluice's own result.

    The bar applies to all cases of the benchmark, or only to the cases of one kind.
    """

    least: float
    aim: float | None = None
    kind: str | None = None

    @property
    def name(self) -> str:
        """Name of the bar in reports."""
        return "ours" if self.kind is None else f"ours ({self.kind})"


BARS: Mapping[str, Sequence[ComparisonBar | RateBar]] = {
    "p4-cpu": (ComparisonBar("bmv2", 100, 200), RateBar(5e6, 10e6)),
    "lpm4-full": (
        ComparisonBar("rte_fib", 1, 1.5, "batch"),
        ComparisonBar("rte_fib", 2, 3, "dependent"),
        ComparisonBar("prefix-trie", 8),
        ComparisonBar("dir-24-8", 8, 15, "memory"),
    ),
    "lpm6-full": (
        ComparisonBar("rte_fib6", 2, 3),
        ComparisonBar("prefix-trie", 8),
        RateBar(0, 150e6, "batch"),
    ),
    "lpm-auto": (
        ComparisonBar("best-own", 0.95, None, "size"),
        ComparisonBar("rte_fib", 2, None, "updates"),
    ),
    "exact": (
        ComparisonBar("hashbrown", 1, 1.5),
        ComparisonBar("rte_hash", 1, 1.5),
        ComparisonBar("random-read", 2 / 3, size="10000000 entries"),
    ),
    "ternary": (ComparisonBar("rte_acl", 1, 1.5),),
    "writes": (
        RateBar(400e3, None, "updates"),
        ComparisonBar("bmv2", 1, None, "updates"),
        ComparisonBar("alone", 0.95, 1, "forwarding"),
        ComparisonBar("limit", 1, None, "memory"),
    ),
    "multipath": (ComparisonBar("single-path", 0.98, 1),),
    "route-load": (
        ComparisonBar("null-fpm", 0.8, 0.95, "load"),
        ComparisonBar("null-fpm", 0.8, 0.95, "withdrawal"),
        *(
            ComparisonBar("limit", 1, None, kind)
            for kind in ("bytes", "lag", "ready", "settled", "connected", "table")
        ),
    ),
    "failover": (ComparisonBar("limit", 1, 5, "failover"),),
    "flow-eviction": (ComparisonBar("lru", 0.98, 1),),
    "flow-invalidation": (
        RateBar(0.99, 1, "unrelated"),
        RateBar(1, None, "related"),
        RateBar(1, None, "verdicts"),
    ),
    "rule-scale": (
        *(
            ComparisonBar("limit", 1, None, kind)
            for kind in (
                "seconds",
                "bytes",
                "stall",
                "add from the command",
                "add from the request",
            )
        ),
        RateBar(1, None, "hits"),
    ),
    "new-flows": (
        RateBar(60e3, 100e3, "one list"),
        RateBar(35e3, None, "two lists"),
        ComparisonBar("limit", 1, None, "latency"),
        ComparisonBar("limit", 1, None, "fairness"),
    ),
    "esp": (
        ComparisonBar("aead-64", 0.6, 0.8),
        ComparisonBar("aead-1350", 0.85, 0.95),
        ComparisonBar("libipsec", 10),
    ),
    "spd-cache": (
        ComparisonBar("best-position", 0.95),
        ComparisonBar("linear-1000", 15, 50),
        ComparisonBar("linear-1", 0.93, 0.98),
        ComparisonBar("cpu", 50),
    ),
}


@dataclass(frozen=True)
class BarResult:
    """Holds whether a benchmark reaches a bar. `reached` is the worst value among the cases to
    which the bar applies, or None if none of these cases was measured.
    """

    bar: ComparisonBar | RateBar
    reached: float | None
    where: str | None

    @property
    def met(self) -> bool:
        """Whether the bar is met."""
        return self.reached is not None and self.reached >= self.bar.least

    def as_dict(self) -> dict[str, Any]:
        """Returns the result as it is written to the results file."""
        return {
            "name": self.bar.name,
            "bar": self.bar.least,
            "aim": self.bar.aim,
            "reached": self.reached,
            "where": self.where,
            "met": self.met,
        }

    def __str__(self) -> str:
        aim = "" if self.bar.aim is None else f", aim {self.bar.aim:,.4g}"
        bar = f"{self.bar.name}: bar {self.bar.least:,.4g}{aim}"
        if self.reached is None:
            return f"{bar}: NOT MET, not measured"
        met = "met" if self.met else "NOT MET"
        return f"{bar}: {met}, {self.reached:,.4g} at worst ({self.where})"


def compare_with_bars(name: str, cases: Iterable[Mapping[str, Any]]) -> list[BarResult]:
    """Compares the cases of benchmark `name` with the benchmark's bars. A case that has a kind
    names it in its `details`.
    """
    cases = list(cases)
    return [_verdict(bar, cases) for bar in BARS.get(name, ())]


def _verdict(bar: ComparisonBar | RateBar, cases: Sequence[Mapping[str, Any]]) -> BarResult:
    reached: float | None = None
    where = None
    for case in cases:
        if bar.kind is not None and case.get("details", {}).get("kind") != bar.kind:
            continue
        if isinstance(bar, ComparisonBar) and not case["workload"].startswith(bar.size or ""):
            continue
        value = case["ours"] if isinstance(bar, RateBar) else case["ratio"].get(bar.peer)
        if value is not None and (reached is None or value < reached):
            reached, where = value, case["workload"]
    return BarResult(bar, reached, where)
