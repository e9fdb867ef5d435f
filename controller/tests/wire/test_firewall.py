# SPDX-License-Identifier: Apache-2.0
"""Tests which chains of nftables count as rules for forwarded packets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sluice.wire.firewall import forwarding_chains


def chain(family: str, hook: str | None, **more: Any) -> dict[str, Any]:
    base = {} if hook is None else {"hook": hook, "prio": 0, "type": "filter", "policy": "accept"}
    return {"chain": {"family": family, "table": "t", "name": "c", **base, **more}}


def rule(family: str) -> dict[str, Any]:
    return {"rule": {"family": family, "table": "t", "chain": "c", "expr": [{"drop": None}]}}


def found(*objects: dict[str, Any]) -> list[str]:
    return forwarding_chains(json.dumps({"nftables": [{"metainfo": {}}, *objects]}))


@pytest.mark.parametrize(
    ("family", "hook"),
    [
        ("ip", "forward"),
        ("ip6", "prerouting"),
        ("inet", "postrouting"),
        ("netdev", "ingress"),
        ("netdev", "egress"),
        ("inet", "ingress"),
    ],
)
def test_rules_in_the_path_of_forwarded_packets(family: str, hook: str) -> None:
    assert found(chain(family, hook), rule(family)) == [
        f"nftables chain {family} t c (hook {hook}): has rules"
    ]


@pytest.mark.parametrize(
    ("family", "hook"),
    [
        ("ip", "input"),
        ("inet", "output"),
        ("bridge", "forward"),
        ("arp", "input"),
        ("inet", None),
    ],
)
def test_rules_of_other_packets_do_not_matter(family: str, hook: str | None) -> None:
    assert found(chain(family, hook), rule(family)) == []


def test_empty_chain_that_accepts_does_not_matter() -> None:
    assert found(chain("inet", "forward")) == []


def test_empty_chain_that_drops_counts() -> None:
    assert found(chain("inet", "forward", policy="drop")) == [
        "nftables chain inet t c (hook forward): has policy drop"
    ]


def test_rules_of_a_chain_with_the_same_name_in_another_family() -> None:
    assert found(chain("ip", "forward"), rule("ip6")) == []


@pytest.mark.parametrize("text", ["", "[]", '{"nftables": 1}', "{"])
def test_unreadable_listings_are_errors(text: str) -> None:
    with pytest.raises(ValueError):
        forwarding_chains(text)
