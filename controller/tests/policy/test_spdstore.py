# SPDX-License-Identifier: Apache-2.0
"""Tests the record of policy on disk: it is complete or absent, and damage is reported."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluice.policy.model import ICMP, OPAQUE, TCP, Action, Direction, NumberRange, Rule
from sluice.policy.spdstore import SpdStore, SpdStoreError, after_a_restart, prepare
from sluice.state.spd import ListRecord, ListVersion, SpdRecord

RULES = (
    Rule("web", Action.PROTECT, "branch", protocol=(TCP,)),
    Rule("errors", Action.BYPASS, protocol=(ICMP,), icmp=(NumberRange(0x300, 0x304),)),
    Rule("unseen", Action.DISCARD, protocol=OPAQUE),
    Rule("rest", Action.DISCARD, audit=True),
)
RECORD = SpdRecord(
    (
        ListRecord(1, "corp", Direction.OUTBOUND, ListVersion(3, 4), "ab" * 32, {"f1": 1}, RULES),
        ListRecord(2, "corp", Direction.INBOUND, ListVersion(0xFFFFFFFF, 1), "cd" * 32, {}, ()),
        ListRecord(3, "edge", Direction.INBOUND, ListVersion(1, 1), "ef" * 32, {}),
    ),
    {7: ListVersion(5, 6)},
    {"corp": False},
    {7: "branch"},
)


def test_nothing_is_there_at_first(tmp_path: Path) -> None:
    assert SpdStore(tmp_path).load() == SpdRecord()


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    store = SpdStore(tmp_path)
    store.save(SpdRecord())
    store.save(RECORD)
    assert store.load() == RECORD
    assert [path.name for path in tmp_path.iterdir()] == ["spd.json"]


def test_a_change_of_rules_is_saved_like_a_first_record(tmp_path: Path) -> None:
    """Saves records one after the other. Each file must equal the one that a new store writes."""
    store = SpdStore(tmp_path)
    first, *others = RECORD.lists
    for rules in (RULES, RULES[1:], (*RULES[:1], RULES[3], *RULES[1:3]), (), None, RULES):
        record = RECORD._replace(lists=(first._replace(rules=rules), *others))
        store.save(record)
        text = store.path.read_text()
        assert SpdStore(tmp_path).load() == record
        (tmp_path / "fresh").mkdir(exist_ok=True)
        fresh = SpdStore(tmp_path / "fresh")
        fresh.save(record)
        assert fresh.path.read_text() == text
        assert json.dumps(json.loads(text), sort_keys=True) == text


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    store = SpdStore(tmp_path)
    before = os.umask(0)
    try:
        store.save(RECORD)
        assert mode(store.path) == 0o600
        store.path.chmod(0o644)
        store.load()
        assert mode(store.path) == 0o600
        directory = tmp_path / "a" / "state"
        prepare(directory)
        assert mode(directory) == 0o700
        directory.chmod(0o755)
        prepare(directory)
        assert mode(directory) == 0o700
    finally:
        os.umask(before)


def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, -1)
    with pytest.raises(SpdStoreError, match="belongs to user 12345, who could replace the policy"):
        prepare(tmp_path)


def test_a_file_that_stands_in_the_way_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / "spd.new").symlink_to(elsewhere)
    SpdStore(tmp_path).save(RECORD)
    assert not elsewhere.exists()


def test_it_is_known_what_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SpdStore(tmp_path)
    store.save(RECORD)
    assert store.on_disk == RECORD
    other = RECORD._replace(caches={})
    assert "stay, also over a restart" in after_a_restart(store.on_disk, RECORD)
    assert "a restart makes it" in after_a_restart(store.on_disk, other)
    calls = iter((os.fsync, no_space))

    def sync(descriptor: int) -> None:
        """Syncs files, and fails for directories."""
        next(calls)(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(SpdStoreError, match="No space left"):
        store.save(other)
    assert "not known" in after_a_restart(store.on_disk, RECORD)
    assert store.load() == other


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def no_space(_: int) -> None:
    raise OSError(28, "No space left on device")


def test_file_and_directory_are_synced_in_that_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    SpdStore(tmp_path).save(RECORD)
    assert synced == ["spd.new", tmp_path.name]


def test_a_save_that_fails_leaves_the_old_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SpdStore(tmp_path)
    store.save(RECORD)

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(SpdStoreError, match="No space left"):
        store.save(SpdRecord())
    assert store.on_disk == RECORD
    assert store.load() == RECORD
    assert [path.name for path in tmp_path.iterdir()] == ["spd.json"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_is_never_read_as_something_else(tmp_path: Path, data: st.DataObject) -> None:
    store = SpdStore(tmp_path)
    store.save(RECORD)
    text = bytearray(store.path.read_bytes())
    at = data.draw(st.integers(0, len(text) - 1))
    text[at] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(text)))
    store.path.write_bytes(text[:cut] if data.draw(st.booleans()) else text)
    with contextlib.suppress(SpdStoreError):
        assert store.load() == RECORD


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", '{"version": 9}', "\xff"])
def test_something_else_in_its_place(tmp_path: Path, text: str) -> None:
    store = SpdStore(tmp_path)
    store.path.write_text(text, encoding="latin-1")
    with pytest.raises(SpdStoreError, match="damaged"):
        store.load()


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    store = SpdStore(tmp_path)
    store.path.mkdir()
    with pytest.raises(SpdStoreError, match="Is a directory"):
        store.load()
    with pytest.raises(SpdStoreError):
        store.save(RECORD)


def test_the_file_can_be_read_by_people(tmp_path: Path) -> None:
    store = SpdStore(tmp_path)
    store.save(RECORD)
    body = json.loads(store.path.read_text())["body"]
    assert (body["lists"][0]["epoch"], body["issued"]) == (3, {"7": [5, 6]})
    assert body["lists"][0]["rules"][0] == {
        "name": "web",
        "action": "protect",
        "bundle": "branch",
        "protocol": ["tcp"],
    }


def test_what_was_committed_can_be_forgotten_and_the_numbers_never(tmp_path: Path) -> None:
    store = SpdStore(tmp_path)
    store.save(RECORD)
    assert store.forget_committed(keep={"corp", "edge"}) == RECORD
    store.forget_committed()
    known = store.load()
    assert [one.rules for one in known.lists] == [None] * 3
    assert known.caches == {}
    assert [one.version for one in known.lists] == [one.version for one in RECORD.lists]
    assert known.issued == RECORD.issued
