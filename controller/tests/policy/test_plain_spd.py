# SPDX-License-Identifier: Apache-2.0
"""Tests that the reader of plain files returns what the general reader returns, or leaves the text
to it."""

from __future__ import annotations

import random

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sluice.policy.model import Direction, Rule
from sluice.policy.plain_spd import parse, read_plain
from sluice.policy.spdfile import SpdText, parse_spd
from sluice.policy.spdtext import spd_document
from sluice.yamlreader import ConfigError

BUNDLES = frozenset({"branch", "other"})
PLAIN = """\
# The whole line is a comment.
spd: corp
inbound: []
outbound:
  - name: web
    action: protect
    bundle: branch
    source: 10.1.0.0/16
    destination: [10.2.0.0/16, 10.3.0.1-10.3.0.9, 10.4.0.1]
    protocol: tcp
    destination_ports: ['80', 8000-8999]
  - {name: ping, action: bypass, protocol: [icmp, 58], icmp: [8, 0/0]}
  # Another one.
  - {name: six, action: bypass, source: 2001:db8::/32, destination: [fe80::1, 'ff02::1'],
      protocol: "tcp"}
  - {name: fragments, action: discard, source_ports: opaque, source: any, protocol: any}
  - {name: unseen, action: discard, protocol: opaque, audit: true, reject: false}
  - {name: pairs, action: protect, bundle: other, from_packet: [destination, source]}
"""


def general(text: str) -> SpdText | None:
    """Returns the result of the general parser, or None if the text has a problem."""
    try:
        return parse_spd(text, "corp.yaml", lambda _: BUNDLES)
    except ConfigError:
        return None


def plain(text: str) -> SpdText | None:
    return read_plain(text, lambda _: BUNDLES)


def test_a_plain_file_is_read_as_the_general_parser_reads_it() -> None:
    found = plain(PLAIN)
    assert found is not None
    assert len(found.rules[Direction.OUTBOUND]) == 6
    assert found == general(PLAIN)


@pytest.mark.parametrize("flow_style", [None, True])
def test_an_exported_file_is_plain(flow_style: bool | None) -> None:
    text = general(PLAIN)
    assert text is not None
    document = spd_document(text.name, text.rules)
    for width in (80, 10_000):
        exported = yaml.safe_dump(
            document, sort_keys=False, default_flow_style=flow_style, width=width
        )
        if flow_style is None:
            assert plain(exported) == text, exported
        assert plain(exported) in (None, text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("name: web", "name: ping"),
        ("name: web", "name: 'no'"),
        ("name: web", "name: yes"),
        ("name: web", "name: 12"),
        ("name: web", "name: a:b"),
        ("    bundle: branch\n", ""),
        ("bundle: branch", "bundle: third"),
        ("10.1.0.0/16", "10.1.0.1/16"),
        ("10.1.0.0/16", "fe80::1"),
        ("10.1.0.0/16", "1:2:3:4:5:6:7:8"),
        ("10.1.0.0/16", "[any]"),
        ("10.1.0.0/16", ""),
        ("protocol: tcp", "protocol: 0x6"),
        ("protocol: tcp", "protocol: 06"),
        ("protocol: tcp\n    d", "d"),
        ("8000-8999", "08000"),
        ("8000-8999", "8999-8000"),
        ("8000-8999", "1:30"),
        ("reject: false", "scope: own"),
        ("reject: false", "from_packet: source"),
        ("[destination, source]", "[destination, any]"),
        ("[destination, source]", "[source, source]"),
        ("[destination, source]", "[source_ports]"),
        ("[destination, source]", ""),
        ("reject: false", "audit: false"),
        ("audit: true", "audit: yes"),
        ("action: bypass", "action: pass"),
        ("inbound: []", "inbound: {}"),
        ("inbound: []", "outbound: []"),
        ("spd: corp", "spd: &a corp"),
        ("spd: corp", "spd: *a"),
        ("  - name: web\n", "  - name: web\n\t"),
        ("    source: 10", "     source: 10"),
        ("    source: 10", "   source: 10"),
        ("comment.", "comment.\x85spd: x"),
        ("comment.", "comment.\x00"),
        ("name: web\n", "name: web # a comment\n"),
    ],
)
def test_an_unusual_text_is_left_to_the_general_parser(old: str, new: str) -> None:
    text = PLAIN.replace(old, new, 1)
    assert text != PLAIN
    assert plain(text) is None


MUTATIONS = [*"{}[]:,-#'\"&*!|>%@` \n\t.\\0a~?=", ": ", "- ", " #", "\n  - ", "any", "null"]


@given(
    st.lists(st.tuples(st.integers(0, len(PLAIN)), st.integers(0, 3), st.sampled_from(MUTATIONS)),
             min_size=1, max_size=3)
)  # fmt: skip
def test_no_text_is_read_otherwise_than_by_the_general_parser(
    mutations: list[tuple[int, int, str]],
) -> None:
    text = PLAIN
    for at, deleted, added in mutations:
        text = text[:at] + added + text[at + deleted :]
    found = plain(text)
    if found is not None:
        assert found == general(text)


def test_many_random_mutations() -> None:
    chance = random.Random(3)
    read = 0
    for _ in range(1500):
        at = chance.randrange(len(PLAIN))
        text = PLAIN[:at] + chance.choice(MUTATIONS) + PLAIN[at + chance.randrange(4) :]
        found = plain(text)
        if found is not None:
            read += 1
            assert found == general(text), text
    assert read > 10


def test_problems_are_those_of_the_general_parser() -> None:
    with pytest.raises(ConfigError, match="this SPD has no bundle 'third'"):
        parse(PLAIN.replace("branch", "third"), "corp.yaml", lambda _: BUNDLES)


def test_progress_is_reported() -> None:
    rules = "".join(f"- {{name: rule-{n}, action: bypass}}\n" for n in range(25_000))
    reports: list[int] = []
    text = f"spd: corp\noutbound:\n{rules}"
    found = parse(text, "corp.yaml", lambda _: None, reports.append)
    assert reports == [10_000, 20_000]
    first: Rule = found.rules[Direction.OUTBOUND][0]
    assert first.name == "rule-0"
