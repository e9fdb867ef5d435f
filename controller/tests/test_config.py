# SPDX-License-Identifier: Apache-2.0
"""Tests that a configuration is accepted or refused as a whole, with all problems in one error."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sluice.config import (
    PUNT_REASONS,
    AuditConfig,
    Config,
    ConfigError,
    Isolation,
    PuntRate,
    load_config,
)
from sluice.connection_config import UnixAddress
from sluice.model import InterfaceAddress
from sluice.p4.packets import PuntReason

GOOD = """\
router: r1
vrfs:
  blue: {table: 100}
interfaces:
  - name: eth1
    port: 1
    mac: "02:00:00:00:01:01"
    addresses: [10.1.0.1/24, "2001:db8:1::1/64"]
  - {name: eth2, port: 2, vlan: 10, mac: "02:00:00:00:01:02", mtu: 9000, vrf: blue, device: port2}
punt_rates:
  ARP: {rate: 50}
"""


def load(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "r1.yaml"
    path.write_text(text)
    return load_config(path)


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        load(tmp_path, text)
    return [problem.removeprefix(f"{tmp_path}/r1.yaml:") for problem in error.value.problems]


def test_a_good_one_with_its_defaults(tmp_path: Path) -> None:
    config = load(tmp_path, GOOD)
    assert config.router == "r1"
    assert config.switch.address == UnixAddress(Path("/run/sluice/r1-p4rt.sock"))
    assert config.api_socket == Path("/run/sluice/r1.sock")
    assert [(vrf.name, vrf.id, vrf.table) for vrf in config.vrfs] == [
        ("default", 0, 254),
        ("blue", 1, 100),
    ]
    first, second = config.interfaces
    assert (first.l3_if, first.vlan, first.mtu, first.device) == (1, 0, 1500, None)
    assert first.addresses[0] == InterfaceAddress.parse("10.1.0.1/24")
    assert second.spec.vrf == 1
    assert config.punt_rates["ARP"] == PuntRate(50, 10)
    assert set(config.punt_rates) == set(PUNT_REASONS)


def test_the_example_of_the_how_to_has_every_default_right(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/configure.md").read_text(encoding="utf-8")
    example = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[0]
    shown, plain = load(tmp_path, example), load(tmp_path, GOOD)
    assert (shown.limits, shown.switch, shown.fpm) == (plain.limits, plain.switch, plain.fpm)
    assert (shown.state_dir, shown.audit) == (plain.state_dir, plain.audit)


def test_the_audit_log_is_in_the_state_directory_unless_it_is_said(tmp_path: Path) -> None:
    assert load(tmp_path, GOOD).audit == AuditConfig(Path("/var/lib/sluice/r1/audit.log"), 100)
    moved = load(tmp_path, GOOD + "state_dir: /srv/r1\n")
    assert moved.audit.file == Path("/srv/r1/audit.log")
    said = load(tmp_path, GOOD + "audit: {file: /var/log/sluice.log, rate: 7}\n")
    assert said.audit == AuditConfig(Path("/var/log/sluice.log"), 7)
    (found,) = problems(tmp_path, GOOD + "audit: {rate: 0}\n")
    assert "audit.rate: 0 is not a whole number from 1 to 100000" in found


def test_the_reasons_are_the_pipelines() -> None:
    assert tuple(reason.value for reason in PuntReason) == PUNT_REASONS


def test_every_problem_is_named_with_its_line_and_what_to_do(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        """\
router: "r 1"
swich: {}
switch: {target: tofino, address: 9559}
interfaces:
  - {name: a-name-too-long-for-linux, port: 1, mac: "ff:00:00:00:01:01"}
  - {name: eth2, port: -1, mtu: large}
  - {name: eth3, port: 3, mac: "02:00:00:00:01:03", addresses: [10.0.2.1/40], vrf: red}
punt_rates: {LOCALS: {rate: 1}, ARP: {burst: 1}}
""",
    )
    text = "\n".join(found)
    for line, words in (
        (1, ["router", "not a name"]),
        (2, ["swich", "unknown key", "switch"]),
        (3, ["switch.target", "sluice-switch, bmv2"]),
        (3, ["switch.address", "HOST:PORT"]),
        (5, ["interfaces[0].name", "15 characters"]),
        (5, ["interfaces[0].mac", "unicast"]),
        (6, ["interfaces[1].port", "-1"]),
        (6, ["interfaces[1].mtu", "large"]),
        (6, ["interfaces[1].mac", "missing"]),
        (7, ["interfaces[2].addresses[0]", "at most 32"]),
        (7, ["interfaces[2].vrf", "default"]),
        (8, ["punt_rates.LOCALS", "OUTBOUND_MISS"]),
        (8, ["punt_rates.ARP.rate", "missing"]),
    ):
        assert any(
            problem.startswith(f"{line}: ") and all(word in problem for word in words)
            for problem in found
        ), (line, words, text)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("0.0.0.0/0", "unspecified"),
        ("::/0", "unspecified"),
        ("127.0.0.1/8", "loopback"),
        ("::1/128", "loopback"),
        ("224.0.0.5/32", "multicast"),
        ("ff02::1/64", "multicast"),
        ("0.1.2.3/24", "reserved"),
        ("240.0.0.1/24", "reserved"),
        ("255.255.255.255/32", "reserved"),
        ("::ffff:10.0.0.1/120", "IPv4-mapped"),
        ("10.1.0.0/24", "the address of the subnet"),
        ("2001:db8::/64", "the address of the subnet"),
        ("10.1.0.255/24", "broadcast"),
    ],
)
def test_addresses_that_no_interface_can_have(tmp_path: Path, address: str, said: str) -> None:
    interface = f'{{name: eth1, port: 1, mac: "02:00:00:00:01:01", addresses: ["{address}"]}}'
    (found,) = problems(tmp_path, f"router: r1\ninterfaces:\n  - {interface}\n")
    assert found.startswith("3: interfaces[0].addresses[0]: ")
    assert said in found


def test_addresses_at_the_edge_of_a_subnet_that_interfaces_may_have(tmp_path: Path) -> None:
    edges = '[10.1.0.0/31, 10.3.0.255/31, 10.2.0.255/32, 169.254.1.1/24, "2001:db8::/127"]'
    interface = f'{{name: eth1, port: 1, mac: "02:00:00:00:01:01", addresses: {edges}}}'
    config = load(tmp_path, f"router: r1\ninterfaces:\n  - {interface}\n")
    assert len(config.interfaces[0].addresses) == 5


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ('{name: eth1, port: 2, mac: "02:00:00:00:01:02"}', "name 'eth1' is taken"),
        ('{name: eth2, port: 1, mac: "02:00:00:00:01:02"}', "port 1 vlan 0 belongs to 'eth1'"),
        ('{name: eth2, port: 2, mac: "02:00:00:00:01:01"}', "MAC 02:00:00:00:01:01 belongs"),
        (
            '{name: eth2, port: 2, mac: "02:00:00:00:01:02", addresses: [10.1.0.1/24]}',
            "already on 'eth1'",
        ),
        (
            '{name: eth2, port: 2, mac: "02:00:00:00:01:02", addresses: [10.1.0.200/25]}',
            "overlaps 10.1.0.1/24 of 'eth1'",
        ),
        ('{name: eth2, port: 2, mac: "02:00:00:00:01:02", device: eth2}', "different names"),
        ("{name: eth2, name: eth3, port: 2}", "given twice"),
    ],
)
def test_what_two_interfaces_must_not_share(tmp_path: Path, second: str, said: str) -> None:
    first = '{name: eth1, port: 1, mac: "02:00:00:00:01:01", addresses: [10.1.0.1/24]}'
    found = problems(tmp_path, f"router: r1\ninterfaces:\n  - {first}\n  - {second}\n")
    assert any(said in problem for problem in found), found


@pytest.mark.parametrize(
    ("vrfs", "said"),
    [
        ("{default: {table: 5}}", "the default VRF has the main table; remove this"),
        ("{a: {table: 254}}", "table 254 belongs to VRF 'default'"),
        ("{a: {}}", "routing table in the kernel"),
        ("{a: {table: 1, b: 2}}", "unknown key"),
        ("{a: {table: 1, next_hop_vrfs: [a]}}", "'a' is not one of: default"),
        ("{a: {table: 1, next_hop_vrfs: [b]}}", "'b' is not one of: default"),
        ("{default: {next_hop_vrfs: [default]}, a: {table: 1}}", "'default' is not one of: a"),
        ("{default: {device: main}}", "unknown key"),
        ("{a: {table: 255}}", "table 255 is the kernel's local table"),
        ("{a: {table: 1, device: a/b}}", "'a/b' is not an interface name"),
        ("{lo: {table: 1}}", "device 'lo' of VRF 'lo' is the name of loopback"),
        ("{eth1: {table: 1}}", "is the name of interface 'eth1'; give the VRF another `device`"),
        ("{a: {table: 1}, b: {table: 2, device: a}}", "is the name of VRF 'a''s device"),
        ("{a: {table: 1, isolation: none}}", "'none' is not one of: device, namespace, shared"),
        ("{a: {table: 1, namespace: ../b}}", "'../b' is not a name of letters"),
        ("{a: {table: 1}, b: {table: 2, namespace: a}}", "a network namespace, 'a'; give each"),
        ("{default: {isolation: namespace}}", "unknown key"),
    ],
)
def test_bad_vrfs(tmp_path: Path, vrfs: str, said: str) -> None:
    interface = '{name: eth1, port: 1, mac: "02:00:00:00:01:01"}'
    text = f"router: r1\nvrfs: {vrfs}\ninterfaces: [{interface}]\n"
    (problem,) = problems(tmp_path, text)
    assert said in problem


def test_a_vrfs_device_has_its_name_where_it_can(tmp_path: Path) -> None:
    vrfs = "{red: {table: 1}, blue: {table: 2, device: vrf-b}, a-long-customer-name: {table: 30}}"
    interface = '{name: eth1, port: 1, mac: "02:00:00:00:01:01"}'
    config = load(tmp_path, f"router: r1\nvrfs: {vrfs}\ninterfaces: [{interface}]\n")
    assert [vrf.device for vrf in config.vrfs] == [None, "red", "vrf-b", "vrf30"]


def test_a_vrf_may_say_how_the_host_stack_keeps_it_apart(tmp_path: Path) -> None:
    vrfs = (
        "{red: {table: 1}, blue: {table: 2, isolation: namespace, namespace: b}, a/b: {table: 3}}"
    )
    interface = '{name: eth1, port: 1, mac: "02:00:00:00:01:01", vrf: blue}'
    config = load(tmp_path, f"router: r1\nvrfs: {vrfs}\ninterfaces: [{interface}]\n")
    assert [vrf.isolation for vrf in config.vrfs] == [None, None, Isolation.NAMESPACE, None]
    assert [vrf.namespace for vrf in config.vrfs] == [None, "red", "b", "vrf3"]
    assert [vrf.namespace_number for vrf in config.vrfs] == [0, 0, 2, 0]
    assert config.interfaces[0].spec.namespace == 2


def test_a_vrf_may_have_next_hops_in_others(tmp_path: Path) -> None:
    vrfs = "{default: {next_hop_vrfs: [a]}, a: {table: 1}, b: {table: 2, next_hop_vrfs: [a]}}"
    interface = '{name: eth1, port: 1, mac: "02:00:00:00:01:01"}'
    config = load(tmp_path, f"router: r1\nvrfs: {vrfs}\ninterfaces: [{interface}]\n")
    assert config.next_hop_vrfs() == {0: {1}, 1: set(), 2: {1}}


def test_who_may_run_ike(tmp_path: Path) -> None:
    assert load(tmp_path, GOOD).ike.users == ("root",)
    assert load(tmp_path, f"{GOOD}\nike: {{users: [root, 107]}}\n").ike.users == ("root", "107")
    for wrong, said in (("{users: []}", "nobody could run IKE"), ("{user: [a]}", "unknown key")):
        (problem,) = problems(tmp_path, f"{GOOD}\nike: {wrong}\n")
        assert said in problem


@pytest.mark.parametrize("name", ['et"h', "eth*", "et\\h", "et\ah", "eth/1", "eth:1", "a b"])
def test_interface_names_that_no_kernel_or_firewall_takes(tmp_path: Path, name: str) -> None:
    interface = f'{{name: {json.dumps(name)}, port: 1, mac: "02:00:00:00:01:01"}}'
    (problem,) = problems(tmp_path, f"router: r1\ninterfaces: [{interface}]\n")
    assert "is not an interface name" in problem
