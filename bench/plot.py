# SPDX-License-Identifier: Apache-2.0
"""Plots bench/results/*.json as PNG and SVG beside them: `make bench-plots`.

    python -m bench.plot [NAME ...]

Each case is a group of bars, one for Sluice and one for each peer. The scale is logarithmic, since
peers differ by powers of ten.
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
    written = []
    for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
        path = directory / f"{result['name']}.{kind}"
        figure.savefig(path, bbox_inches="tight", dpi=120, metadata=metadata)
        written.append(path)
    pyplot.close(figure)
    return written


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
