# SPDX-License-Identifier: Apache-2.0
"""Escapes characters that are not printable, so that data cannot control the terminal."""

from __future__ import annotations

from typing import Any


def printable(text: str, *, lines: bool = False) -> str:
    r"""Returns the text with each character that is not printable escaped: `\x1b`, `\n`, `\udcff`.

    With `lines`, newlines are not escaped.
    """
    if text.isprintable():
        return text
    kept = "\n" if lines else ""
    return "".join(one if one.isprintable() or one in kept else _escaped(one) for one in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def printable_data(data: Any, *, lines: bool = False) -> Any:
    """Returns JSON data in which `printable` was applied to all texts, keys included."""
    if isinstance(data, str):
        return printable(data, lines=lines)
    if isinstance(data, dict):
        return {
            printable_data(key, lines=lines): printable_data(value, lines=lines)
            for key, value in data.items()
        }
    if isinstance(data, list):
        return [printable_data(one, lines=lines) for one in data]
    return data
