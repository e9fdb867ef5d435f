# SPDX-License-Identifier: Apache-2.0
"""Stores the state of the SPDs' lists on disk, before it is written to the switch.

One JSON file, replaced whole (`durable`): a write that fails leaves the old one. Only its owner may
read or write it, since it says what is protected. A checksum tells damage, which is an
error by name and never a guess: with wrong numbers a retired flow could count as current again. It
holds the rules too, in the language of SPD files: what was committed last stays in force over a
restart. Depends on state.spd for what it stores and on spdtext for how rules are written.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Container
from pathlib import Path
from typing import Any

from sluice.durable import FILE_MODE, replace_json
from sluice.policy.model import Direction
from sluice.policy.spdtext import from_document, to_document
from sluice.state.rule_ids import MAXIMUM_RULE_ID
from sluice.state.spd import MAXIMUM_COUNT, MAXIMUM_LIST_ID, Counts, ListRecord, SpdRecord

FILE_NAME = "spd.json"
VERSION = 2
DIRECTORY_MODE = 0o700


class SpdStoreError(Exception):
    """The file cannot be written, or what it holds cannot be what was written."""


def prepare(directory: Path) -> None:
    """Makes the state directory, for its owner only; tightens one that is there.

    Raises SpdStoreError when it belongs to another user, who could replace what it holds.
    """
    try:
        directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        found = directory.stat()
        if found.st_uid not in (0, os.geteuid()):
            raise SpdStoreError(
                f"{directory}: belongs to user {found.st_uid}, who could replace the policy in it;"
                f" give it to user {os.geteuid()}, or set state_dir"
            )
        _tighten(directory, DIRECTORY_MODE)
    except OSError as error:
        raise SpdStoreError(f"{directory}: {error.strerror}") from None


def _tighten(path: Path, mode: int) -> None:
    """Takes all permissions away that are not in `mode`. Raises OSError."""
    now = stat.S_IMODE(path.stat().st_mode)
    if now & ~mode:
        path.chmod(now & mode)


class SpdStore:
    """The file in a state directory, which exists.

    `on_disk` is the record that a restart would load, None while that is not known.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self.on_disk: SpdRecord | None = None

    def load(self) -> SpdRecord:
        """Returns the last saved record, empty where there is none. Raises SpdStoreError."""
        self.on_disk = None
        self.on_disk = self._load()
        return self.on_disk

    def _load(self) -> SpdRecord:
        try:
            text = self.path.read_bytes()
            _tighten(self.path, FILE_MODE)
        except FileNotFoundError:
            return SpdRecord()
        except OSError as error:
            raise SpdStoreError(f"{self.path}: {error.strerror}") from None
        try:
            document = json.loads(text)
            if document["version"] != VERSION:
                raise ValueError(f"version {document['version']}, this is for {VERSION}")
            body = document["body"]
            if document["sha256"] != _checksum(body):
                raise ValueError("the checksum does not hold")
            return _decode(body)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise SpdStoreError(
                f"{self.path}: damaged ({error}); remove it together with the flows in the switch"
            ) from None

    def forget_committed(self, keep: Container[str] = ()) -> SpdRecord:
        """Rules and caches of all SPDs but these are taken from the configuration when they start.

        The numbers stay, so that entities in the switch keep their meaning. Returns the record now
        on disk. Raises SpdStoreError.
        """
        record = self.load()
        lists = tuple(one if one.spd in keep else one._replace(rules=None) for one in record.lists)
        caches = {spd: enabled for spd, enabled in record.caches.items() if spd in keep}
        kept = record._replace(lists=lists, caches=caches)
        if kept != record:
            self.save(kept)
        return kept

    def save(self, record: SpdRecord) -> None:
        """Returns when the record would survive a crash. Raises SpdStoreError."""
        body = _encode(record)
        document = {"version": VERSION, "sha256": _checksum(body), "body": body}
        try:
            replace_json(self.path, document, replacing=self._doubt)
        except OSError as error:
            raise SpdStoreError(f"{self.path}: {error.strerror}") from None
        self.on_disk = record

    def _doubt(self) -> None:
        """From here on a restart finds the one or the other, until the directory is synced."""
        self.on_disk = None


def after_a_restart(on_disk: SpdRecord | None, in_force: SpdRecord) -> str:
    """Says which rules a restart would go on with."""
    if on_disk is None:
        return "whether a restart goes on with the rules in force or with the change is not known"
    if holds(on_disk, in_force):
        return "the rules in force stay, also over a restart"
    return (
        "the change is on disk, and a restart makes it unless the disk can be written before:"
        " make room"
    )


def holds(on_disk: SpdRecord | None, in_force: SpdRecord) -> bool:
    """Whether a restart would go on with what is in force."""
    return on_disk is not None and _meaning(on_disk) == _meaning(in_force)


def _meaning(record: SpdRecord) -> Any:
    rules = {(one.spd, one.direction): one.rules for one in record.lists}
    return rules, record.caches


def _checksum(body: Any) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _encode(record: SpdRecord) -> Any:
    return {
        "lists": [
            {
                "list_id": one.list_id,
                "spd": one.spd,
                "direction": one.direction.value,
                "epoch": one.counts.epoch,
                "generation": one.counts.generation,
                "digest": one.digest,
                "rule_ids": one.rule_ids,
                "rules": None if one.rules is None else list(map(to_document, one.rules)),
            }
            for one in record.lists
        ],
        "issued": {str(list_id): counts for list_id, counts in record.issued.items()},
        "caches": record.caches,
        "bundles": {str(number): name for number, name in record.bundles.items()},
    }


def _decode(body: Any) -> SpdRecord:
    """Raises ValueError, KeyError, TypeError or AttributeError for what `_encode` never made."""
    lists = tuple(
        ListRecord(
            _number(one["list_id"], MAXIMUM_LIST_ID),
            str(one["spd"]),
            Direction(one["direction"]),
            Counts(_number(one["epoch"], MAXIMUM_COUNT), _number(one["generation"], MAXIMUM_COUNT)),
            str(one["digest"]),
            {str(rule): _number(i, MAXIMUM_RULE_ID) for rule, i in one["rule_ids"].items()},
            None if one["rules"] is None else tuple(map(from_document, one["rules"])),
        )
        for one in body["lists"]
    )
    issued = {
        _number(int(list_id), MAXIMUM_LIST_ID): Counts(*(_number(n, MAXIMUM_COUNT) for n in counts))
        for list_id, counts in body["issued"].items()
    }
    caches = {str(spd): enabled is True for spd, enabled in body["caches"].items()}
    # Written since bundles may change their numbers; without it none is known, which is safe.
    bundles = {
        _number(int(number), MAXIMUM_COUNT): str(name)
        for number, name in body.get("bundles", {}).items()
    }
    return SpdRecord(lists, issued, caches, bundles)


def _number(value: object, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError(f"{value!r} is no number from 0 to {most}")
    return value
