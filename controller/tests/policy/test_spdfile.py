# SPDX-License-Identifier: Apache-2.0
"""Tests SPD files: a file is accepted whole or refused whole.

Each problem is reported with line, list, rule and name.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.model import Prefix, parse_address
from sluice.policy.model import (
    OPAQUE,
    Action,
    AddressRange,
    Direction,
    NumberRange,
    Rule,
    prefix_range,
)
from sluice.policy.spdfile import load_spd, read_lists
from sluice.yamlreader import ConfigError, YamlReader

OUT, IN = Direction.OUTBOUND, Direction.INBOUND
GOOD = """\
spd: corp
outbound:
  - name: web
    action: protect
    bundle: branch
    source: 10.1.0.0/16
    destination: [10.2.0.0/16, 10.3.0.1-10.3.0.9, 10.4.0.1]
    protocol: tcp
    destination_ports: [80, 8000-8999]
  - {name: ping, action: bypass, protocol: [icmp, 58], icmp: [8, 0/0]}
  - {name: errors, action: bypass, protocol: icmp, icmp: [11-12, 3/0-4, 5/1]}
  - {name: fragments, action: discard, source_ports: opaque, source: any, protocol: ANY}
  - {name: unseen, action: discard, protocol: opaque, audit: true}
  - name: bindings
    action: protect
    bundle: branch
    protocol: mobility
    mobility_types: [1-4, 255]
  - {name: no-type, action: discard, protocol: 135, mobility_types: OPAQUE}
"""


PROTECT = "name: a, action: protect, bundle: branch"
OCTAL = "YAML takes 010 for the number 8; write 8 or 10"


def load(tmp_path: Path, text: str) -> dict[Direction, tuple[Rule, ...]]:
    path = tmp_path / "corp.yaml"
    path.write_text(text)
    return load_spd(path, frozenset({"branch"})).rules


def problems(tmp_path: Path, *rules: str) -> list[str]:
    text = "spd: corp\noutbound:\n" + "".join(f"  - {{{rule}}}\n" for rule in rules)
    with pytest.raises(ConfigError) as error:
        load(tmp_path, text)
    return [one.removeprefix(f"{tmp_path}/corp.yaml:") for one in error.value.problems]


def test_a_good_one(tmp_path: Path) -> None:
    rules = load(tmp_path, GOOD)
    assert rules[IN] == ()
    assert rules[OUT] == (
        Rule(
            "web",
            Action.PROTECT,
            "branch",
            source=(prefix_range(Prefix.parse("10.1.0.0/16")),),
            destination=(
                prefix_range(Prefix.parse("10.2.0.0/16")),
                AddressRange(parse_address("10.3.0.1"), parse_address("10.3.0.9")),
                AddressRange(parse_address("10.4.0.1"), parse_address("10.4.0.1")),
            ),
            protocol=(6,),
            destination_port=(NumberRange(80, 80), NumberRange(8000, 8999)),
        ),
        Rule(
            "ping",
            Action.BYPASS,
            protocol=(1, 58),
            icmp=(NumberRange(0x800, 0x8FF), NumberRange(0, 0)),
        ),
        Rule(
            "errors",
            Action.BYPASS,
            protocol=(1,),
            icmp=(NumberRange(0xB00, 0xCFF), NumberRange(0x300, 0x304), NumberRange(0x501, 0x501)),
        ),
        Rule("fragments", Action.DISCARD, source_port=OPAQUE),
        Rule("unseen", Action.DISCARD, protocol=OPAQUE, audit=True),
        Rule(
            "bindings",
            Action.PROTECT,
            "branch",
            protocol=(135,),
            mobility_type=(NumberRange(1, 4), NumberRange(255, 255)),
        ),
        Rule("no-type", Action.DISCARD, protocol=(135,), mobility_type=OPAQUE),
    )


def test_selectors_that_are_populated_from_packets(tmp_path: Path) -> None:
    text = """\
spd: corp
outbound:
  - {name: pairs, action: protect, bundle: branch, from_packet: [destination, source]}
  - {name: one, action: protect, bundle: branch, from_packet: protocol}
  - {name: ports, action: protect, bundle: branch, protocol: [tcp, udp], from_packet: source_ports}
  - {name: all, action: protect, bundle: branch,
     from_packet: [mobility_types, icmp, destination_ports, source_ports, protocol, destination]}
"""
    assert [rule.from_packet for rule in load(tmp_path, text)[OUT]] == [
        ("source", "destination"),
        ("protocol",),
        ("source_ports",),
        ("destination", "protocol", "source_ports", "destination_ports", "icmp", "mobility_types"),
    ]


def test_prefixes_become_ranges() -> None:
    assert prefix_range(Prefix.parse("10.0.0.0/31")).high == parse_address("10.0.0.1")
    assert prefix_range(Prefix.parse("2001:db8::/32")).high == parse_address(
        "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"
    )


@pytest.mark.parametrize(
    ("rule", "key", "message"),
    [
        (
            "name: a, action: allow",
            "action",
            "'allow' is no action: write bypass, discard or protect",
        ),
        ("name: a", "action", "is missing"),
        ("action: bypass", "name", "is missing"),
        ("name: 'a:b', action: bypass", "name", "'a:b' is not a name"),
        ("name: a, action: protect", "bundle", "is missing: the SA bundle that"),
        ("name: a, action: protect, bundle: x", "bundle", "no bundle 'x'; it has: branch"),
        ("name: a, action: bypass, bundle: branch", "bundle", "only a protect rule has a bundle"),
        ("name: a, action: bypass, from_packet: source", "from_packet", "only a protect rule has"),
        (f"{PROTECT}, from_packet: []", "from_packet", "an empty list populates nothing"),
        (f"{PROTECT}, from_packet: ", "from_packet", "'' is no selector"),
        (f"{PROTECT}, from_packet: any", "from_packet", "'any' is no selector; there is: source"),
        (f"{PROTECT}, from_packet: [source, source]", "from_packet", "'source' is written twice"),
        (f"{PROTECT}, from_packet: [icmp]", "from_packet", "`icmp` needs `protocol` beside it, or"),
        (
            f"{PROTECT}, protocol: [udp, gre], from_packet: [source_ports]",
            "from_packet",
            "or a `protocol:` of tcp, udp, sctp, and no other",
        ),
        ("name: a, action: bypass, sport: 1", "sport", "unknown key; known here: action, audit"),
        ("name: a, action: bypass, source: 10.0.0.1/8", "source", "has bits set after"),
        ("name: a, action: bypass, source: 10.0.0.9-10.0.0.1", "source", "not a range LOW-HIGH"),
        ("name: a, action: bypass, source: '::1-10.0.0.1'", "source", "not a range LOW-HIGH"),
        ("name: a, action: bypass, source: host", "source", "'host' is not an IPv4 or IPv6"),
        ("name: a, action: bypass, source: 1:2:3:4:5:6:7:8", "source", "put it in quotes"),
        ("name: a, action: bypass, source: []", "source", "an empty list matches nothing"),
        ("name: a, action: bypass, source: ", "source", "nothing is written here"),
        ("name: a, action: bypass, source: {b: c}", "source", "a single value is expected"),
        ("name: a, action: bypass, source: [10.0.0.1, any]", "source", "`opaque` stand alone"),
        ("name: a, action: bypass, protocol: [6, OPAQUE]", "protocol", "`opaque` stand alone"),
        ("name: a, action: bypass, source: opaque", "source", "'opaque' is not an IPv4 or IPv6"),
        (
            "name: a, action: bypass, source: 10.0.0.1, destination: '::1'",
            "destination",
            "IPv4 and IPv6 addresses in one rule",
        ),
        (
            "name: a, action: bypass, source: [10.0.0.1, '::1']",
            "source",
            "IPv4 and IPv6 addresses in one rule",
        ),
        ("name: a, action: bypass, protocol: tpc", "protocol", "'tpc' is no protocol"),
        ("name: a, action: bypass, protocol: 256", "protocol", "256 is no protocol"),
        ("name: a, action: bypass, protocol: true", "protocol", "True is no protocol"),
        ("name: a, action: bypass, protocol: 5-7", "protocol", "write several as a list, not as"),
        ("name: a, action: bypass, protocol: 021", "protocol", "YAML takes 021 for the number 17;"),
        (
            "name: a, action: bypass, protocol: opaque, source_ports: 1",
            "source_ports",
            "need a `protocol:` of tcp",
        ),
        ("name: a, action: bypass, audit: true", "audit", "only a discard rule has this key"),
        ("name: a, action: discard, audit: 1", "audit", "1 is neither true nor false"),
        ("name: a, action: bypass, reject: true", "reject", "only a discard rule has it, this one"),
        ("name: a, action: bypass, source_ports: 80", "source_ports", "need a `protocol:` of tcp"),
        (
            "name: a, action: bypass, protocol: [tcp, gre], destination_ports: 80",
            "destination_ports",
            "of tcp, udp, sctp, and no other protocol",
        ),
        (
            "name: a, action: bypass, protocol: tcp, icmp: 8",
            "icmp",
            "of icmp, icmpv6, and no other",
        ),
        ("name: a, action: bypass, protocol: tcp, source_ports: 65536", "source_ports", "to 65535"),
        ("name: a, action: bypass, protocol: tcp, source_ports: 9-8", "source_ports", "low to"),
        (
            "name: a, action: bypass, protocol: tcp, source_ports: 9-",
            "source_ports",
            "'9-' is no p",
        ),
        (
            "name: a, action: bypass, protocol: tcp, source_ports: http",
            "source_ports",
            "is no port",
        ),
        ("name: a, action: bypass, protocol: tcp, source_ports: 010", "source_ports", OCTAL),
        (
            "name: a, action: bypass, protocol: tcp, source_ports: [1, 010]",
            "source_ports[1]",
            OCTAL,
        ),
        (
            "name: a, action: bypass, protocol: tcp, source_ports: 0x10",
            "source_ports",
            "; write 16",
        ),
        (
            "name: a, action: bypass, protocol: tcp, source_ports: 22:30",
            "source_ports",
            "write 1350",
        ),
        (
            "name: a, action: bypass, protocol: tcp, source_ports: 08",
            "source_ports",
            "'08' is no po",
        ),
        (
            "name: a, action: bypass, protocol: tcp, source_ports: 01-9",
            "source_ports",
            "leading zer",
        ),
        (
            "name: a, action: bypass, protocol: tcp, source_ports: 8.0",
            "source_ports",
            "8.0 is no po",
        ),
        ("name: a, action: bypass, protocol: icmp, icmp: 8/256", "icmp", "from 0 to 255"),
        (
            "name: a, action: bypass, protocol: icmp, icmp: 7-5",
            "icmp",
            "types like 5-7, or one type",
        ),
        ("name: a, action: bypass, protocol: icmp, icmp: 3-4/1", "icmp", "'3-4/1' is no ICMP type"),
        ("name: a, action: bypass, protocol: icmp, icmp: 010", "icmp", OCTAL),
        *(
            (f"name: a, action: bypass, {rule}", "mobility_types", said)
            for rule, said in (
                ("mobility_types: 5", "need a `protocol:` of mobility, and no other protocol"),
                ("protocol: [mobility, icmp], mobility_types: 5", "of mobility, and no other"),
                ("protocol: mobility, mobility_types: 256", "256 is no mobility type: write a"),
                ("protocol: mobility, mobility_types: 6-5", "'6-5' is no mobility type"),
                ("protocol: mobility, mobility_types: 5/0", "from 0 to 255"),
                ("protocol: mobility, mobility_types: update", "'update' is no mobility type"),
                ("protocol: mobility, mobility_types: 010", OCTAL),
                ("protocol: mobility, mobility_types: []", "an empty list matches nothing"),
                ("protocol: mobility, mobility_types: [5, opaque]", "`opaque` stand alone"),
            )
        ),
    ],
)
def test_each_problem_says_where_and_what(
    tmp_path: Path, rule: str, key: str, message: str
) -> None:
    (problem,) = problems(tmp_path, rule)
    called = " 'a'" if "name: a" in rule else " 'a:b'" if "a:b" in rule else ""
    assert problem.startswith(f"3: outbound rule 1{called}.{key}: ")
    assert message in problem


def test_all_problems_come_at_once_and_a_wrong_protocol_is_told_once(tmp_path: Path) -> None:
    assert problems(
        tmp_path,
        "name: a, action: bypass",
        "name: b, action: x, protocol: tpc, source_ports: 1",
        "name: a, action: discard",
    ) == [
        "4: outbound rule 2 'b'.action: 'x' is no action: write bypass, discard or protect",
        "4: outbound rule 2 'b'.protocol: 'tpc' is no protocol: write a number from 0 to 255, or"
        " one of icmp, igmp, tcp, udp, gre, esp, ah, icmpv6, ospf, pim, vrrp, sctp, mobility; write"
        " several as a list, not as a range",
        "5: outbound rule 3 'a': rule 1 of this list has that name; give each rule its own",
    ]


def test_the_file_itself(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="spd: is missing"):
        load(tmp_path, "outbound: []")
    with pytest.raises(ConfigError, match="a list is expected"):
        load(tmp_path, "spd: corp\ninbound: {name: a}")
    with pytest.raises(ConfigError, match="unknown key"):
        load(tmp_path, "spd: corp\noutgoing: []")
    with pytest.raises(ConfigError, match="No such file"):
        load_spd(tmp_path / "absent.yaml", frozenset())


SCALARS = st.sampled_from(
    [
        "any",
        "opaque",
        "tcp",
        "80",
        "010",
        "1-2",
        "8/0",
        "10.0.0.0/8",
        "::1",
        "",
        "-",
        "a",
        "[]",
        "[1, a]",
    ]
)
KEYS = [
    *("name", "action", "bundle", "source", "destination", "protocol", "source_ports", "icmp"),
    *("audit", "reject", "mobility_types"),
]


def test_an_inbound_rule_rejects_nothing(tmp_path: Path) -> None:
    path = tmp_path / "corp.yaml"
    path.write_text("spd: corp\ninbound:\n  - {name: a, action: discard, reject: true}\n")
    with pytest.raises(ConfigError, match="reject: only an outbound rule has it"):
        load_spd(path, None)


@given(st.lists(st.dictionaries(st.sampled_from(KEYS), SCALARS), max_size=3))
def test_no_values_break_it(rules: list[dict[str, str]]) -> None:
    text = "outbound:\n" + "".join(
        "  - {" + ", ".join(f"{key}: {value}" for key, value in rule.items()) + "}\n"
        for rule in rules
    )
    with contextlib.suppress(ConfigError):
        reader = YamlReader(text, "x")
        read_lists(reader.root(), frozenset({"a"}))
        reader.finish()
