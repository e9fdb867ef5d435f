# SPDX-License-Identifier: Apache-2.0
"""Decodes the JSON text of a large request without long pauses.

The decoder of the standard library holds the interpreter's lock while it decodes a text. So even in
another thread it would block the event loop. A request with a million rules has a string of 120 MB.
`loads` decodes long strings in pieces, and other threads run between two pieces. Depends on the
standard library only.
"""

from __future__ import annotations

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any

PIECE = 1 << 18
"""Characters of a string that are decoded at once."""

_PART = re.compile(r'[^"\\]*(?:\\(?:u[0-9a-fA-F]{4}|[^u])[^"\\]*)*', re.DOTALL)
"""The longest part of a string's text without an incomplete escape."""
_HIGH_SURROGATES = "\ud800", "\udbff"
_ESCAPED_SURROGATE = 6
"""Length of an escaped surrogate: `\\ud800`."""


def loads(text: str) -> Any:
    """Decodes a JSON text like `json.loads`. Raises ValueError or RecursionError."""
    return _PiecewiseDecoder().decode(text)


class _PiecewiseDecoder(json.JSONDecoder):
    """A decoder that calls `_decode_string` for strings."""

    def __init__(self) -> None:
        super().__init__()
        self.parse_string = _decode_string
        self.scan_once = py_make_scanner(self)


def _decode_string(text: str, at: int, strict: bool = True) -> tuple[str, int]:
    """Decodes the string that begins behind the quote before `at`, like `scanstring`.

    Returns the string and the position behind its end. Raises ValueError.
    """
    pieces: list[str] = []
    while True:
        part = _PART.match(text, at, at + PIECE)
        end = at if part is None else part.end()
        if end < at + PIECE - 2 * _ESCAPED_SURROGATE:  # the end of the string, or an error
            last, end = scanstring(text, at, strict)
            return "".join((*pieces, last)), end
        piece, _ = scanstring(text[at:end] + '"', 0, strict)
        if _HIGH_SURROGATES[0] <= piece[-1] <= _HIGH_SURROGATES[1] and text[end - 1] != piece[-1]:
            piece, end = piece[:-1], end - _ESCAPED_SURROGATE  # the other half may follow
        pieces.append(piece)
        at = end
