# SPDX-License-Identifier: Apache-2.0
"""Stores the state of the SPDs' lists (the record) on disk, before it is written to the switch.

The record is one JSON file, replaced as a whole (`durable`): a failed write leaves the old file.

- Only the owner may read or write the file, because the rules reveal which traffic is protected.
- A checksum detects damage. A damaged file raises SpdStoreError. Its numbers must not be guessed,
  because with wrong numbers a stale flow could become valid again.
- The file also holds the last committed rules, in the language of SPD files. A restart loads them.
- A list of thousands of rules is stored in blocks (`encoded_rules`), and the file has the blocks'
  digests. Blocks are durable before the file names them.

Depends on state.spd, which defines the record, and on encoded_rules for the text of rules.
"""

from __future__ import annotations

import binascii
import hashlib
import json
import os
import stat
import sys
import zlib
from array import array
from collections.abc import Container
from pathlib import Path
from typing import Any

from sluice.durable import FILE_MODE, replace_text
from sluice.garbage_collection import paused_if
from sluice.policy.encoded_rules import EncodedRules, digests_of, is_long
from sluice.policy.model import Direction
from sluice.state.rule_ids import MAXIMUM_RULE_ID
from sluice.state.spd import (
    MAXIMUM_COUNT,
    MAXIMUM_LIST_ID,
    ListName,
    ListRecord,
    ListVersion,
    RuleNumbers,
    SpdRecord,
    fingerprint,
)

FILE_NAME = "spd.json"
VERSION = 2
DIRECTORY_MODE = 0o700
LONG_FILE = 100_000
"""Length of a file in bytes from which on there are no garbage collections while it is decoded: the
file of 20,000 rules in blocks."""


DAMAGED = (
    ValueError, KeyError, TypeError, AttributeError, RecursionError, EOFError, zlib.error
)  # fmt: skip
"""Exceptions that a damaged file causes."""


class SpdStoreError(Exception):
    """Raised when the file cannot be read or written, or when its content is damaged."""


def prepare(directory: Path) -> None:
    """Creates the state directory with access for its owner only. Restricts an existing directory.

    Raises SpdStoreError if the directory belongs to another user, who could replace its files.
    """
    try:
        directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        found = directory.stat()
        if found.st_uid not in (0, os.geteuid()):
            raise SpdStoreError(
                f"{directory}: belongs to user {found.st_uid}, who could replace the policy in it;"
                f" give it to user {os.geteuid()}, or set state_dir"
            )
        _restrict_mode(directory, DIRECTORY_MODE)
    except OSError as error:
        raise SpdStoreError(f"{directory}: {error.strerror}") from None


def _restrict_mode(path: Path, mode: int) -> None:
    """Removes all permissions that are not in `mode`. Raises OSError."""
    now = stat.S_IMODE(path.stat().st_mode)
    if now & ~mode:
        path.chmod(now & mode)


class SpdStore:
    """Reads and writes the record in a state directory, which must exist.

    `on_disk` is the record that a restart would load. It is None while the content of the file is
    unknown.
    """

    def __init__(self, directory: Path, encoded: EncodedRules | None = None) -> None:
        self.path = directory / FILE_NAME
        self.on_disk: SpdRecord | None = None
        self._encoded = encoded or EncodedRules(directory)

    def load(self) -> SpdRecord:
        """Loads the last saved record, or an empty one if there is no file. Sets `on_disk`.

        Raises SpdStoreError; `on_disk` is then None.
        """
        self.on_disk = None
        self.on_disk = self._load()
        return self.on_disk

    def _load(self) -> SpdRecord:
        try:
            text = self.path.read_bytes()
            _restrict_mode(self.path, FILE_MODE)
        except FileNotFoundError:
            return SpdRecord()
        except OSError as error:
            raise SpdStoreError(f"{self.path}: {error.strerror}") from None
        try:
            document = json.loads(text)
            if document["version"] != VERSION:
                raise ValueError(f"version {document['version']}, but this program reads {VERSION}")
            body = document["body"]
            if document["sha256"] != _checksum(body):
                raise ValueError("the checksum is wrong")
            self._use_blocks(body)
            with paused_if(len(text) > LONG_FILE):
                return self._decode(body)
        except OSError as error:
            raise SpdStoreError(f"{error.filename}: {error.strerror}") from None
        except DAMAGED as error:
            raise SpdStoreError(
                f"{self.path}: damaged ({error}); remove the file, and restart the switch to remove"
                " its flows"
            ) from None

    def _decode(self, body: Any) -> SpdRecord:
        """Decodes the body of the file.

        Raises OSError if a block is missing, and an exception of DAMAGED if the body is malformed.
        """
        issued = {
            _number(int(list_id), MAXIMUM_LIST_ID): ListVersion(
                *(_number(n, MAXIMUM_COUNT) for n in version)
            )
            for list_id, version in body["issued"].items()
        }
        caches = {str(spd): enabled is True for spd, enabled in body["caches"].items()}
        # Older files lack "bundles", so the meaning of bundle numbers in the switch is unknown.
        # This is safe: all numbers count as reassigned, and the entities that name them are closed.
        bundles = {
            _number(int(number), MAXIMUM_COUNT): str(name)
            for number, name in body.get("bundles", {}).items()
        }
        return SpdRecord(tuple(map(self._decode_list, body["lists"])), issued, caches, bundles)

    def _decode_list(self, one: Any) -> ListRecord:
        name: ListName = str(one["spd"]), Direction(one["direction"])
        rules = None if one["rules"] is None else self._encoded.decode(one["rules"], name)
        rule_ids = _rule_ids(one["rule_ids"])
        numbers = None
        if rules is not None and "numbers" in one:
            numbers = RuleNumbers(_decode_numbers(one["numbers"]), rule_ids)
            rule_ids = dict(zip(map(fingerprint, rules), numbers.listed, strict=True))
            rule_ids |= numbers.others
        return ListRecord(
            _number(one["list_id"], MAXIMUM_LIST_ID),
            *name,
            ListVersion(
                _number(one["epoch"], MAXIMUM_COUNT), _number(one["generation"], MAXIMUM_COUNT)
            ),
            str(one["digest"]),
            rule_ids,
            rules,
            numbers,
        )

    def forget_committed(self, keep: Container[str] = ()) -> SpdRecord:
        """Removes the committed rules and cache states of all SPDs except `keep` from the record.

        If a removed SPD is configured again, it starts with the configured rules. The numbers of
        its lists stay in the record, so that entities in the switch keep their meaning. Returns the
        record now on disk. Raises SpdStoreError.
        """
        record = self.load()
        lists = tuple(
            one if one.spd in keep else one._replace(rules=None, numbers=None)
            for one in record.lists
        )
        caches = {spd: enabled for spd, enabled in record.caches.items() if spd in keep}
        kept = record._replace(lists=lists, caches=caches)
        if kept != record:
            self.save(kept)
        return kept

    def save(self, record: SpdRecord) -> None:
        """Saves a record. On return, the record is durable. Raises SpdStoreError."""
        try:
            body = self._encode(record)
        except OSError as error:
            raise SpdStoreError(f"{error.filename}: {error.strerror}") from None
        digest = hashlib.sha256(body.encode()).hexdigest()
        text = f'{{"body": {body}, "sha256": "{digest}", "version": {VERSION}}}'
        try:
            replace_text(self.path, text, replacing=self._reset_on_disk)
        except OSError as error:
            raise SpdStoreError(f"{self.path}: {error.strerror}") from None
        self._use_blocks(json.loads(body))
        self.on_disk = record

    def prepare(self, record: SpdRecord) -> None:
        """Writes the blocks of long lists, so that `save` takes little time.

        May be called from another thread. Raises SpdStoreError.
        """
        try:
            for one in record.lists:
                if one.rules is not None and is_long(one.rules):
                    self._encoded.of((one.spd, one.direction), one.rules)
        except OSError as error:
            raise SpdStoreError(f"{error.filename}: {error.strerror}") from None

    def _use_blocks(self, body: Any) -> None:
        rules = [one["rules"] for one in body["lists"] if one["rules"] is not None]
        self._encoded.use("record", [digest for one in rules for digest in digests_of(one)])

    def _encode(self, record: SpdRecord) -> str:
        """Encodes a record as JSON with sorted keys. `_checksum` must compute the same bytes."""
        lists = ", ".join(map(self._encode_list, record.lists))
        others = {
            "bundles": {str(number): name for number, name in record.bundles.items()},
            "caches": record.caches,
            "issued": {str(list_id): version for list_id, version in record.issued.items()},
        }
        return f'{json.dumps(others, sort_keys=True)[:-1]}, "lists": [{lists}]}}'

    def _encode_list(self, one: ListRecord) -> str:
        numbers: dict[str, Any] = {
            "digest": one.digest,
            "direction": one.direction.value,
            "epoch": one.version.epoch,
            "generation": one.version.generation,
            "list_id": one.list_id,
        }
        if one.rules is not None and is_long(one.rules) and one.numbers is not None:
            numbers["numbers"] = _encode_numbers(one.numbers.listed)
            numbers["rule_ids"] = one.numbers.others
        else:
            numbers["rule_ids"] = dict(one.rule_ids)
        name = one.spd, one.direction
        rules = "null" if one.rules is None else self._encoded.of(name, one.rules)
        spd = json.dumps(one.spd)
        return f'{json.dumps(numbers, sort_keys=True)[:-1]}, "rules": {rules}, "spd": {spd}}}'

    def _reset_on_disk(self) -> None:
        """Sets `on_disk` to None while the file is replaced.

        Until the directory is synced, a restart may find the old or the new record.
        """
        self.on_disk = None


def after_a_restart(on_disk: SpdRecord | None, in_force: SpdRecord) -> str:
    """Returns a sentence that says which rules a restart would load."""
    if on_disk is None:
        return "it is not known whether a restart loads the rules in force or the change"
    if would_resume(on_disk, in_force):
        return "the rules in force stay, also over a restart"
    return (
        "the change is on disk, and a restart makes it unless the disk can be written before:"
        " free disk space"
    )


def would_resume(on_disk: SpdRecord | None, in_force: SpdRecord) -> bool:
    """Returns whether a restart would load the rules and cache states that are in force."""
    return on_disk is not None and _meaning(on_disk) == _meaning(in_force)


def _meaning(record: SpdRecord) -> Any:
    rules = {(one.spd, one.direction): one.rules for one in record.lists}
    return rules, record.caches


def _checksum(body: Any) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _rule_ids(document: Any) -> dict[str, int]:
    return {str(rule): _number(i, MAXIMUM_RULE_ID) for rule, i in document.items()}


def _encode_numbers(numbers: array[int]) -> str:
    """Encodes 32-bit numbers, little endian, in base 64."""
    return binascii.b2a_base64(_little_endian(numbers), newline=False).decode()


def _decode_numbers(text: str) -> array[int]:
    numbers = array("I")
    numbers.frombytes(binascii.a2b_base64(text, strict_mode=True))
    return _little_endian(numbers)


def _little_endian(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers


def _number(value: object, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError(f"{value!r} is no number from 0 to {most}")
    return value
