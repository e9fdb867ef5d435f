# SPDX-License-Identifier: Apache-2.0
"""Plots bench/results/*.json as PNG and SVG beside them: `make bench-plots`.

    python -m bench.plot [NAME ...]

Each case is a group of bars, one for Sluice and one for each peer. The scale is logarithmic,
because peers differ by powers of ten. The result `spd-cache` is drawn as lines over the position of
the matching rule, together with the figures that VPP has published.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "sluice"  # the same result always gives the same file

from matplotlib import pyplot  # noqa: E402

RESULTS = Path(__file__).parent / "results"


def plot(result: dict[str, Any], directory: Path) -> list[Path]:
    """Draws one result. Returns the paths of the files."""
    figure = positions(result) if result["name"] == "spd-cache" else bars(result)
    written = []
    for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
        path = directory / f"{result['name']}.{kind}"
        figure.savefig(path, bbox_inches="tight", dpi=120, metadata=metadata)
        written.append(path)
    pyplot.close(figure)
    return written


def positions(result: dict[str, Any]) -> Any:
    """Draws the rate over the position of the matching rule: a panel for each number of flows, and
    one for VPP. Punted packets are drawn in all panels of Sluice.
    """
    cases = [case for case in result["cases"] if case.get("details", {}).get("kind") == "position"]
    punted = [case for case in result["cases"] if "cpu" in case["peers"]]
    numbers = sorted({case["details"]["flows"] for case in cases})
    vpp = result["published"]["VPP"]
    figure, panels = pyplot.subplots(
        1, len(numbers) + 1, figsize=(4 * (len(numbers) + 1), 4), sharex=True, sharey=True
    )
    for axes, flows in zip(panels, numbers, strict=False):
        chosen = [case for case in cases if case["details"]["flows"] == flows]
        rules = [case["details"]["rule"] for case in chosen]
        lines = {"flow cache": [case["ours"] for case in chosen]}
        for name in ("rules-tier", "linear", "compact-linear"):
            keys = [name if name == "rules-tier" else f"{name}-{rule}" for rule in rules]
            lines[name] = [case["peers"][key] for case, key in zip(chosen, keys, strict=True)]
        for name, rates in lines.items():
            axes.plot(rules, rates, marker="o", markersize=3, label=name)
        axes.plot(
            [case["details"]["rule"] for case in punted],
            [case["peers"]["cpu"] for case in punted],
            "kx",
            label="punted (switch and controller)",
        )
        axes.set_title(f"Sluice, {flows:,} flow{'s' * (flows > 1)}", fontsize=10)
    for name, color in (("flow cache", "C0"), ("linear", "C2")):
        rates = [rate * 1e6 for rate in vpp[name]]
        panels[-1].plot(vpp["rules"], rates, marker="o", markersize=3, color=color)
    panels[-1].set_title("VPP, as published (Neoverse N1)", fontsize=10)
    for axes in panels:
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("position of the matching rule")
        axes.grid(which="major", alpha=0.3)
    panels[0].set_ylabel(result["unit"])
    lines, labels = panels[0].get_legend_handles_labels()
    figure.legend(lines, labels, fontsize=8, ncols=5, loc="upper center", bbox_to_anchor=(0.5, 0))
    return figure


def bars(result: dict[str, Any]) -> Any:
    """Draws a group of bars for each case."""
    cases = result["cases"]
    peers = sorted({peer for case in cases for peer in case["peers"]})
    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.22 * len(cases) * (len(peers) + 2)))
    height = 0.8 / (len(peers) + 1)
    for place, name in enumerate(["ours", *peers]):
        values = [case["ours"] if name == "ours" else case["peers"].get(name) for case in cases]
        where = [row + place * height for row, value in enumerate(values) if value is not None]
        known = [value for value in values if value is not None]
        axes.barh(where, known, height=height * 0.9, label=name)
    axes.set_yticks([row + 0.4 - height / 2 for row in range(len(cases))])
    axes.set_yticklabels([case["workload"] for case in cases], fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel(result["unit"])
    axes.set_title(f"{result['name']}, {result['machine']['cpu']}", fontsize=10)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    axes.grid(axis="x", which="both", alpha=0.3)
    return figure


def main() -> int:
    """Plots the named results, or all."""
    parser = argparse.ArgumentParser(prog="plot", description="Plots benchmark results")
    parser.add_argument("names", nargs="*", help="results to plot (default: all)")
    names = parser.parse_args().names or [path.stem for path in sorted(RESULTS.glob("*.json"))]
    for name in names:
        for path in plot(json.loads((RESULTS / f"{name}.json").read_text()), RESULTS):
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
