# SPDX-License-Identifier: Apache-2.0
"""Adds pages to the documentation site: Markdown files outside docs/, and the commands' help texts.

MkDocs calls these hooks. The file PATH outside docs/ becomes the page `repository/PATH`. In the
repository, links between Markdown files are relative paths of files. The hooks turn them into links
between pages of the site. A link to a file that is no page becomes plain text.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from posixpath import dirname, join, normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
REPOSITORY = "repository"
COMMANDS = {
    "sluice": ".venv/controller/bin/sluice",
    "sluice-switch": "switch/target/release/sluice-switch",
    "sluice-esp": "switch/target/release/sluice-esp",
}
# Subcommands that a program's help does not list under `Commands:`.
UNLISTED = {"sluice-esp": ["ctl"]}
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are not files in docs/."""
    for path in _outside_pages(config):
        text = (ROOT / path).read_text(encoding="utf-8")
        files.append(File.generated(config, f"{REPOSITORY}/{path}", content=text))
    for name, program in COMMANDS.items():
        text = "\n".join(_help_page(name, ROOT / program))
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns links to files of the repository into links to pages."""
    here = _repository_path(page.file.src_uri)

    def turned(found: re.Match[str]) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        if not target or "://" in target:
            return found[0]
        path = normpath(join(dirname(here), target))
        source = path.removeprefix("docs/") if path.startswith("docs/") else f"{REPOSITORY}/{path}"
        if files.get_file_from_path(source) is not None:
            return f"[{text}]({relpath(source, dirname(page.file.src_uri) or '.')}{anchor})"
        if (ROOT / path).exists():
            return text
        raise PluginError(f"{here}: the link to {target} names a file that does not exist")

    return LINK.sub(turned, markdown)


def _repository_path(source: str) -> str:
    prefix = f"{REPOSITORY}/"
    return source.removeprefix(prefix) if source.startswith(prefix) else f"docs/{source}"


def _outside_pages(config: MkDocsConfig) -> Iterator[str]:
    """Yields the paths of the files outside docs/ that the navigation names."""
    yield from re.findall(rf"{REPOSITORY}/([^'\"]+\.md)", str(config.nav))


def _help_page(name: str, program: Path) -> Iterator[str]:
    """Yields the lines of a page with the help of a command and of all its subcommands."""
    if not program.exists():
        raise PluginError(f"{program} is not built: run make setup")
    yield f"# The {name} command"
    yield ""
    yield f"The output of `{name} --help`, and of `--help` for each of its subcommands."
    yield from _help(program, [name])
    for command in UNLISTED.get(name, ()):
        yield from _help(program, [name, command])


def _help(program: Path, words: list[str]) -> Iterator[str]:
    environment = os.environ | {"COLUMNS": "100", "NO_COLOR": "1"}
    asked = subprocess.run(
        [program, *words[1:], "--help"],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    yield from ("", f"{'#' * min(len(words) + 1, 4)} {' '.join(words)}", "", "```text")
    yield from (asked.stdout.rstrip(), "```")
    listed = re.search(r"^Commands:\n((?:  .*\n|\n)*)", asked.stdout, re.MULTILINE)
    for command in re.findall(r"^  ([a-z][a-z-]*) ", listed[1], re.MULTILINE) if listed else ():
        if command != "help":
            yield from _help(program, [*words, command])
