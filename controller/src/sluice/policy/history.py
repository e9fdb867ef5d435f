# SPDX-License-Identifier: Apache-2.0
"""Keeps the last commits of rules on disk, for `sluice spd log` and `sluice spd rollback`.

The directory `commits` in the state directory has two kinds of files:

- `log.json` lists the last `KEPT` commits: number, time, requester, change, and the digest of
  each SPD's rules after the commit;
- `rules/DIGEST.json.gz` holds the rules of one SPD in the language of SPD files. Commits with equal
  rules share a file. Long lists are in blocks (`encoded_rules`), and the file has their digests.

The history does not decide which rules are in force after a restart. The record does (`record`,
`spdstore`). If a commit cannot be added to the history, the commit stays in force, and the router
logs the error. The next start compares the rules in force with the history's last commit, and adds
them if they differ. Depends on spdtext, encoded_rules and durable.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import pwd
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from sluice.durable import replace_bytes, replace_json
from sluice.policy.encoded_rules import EncodedRules, digests_of
from sluice.policy.model import Direction, Rule
from sluice.state.common_ends import changed_part

log = logging.getLogger(__name__)

KEPT = 100
"""Largest number of commits in the history."""
VERSION = 1
DIRECTORY_MODE = 0o700

RuleLists: TypeAlias = Mapping[Direction, tuple[Rule, ...]]
"""The operator's rules of one SPD."""


class HistoryError(Exception):
    """Raised when the history lacks a commit, or when a commit's rules cannot be read."""


class Author(NamedTuple):
    """Identifies the process that requested a commit.

    `user` is the name that the user had at the time of the commit, or None.
    """

    uid: int
    pid: int
    user: str | None


class ListCounts(NamedTuple):
    """Counts the rules of a list that a commit added, removed and changed. Rules with the same name
    count as one rule.

    `reordered`: the commit changed the order of the remaining rules.
    """

    added: int
    removed: int
    changed: int
    reordered: bool


class CommitEntry(NamedTuple):
    """Describes a commit. `author` is None if the router itself made the change.

    `time` is in seconds since 1970. `changed` has, by SPD, the lists that the commit changed.
    `digests` has the digest of each SPD's rules after the commit.
    """

    number: int
    time: float
    change: str
    message: str | None
    author: Author | None
    changed: dict[str, dict[Direction, ListCounts]]
    digests: dict[str, str]


def author_of(uid: int, pid: int) -> Author:
    """Returns the author with this user id and process id, and with the user's name."""
    try:
        return Author(uid, pid, pwd.getpwuid(uid).pw_name)
    except (KeyError, OSError):
        return Author(uid, pid, None)


def count_changes(before: Sequence[Rule], after: Sequence[Rule]) -> ListCounts | None:
    """Counts the differences between two lists in linear time. Returns None if there are none."""
    if before == after:
        return None
    start, end, end_before = changed_part(tuple(after), tuple(before))
    old = {rule.name: rule for rule in before[start:end_before]}
    new = {rule.name: rule for rule in after[start:end]}
    stayed = [name for name in old if name in new]
    return ListCounts(
        added=len(new.keys() - old.keys()),
        removed=len(old.keys() - new.keys()),
        changed=sum(old[name] != new[name] for name in stayed),
        reordered=stayed != [name for name in new if name in old],
    )


def _changes(before: RuleLists, after: RuleLists) -> dict[Direction, ListCounts]:
    """Returns the counts for the lists that differ."""
    return {
        direction: counts
        for direction in Direction
        if (counts := count_changes(before[direction], after[direction]))
    }


class CommitHistory:
    """Reads and extends the history in a state directory, which must exist.

    `entries` is sorted by commit number. Not thread-safe: only one method may run at a time. `wall`
    returns the time in seconds since 1970.
    """

    def __init__(
        self,
        state_dir: Path,
        encoded: EncodedRules | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._encoded = encoded or EncodedRules(state_dir)
        self._directory = state_dir / "commits"
        self._log = self._directory / "log.json"
        self._rules = self._directory / "rules"
        self._wall = wall
        self.entries: list[CommitEntry] = self._load()
        self._blocks: dict[str, frozenset[str]] = {}
        """The blocks that each file of rules names."""

    # -- reading

    def rules_after(
        self, number: int, spds: Iterable[str]
    ) -> dict[str, dict[Direction, tuple[Rule, ...]]]:
        """Returns the rules of these SPDs that were in force right after a commit.

        Raises HistoryError.
        """
        entry = self._entry(number)
        rules = {}
        for spd in spds:
            if spd not in entry.digests:
                known = ", ".join(entry.digests) or "none"
                raise HistoryError(f"commit {number} has no rules of {spd!r}; it has: {known}")
            rules[spd] = self._read_rules(entry.digests[spd])
        return rules

    def spds_after(self, number: int) -> list[str]:
        """Returns the SPDs whose rules are recorded for a commit. Raises HistoryError."""
        return [*self._entry(number).digests]

    def _entry(self, number: int) -> CommitEntry:
        for entry in self.entries:
            if entry.number == number:
                return entry
        known = "none"
        if self.entries:
            known = f"{self.entries[0].number} to {self.entries[-1].number}"
        raise HistoryError(
            f"there is no commit {number} in the history; it has: {known} (`sluice spd log`)"
        )

    def _read_rules(self, digest: str) -> dict[Direction, tuple[Rule, ...]]:
        path = self._rules / f"{digest}.json.gz"
        try:
            text = gzip.decompress(path.read_bytes())
            if hashlib.sha256(text).hexdigest() != digest:
                raise ValueError("the rules do not have the digest that names the file")
            document = json.loads(text)
            return {
                direction: self._encoded.decode(document[direction.value])
                for direction in Direction
            }
        except OSError as error:
            raise HistoryError(f"{path}: {error.strerror or error}") from None
        except (ValueError, KeyError, TypeError, EOFError, zlib.error) as error:
            raise HistoryError(f"{path}: is damaged: {error}") from None

    # -- extending

    def append(
        self,
        change: str,
        rules: Mapping[str, RuleLists],
        before: Mapping[str, RuleLists],
        *,
        message: str | None = None,
        author: Author | None = None,
    ) -> None:
        """Adds a commit, and removes the oldest commits beyond `KEPT`.

        `rules` and `before` have the rules of all SPDs, after and before the commit. With both, an
        entry is complete even if the commit before it is missing. Logs an error if the disk cannot
        be written.
        """
        changed = {spd: _changes(before[spd], lists) for spd, lists in rules.items()}
        changed = {spd: lists for spd, lists in changed.items() if lists}
        self._append(change, rules, changed, message, author)

    def begin(self, rules: Mapping[str, RuleLists]) -> None:
        """Adds an entry with the rules that the router starts with, if the last entry has others.

        This is the case if the configuration has changed, or if the last commit could not be added
        to the history.
        """
        digests = {spd: self._encode(spd, lists)[0] for spd, lists in rules.items()}
        if not self.entries or self.entries[-1].digests != digests:
            self._append("start", rules, {}, None, None)

    def _append(
        self,
        change: str,
        rules: Mapping[str, RuleLists],
        changed: dict[str, dict[Direction, ListCounts]],
        message: str | None,
        author: Author | None,
    ) -> None:
        number = self.entries[-1].number + 1 if self.entries else 1
        try:
            for directory in (self._directory, self._rules):
                directory.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
            digests = {spd: self._write_rules(spd, lists) for spd, lists in rules.items()}
            entry = CommitEntry(number, self._wall(), change, message, author, changed, digests)
            entries = [*self.entries, entry][-KEPT:]
            replace_json(self._log, {"version": VERSION, "entries": [*map(_to_json, entries)]})
        except OSError as error:
            log.error(
                "policy: commit %d (%s) is in force, but is missing in the history of commits:"
                " %s: %s",
                *(number, change, error.filename or self._directory, error.strerror),
            )
            return
        self.entries = entries
        with suppress(OSError):
            self._remove_unused()

    def _encode(self, spd: str, lists: RuleLists) -> tuple[str, bytes]:
        """Returns the digest of an SPD's rules, and their JSON text."""
        rules = [
            f'"{direction.value}": {self._encoded.of((spd, direction), lists[direction])}'
            for direction in Direction
        ]
        text = f'{{{", ".join(rules)}, "spd": {json.dumps(spd)}}}'.encode()
        return hashlib.sha256(text).hexdigest(), text

    def _write_rules(self, spd: str, lists: RuleLists) -> str:
        digest, text = self._encode(spd, lists)
        path = self._rules / f"{digest}.json.gz"
        if not path.exists():
            replace_bytes(path, gzip.compress(text, compresslevel=1, mtime=0))
        return digest

    def _remove_unused(self) -> None:
        used = {digest for entry in self.entries for digest in entry.digests.values()}
        self._blocks = {digest: self._blocks_in(digest) for digest in used}
        self._encoded.use("history", [one for some in self._blocks.values() for one in some])
        self._encoded.remove_unused()
        for path in self._rules.iterdir():
            if path.name.partition(".")[0] not in used:
                with suppress(OSError):
                    path.unlink()

    def _blocks_in(self, digest: str) -> frozenset[str]:
        """Returns the digests of the blocks that a file of rules names. Raises OSError."""
        if digest in self._blocks:
            return self._blocks[digest]
        try:
            document = json.loads(gzip.decompress((self._rules / f"{digest}.json.gz").read_bytes()))
            lists = [document[direction.value] for direction in Direction]
            return frozenset(one for listed in lists for one in digests_of(listed))
        except (FileNotFoundError, ValueError, KeyError, TypeError, EOFError, zlib.error):
            return frozenset()  # a damaged file: its rules cannot be read anyway

    def _load(self) -> list[CommitEntry]:
        try:
            document = json.loads(self._log.read_bytes())
            if document["version"] != VERSION:
                raise ValueError(f"version {document['version']}, this is for {VERSION}")
            return [*map(_from_json, document["entries"])]
        except FileNotFoundError:
            return []
        except OSError as error:
            log.error("policy: the history of commits is lost: %s: %s", self._log, error.strerror)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            aside = self._log.with_suffix(".damaged")
            log.error(
                "policy: the history of commits begins anew: %s is damaged (%s); it is kept as %s",
                *(self._log, error, aside),
            )
            with suppress(OSError):
                self._log.replace(aside)
        return []


def _to_json(entry: CommitEntry) -> dict[str, Any]:
    changed = {
        spd: {direction.value: counts._asdict() for direction, counts in lists.items()}
        for spd, lists in entry.changed.items()
    }
    author = entry.author and entry.author._asdict()
    return entry._asdict() | {"author": author, "changed": changed}


def _from_json(document: Any) -> CommitEntry:
    """Converts the output of `_to_json`. Raises KeyError, TypeError, ValueError or
    AttributeError."""
    changed = {
        str(spd): {Direction(value): ListCounts(**counts) for value, counts in lists.items()}
        for spd, lists in document["changed"].items()
    }
    author = document["author"]
    return CommitEntry(
        int(document["number"]),
        float(document["time"]),
        str(document["change"]),
        document["message"],
        None if author is None else Author(**author),
        changed,
        {str(spd): str(digest) for spd, digest in document["digests"].items()},
    )
