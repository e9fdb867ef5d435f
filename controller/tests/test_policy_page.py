# SPDX-License-Identifier: Apache-2.0
"""Tests docs/how-to/policy.md: parsers accept its files, and a check prints what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from sluice.cli.main import cli
from sluice.config import load_config
from sluice.policy.model import Direction

PAGE = (Path(__file__).parents[2] / "docs/how-to/policy.md").read_text(encoding="utf-8")
CONFIG, SPD, AUDIT = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Returns a directory with the page's router and rules, and an FRR file with one BGP peer."""
    (tmp_path / "r1.yaml").write_text(f"router: r1\n{CONFIG}{AUDIT}")
    (tmp_path / "corp.yaml").write_text(SPD)
    (tmp_path / "frr.conf").write_text("router bgp 65001\n neighbor 10.0.1.2 remote-as 65101\n")
    return tmp_path


def test_the_files_of_the_page_are_a_configuration(directory: Path) -> None:
    config = load_config(directory / "r1.yaml")
    (spd,) = config.policy.spds
    assert (spd.name, spd.icmp_errors_checked) == ("corp", False)
    assert {len(rules) for rules in spd.rules.values()} == {3}
    assert spd.rules[Direction.OUTBOUND][2].bundle == "branch"
    assert (str(config.audit.file), config.audit.rate) == ("/var/log/sluice/r1-audit.log", 100)


def test_the_check_of_the_page_warns_of_what_it_shows(directory: Path) -> None:
    without_bgp = yaml.safe_load(SPD)
    del without_bgp["inbound"][:2]
    (directory / "corp.yaml").write_text(yaml.safe_dump(without_bgp))
    options = ["--config", str(directory / "r1.yaml"), "--frr", str(directory / "frr.conf")]
    said = CliRunner().invoke(cli, ["spd", "check", *options, str(directory / "corp.yaml")])
    assert said.exit_code == 0, said.output
    shown = PAGE.split("$ sluice spd check")[1].split("```")[0].splitlines()[1:]
    lines = [re.sub(r"\(/.*?frr.conf:\d+\)", "(FRR)", line) for line in said.stdout.splitlines()]
    for line in shown:
        if line != "...":
            assert re.sub(r"\(/.*?frr.conf:\d+\)", "(FRR)", line) in lines
