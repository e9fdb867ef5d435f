# SPDX-License-Identifier: Apache-2.0
"""Routes for people, printed as they come: no row waits for those behind it.

Columns are as wide as what was printed so far, so that a table of any length takes no more memory
than a page. Depends on click.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import click

COLUMNS = ("prefix", "vrf", "protocol", "next hop", "state")
GAP = "  "


def show(pages: Iterable[list[dict[str, Any]]]) -> None:
    """Prints the routes, page by page."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    widths = [len(name) for name in COLUMNS]
    began = False
    for page in pages:
        rows = [row for route in page for row in _rows(route)]
        if not rows:
            continue
        for cells, _ in rows:
            widths = [*map(max, widths, map(len, cells))]
        text = [] if began else [*_head(widths, columns)]
        began = True
        text += [_line(*row, widths, columns) for row in rows]
        click.echo("\n".join(text))
    if not began:
        click.echo("no routes")


def nexthop(leg: dict[str, Any]) -> str:
    """Returns one way out, as `ip route` would write it."""
    via = f"via {leg['gateway']} " if leg["gateway"] else ""
    weight = f" weight {leg['weight']}" if leg.get("weight", 1) != 1 else ""
    silent = " (no answer)" if leg["silent"] else ""
    state = silent if leg["up"] else " (down)"
    return f"{via}dev {leg['interface']}{weight}{state}"


def _rows(route: dict[str, Any]) -> Iterator[tuple[list[str], str]]:
    """The cells of a route's rows, one for each next hop, and the colour of its state."""
    legs = [*map(nexthop, route["nexthops"] + route["dead_nexthops"])] or [route["action"] or "-"]
    state, colour = ("installed", "") if route["installed"] else ("pending", "yellow")
    if route["unrouted"]:
        state, colour = f"not installed: {route['unrouted']}", "bright_black"
    if route["error"]:
        state, colour = route["error"], "red"
    yield (
        [
            route["prefix"],
            route.get("vrf_name", str(route["vrf"])),
            route["protocol"],
            legs[0],
            state,
        ],
        colour,
    )
    for leg in legs[1:]:
        yield ["", "", "", leg, ""], ""


def _head(widths: list[int], columns: int | None) -> Iterator[str]:
    yield _line([*COLUMNS], "", widths, columns)
    yield _cut("─" * (sum(widths) + len(GAP) * (len(widths) - 1)), columns)


def _line(cells: list[str], colour: str, widths: list[int], columns: int | None) -> str:
    line = GAP.join(map(str.ljust, cells, widths)).rstrip()
    cut = _cut(line, columns)
    if not colour or columns is None or cut != line:
        return cut
    return line[: len(line) - len(cells[-1])] + click.style(cells[-1], fg=colour)


def _cut(line: str, columns: int | None) -> str:
    """The line, ended by an ellipsis where a terminal is not as wide."""
    return line if columns is None or len(line) <= columns else line[: columns - 1] + "…"
