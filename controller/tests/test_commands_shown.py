# SPDX-License-Identifier: Apache-2.0
"""Checks that the programs have all commands and options that the documentation names.

Commands in code blocks are executed (test_commands_executed.py). Here the parsers of `sluice` and
`sluice-switch` check each command and option, also those within sentences.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest
from sluice_testkit import where

from sluice.cli.main import cli

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("docs/**/*.md"), *(ROOT / name / "README.md" for name in (".", "docker", "switch"))]
)
BLOCK = re.compile(r"^```[a-z]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(
    r"(?:^\s*|\$ |exec \S+ |[;&<]\(?\s*)(sluice(?:-switch)?) ((?:'[^']*'|[^|;&#()`<>'])*)"
)
OPTION = re.compile(r"(--?[a-zA-Z0-9][a-zA-Z0-9-]*)")
OTHERS = {
    # Options of BMv2 (sluice-switch refuses or ignores them), of docker, and of cargo's benchmarks.
    *("--thrift-port", "--load-modules", "--debugger", "--restore-state", "--packet-in"),
    *("--dp-grpc-server-addr", "--disable-swap", "--nanolog", "--notifications-addr"),
    *("--debugger-addr", "--dump-packet-data", "--log-flush", "--privileged", "--bench"),
}


def spans(page: Path) -> Iterator[str]:
    """Yields each line of the page's blocks, and all other text in backquotes."""
    text = page.read_text(encoding="utf-8")
    for block in BLOCK.findall(text):
        yield from block.replace("\\\n", " ").splitlines()
    yield from re.findall(r"`([^`\n]+)`", BLOCK.sub("", text))


def shown(program: str) -> list[tuple[str, list[str]]]:
    """Returns each use of a program in the pages: the page's name and the command's words."""
    found = []
    for page in PAGES:
        for span in spans(page):
            for name, rest in COMMAND.findall(span):
                if name == program and not rest.startswith("="):
                    found.append((page.name, shlex.split(rest, posix=False)))
    return found


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """Returns the command that the words name, and the words after it."""
    command: click.Command = cli
    while isinstance(command, click.Group) and words and words[0] in command.commands:
        command, words = command.commands[words[0]], words[1:]
    return command, words


def test_commands_of_sluice_are_there_with_their_options() -> None:
    found = shown("sluice")
    assert len(found) > 60
    for page, words in found:
        command, rest = command_of(words)
        where_ = f"{page}: sluice {' '.join(words)}"
        if isinstance(command, click.Group):
            assert not rest or not rest[0].isalpha(), f"{where_}: no such command"
        known = {name for one in command.params for name in one.opts + one.secondary_opts}
        known |= {"--help", "-h"}
        for option in (OPTION.fullmatch(word.split("=")[0].strip("[]")) for word in rest):
            assert option is None or option[1] in known, f"{where_}: no {option[1]}"


@cache
def help_of(*words: str) -> str:
    """Returns the help text of sluice-switch."""
    program = [str(where.sluice_switch()), *words, "--help"]
    return subprocess.run(program, check=True, capture_output=True, text=True).stdout


@cache
def help_of_esp(*words: str) -> str:
    """Returns the help text of sluice-esp."""
    program = [str(where.sluice_esp()), *words, "--help"]
    return subprocess.run(program, check=True, capture_output=True, text=True).stdout


def options_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])(--?[a-zA-Z0-9][a-zA-Z0-9-]*)", text))


@cache
def commands_in(*words: str) -> frozenset[str]:
    """Returns the commands that a help text lists."""
    _, _, listed = help_of(*words).partition("Commands:\n")
    listed = listed.partition("\n\n")[0]
    return frozenset(re.findall(r"^  ([a-z-]+)", listed, re.MULTILINE))


def test_commands_of_sluice_switch_are_there_with_their_options() -> None:
    found = shown("sluice-switch")
    assert len(found) > 20
    for page, words in found:
        path: tuple[str, ...] = ()
        rest = words
        if words and words[0] in ("ctl", "completion"):
            path, rest = (words[0],), words[1:]
        while rest and path[:1] == ("ctl",) and rest[0] in commands_in(*path):
            path, rest = (*path, rest[0]), rest[1:]
        where_ = f"{page}: sluice-switch {' '.join(words)}"
        if path == ("ctl",):
            assert not rest or not rest[0].isalpha(), f"{where_}: no such command"
        known = options_in(help_of(*path))
        for option in (OPTION.fullmatch(word.split("=")[0].strip("[]")) for word in rest):
            assert option is None or option[1] in known, f"{where_}: no {option[1]}"


def test_ctl_s_table_has_every_command_and_no_other() -> None:
    page = (ROOT / "switch/README.md").read_text(encoding="utf-8")
    section = page.split("## Inspecting a running switch", 1)[1].split("\n## ", 1)[0]
    rows = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `ctl")]
    named = set(re.findall(r"`ctl ([a-z-]+)", " ".join(rows)))
    assert named == commands_in("ctl") - {"help"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_in_the_text_are_of_a_program(page: Path) -> None:
    own = options_in(help_of()) | options_in(help_of_esp()) | OTHERS
    for path in (("ctl", name) for name in commands_in("ctl") - {"help"}):
        own |= options_in(help_of(*path))
    own |= {name for command in _all(cli) for one in command.params for name in one.opts}
    own |= {"--help", "--version", "-h", "--json-version"}
    for span in spans(page):
        found = re.match(r"--[a-z][a-z0-9-]+", span)
        assert found is None or found[0] in own, f"{page.name}: {span}"


def _all(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        for one in command.commands.values():
            yield from _all(one)
