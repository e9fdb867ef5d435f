# SPDX-License-Identifier: Apache-2.0
"""Tests that the log describes repaired entries with addresses and names, not in Python's
notation.
"""

from __future__ import annotations

import pytest

from sluice.entities import LOCAL, Egress, ListState, RouteSlot, RouteTarget, RouteTargetKind
from sluice.entity_text import text_of
from sluice.model import Prefix, parse_address
from sluice.p4.flows import FlowSlot
from sluice.policy.model import Action, Direction, FlowKey, FragmentClass
from sluice.state.flow_cache import FlowVerdict

KEY = FlowKey(parse_address("10.0.1.2"), parse_address("10.9.0.1"), 17, 4000, 7000)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "nothing"),
        (
            FlowSlot(Direction.OUTBOUND, 3, KEY),
            "list 3, protocol 17, 10.0.1.2 port 4000 to 10.9.0.1 port 7000",
        ),
        (
            FlowSlot(
                Direction.INBOUND,
                4,
                KEY._replace(fragment=FragmentClass.LATER, is_local=True, bundle=7),
            ),
            "list 4, protocol 17, 10.0.1.2 port 4000 to 10.9.0.1 port 7000"
            " (later fragments) (this router's own) (carried by bundle 7)",
        ),
        (FlowVerdict(9, 5, Action.BYPASS), "bypass by rule 5, epoch 9"),
        (FlowVerdict(9, 5, Action.PROTECT, 7), "protect (bundle 7) by rule 5, epoch 9"),
        (RouteSlot(2, Prefix.parse("10.0.0.0/8")), "vrf 2, prefix 10.0.0.0/8"),
        (RouteTarget(RouteTargetKind.NEXTHOP, 4), "kind nexthop, id 4"),
        (
            Egress(2, 0, bytes.fromhex("020000000101"), 1500),
            "port 2, vlan 0, mac 02:00:00:00:01:01, mtu 1500",
        ),
        (ListState(3, 4, 5), "epoch 3, generation 4, rule_set 5"),
        (LOCAL, "name local"),
        (12, "12"),
        (((1, 2), (3, 4)), "((1, 2), (3, 4))"),
    ],
)
def test_in_words(value: object, text: str) -> None:
    assert text_of(value) == text
