# SPDX-License-Identifier: Apache-2.0
"""Scalars of a YAML document: each converts to a value, or raises ValueError.

The error says what is wrong with the value; `yamlreader` adds where it stands. Each also says which
values it takes, in the words of the configuration reference (Markdown).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

MAXIMUM_SOCKET_PATH = 107
"""Bytes that fit into sun_path, unix(7)."""


@dataclass(frozen=True, slots=True)
class Scalar(Generic[T]):
    """A converter and the values that it takes, such as `1 to 255`."""

    convert: Callable[[object], T]
    values: str

    def __call__(self, value: object) -> T:
        """The value converted. Raises ValueError."""
        return self.convert(value)


def takes(values: str) -> Callable[[Callable[[object], T]], Scalar[T]]:
    """Makes a Scalar of the converter below it."""
    return lambda convert: Scalar(convert, values)


def integer(low: int, high: int, unit: str = "") -> Scalar[int]:
    """A whole number from `low` to `high`, of `unit` (`bytes`, `packets a second`)."""

    def convert(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            of = f" {unit}" if unit else ""
            raise ValueError(f"{value!r} is not a whole number from {low} to {high}{of}")
        return value

    return Scalar(convert, _range(low, high, unit))


def number(low: float, high: float, unit: str = "") -> Scalar[float]:
    """A number from `low` to `high`, of `unit`."""

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
    """A number for people: thousands from 10,000 on, powers of two that nobody knows by heart."""
    if isinstance(value, int) and value > 2**31 and value.bit_length() % 32 == 0:
        return f"2^{value.bit_length()}-1"
    return (
        f"{value:,g}" if isinstance(value, float) else f"{value:,}" if value >= 1e4 else f"{value}"
    )


@takes("`true`, `false`")
def boolean(value: object) -> bool:
    """`true` or `false`."""
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value


@takes("text")
def text(value: object) -> str:
    """Text, not empty."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} is not text; put it in quotes")
    return value


@takes("path")
def path(value: object) -> Path:
    """The path of a file or directory."""
    return Path(text(value))


@takes("name")
def name(value: object) -> str:
    """A name that people give: of a router, an SPD, a rule. No colon, which marks made-up ones."""
    named = text(value)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", named):
        raise ValueError(f"{named!r} is not a name of letters, digits, '_', '.' and '-'")
    return named


def one_of(choices: Collection[T], values: str = "") -> Scalar[T]:
    """One of some values; `values` where the choices are not yet known."""

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
    """The name of a network device."""
    named = text(value)
    if not re.fullmatch(r"[^\s\x00-\x1f\x7f/:*\"\\]{1,15}", named) or named in (".", ".."):
        raise ValueError(
            f'{named!r} is not an interface name: 1 to 15 characters, no spaces, none of / : * " \\'
        )
    return named


@takes("path")
def socket_path(value: object) -> Path:
    """The path of a Unix socket."""
    found = text(value)
    if not found.startswith("/") or len(found.encode()) > MAXIMUM_SOCKET_PATH:
        raise ValueError(
            f"{found!r}: a socket's path begins with / and has at most {MAXIMUM_SOCKET_PATH} bytes"
        )
    return Path(found)
