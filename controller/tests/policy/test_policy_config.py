# SPDX-License-Identifier: Apache-2.0
"""Tests SPDs, engines and bundles in the configuration.

An interface must name its SPD, or declare that it has none.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.config import Config, ConfigError, load_config
from sluice.model import parse_address
from sluice.policy.config import (
    BundleConfig,
    EngineConfig,
    FlowCacheConfig,
    InboundSa,
    OutboundSa,
    PolicyConfig,
)
from sluice.policy.model import Direction

INTERFACES = """\
router: r1
vrfs: {blue: {table: 100}}
interfaces:
  - {name: eth1, port: 1, mac: "02:00:00:00:01:01", spd: corp}
  - {name: eth2, port: 2, mac: "02:00:00:00:01:02", spd: none}
"""
POLICY = """\
engines: [{id: 1, port: 9}]
bundles:
  - name: branch
    id: 5
    spd: corp
    outbound: {engine: 1, sa: 100, local: 10.0.1.1, overhead: 73}
    inbound: [{spi: 4096, engine: 1, sa: 200}]
  - name: other
    id: 6
    spd: corp
    vrf: blue
    outbound: {engine: 1, sa: 101, local: "2001:db8::1", overhead: 73, spi: 0x1000}
    inbound: [{spi: 4096, engine: 1, sa: 201}]
spds:
  - name: corp
    file: corp.yaml
    flow_cache: {size: 100, idle_timeout: 5}
"""
RULES = "spd: corp\noutbound:\n  - {name: all, action: protect, bundle: branch}\n"


def load(tmp_path: Path, text: str, rules: str = RULES) -> Config:
    (tmp_path / "r1.yaml").write_text(text)
    (tmp_path / "corp.yaml").write_text(rules)
    return load_config(tmp_path / "r1.yaml")


def problems(tmp_path: Path, text: str, rules: str = RULES) -> str:
    with pytest.raises(ConfigError) as error:
        load(tmp_path, text, rules)
    return str(error.value)


def test_a_good_one(tmp_path: Path) -> None:
    config = load(tmp_path, INTERFACES + POLICY)
    assert [interface.spd for interface in config.interfaces] == ["corp", None]
    policy = config.policy
    assert policy.engines == (EngineConfig(1, 9, l3_if=3),)
    assert policy.bundles == (
        BundleConfig(
            "branch",
            5,
            "corp",
            "default",
            OutboundSa(1, 100, parse_address("10.0.1.1"), 1500, 73),
            (InboundSa(4096, 1, 200),),
        ),
        BundleConfig(
            "other",
            6,
            "corp",
            "blue",
            OutboundSa(1, 101, parse_address("2001:db8::1"), 1500, 73, 0x1000),
            (InboundSa(4096, 1, 201),),
        ),
    )
    (spd,) = policy.spds
    assert (spd.name, spd.file) == ("corp", tmp_path / "corp.yaml")
    assert [rule.name for rule in spd.rules[Direction.OUTBOUND]] == ["all"]
    assert spd.flow_cache == FlowCacheConfig(True, 100, 5.0)
    assert policy.bundle_ids() == {"branch": 5, "other": 6}


def test_without_policy_there_is_none(tmp_path: Path) -> None:
    text = INTERFACES.replace(", spd: corp", "").replace(", spd: none", "")
    config = load(tmp_path, text)
    assert config.policy == PolicyConfig()
    assert [interface.spd for interface in config.interfaces] == [None, None]


def test_rules_may_stand_in_the_configuration(tmp_path: Path) -> None:
    text = "spds: [{name: corp, inbound: [{name: all, action: bypass}]}]"
    (spd,) = load(tmp_path, INTERFACES + text).policy.spds
    assert [rule.name for rule in spd.rules[Direction.INBOUND]] == ["all"]
    assert spd.rules[Direction.OUTBOUND] == ()


def test_a_mirrored_spd_has_a_path_mtu_and_no_other_has(tmp_path: Path) -> None:
    text = INTERFACES + "spds: [{name: corp, source: kernel, path_mtu: 1400}]"
    (spd,) = load(tmp_path, text).policy.spds
    assert (spd.is_mirrored, spd.path_mtu) == (True, 1400)
    found = problems(tmp_path, text.replace("source: kernel, ", ""))
    assert "each bundle has this key" in found
    assert "1280 to 9216" in problems(tmp_path, text.replace("1400", "1279"))


@pytest.mark.parametrize(
    ("written", "is_checked"),
    [("", False), ("icmp_errors: off", False), ("icmp_errors: 'off'", False),
     ("icmp_errors: checked", True)],
)  # fmt: skip
def test_icmp_errors_are_off_or_checked(tmp_path: Path, written: str, is_checked: bool) -> None:
    for where in ("file: corp.yaml", "inbound: []"):
        policy = POLICY.replace("file: corp.yaml", f"{where}\n    {written}")
        (spd,) = load(tmp_path, INTERFACES + policy).policy.spds
        assert spd.icmp_errors_checked is is_checked


@pytest.mark.parametrize("where", ["file: corp.yaml", "inbound: []"])
def test_the_final_discard_rejects_if_its_spd_says_so(tmp_path: Path, where: str) -> None:
    for written, rejects in (("", False), ("reject: true", True)):
        policy = POLICY.replace("file: corp.yaml", f"{where}\n    {written}")
        (spd,) = load(tmp_path, INTERFACES + policy).policy.spds
        assert spd.reject is rejects


def test_silence_is_an_error_once_there_is_an_spd(tmp_path: Path) -> None:
    text = INTERFACES.replace(", spd: none", "") + POLICY
    assert "r1.yaml:5: interfaces[1].spd: is missing: write corp, or none" in problems(
        tmp_path, text
    )


def test_problems_of_the_spd_file_come_with_the_rest(tmp_path: Path) -> None:
    text = INTERFACES.replace("port: 2", "port: x") + POLICY
    found = problems(tmp_path, text, RULES.replace("branch", "brunch"))
    assert "r1.yaml:5: interfaces[1].port: " in found
    assert "corp.yaml:3: outbound rule 1 'all'.bundle: this SPD has no bundle 'brunch'" in found


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("spd: corp}", "spd: crop}", "there is no SPD 'crop'; `spds:` has corp; or write none"),
        ("file: corp.yaml", "file: absent.yaml", "absent.yaml: No such file"),
        (
            "file: corp.yaml",
            "file: corp.yaml\n    outbound: [{name: a, action: bypass}]",
            "not both",
        ),
        ("- name: corp", "- name: none", "'none' stands for no SPD"),
        ("port: 9", "port: 2", "port 2 belongs to eth2"),
        ("[{id: 1, port: 9}]", "[{id: 1, port: 9}, {id: 1, port: 8}]", "an engine 1 already"),
        ("engine: 1, sa: 100", "engine: 2, sa: 100", "2 is not one of: 1"),
        ("engines: [{id: 1, port: 9}]", "engines: []", "1: none is configured"),
        ("spi: 4096, engine: 1, sa: 200", "spi: 255, engine: 1, sa: 200", "from 256"),
        ("vrf: blue", "vrf: default", "SPI 0x1000 of VRF default belongs to 'branch' already"),
        ("vrf: blue", "vrf: red", "'red' is not one of: default, blue"),
        ("spd: corp\n    out", "spd: crop\n    out", "'crop' is not one of: corp"),
        ("size: 100", "size: 0", "0 is not a whole number"),
        ("size: 100", "enabled: 1", "1 is neither true nor false"),
        ("flow_cache:", "cache:", "unknown key"),
        ("flow_cache:", "icmp_errors: on\n    flow_cache:", "True is neither off nor checked"),
        ("flow_cache:", "icmp_errors: all\n    flow_cache:", "'all' is neither off nor checked"),
    ],
)
def test_each_problem_has_a_name(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in INTERFACES + POLICY
    assert message in problems(tmp_path, (INTERFACES + POLICY).replace(old, new, 1))


def test_names_and_numbers_are_given_once(tmp_path: Path) -> None:
    twice = POLICY.replace("  - name: corp", "  - {name: corp}\n  - name: corp")
    assert "there is an SPD 'corp' already" in problems(tmp_path, INTERFACES + twice)
    again = POLICY.replace("spds:", "  - {name: other, id: 5, spd: corp}\nspds:")
    assert "an earlier bundle has this name or id" in problems(tmp_path, INTERFACES + again)


def test_a_file_must_be_of_the_spd_that_names_it(tmp_path: Path) -> None:
    text = INTERFACES + POLICY
    assert "corp.yaml has rules of the SPD 'crop', not of 'corp'" in problems(
        tmp_path, text, RULES.replace("spd: corp", "spd: crop")
    )
