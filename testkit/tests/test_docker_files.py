# SPDX-License-Identifier: Apache-2.0
"""Tests that docker/ installs only packages with a pinned version, and that its configurations are
valid.

These tests need no image. `make test-images` builds the images and runs them.
"""

import re
import shutil
from pathlib import Path

import pytest

from sluice_testkit import where
from sluice_testkit.process import run

DOCKER = where.repository() / "docker"
HOSTS = {"deb.debian.org", "snapshot.debian.org", "static.rust-lang.org", "crates.io"}


def words(path: Path) -> set[str]:
    """Returns the first word of each line of a file, without comments."""
    lines = (line.partition("#")[0].split() for line in path.read_text().splitlines())
    return {line[0] for line in lines if line}


def pinned(*parts: str) -> set[str]:
    """Returns the packages in the lock files of `parts`, without their versions."""
    locked = set().union(*(words(DOCKER / part / "packages.lock") for part in parts))
    assert all(re.fullmatch(r"[a-z0-9.+-]+=[A-Za-z0-9.:~+-]+", one) for one in locked)
    return {one.partition("=")[0] for one in locked}


@pytest.mark.parametrize("part", ["sluice", "sluice/build", "frr", "lab"])
def test_what_is_wanted_is_pinned(part: str) -> None:
    assert words(DOCKER / part / "packages") <= pinned("base", part)


def test_packages_have_one_version_in_all_images() -> None:
    versions: dict[str, set[str]] = {}
    for lock in DOCKER.rglob("packages.lock"):
        for line in words(lock):
            name, _, version = line.partition("=")
            versions.setdefault(name, set()).add(version)
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}


def test_images_are_pinned_by_digest() -> None:
    pins = (DOCKER / "pins").read_text()
    assert re.search(r"^BASE_IMAGE=docker\.io/\S+@sha256:[0-9a-f]{64}$", pins, re.MULTILINE)
    for file in DOCKER.glob("*/Dockerfile"):
        for name in re.findall(r"^FROM (\S+)", file.read_text(), re.MULTILINE):
            assert name == "scratch" or name.startswith("${"), (
                f"{file}: {name} is not a pinned image"
            )


def test_only_public_hosts_are_named() -> None:
    for file in (path for path in DOCKER.rglob("*") if path.is_file()):
        found = re.findall(r"https?://([^/\s\"')]+)", file.read_text())
        assert set(found) <= HOSTS, file


@pytest.mark.parametrize("router", ["router", "bmv2"])
def test_shipped_configurations_are_right(router: str, tmp_path: Path) -> None:
    shutil.copy(DOCKER / "router/etc/sluice/wan.yaml", tmp_path)
    shutil.copy(DOCKER / router / "etc/sluice/sluice.yaml", tmp_path)
    checked = run([str(where.sluice()), "run", "--check", str(tmp_path / "sluice.yaml")])
    assert checked.stdout.rstrip().endswith("2 interfaces: fine")
