# SPDX-License-Identifier: Apache-2.0
"""Tests that the command prints data unchanged: markup in it has no effect, and characters that are
not printable are escaped."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli.answers import ANSWERS, ROUTE
from sluice.api import client
from sluice.cli import main, route_table, shared, tables
from sluice.cli.printable import printable

ODD = "[red]x[/red] [/red] [link=http://x]y[/link] :bug: \x1b[2J\x1b]0;t\x07 \udcff \u202e"
SHOWN = r"[red]x[/red] [/red] [link=http://x]y[/link] :bug: \x1b[2J\x1b]0;t\x07 \udcff \u202e"
KEPT = {"direction", "served_by", "change", "uid", "state"}
"""Fields whose values the tables look up."""
WITHOUT_TEXTS = {"counters", "punts"}
"""Views whose answers have names of counters and numbers only."""
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def _odd(data: Any, key: str = "") -> Any:
    """Returns the data with each text replaced by ODD. Keeps texts that the tables use as keys."""
    if isinstance(data, dict):
        return {name: _odd(value, name) for name, value in data.items()}
    if isinstance(data, list):
        return [_odd(value, key) for value in data]
    return ODD if isinstance(data, str) and key not in KEPT else data


@pytest.mark.parametrize("what", sorted(tables._VIEWS))
def test_every_view_prints_data_as_data(
    what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks each view on a terminal with colours: colours are the only escape sequences."""
    for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm"), ("COLUMNS", "4000")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tables, "WIDE", 4000)
    data = ANSWERS["interfaces" if what == "interface" else what.removesuffix(" --generated")]
    tables.show(what, _odd(data))
    shown = capsys.readouterr().out
    plain = COLOUR.sub("", shown)
    assert all(one.isprintable() or one == "\n" for one in plain), ascii(plain)
    assert "\U0001f41b" not in plain
    assert SHOWN in plain or what in WITHOUT_TEXTS, plain


def test_the_log_prints_messages_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    entry = ANSWERS["spd log"][0]
    tables.show(
        "spd log", [entry | {"message": message} for message in (ODD, "[inc-42] a", "a\nb")]
    )
    shown = capsys.readouterr().out
    for message in (SHOWN, "[inc-42] a", r"a\nb"):
        assert message in shown


def test_colours_of_the_code_stay(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    tables.show("spd diff", ANSWERS["spd diff"])
    shown = capsys.readouterr().out
    assert "\x1b[31m- 1 web: bypass" in shown
    assert "\x1b[32m+ 2 web: discard" in shown
    tables.show("status", ANSWERS["status"] | {"problems": ["one\ntwo"]})
    shown = capsys.readouterr().out
    assert re.search(r"\x1b\[31mone *\x1b\[0m *\n.*\x1b\[31mtwo", shown), shown


def test_routes_are_printed_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    route_table.show([[ROUTE | {"error": "\x1b[2J", "protocol": "a\x07\udcff"}]])
    shown = capsys.readouterr().out
    assert r"\x1b[2J" in shown
    assert r"a\x07\udcff" in shown
    assert all(one.isprintable() or one == "\n" for one in shown)


def test_errors_and_problems_keep_lines_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise client.RequestError("one: \x1b[2J\ntwo: [/red]")

    runner = CliRunner()
    monkeypatch.setattr(shared, "answer", refuse)
    done = runner.invoke(main.cli, ["spd", "log", "--socket", "x"])
    assert done.stderr == "sluice: one: \\x1b[2J\ntwo: [/red]\n"
    answers = {"show": {"problems": ["a\x1b[2J\nb"]}, "reload": {"changed": ["a\x1b", "b"]}}
    monkeypatch.setattr(shared, "answer", lambda _, body, __: {"data": answers[body["command"]]})
    done = runner.invoke(main.cli, ["show", "status", "--check", "--socket", "x"])
    assert done.stdout == "a\\x1b[2J\nb\n"
    done = runner.invoke(main.cli, ["reload", "--socket", "x"])
    assert done.stdout == "a\\x1b\nb\n"


def test_json_has_the_texts_unchanged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = [ANSWERS["spd log"][0] | {"message": ODD}]
    monkeypatch.setattr(shared, "answer", lambda *_: {"data": log})
    words = ["spd", "log", "--json", "--socket", str(tmp_path / "x")]
    assert json.loads(CliRunner().invoke(main.cli, words).stdout) == log


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("für Zürich, 東京", "für Zürich, 東京"),
        ("a\tb\n", r"a\tb\n"),
        ("\x00\x7f\x9b\xa0", r"\x00\x7f\x9b\xa0"),
        ("\u200b\udcff\U000e0001", r"\u200b\udcff\U000e0001"),
    ],
)
def test_what_is_not_printable_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(text, lines=True) == shown.replace(r"\n", "\n")
