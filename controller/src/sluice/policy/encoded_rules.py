# SPDX-License-Identifier: Apache-2.0
"""Encodes the rules of lists as JSON, for the record on disk (`spdstore`) and the history.

- A short list is an array of rules with the keys of an SPD file. The text of each rule is cached.
  Otherwise encoding would take most of the time of a commit, although a commit changes few rules.
- A long list is `{"blocks": [DIGEST, ...]}`. Each block has about a thousand rules, and is the file
  `blocks/DIGEST.json.gz` in the state directory. An edit of the list adds one or two files. Record
  and history share the files.

A digest is SHA-256 of a block's text, so damage to a block's file is detected. Depends on spdtext,
durable, state.blocks and state.common_ends.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from sluice.durable import replace_bytes
from sluice.policy.model import Rule
from sluice.policy.spdtext import from_document, to_document
from sluice.state.blocks import MEAN_LENGTH, Block, changed_blocks
from sluice.state.common_ends import changed_part, convert_changed
from sluice.state.spd import ListName

_TO_JSON = json.JSONEncoder(sort_keys=True).encode
LONGEST_SHORT = 4 * MEAN_LENGTH
"""Largest number of rules of a list that is not divided into blocks."""
DIRECTORY_MODE = 0o700


class _ShortList(NamedTuple):
    """Holds the rules of a list, and the JSON text of each rule."""

    rules: tuple[Rule, ...] = ()
    texts: tuple[str, ...] = ()


class _LongList(NamedTuple):
    """Holds the rules of a list, and its blocks. The files of the blocks exist."""

    rules: tuple[Rule, ...] = ()
    blocks: tuple[Block, ...] = ()


def is_long(rules: tuple[Rule, ...]) -> bool:
    """Returns whether a list is stored in blocks."""
    return len(rules) > LONGEST_SHORT


class EncodedRules:
    """Encodes and decodes lists, and writes and removes the files of blocks.

    Not thread-safe: only one thread at a time may call a method.
    """

    def __init__(self, state_dir: Path) -> None:
        self._directory = state_dir / "blocks"
        self._short: dict[ListName, _ShortList] = {}
        self._long: dict[ListName, _LongList] = {}
        self._used: dict[str, frozenset[str]] = {}

    def of(self, name: ListName, rules: tuple[Rule, ...]) -> str:
        """Returns a list's rules as JSON with sorted keys. The blocks of a long list are durable on
        return. Raises OSError."""
        if is_long(rules):
            blocks = self._blocks_of(name, rules)
            return json.dumps({"blocks": [block.digest for block in blocks]})
        before = self._short.get(name, _ShortList())
        texts = convert_changed(_encode, rules, before.rules, before.texts)
        self._short[name] = _ShortList(rules, texts)
        return f"[{', '.join(texts)}]"

    def _blocks_of(self, name: ListName, rules: tuple[Rule, ...]) -> tuple[Block, ...]:
        before = self._long.get(name, _LongList())
        texts: list[str] = []

        def ends_block(at: int) -> bool:
            texts.append(_encode(rules[at]))
            return zlib.crc32(texts[-1].encode()) % MEAN_LENGTH == 0

        def write(start: int, end: int) -> str:
            digest = self._write(",\n".join(texts))
            texts.clear()
            return digest

        part = changed_part(rules, before.rules)
        blocks = changed_blocks(part, len(rules), before.blocks, ends_block, write)
        self._long[name] = _LongList(rules, blocks)
        return blocks

    def _write(self, rules: str) -> str:
        """Writes a block unless it exists. Returns its digest."""
        text = f"[{rules}]\n".encode()
        digest = hashlib.sha256(text).hexdigest()
        path = self._path(digest)
        if not path.exists():
            self._directory.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
            replace_bytes(path, gzip.compress(text, compresslevel=1, mtime=0))
        return digest

    def _path(self, digest: str) -> Path:
        return self._directory / f"{digest}.json.gz"

    def decode(self, document: Any, name: ListName | None = None) -> tuple[Rule, ...]:
        """Returns the rules of a list. `document` is the decoded JSON text.

        `name` names a list that is in force: its rules are cached, so the next call of `of` encodes
        only rules that have changed. Raises OSError, ValueError, KeyError, TypeError, EOFError or
        zlib.error.
        """
        if isinstance(document, list):
            return tuple(map(from_document, document))
        rules: list[Rule] = []
        blocks = []
        for digest in map(str, document["blocks"]):
            text = gzip.decompress(self._path(digest).read_bytes())
            if hashlib.sha256(text).hexdigest() != digest:
                raise ValueError(f"the block {digest} does not have the digest that names it")
            block = [*map(from_document, json.loads(text))]
            blocks.append(Block(len(block), digest))
            rules += block
        listed = tuple(rules)
        if name is not None:
            self._long[name] = _LongList(listed, tuple(blocks))
        return listed

    # -- removing

    def use(self, user: str, digests: Iterable[str]) -> None:
        """Sets the blocks that `user` (the record or the history) needs."""
        self._used[user] = frozenset(digests)

    def remove_unused(self) -> None:
        """Removes the files of blocks that no user needs."""
        used = frozenset[str]().union(*self._used.values())
        self._long = {
            name: known
            for name, known in self._long.items()
            if used.issuperset(block.digest for block in known.blocks)
        }
        with suppress(FileNotFoundError):
            for path in self._directory.iterdir():
                if path.name.partition(".")[0] not in used:
                    with suppress(OSError):
                        path.unlink()


def digests_of(document: Any) -> list[str]:
    """Returns the digests of the blocks of a list. `value` is the decoded JSON text."""
    return [] if isinstance(document, list) else [*map(str, document["blocks"])]


def _encode(rule: Rule) -> str:
    return _TO_JSON(to_document(rule))
