# SPDX-License-Identifier: Apache-2.0
"""Tests that the decoder for large requests, which works in pieces, returns what `json.loads`
returns."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.api import request_json

PARTS = ["a", '"', "\\", "/", "\n", "\x1f", "é", "\U0001f600", "\ud83d", "bbbbbbbb"]
TEXTS = st.lists(st.sampled_from(PARTS)).map("".join)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda children: st.lists(children) | st.dictionaries(TEXTS, children),
    max_leaves=10,
)


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_json, "PIECE", 24)


def result(decode: Any, text: str) -> Any:
    """Returns the result of a decoder, or the type of the error that it raises."""
    try:
        return decode(text)
    except ValueError as error:
        return type(error)


@given(DOCUMENTS, st.booleans())
def test_every_document_is_decoded_like_by_json(document: Any, ascii_only: bool) -> None:
    text = json.dumps(document, ensure_ascii=ascii_only)
    assert request_json.loads(text) == document


@given(TEXTS, st.integers(0, 500), st.sampled_from(["", '"', "\\", "\\u12", "\\ud83d", "\n"]))
def test_a_damaged_text_is_refused_like_by_json(text: str, at: int, damage: str) -> None:
    whole = json.dumps({"files": [text, text * 3]})
    at = min(at, len(whole))
    damaged = whole[:at] + damage + whole[at + 1 :]
    assert result(request_json.loads, damaged) == result(json.loads, damaged)


def test_halves_of_a_character_in_two_pieces_are_put_together() -> None:
    for before in range(30):
        text = "a" * before + "\U0001f600" + "\ud83d" + "b" * 40
        assert request_json.loads(json.dumps(text)) == text
