# SPDX-License-Identifier: Apache-2.0
"""Prints the API's data about security associations as tables. Depends on rich."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.text import Text

from sluice.cli.table import Row, number_text, print_table

GOOD = ("in use", "standby", "retiring")


def _sas(console: Console, data: list[dict[str, Any]]) -> None:
    rows: list[Row] = [
        [
            item["name"],
            item["bundle"],
            "out" if item["direction"] == "outbound" else "in",
            f"{item['spi']:#x}",
            "-" if item["engine"] is None else str(item["engine"]),
            Text(item["state"], style="green" if item["state"] in GOOD else "red"),
            number_text(item["packets"]),
            number_text(item["bytes"]),
            _notes(item),
        ]
        for item in data
    ]
    columns = ["name", "bundle", "way", ">SPI", ">engine", "state"]
    print_table(console, [*columns, ">packets", ">bytes", "notes"], rows, "no SAs")


def _notes(item: dict[str, Any]) -> str:
    notes = [] if item["why"] is None else [item["why"]]
    if item["age"] == "soft":
        notes.append("soft limit reached: rekey")
    notes += [f"{name}: {count:,}" for name, count in sorted(item["drops"].items())]
    if item["remote"] is not None and not notes:
        notes.append(f"to {item['remote']}")
    if item["traffic"] is not None:
        notes.insert(0, f"carries {item['traffic']}")
    if (bound := _bound_of(item["path_mtu"])) is not None:
        notes.append(bound)
    return ", ".join(notes)


def _bound_of(path_mtu: dict[str, Any] | None) -> str | None:
    """Describes a path MTU and what limits it: a link, or an ICMP error.

    Returns None if only the configuration limits it.
    """
    if path_mtu is None:
        return None
    by = path_mtu["interface"]
    if path_mtu["told_by"] is not None:
        by = f"told by {path_mtu['told_by']}, for {path_mtu['forgotten_in']:.0f} s more"
    return None if by is None else f"path MTU {path_mtu['bytes']:,} ({by})"


def _deleted(console: Console, data: list[dict[str, Any]]) -> None:
    for item in data:
        console.print(f"deleted: {item['name']}, {item['direction']} SPI {item['spi']:#x}")


VIEWS: dict[str, Callable[[Console, Any], None]] = {"sas": _sas, "sa del": _deleted}
