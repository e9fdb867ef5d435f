# SPDX-License-Identifier: Apache-2.0
"""Tests that rules that are written as text and then parsed are unchanged."""

from __future__ import annotations

import json

import yaml
from hypothesis import given
from hypothesis import strategies as st

from policies import rules
from sluice.policy.model import ICMPV6, MOBILITY, TCP, UDP, Action, Direction, NumberRange, Rule
from sluice.policy.populated import FIELDS
from sluice.policy.spdfile import parse_spd
from sluice.policy.spdtext import from_document, spd_document, to_document
from sluice.state.spd import fingerprint

BYTES = st.integers(0, 255)
BYTE_PAIRS = st.tuples(BYTES, BYTES).map(sorted)
ICMP_RANGES = BYTE_PAIRS.map(
    lambda types: NumberRange(types[0] << 8, types[1] << 8 | 0xFF)
) | st.tuples(BYTES, BYTE_PAIRS).map(
    lambda one: NumberRange(one[0] << 8 | one[1][0], one[0] << 8 | one[1][1])
)


TYPES = st.lists(BYTE_PAIRS.map(lambda pair: NumberRange(*pair)), min_size=1).map(tuple)


@given(
    rules(),
    st.none() | st.lists(ICMP_RANGES, min_size=1).map(tuple),
    st.none() | TYPES,
    st.booleans(),
    st.sets(st.sampled_from([*FIELDS])),
)
def test_a_rule_survives_the_disk(
    rule: Rule,
    icmp: tuple[NumberRange, ...] | None,
    types: tuple[NumberRange, ...] | None,
    audit: bool,
    populated: set[str],
) -> None:
    rule = rule._replace(icmp=icmp, mobility_type=types, generated=False, audit=audit)
    rule = rule._replace(from_packet=tuple(filter(populated.__contains__, FIELDS)))
    read = from_document(json.loads(json.dumps(to_document(rule))))
    assert read == rule
    assert fingerprint(read) == fingerprint(rule)


def test_what_is_exported_is_a_file_that_can_be_committed() -> None:
    ports = (NumberRange(80, 80), NumberRange(8000, 8999))
    listed = {
        Direction.INBOUND: (
            Rule("179", Action.DISCARD, protocol=(UDP, 99)),
            Rule(
                "update",
                Action.BYPASS,
                protocol=(MOBILITY,),
                mobility_type=(NumberRange(5, 6), NumberRange(8, 8)),
            ),
            Rule("ptb", Action.BYPASS, protocol=(ICMPV6,), icmp=(NumberRange(0x200, 0x2FF),)),
        ),
        Direction.OUTBOUND: (
            Rule("web", Action.PROTECT, "branch", protocol=(TCP,), destination_port=ports),
            Rule("rest", Action.DISCARD, reject=True),
        ),
    }
    generated = Rule("generated:nd", Action.BYPASS, generated=True)
    given_rules = listed | {Direction.INBOUND: (generated, *listed[Direction.INBOUND])}
    text = yaml.safe_dump(spd_document("corp", given_rules), default_flow_style=None)
    read = parse_spd(text, "export", lambda _: frozenset({"branch"}))
    assert (read.name, read.rules) == ("corp", listed)
