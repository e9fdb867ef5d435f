# SPDX-License-Identifier: Apache-2.0
"""Tests that `sluice spd commit` of a large file shows how many rules have been parsed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from sluice.cli import policy
from sluice.cli.shared import CommandFailedError


def test_a_long_commit_shows_its_progress_and_its_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = threading.Event()
    reports = iter([None, 300_000, 300_000, 600_000])

    def request(_: Path | None, body: dict[str, Any], timeout: float = 0) -> Any:
        if body["command"] == "spd commit":
            assert shown.wait(10)
            return {"spds": ["corp"]}
        parsed = next(reports, None)
        if parsed == 600_000:
            shown.set()
        return (
            None if parsed is None else {"step": "reading rules", "done": parsed, "of": 1_000_000}
        )

    monkeypatch.setattr(policy, "request", request)
    monkeypatch.setattr(policy, "PROGRESS_SECONDS", 0.01)
    answer = policy._request_with_progress(None, {"command": "spd commit"})
    assert answer == {"spds": ["corp"]}
    assert capsys.readouterr().err.splitlines() == [
        "reading rules: 300,000 of 1,000,000 rules",
        "reading rules: 600,000 of 1,000,000 rules",
    ]


def test_an_error_of_the_request_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def request(_: Path | None, body: dict[str, Any], timeout: float = 0) -> Any:
        raise CommandFailedError("refused")

    monkeypatch.setattr(policy, "request", request)
    with pytest.raises(CommandFailedError, match="refused"):
        policy._request_with_progress(None, {"command": "spd commit"})
