# SPDX-License-Identifier: Apache-2.0
"""Tests the generation of JSON in pieces: each piece must be short, and all pieces together must be
the complete JSON text."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.api.rows import SLICE, TEXT, made, pieces

LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=20)
TREES: Any = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=20,
)


@settings(max_examples=200)
@given(data=TREES, repeated=st.integers(1, 3 * SLICE))
def test_the_text_is_that_of_json(data: Any, repeated: int) -> None:
    whole = {"data": [data] * repeated, "text": "\N{SNOWMAN}\N{GRINNING FACE}\n" * repeated}
    assert "".join(pieces(whole)) == json.dumps(whole)


def test_no_piece_is_long() -> None:
    rule = {"name": "x" * 50, "text": "y" * 100, "hits": 1}
    lists = {"ok": True, "data": [{"spd": "corp", "rules": [rule] * 5000, "digest": "z"}] * 2}
    text = {"ok": True, "data": "\n" * (20 * TEXT)}
    for data in (lists, text):
        found = [*pieces(data)]
        assert json.loads("".join(found)) == data
        assert max(map(len, found)) <= max(2 * TEXT, SLICE * 300)
        assert len(found) > 20


def test_what_is_made_has_a_turn_after_each_slice() -> None:
    turns: list[int] = []
    done: list[int] = []

    async def turn() -> None:
        turns.append(len(done))

    def make(item: int) -> int:
        done.append(item)
        return item * 2

    assert asyncio.run(made(range(3 * SLICE + 1), make, turn)) == [*range(0, 6 * SLICE + 2, 2)]
    assert turns == [SLICE, 2 * SLICE, 3 * SLICE, 3 * SLICE + 1]
