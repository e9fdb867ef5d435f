# SPDX-License-Identifier: Apache-2.0
"""docs/reference/configuration.md names every key that the configuration's readers ask for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sluice.config import ConfigError, load_config
from sluice.yamlreader import Mapping

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8")
# Every section is there, so that its reader asks for all of its keys.
EVERYTHING = """\
router: r1
switch: {tls: {ca: a, certificate: b, key: c}, address: "192.0.2.1:9559"}
vrfs: {blue: {table: 100}}
interfaces: [{name: eth1, port: 1, mac: "02:00:00:00:01:01", spd: corp}]
punt_rates: {ARP: {rate: 100}}
spds: [{name: corp, flow_cache: {size: 10}}]
engines: [{id: 1, port: 9}]
bundles:
  - name: branch
    id: 1
    spd: corp
    outbound: {engine: 1, sa: 1, local: 10.0.0.1, overhead: 70}
    inbound: [{spi: 4096, engine: 1, sa: 2}]
"""
BY_NAME = ("vrfs", "punt_rates")
"""Sections whose keys are names that the user chooses, or reasons."""


def documented() -> dict[str, dict[str, str]]:
    """Section -> key -> default, as the page has them."""
    found: dict[str, dict[str, str]] = {}
    for part in re.split(r"^###? ", PAGE, flags=re.MULTILINE)[1:]:
        rows = [line.split("|") for line in part.splitlines() if line.startswith("| `")]
        found[part.split("\n", 1)[0]] = {row[1].strip(" `"): row[3].strip() for row in rows}
    return found


@pytest.fixture
def asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, set[str]]:
    """Section -> the keys that its reader asks for."""
    found: dict[str, set[str]] = {}
    close = Mapping.close

    def closed(self: Mapping) -> None:
        parts = [part for part in re.split(r"\.|\[\d+\]", self._where) if part]
        if parts and parts[0] in BY_NAME:
            parts = parts[:1]
        found.setdefault(".".join(parts) or "router", set()).update(self._taken)
        close(self)

    monkeypatch.setattr(Mapping, "close", closed)
    (tmp_path / "r1.yaml").write_text(EVERYTHING)
    load_config(tmp_path / "r1.yaml")
    return found


def test_the_page_has_the_sections_and_keys_of_the_readers(asked_for: dict[str, set[str]]) -> None:
    assert {section: set(keys) for section, keys in documented().items()} == asked_for


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ("interfaces", "interfaces: [{}]"),
        ("engines", "engines: [{}]"),
        ("bundles", "bundles: [{}]"),
    ],
)
def test_what_the_page_calls_required_is(section: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "r1.yaml").write_text(text)
    with pytest.raises(ConfigError) as error:
        load_config(tmp_path / "r1.yaml")
    missing = {
        key
        for problem in error.value.problems
        if f"{section}[0]" in problem
        for key in re.findall(rf"{section}\[0\]\.([a-z_]+)", problem)
    }
    required = {key for key, default in documented()[section].items() if default == "required"}
    assert required == missing
