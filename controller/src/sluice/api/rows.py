# SPDX-License-Identifier: Apache-2.0
"""Long answers in slices: made, encoded and sent a bounded piece at a time.

`Rows` is the answer of a view whose length grows with the network: its slices are made while it is
sent. `pieces` cuts the JSON text of any other answer. Pure but for the turns that are awaited:
whoever makes a long answer awaits `turn` between two slices. Standard library only.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeAlias, TypeVar

SLICE = 64
"""Items that are made, or encoded, before the loop is let go: about a millisecond."""
TEXT = 1 << 14
"""Characters of one string that are encoded in one go."""

T = TypeVar("T")
U = TypeVar("U")

Turn: TypeAlias = Callable[[], Awaitable[None]]


class Rows:
    """A list that is made slice by slice; `more` are the answer's other fields, complete when the
    last slice has been taken. To be read once."""

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


async def made(items: Iterable[T], make: Callable[[T], U], turn: Turn) -> list[U]:
    """Returns what `make` makes of each item, with a turn for the loop after each slice."""
    result: list[U] = []
    for part in sliced(items):
        result += map(make, part)
        await turn()
    return result


def pieces(data: Any) -> Iterator[str]:
    """Yields the JSON text of `data` in pieces that each take a bounded time to encode."""
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
    """Whether the text is better made in pieces."""
    if isinstance(data, str):
        return len(data) > TEXT
    if isinstance(data, dict):
        return len(data) > SLICE or any(map(_is_long, data.values()))
    return isinstance(data, list) and (len(data) > SLICE or any(map(_is_long, data)))
