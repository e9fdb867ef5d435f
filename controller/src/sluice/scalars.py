# SPDX-License-Identifier: Apache-2.0
"""Converters for the scalars of a YAML document: each returns a value or raises ValueError.

What they raise says what is wrong with the value; `yamlreader` adds where it stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import TypeVar

T = TypeVar("T")


def integer(low: int, high: int) -> Callable[[object], int]:
    """A whole number from `low` to `high`."""

    def convert(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"{value!r} is not a whole number from {low} to {high}")
        return value

    return convert


def number(low: float, high: float) -> Callable[[object], float]:
    """A number from `low` to `high`."""

    def convert(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{value!r} is not a number")
        if not low <= value <= high:
            raise ValueError(f"{value!r} is not from {low} to {high}")
        return float(value)

    return convert


def boolean(value: object) -> bool:
    """`true` or `false`."""
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value


def text(value: object) -> str:
    """Text, not empty."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} is not text; put it in quotes")
    return value


def name(value: object) -> str:
    """A name that people give: of a router, an SPD, a rule. No colon, which marks made-up ones."""
    named = text(value)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", named):
        raise ValueError(f"{named!r} is not a name of letters, digits, '_', '.' and '-'")
    return named


def one_of(choices: Collection[T]) -> Callable[[object], T]:
    """One of some values."""

    def convert(value: object) -> T:
        for choice in choices:
            if choice == value and type(choice) is type(value):
                return choice
        if not choices:
            raise ValueError(f"{value!r}: none is configured")
        raise ValueError(f"{value!r} is not one of: {', '.join(map(str, choices))}")

    return convert


def interface_name(value: object) -> str:
    """The name of a network device."""
    named = text(value)
    if not re.fullmatch(r"[^\s\x00-\x1f\x7f/:*\"\\]{1,15}", named) or named in (".", ".."):
        raise ValueError(
            f'{named!r} is not an interface name: 1 to 15 characters, no spaces, none of / : * " \\'
        )
    return named
