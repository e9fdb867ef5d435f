# SPDX-License-Identifier: Apache-2.0
"""Tests that all parts have the same version, and that the changelog names this version."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from sluice import __version__, about

ROOT = Path(__file__).resolve().parents[2]


def test_all_parts_have_one_version() -> None:
    switch = tomllib.loads((ROOT / "switch/Cargo.toml").read_text())
    native = tomllib.loads((ROOT / "controller/native/Cargo.toml").read_text())
    assert switch["workspace"]["package"]["version"] == __version__
    assert native["package"]["version"] == __version__


def test_the_changelog_begins_with_it() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert re.findall(r"^## (\S+)", changelog, re.MULTILINE)[0] == __version__


def test_an_installed_package_says_what_it_was_built_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "sluice"
    (package / "pipeline").mkdir(parents=True)
    (package / "pipeline/router.json").write_bytes(b"{}")
    (package / about.BUILT_FROM).write_text("0123456789ab-dirty\n")
    monkeypatch.setattr(about, "PACKAGE", package)
    assert about.version() == f"{__version__} (commit 0123456789ab-dirty, pipeline 44136fa355b3)"
    assert about.default_pipeline() == package / "pipeline"
