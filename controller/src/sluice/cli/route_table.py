# SPDX-License-Identifier: Apache-2.0
"""Prints routes for people as they arrive.

A column is as wide as the widest cell printed so far. So for a table of any length, only one page
is in memory. On a terminal, a row that is too wide is folded: a long prefix gets a line of its own,
and text that does not fit into its column continues in the next line. Depends on click.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from textwrap import wrap
from typing import Any

import click

from sluice.cli.printable import printable

COLUMNS = ("prefix", "vrf", "protocol", "next hop", "state")
GAP = "  "
LONGEST = (16, 15, 10, 0, 18)
"""Width limits of a folded row's columns, in characters.

The column "next hop" gets the remaining width, and "state" gets what then remains.
"""
NEXT_HOP, STATE = 3, 4
NARROWEST = 12


def show(pages: Iterable[list[dict[str, Any]]]) -> None:
    """Prints the routes, page by page."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    widths = [len(name) for name in COLUMNS]
    began = False
    for page in pages:
        rows = [
            ([*map(printable, cells)], colour) for route in page for cells, colour in _rows(route)
        ]
        if not rows:
            continue
        for cells, _ in rows:
            widths = [*map(max, widths, map(len, cells))]
        fitting = _fitting(widths, columns)
        text = [] if began else [*_head(fitting)]
        began = True
        for cells, colour in rows:
            text += _lines(cells, colour if columns is not None else "", fitting)
        click.echo("\n".join(text))
    if not began:
        click.echo("no routes")


def nexthop(leg: dict[str, Any]) -> str:
    """Returns one next hop in the notation of `ip route`."""
    via = f"via {leg['gateway']} " if leg["gateway"] else ""
    weight = f" weight {leg['weight']}" if leg.get("weight", 1) != 1 else ""
    silent = " (no answer)" if leg["silent"] else ""
    state = silent if leg["up"] else " (down)"
    return f"{via}dev {leg['interface']}{weight}{state}"


def _rows(route: dict[str, Any]) -> Iterator[tuple[list[str], str]]:
    """Yields a route's rows: one for each next hop, with its cells and the colour of its state."""
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


def _fitting(widths: list[int], columns: int | None) -> list[int]:
    """Returns the column widths, reduced to fit a terminal of `columns` characters.

    Returns the widths unchanged if `columns` is None.
    """
    gaps = len(GAP) * (len(widths) - 1)
    if columns is None or sum(widths) + gaps <= columns:
        return widths
    narrow = [min(width, most) for width, most in zip(widths, LONGEST, strict=True)]
    left = columns - gaps - sum(narrow)
    narrow[NEXT_HOP] = max(NARROWEST, min(widths[NEXT_HOP], left))
    narrow[STATE] = min(widths[STATE], narrow[STATE] + max(0, left - narrow[NEXT_HOP]))
    return narrow


def _head(widths: list[int]) -> Iterator[str]:
    yield from _lines([*COLUMNS], "", widths)
    yield "─" * (sum(widths) + len(GAP) * (len(widths) - 1))


def _lines(cells: list[str], colour: str, widths: list[int]) -> Iterator[str]:
    """Yields the printed lines of one row. There are several if a cell is folded."""
    prefix, *others = cells
    if len(prefix) > widths[0]:
        yield prefix
        prefix = ""
    columns = [wrap(cell, width) for cell, width in zip(others, widths[1:], strict=True)]
    for parts in zip_longest([prefix], *columns, fillvalue=""):
        line = GAP.join(map(str.ljust, parts, widths)).rstrip()
        state = parts[-1]
        if colour and state:
            line = line[: len(line) - len(state)] + click.style(state, fg=colour)
        yield line
