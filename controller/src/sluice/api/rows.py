# SPDX-License-Identifier: Apache-2.0
"""Makes, encodes and sends long answers in slices of bounded size.

`Rows` is an answer whose length grows with the network. Its slices are made one by one while the
answer is sent. `pieces` splits the JSON text of any other answer. Code that makes a long answer
awaits `turn` between two slices, so that the event loop can serve other work. No other side
effects. Imports only the standard library.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeAlias, TypeVar

SLICE = 64
"""Number of items that are made or encoded before a yield to the loop. They take about 1 ms."""
TEXT = 1 << 14
"""Number of characters of one string that are encoded at once."""

T = TypeVar("T")
U = TypeVar("U")

WaitForTurn: TypeAlias = Callable[[], Awaitable[None]]


class Rows:
    """Holds a list that is made slice by slice while it is read. It can be read only once.

    `more` has the answer's other fields. It is complete only after the last slice.
    """

    def __init__(self, slices: AsyncGenerator[list[Any], None], more: dict[str, Any]) -> None:
        self.slices = slices
        self.more = more

    async def whole(self) -> list[Any]:
        """Returns all rows in one list."""
        return [row async for part in self.slices for row in part]


def sliced(items: Iterable[T], size: int = SLICE) -> Iterator[list[T]]:
    """Yields the items in lists of at most `size`."""
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part


async def made(items: Iterable[T], make: Callable[[T], U], turn: WaitForTurn) -> list[U]:
    """Applies `make` to each item and returns the results. Awaits `turn` after each slice."""
    result: list[U] = []
    for part in sliced(items):
        result += map(make, part)
        await turn()
    return result


def pieces(data: Any) -> Iterator[str]:
    """Yields the JSON text of `data` in pieces. The time to encode a piece is bounded."""
    if isinstance(data, dict) and any(map(_is_long, data.values())):
        before = "{"
        for key, value in data.items():
            yield f"{before}{json.dumps(str(key))}: "
            yield from pieces(value)
            before = ", "
        yield "}"
    elif isinstance(data, list) and data and _is_long(data):
        before = "["
        for part in sliced(data):
            if any(map(_is_long, part)):
                for item in part:
                    yield before
                    yield from pieces(item)
                    before = ", "
            else:
                yield before + json.dumps(part)[1:-1]
                before = ", "
        yield "]"
    elif isinstance(data, str) and len(data) > TEXT:
        yield '"'
        for start in range(0, len(data), TEXT):
            yield json.dumps(data[start : start + TEXT])[1:-1]
        yield '"'
    else:
        yield json.dumps(data)


def _is_long(data: Any) -> bool:
    """Returns whether `data` is so long that `pieces` splits its JSON text."""
    if isinstance(data, str):
        return len(data) > TEXT
    if isinstance(data, dict):
        return len(data) > SLICE or any(map(_is_long, data.values()))
    return isinstance(data, list) and (len(data) > SLICE or any(map(_is_long, data)))
