# SPDX-License-Identifier: Apache-2.0
"""Reads the code blocks of the documentation, and the commands in them.

A page is a Markdown file in docs/ or the README of a directory. Every block names its language. An
`sh` block contains commands. In a `console` block, a line that begins with `$ ` is a command, and
the lines below are the command's output. A command ends where bash accepts it as complete. So a
loop is one command, and so are lines joined by backslashes.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import dedent

from sluice_testkit import where

BLOCK = re.compile(r"^( *)```([a-z]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
PRUNED = {".git", ".venv", "build", "target", "node_modules", "site"}
SHELL = ("sh", "console")
WHOLE = "$"


@dataclass(frozen=True)
class Block:
    """Holds a code block. `page` is the page's path in the repository, `line` the number of the
    block's first line.
    """

    page: str
    line: int
    language: str
    text: str


@dataclass(frozen=True)
class Command:
    """Holds a command as a page shows it.

    `output` is the output below the command in a `console` block.
    """

    page: str
    line: int
    text: str
    output: str = ""

    @property
    def words(self) -> str:
        """Returns the command on one line, without comments.

        Tests refer to commands by this text.
        """
        lines = [re.sub(r"(^|\s)#.*", "", line) for line in self.text.splitlines()]
        return " ".join(" ".join(lines).replace("\\", " ").split())

    def begins(self, start: str) -> bool:
        """Returns whether `words` begins with `start`.

        If `start` ends with `$`, `words` must equal `start` without the `$`.
        """
        if start.endswith(WHOLE):
            return self.words == start.removesuffix(WHOLE)
        return self.words.startswith(start)

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.words}"


def pages() -> list[str]:
    """Returns the paths of all pages, relative to the repository."""
    root = where.repository()
    found = []
    for directory, names, files in os.walk(root):
        names[:] = [name for name in names if name not in PRUNED]
        relative = Path(directory).relative_to(root)
        is_docs = relative.parts[:1] == ("docs",)
        found += [
            str(relative / file)
            for file in files
            if file == "README.md" or (is_docs and file.endswith(".md"))
        ]
    return sorted(found)


@cache
def blocks(page: str) -> tuple[Block, ...]:
    """Returns the code blocks of a page."""
    text = (where.repository() / page).read_text(encoding="utf-8")
    return tuple(
        Block(page, text[: found.start()].count("\n") + 2, found[2], dedent(found[3]))
        for found in BLOCK.finditer(text)
    )


@cache
def commands(page: str) -> tuple[Command, ...]:
    """Returns the commands of a page, in order."""
    return tuple(
        command
        for block in blocks(page)
        if block.language in SHELL
        for command in (_typed(block) if block.language == "console" else _script(block))
    )


def _typed(block: Block) -> Iterator[Command]:
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    line = block.line
    for part in parts[1:]:
        text, _, output = part.partition("\n")
        yield Command(block.page, line, text, output)
        line += part.count("\n")


def _script(block: Block) -> Iterator[Command]:
    pending: list[str] = []
    for number, line in enumerate(block.text.splitlines(), block.line):
        if not pending and (not line.strip() or line.lstrip().startswith("#")):
            continue
        pending.append(line)
        if not line.endswith("\\") and _is_whole("\n".join(pending)):
            yield Command(block.page, number + 1 - len(pending), "\n".join(pending))
            pending = []
    if pending:
        raise ValueError(
            f"{block.page}:{block.line}: bash does not accept {pending[0]!r} as a command"
        )


def _is_whole(text: str) -> bool:
    done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
    return done.returncode == 0 and "here-document" not in done.stderr


class Shown:
    """Holds the commands that a test must execute. The test declares them by the mark
    `executes`.
    """

    def __init__(self, declared: list[tuple[str, tuple[str, ...]]]) -> None:
        self._left: list[Command] = []
        for page, starts in declared:
            for start in starts or ("",):
                found = [one for one in commands(page) if one.begins(start)]
                if not found:
                    raise LookupError(f"{page} shows no command that begins with {start!r}")
                self._left += found
        self.commands = tuple(self._left)

    def take(self, start: str, page: str = "") -> Command:
        """Returns the first command that begins with `start` and was not returned before.

        The test must execute this command. Raises LookupError if there is none.
        """
        for command in self._left:
            if command.begins(start) and command.page.startswith(page):
                self._left.remove(command)
                return command
        raise LookupError(f"no command is left that begins with {start!r}: {self.left()}")

    def rest(self, page: str = "") -> list[Command]:
        """Returns all commands that were not returned before, in order. The test must execute
        them.
        """
        taken = [command for command in self._left if command.page.startswith(page)]
        self._left = [command for command in self._left if command not in taken]
        return taken

    def left(self) -> list[str]:
        """Returns the declared commands that `take` and `rest` have not returned."""
        return [str(command) for command in self._left]
