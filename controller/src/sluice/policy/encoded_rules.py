# SPDX-License-Identifier: Apache-2.0
"""Encodes the rules of lists as JSON, and caches the text of each rule.

Without the cache, encoding would take most of the time of a commit, although a commit changes few
rules. The record on disk (`spdstore`) and the history (`history`) share the cached texts. Depends
on spdtext and state.common_ends.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from sluice.policy.model import Rule
from sluice.policy.spdtext import to_document
from sluice.state.common_ends import convert_changed
from sluice.state.spd import ListName


class _List(NamedTuple):
    """Holds the rules of a list, and the JSON text of each rule."""

    rules: tuple[Rule, ...]
    texts: tuple[str, ...]


class EncodedRules:
    """Caches the texts of the rules that each list had at its last encoding.

    Not thread-safe: only one thread at a time may call `of`.
    """

    def __init__(self) -> None:
        self._lists: dict[ListName, _List] = {}

    def of(self, name: ListName, rules: tuple[Rule, ...]) -> str:
        """Returns a list's rules as a JSON array. Each rule has the keys of an SPD file, sorted."""
        before = self._lists.get(name, _List((), ()))
        texts = convert_changed(_encode, rules, before.rules, before.texts)
        self._lists[name] = _List(rules, texts)
        return f"[{', '.join(texts)}]"


def _encode(rule: Rule) -> str:
    return json.dumps(to_document(rule), sort_keys=True)
