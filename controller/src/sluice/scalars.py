# SPDX-License-Identifier: Apache-2.0
"""Provides converters for scalars of a YAML document. Each returns a value or raises ValueError.

The error describes the problem; `yamlreader` adds the position. Each converter also carries a
description of the values that it accepts (Markdown). The configuration reference uses this
description.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

MAXIMUM_SOCKET_PATH = 107
"""Longest path in sun_path, in bytes (unix(7))."""


@dataclass(frozen=True, slots=True)
class Scalar(Generic[T]):
    """Holds a converter, and a description of the values that it accepts, such as `1 to 255`."""

    convert: Callable[[object], T]
    values: str

    def __call__(self, value: object) -> T:
        """Converts a value. Raises ValueError."""
        return self.convert(value)


def takes(values: str) -> Callable[[Callable[[object], T]], Scalar[T]]:
    """Decorates a converter as a Scalar that accepts `values`."""
    return lambda convert: Scalar(convert, values)


def integer(low: int, high: int, unit: str = "") -> Scalar[int]:
    """Returns a Scalar for integers from `low` to `high`, in `unit` (such as `bytes`)."""

    def convert(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            of = f" {unit}" if unit else ""
            raise ValueError(f"{value!r} is not a whole number from {low} to {high}{of}")
        return value

    return Scalar(convert, _range(low, high, unit))


def number(low: float, high: float, unit: str = "") -> Scalar[float]:
    """Returns a Scalar for numbers from `low` to `high`, in `unit`."""

    def convert(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{value!r} is not a number")
        if not low <= value <= high:
            raise ValueError(f"{value!r} is not from {low} to {high}{f' {unit}' if unit else ''}")
        return float(value)

    return Scalar(convert, _range(low, high, unit))


def _range(low: float, high: float, unit: str) -> str:
    words = f"{readable(low)} to {readable(high)}"
    return f"{words} {unit}" if unit else words


def readable(value: float) -> str:
    """Formats a number: with thousands separators from 10,000 on, or as 2^32-1 or 2^64-1."""
    if isinstance(value, int) and value > 2**31 and value.bit_length() % 32 == 0:
        return f"2^{value.bit_length()}-1"
    return (
        f"{value:,g}" if isinstance(value, float) else f"{value:,}" if value >= 1e4 else f"{value}"
    )


@takes("`true`, `false`")
def boolean(value: object) -> bool:
    """Converts `true` or `false`."""
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value


@takes("text")
def text(value: object) -> str:
    """Converts text, which must not be empty."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} is not text; put it in quotes")
    return value


@takes("path")
def path(value: object) -> Path:
    """Converts the path of a file or directory."""
    return Path(text(value))


@takes("name")
def name(value: object) -> str:
    """Converts the name of a router, SPD, rule, etc. Refuses a colon, which marks generated
    names."""
    named = text(value)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", named):
        raise ValueError(f"{named!r} is not a name of letters, digits, '_', '.' and '-'")
    return named


def one_of(choices: Collection[T], values: str = "") -> Scalar[T]:
    """Returns a Scalar that accepts the members of `choices`.

    `values` describes the choices. It must be given if `choices` is filled only later.
    """

    def convert(value: object) -> T:
        for choice in choices:
            if choice == value and type(choice) is type(value):
                return choice
        if not choices:
            raise ValueError(f"{value!r}: none is configured")
        raise ValueError(f"{value!r} is not one of: {', '.join(map(str, choices))}")

    return Scalar(convert, values or ", ".join(f"`{choice}`" for choice in choices))


@takes("interface name")
def interface_name(value: object) -> str:
    """Converts the name of a network device."""
    named = text(value)
    if not re.fullmatch(r"[^\s\x00-\x1f\x7f/:*\"\\]{1,15}", named) or named in (".", ".."):
        raise ValueError(
            f'{named!r} is not an interface name: 1 to 15 characters, no spaces, none of / : * " \\'
        )
    return named


@takes("path")
def socket_path(value: object) -> Path:
    """Converts the absolute path of a Unix socket."""
    found = text(value)
    if not found.startswith("/") or len(found.encode()) > MAXIMUM_SOCKET_PATH:
        raise ValueError(
            f"{found!r}: a socket's path begins with / and has at most {MAXIMUM_SOCKET_PATH} bytes"
        )
    return Path(found)
