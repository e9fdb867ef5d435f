# SPDX-License-Identifier: Apache-2.0
"""Prints tables in the layout common to all commands. Depends on rich."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

Row = list[str | Text]


def print_table(console: Console, columns: list[str], rows: list[Row], empty: str) -> None:
    """Prints a table, or the text `empty` if there are no rows.

    Markup in cells is not interpreted. A cell that is a `Text` has a style.
    """
    if not rows:
        if empty:
            console.print(empty)
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:  # `>`: right-aligned numbers; `=`: text that is never folded
        is_number = column.startswith(">")
        table.add_column(
            column.lstrip(">="),
            justify="right" if is_number else "left",
            no_wrap=column.startswith((">", "=")),
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    console.print(table)


def good_or_bad(good: bool, yes: str, no: str) -> Text:
    """Returns `yes` in green if `good` is true, else `no` in red."""
    return Text(yes if good else no, style="green" if good else "red")


def number_text(value: int | None) -> str:
    """Returns a count as text, or a dash if it is unknown."""
    return "-" if value is None else f"{value:,}"


def counted(number: int, what: str) -> str:
    """Returns a number with its noun, as `1 rule` or `2 rules`."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")
