# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of the configuration reference from the schema.

The text of a page is written by hand. Above each generated table, the page has a line `<!-- keys:
SECTION -->`, where SECTION is a section's title. `<!-- default punt rates -->` marks the table of
punt rates. `make reference` updates the tables of the pages in the repository. `make docs` and a
test reject pages with stale tables. Depends on config, config_keys and spdfile.

    python -m sluice.config_reference [--check] ROOT
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from posixpath import dirname, relpath

from sluice.config import RouterKeys
from sluice.config_keys import ConfigKey, ConfigSection, PartKey
from sluice.limits_config import DEFAULT_PUNT_RATE, DEFAULT_PUNT_RATES, PUNT_REASONS
from sluice.policy.spdfile import SpdFileKeys
from sluice.scalars import readable

PAGES = ("docs/reference/configuration.md", "docs/how-to/rules.md")
TABLE = re.compile(r"^(<!-- keys: (.+) -->\n)\n*(?:\|.*\n)*", re.MULTILINE)
RATES = re.compile(r"^(<!-- default punt rates -->\n)\n*(?:\|.*\n)*", re.MULTILINE)


def schema() -> dict[str, type[ConfigSection]]:
    """Returns every section of the files that operators write, by title."""
    return {part.title: part for root in (RouterKeys, SpdFileKeys) for part in root.tree()}


def rendered(root: Path) -> dict[str, str]:
    """Returns the text of each page under `root`, with its tables generated from the schema.

    Raises LookupError unless each section has exactly one table and each table has a section.
    """
    texts = {page: (root / page).read_text(encoding="utf-8") for page in PAGES}
    places: dict[str, str] = {}
    for page, text in texts.items():
        for _, title in TABLE.findall(text):
            if title in places:
                raise LookupError(f"{page}: the keys of {title!r} are in {places[title]} already")
            places[title] = page
    sections = schema()
    if odd := places.keys() ^ sections.keys():
        raise LookupError(f"tables without a section, or sections without a table: {sorted(odd)}")

    def filled(text: str) -> str:
        text = TABLE.sub(lambda at: _lines(at[1], _table(sections[at[2]], places)), text)
        return RATES.sub(lambda at: _lines(at[1], _rates()), text)

    return {page: filled(text) for page, text in texts.items()}


def _lines(marker: str, lines: Iterator[str]) -> str:
    return "\n".join([marker, *lines, ""])


def _rates() -> Iterator[str]:
    yield "| reason | rate | burst |"
    yield "|---|---|---|"
    for reason in PUNT_REASONS:
        rate = DEFAULT_PUNT_RATES.get(reason, DEFAULT_PUNT_RATE)
        yield f"| `{reason}` | {readable(rate.rate)} | {readable(rate.burst)} |"


def _table(section: type[ConfigSection], places: dict[str, str]) -> Iterator[str]:
    yield "| key | value | default | meaning |"
    yield "|---|---|---|---|"
    for key in section.all_keys():
        meaning = _meaning(key, places[section.title], places)
        yield f"| `{key.name}` | {key.values} | {key.default} | {meaning} |".replace("|  |", "| |")


def _meaning(key: ConfigKey, page: str, places: dict[str, str]) -> str:
    if not isinstance(key, PartKey):
        return key.meaning
    title = key.keys.title
    there = "" if places[title] == page else relpath(places[title], dirname(page))
    anchor = re.sub(r"[^a-z0-9_ -]", "", title.lower()).replace(" ", "-")
    first, stop, rest = key.meaning.partition(". ")
    return (
        f"[{first.rstrip('.')}]({there}#{anchor}){stop.strip() or '.'}{f' {rest}' if rest else ''}"
    )


def main(arguments: list[str]) -> int:
    """Writes the pages, or with `--check` prints the names of stale pages.

    Returns the exit code.
    """
    is_check, root = arguments[:1] == ["--check"], Path(arguments[-1])
    stale = 0
    for page, text in rendered(root).items():
        if (root / page).read_text(encoding="utf-8") == text:
            continue
        stale += 1
        if is_check:
            print(f"{page} does not match the schema: run `make reference`", file=sys.stderr)
        else:
            (root / page).write_text(text, encoding="utf-8")
            print(page)
    return 1 if is_check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
