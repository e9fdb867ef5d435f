# SPDX-License-Identifier: Apache-2.0
"""Tests that the configuration reference has the keys of the schema, and that the parsers read
exactly these keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import pytest
import yaml

from sluice.config import load_config
from sluice.config_keys import REQUIRED, ConfigKey, ConfigSection, DefaultKey, PartKey, ScalarKey
from sluice.config_reference import PAGES, main, rendered, schema
from sluice.limits_config import PUNT_REASONS
from sluice.policy.spdfile import load_spd
from sluice.yamlreader import ConfigError, YamlMapping

ROOT = Path(__file__).parents[2]
# A configuration with all sections, so that the parsers read all keys.
EVERYTHING = """\
router: r1
switch: {tls: {ca: a, certificate: b, key: c}, address: "192.0.2.1:9559"}
vrfs: {blue: {table: 100}}
interfaces: [{name: eth1, port: 1, mac: "02:00:00:00:01:01", spd: corp}]
punt_rates: {ARP: {rate: 100}}
spds: [{name: corp, flow_cache: {size: 10}, inbound: [{name: a, action: bypass}]}]
engines: [{id: 1, port: 9}, {id: 2, port: 8, admin: /run/esp.sock}]
security_associations:
  - name: out
    bundle: told
    direction: outbound
    spi: 4097
    algorithm: aes-128-gcm
    key_file: KEYS/key
    local: 10.0.0.1
    remote: 10.0.0.2
    soft: {bytes: 1}
    traffic: {source: 10.1.0.1}
    encapsulation: {remote_port: 4500}
bundles:
  - {name: told, id: 2, spd: corp}
  - name: branch
    id: 1
    spd: corp
    outbound: {engine: 1, sa: 1, local: 10.0.0.1, overhead: 70}
    inbound: [{spi: 4096, engine: 1, sa: 2}]
"""
SPD = "spd: corp\noutbound: [{name: a, action: bypass}]\n"
BY_NAME = ("vrfs", "punt_rates")
"""Sections whose keys are names: chosen by the user, or names of punt reasons."""
EVERY_KEY = [(part, key) for part in schema().values() for key in part.all_keys()]
NAMES = [f"{part.title}: {key.name}" for part, key in EVERY_KEY]


def tables() -> dict[str, list[list[str]]]:
    """Returns the cells of each section's table, by section and row, from the committed pages."""
    text = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)
    return {
        title: [
            [cell.strip() for cell in row.strip("|").split("|")] for row in rows.splitlines()[2:]
        ]
        for title, rows in re.findall(r"<!-- keys: (.+) -->\n\n((?:\|.*\n)+)", text)
    }


def test_the_committed_pages_are_those_that_the_schema_gives() -> None:
    for page, text in rendered(ROOT).items():
        assert (ROOT / page).read_text(encoding="utf-8") == text, (
            f"{page} is stale: run make reference"
        )


def test_a_stale_page_is_named_and_renewed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / page).write_text(text.replace("| 0 to 4094 | 0 |", "| 0 to 4095 | 1 |"))
    assert main(["--check", str(tmp_path)]) == 1
    assert f"{PAGES[0]} does not match the schema" in capsys.readouterr().err
    assert main([str(tmp_path)]) == 0
    assert main(["--check", str(tmp_path)]) == 0
    assert (tmp_path / PAGES[0]).read_bytes() == (ROOT / PAGES[0]).read_bytes()


def test_a_section_without_a_table_is_refused(tmp_path: Path) -> None:
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / page).write_text(text.replace("<!-- keys: fpm -->", ""))
    with pytest.raises(LookupError, match="fpm"):
        rendered(tmp_path)


@pytest.mark.parametrize(("part", "key"), EVERY_KEY, ids=NAMES)
def test_every_key_is_on_a_page_with_its_values_default_and_meaning(
    part: type[ConfigSection], key: ConfigKey
) -> None:
    row = next(row for row in tables()[part.title] if row[0] == f"`{key.name}`")
    assert row[1:3] == [key.values, key.default]
    if isinstance(key, PartKey):
        assert key.meaning.split(". ")[0] in row[3]
    else:
        assert row[3] == key.meaning
    assert len(key.meaning) > 8
    assert key.values


def test_every_punt_reason_has_its_default_rate_on_the_page() -> None:
    page = (ROOT / PAGES[0]).read_text(encoding="utf-8")
    rows = page.split("<!-- default punt rates -->")[1].split("\n## ")[0]
    assert re.findall(r"^\| `([A-Z_]+)` \| [0-9,]+ \| [0-9,]+ \|$", rows, re.M) == [*PUNT_REASONS]


def everything(directory: Path) -> str:
    """Writes the key file that EVERYTHING names, and returns the configuration."""
    path = directory / "key"
    path.touch(mode=0o600)
    path.write_text("0f" * 20)
    return EVERYTHING.replace("KEYS", str(directory))


@pytest.fixture
def asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, set[str]]:
    """Returns the keys that the parsers read, by section."""
    found: dict[str, set[str]] = {}
    close = YamlMapping.close

    def closed(self: YamlMapping) -> None:
        parts = [part for part in re.split(r"\.|\[\d+\]", self._where) if part]
        if parts and parts[0] in BY_NAME:
            parts = parts[:1]
        title = ".".join(parts) or ("Keys of an SPD's file" if "spd" in self._taken else "router")
        if " rule 1" in title:
            title = "Keys of a rule"
        found.setdefault(title, set()).update(self._taken)
        close(self)

    monkeypatch.setattr(YamlMapping, "close", closed)
    (tmp_path / "r1.yaml").write_text(everything(tmp_path))
    load_config(tmp_path / "r1.yaml")
    (tmp_path / "corp.yaml").write_text(SPD)
    load_spd(tmp_path / "corp.yaml", None)
    return found


def test_the_readers_ask_for_the_keys_of_the_schema(asked_for: dict[str, set[str]]) -> None:
    keys = {part.title: {key.name for key in part.all_keys()} for part in schema().values()}
    assert keys == asked_for


def without(document: object, part: type[ConfigSection], key: ConfigKey) -> Iterator[str]:
    """Removes a key from all occurrences of its section in a document. Yields their positions."""
    path = [] if part.title == "router" else part.title.split(".")
    found = [("", document)]
    for name in path:
        below = [
            (f"{where}.{name}".lstrip("."), here[name])  # type: ignore[index]
            for where, here in found
            if name in here  # type: ignore[operator]
        ]
        found = [
            one
            for where, here in below
            for one in (
                [(f"{where}[{index}]", value) for index, value in enumerate(here)]
                if isinstance(here, list)
                else [(f"{where}.{name}", value) for name, value in here.items()]
                if name in BY_NAME
                else [(where, here)]
            )
        ]
    for where, here in found:
        del here[key.name]  # type: ignore[attr-defined]
        yield f"{where}.{key.name}".lstrip(".")


REQUIRED_KEYS = [
    (part, key)
    for part, key in EVERY_KEY
    if isinstance(key, ScalarKey) and key.default == REQUIRED and not part.title.startswith("Keys")
]


@pytest.mark.parametrize(
    ("part", "key"), REQUIRED_KEYS, ids=[f"{part.title}: {key.name}" for part, key in REQUIRED_KEYS]
)
def test_a_required_key_that_is_missing_is_named_by_the_words_of_the_schema(
    part: type[ConfigSection], key: ConfigKey, tmp_path: Path
) -> None:
    document = yaml.safe_load(everything(tmp_path))
    places = list(without(document, part, key))
    (tmp_path / "r1.yaml").write_text(yaml.safe_dump(document))
    with pytest.raises(ConfigError) as error:
        load_config(tmp_path / "r1.yaml")
    for place in places:
        said = f": {place}: is missing: {key.missing}"
        assert any(said in problem for problem in error.value.problems), error.value.problems


RANGES = [(part, key) for part, key in EVERY_KEY if re.match(r"[\d.]+ to [\d,^.-]+", key.values)]


@pytest.mark.parametrize(
    ("part", "key"), RANGES, ids=[f"{part.title}: {key.name}" for part, key in RANGES]
)
def test_the_limits_on_the_page_are_those_that_values_are_held_against(
    part: type[ConfigSection], key: ConfigKey
) -> None:
    if not isinstance(key, ScalarKey):
        assert key.name.endswith(("_ports", "_types"))
        return
    found = re.match(r"([\d.]+) to (?:2\^(\d+)-1|([\d,.]+))", key.values)
    assert found is not None
    low = float(found[1]) if "." in found[1] else int(found[1])
    high = 2 ** int(found[2]) - 1 if found[2] else int(found[3].replace(",", ""))
    for inside in (low, high):
        assert key.convert(inside) == inside
    for outside in (low - 1, high + 1):
        with pytest.raises(ValueError, match=str(outside)):
            key.convert(outside)


def test_defaults_are_values_that_a_file_can_say() -> None:
    defaults = [key for _, key in EVERY_KEY if isinstance(key, DefaultKey)]
    assert len(defaults) > 20
    for key in defaults:
        value = key.value.value if isinstance(key.value, Enum) else key.value
        written = value if isinstance(value, int | float) else str(value)
        assert key.convert(written) == key.value
