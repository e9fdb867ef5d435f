# SPDX-License-Identifier: Apache-2.0
"""Tests the history of commits on disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sluice.policy import history
from sluice.policy.history import (
    Author,
    CommitHistory,
    HistoryError,
    ListCounts,
    author_of,
    count_changes,
)
from sluice.policy.model import Action, Direction, Rule

INBOUND, OUTBOUND = Direction.INBOUND, Direction.OUTBOUND


def rules(*names: str, action: Action = Action.BYPASS) -> tuple[Rule, ...]:
    return tuple(Rule(name, action) for name in names)


def lists(*outbound: str) -> dict[Direction, tuple[Rule, ...]]:
    return {INBOUND: (), OUTBOUND: rules(*outbound)}


def extend(commits: CommitHistory, *names: str) -> None:
    """Appends a commit whose outbound list has rules of these names."""
    commits.append("commit", {"corp": lists(*names)}, {"corp": lists()})


def test_commits_and_their_rules_survive_a_restart(tmp_path: Path) -> None:
    commits = CommitHistory(tmp_path, wall=lambda: 1000.0)
    commits.begin({"corp": lists("a"), "edge": lists("e")})
    author = author_of(os.getuid(), 7)
    commits.append(
        "commit",
        {"corp": lists("a", "b"), "edge": lists("e")},
        {"corp": lists("a"), "edge": lists("e")},
        message="opens b",
        author=author,
    )
    read = CommitHistory(tmp_path)
    assert read.entries == commits.entries
    start, commit = read.entries
    assert (start.number, start.change, start.author) == (1, "start", None)
    assert (commit.number, commit.time, commit.message) == (2, 1000.0, "opens b")
    assert commit.author == Author(os.getuid(), 7, author.user)
    assert commit.changed == {"corp": {OUTBOUND: ListCounts(1, 0, 0, reordered=False)}}
    assert read.rules_after(1, ["corp"]) == {"corp": lists("a")}
    assert read.rules_after(2, ["corp", "edge"]) == {"corp": lists("a", "b"), "edge": lists("e")}


def test_a_start_with_the_rules_of_the_last_commit_adds_none(tmp_path: Path) -> None:
    CommitHistory(tmp_path).begin({"corp": lists("a")})
    CommitHistory(tmp_path).begin({"corp": lists("a")})
    assert len(CommitHistory(tmp_path).entries) == 1
    CommitHistory(tmp_path).begin({"corp": lists("b")})
    assert [one.change for one in CommitHistory(tmp_path).entries] == ["start", "start"]


def test_the_oldest_commits_and_their_rules_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "KEPT", 3)
    commits = CommitHistory(tmp_path)
    for name in "abcde":
        extend(commits, name)
    assert [one.number for one in CommitHistory(tmp_path).entries] == [3, 4, 5]
    assert len([*(tmp_path / "commits" / "rules").iterdir()]) == 3
    with pytest.raises(HistoryError, match="no commit 2 in the history; it has: 3 to 5"):
        commits.rules_after(2, ["corp"])


def test_commits_with_equal_rules_share_a_file(tmp_path: Path) -> None:
    commits = CommitHistory(tmp_path)
    for name in "aba":
        extend(commits, name)
    assert len([*(tmp_path / "commits" / "rules").iterdir()]) == 2
    assert commits.rules_after(3, ["corp"]) == commits.rules_after(1, ["corp"])


def test_an_unknown_spd_is_named(tmp_path: Path) -> None:
    commits = CommitHistory(tmp_path)
    extend(commits, "a")
    with pytest.raises(HistoryError, match="commit 1 has no rules of 'x'; it has: corp"):
        commits.rules_after(1, ["x"])


def test_damaged_rules_are_refused(tmp_path: Path) -> None:
    commits = CommitHistory(tmp_path)
    extend(commits, "a")
    (path,) = (tmp_path / "commits" / "rules").iterdir()
    whole = path.read_bytes()
    for damaged in (b"", whole[:-9], whole[:20] + b"\xff" + whole[21:], b"{}"):
        path.write_bytes(damaged)
        with pytest.raises(HistoryError, match=r"\.json\.gz: "):
            commits.rules_after(1, ["corp"])


@pytest.mark.parametrize("text", ["", "[]", "{", '{"version": 9}', '{"version": 1, "entries": 7}'])
def test_a_damaged_log_is_set_aside(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    extend(CommitHistory(tmp_path), "a")
    (tmp_path / "commits" / "log.json").write_text(text)
    commits = CommitHistory(tmp_path)
    assert commits.entries == []
    assert "the history of commits begins anew" in caplog.text
    assert (tmp_path / "commits" / "log.damaged").read_text() == text
    extend(commits, "b")
    assert [one.number for one in CommitHistory(tmp_path).entries] == [1]


def test_a_full_disk_is_logged_and_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    commits = CommitHistory(tmp_path)
    extend(commits, "a")
    log = tmp_path / "commits" / "log.json"
    before = log.read_bytes()
    log.with_suffix(".new").mkdir()  # the new log cannot be written
    extend(commits, "b")
    assert "commit 2 (commit) is in force, but is missing in the history of commits" in caplog.text
    assert log.read_bytes() == before
    assert len(commits.entries) == 1


def test_only_the_owner_can_read_the_files(tmp_path: Path) -> None:
    extend(CommitHistory(tmp_path), "a")
    for path in tmp_path.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_changes_are_counted_by_name() -> None:
    assert count_changes(rules("a"), rules("a")) is None
    before, after = rules("a", "b", "c"), (*rules("c", action=Action.DISCARD), *rules("a", "d"))
    assert count_changes(before, after) == ListCounts(1, 1, 1, reordered=True)
