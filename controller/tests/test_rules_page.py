# SPDX-License-Identifier: Apache-2.0
"""Tests docs/how-to/rules.md: the parser accepts each example, and the rules have the meaning that
the page describes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from sluice.cli.main import cli
from sluice.config import load_config
from sluice.model import parse_address
from sluice.policy.fragments import ServedBy, expectations
from sluice.policy.model import ICMP, ICMPV6, MOBILITY, TCP, UDP, Direction, Rule, Selectors
from sluice.policy.spdfile import parse_spd
from sluice.state.rule_search import matches
from sluice.yamlreader import ConfigError

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/rules.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
RULES = [one for one in EXAMPLES if one.startswith("- ")]
CONFIG = """\
router: r1
interfaces: [{name: eth1, port: 1, mac: "02:00:00:00:01:01", spd: corp}]
"""


def parse(example: str) -> tuple[Rule, ...]:
    indented = "".join(f"  {line}\n" for line in example.splitlines())
    text = f"spd: example\noutbound:\n{indented}"
    return parse_spd(text, "rules.md", lambda _: frozenset({"branch"})).rules[Direction.OUTBOUND]


@pytest.mark.parametrize("example", RULES)
def test_an_example_is_a_list_of_rules(example: str) -> None:
    assert len(parse(example)) == len(example.splitlines())


def test_the_other_examples_are_of_the_configuration(tmp_path: Path) -> None:
    (example,) = (one for one in EXAMPLES if one not in RULES)
    (tmp_path / "corp.yaml").write_text("spd: corp\n")
    (tmp_path / "r1.yaml").write_text(CONFIG + example)
    (spd,) = load_config(tmp_path / "r1.yaml").policy.spds
    assert spd.icmp_errors_checked


def test_every_key_that_the_parser_knows_is_in_the_table_and_in_an_example() -> None:
    with pytest.raises(ConfigError) as error:
        parse("- {name: a, action: bypass, nonsense: 1}\n")
    keys = str(error.value).split("known here: ")[1].split(", ")
    rows = "".join(line for line in PAGE.splitlines() if line.startswith("| `"))
    for key in keys:
        assert f"`{key}`" in rows
        assert any(f"{key}: " in example for example in RULES)


def test_the_refusal_that_the_page_quotes_is_the_parsers() -> None:
    text = """\
spd: corp
outbound:
  - {name: web, action: bypass}
  - {name: dns, action: bypass, protocol: udp, destination_ports: 010}
"""
    with pytest.raises(ConfigError) as error:
        parse_spd(text, "corp.yaml", lambda _: None)
    assert f"\n{error.value}\n" in PAGE


def test_the_lines_about_fragments_are_those_of_the_demos_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In this directory no controller runs.
    monkeypatch.setattr("sluice.cli.shared.RUN_DIRECTORIES", (tmp_path,))
    said = CliRunner().invoke(cli, ["spd", "check", str(ROOT / "topo/two_sites/r1/wan.yaml")])
    quoted = [line for line in PAGE.splitlines() if line.startswith("wan ")]
    assert len(quoted) == 2
    for line in quoted:
        assert line in said.stdout.splitlines()


def test_fragments_between_two_sites_are_served_by_the_cache() -> None:
    (example,) = (one for one in RULES if "name: site," in one and "name: web," in one)
    found = {
        name: one.served_by
        for one in expectations({Direction.OUTBOUND: parse(example)})
        for name in one.rules
        if "IPv4" in one.families
    }
    assert found == {
        "site": ServedBy.CACHE,
        "web": ServedBy.CONTROLLER,
        "(final)": ServedBy.EITHER,
    }


def packet(
    protocol: int | None,
    *,
    to: str = "198.51.100.7",
    port: int | None = None,
    icmp: int | None = None,
) -> Selectors:
    source = "2001:db8:1::7" if ":" in to else "10.1.0.7"
    ports = None if port is None else 40000
    return Selectors(parse_address(source), parse_address(to), protocol, ports, port, icmp)


def mobility(kind: int) -> Selectors:
    return packet(MOBILITY)._replace(mobility_type=kind)


@pytest.mark.parametrize(
    ("name", "matched", "not_matched"),
    [
        ("web", packet(TCP, port=443), packet(TCP, port=22)),
        ("site", packet(47, to="10.2.0.1"), packet(47)),
        ("site-v6", packet(TCP, to="2001:db8:2::1", port=1), packet(TCP, to="10.2.0.1", port=1)),
        ("all-of-ipv4", packet(TCP, port=1), packet(TCP, to="2001:db8::1", port=1)),
        ("everything", packet(None, to="2001:db8::1"), None),
        ("tunnels", packet(41), packet(TCP, port=41)),
        ("unseen", packet(None, to="2001:db8::1"), packet(UDP, to="2001:db8::1")),
        ("media", packet(UDP, port=20000), packet(UDP, port=5005)),
        ("no-later-fragments", packet(UDP), packet(UDP, port=53)),
        ("all-udp", packet(UDP), packet(TCP)),
        ("unreachable", packet(ICMP, icmp=0x301), packet(ICMP, icmp=0x400)),
        ("fragmentation-needed", packet(ICMP, icmp=0x304), packet(ICMP, icmp=0x303)),
        ("net-and-host", packet(ICMP, icmp=0x301), packet(ICMP, icmp=0x302)),
        ("no-discovery", packet(ICMPV6, icmp=0x87FF), packet(ICMPV6, icmp=0x8A00)),
        ("no-type", packet(ICMP), packet(ICMP, icmp=0)),
        ("bindings", mobility(6), mobility(7)),
        ("binding-errors", mobility(0), mobility(5)),
        ("no-mobility-type", packet(MOBILITY), mobility(0)),
    ],
)
def test_an_example_matches_what_the_page_says(
    name: str, matched: Selectors, not_matched: Selectors | None
) -> None:
    rule = next(one for example in RULES for one in parse(example) if one.name == name)
    assert matches(rule, matched)
    assert not_matched is None or not matches(rule, not_matched)
