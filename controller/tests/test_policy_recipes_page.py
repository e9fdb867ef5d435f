# SPDX-License-Identifier: Apache-2.0
"""Tests docs/how-to/policy-recipes.md: each recipe is an SPD and does what its section says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sluice.model import parse_address
from sluice.policy.model import ICMP, TCP, UDP, Action, Direction, Rule, Selectors
from sluice.policy.spdfile import parse_spd
from sluice.state.rule_search import first_match

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/policy-recipes.md").read_text(encoding="utf-8")
RECIPES = {
    re.findall(r"^spd: ([a-z]+)$", text, re.MULTILINE)[0]: text
    for text in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
}
BUNDLES = frozenset({"branch", "spoke-a", "spoke-b"})
IN, OUT = Direction.INBOUND, Direction.OUTBOUND
FINAL = "(final)"


def rules(recipe: str, direction: Direction) -> tuple[Rule, ...]:
    return parse_spd(RECIPES[recipe], "policy-recipes.md", lambda _: BUNDLES).rules[direction]


def packet(source: str, destination: str, protocol: int, *ports: int) -> Selectors:
    from_port, to_port = ports or (None, None)
    icmp = 0x0800 if protocol == ICMP else None
    return Selectors(
        parse_address(source), parse_address(destination), protocol, from_port, to_port, icmp
    )


@pytest.mark.parametrize("recipe", RECIPES)
def test_each_recipe_is_an_spd_with_both_lists(recipe: str) -> None:
    assert rules(recipe, IN)
    assert rules(recipe, OUT)


HOST, FAR = "10.1.0.5", "192.0.2.7"
ROUTER, PEER = "10.0.1.1", "10.0.1.2"


@pytest.mark.parametrize(
    ("recipe", "direction", "what", "rule"),
    [
        ("uplink", IN, packet(PEER, ROUTER, TCP, 40000, 179), "bgp"),
        ("uplink", OUT, packet(ROUTER, PEER, TCP, 179, 40000), "bgp-answers"),
        ("uplink", OUT, packet(ROUTER, PEER, UDP, 50000, 3784), "bfd"),
        ("uplink", IN, packet(PEER, "224.0.0.5", 89), "ospf"),
        ("uplink", IN, packet(PEER, ROUTER, ICMP), "ping"),
        ("uplink", IN, packet(PEER, ROUTER, TCP, 40000, 22), FINAL),
        ("uplink", OUT, packet(HOST, FAR, TCP, 40000, 179), FINAL),
        ("site", OUT, packet(HOST, "10.2.0.9", UDP, 1, 2), "site"),
        ("site", OUT, packet(HOST, FAR, UDP, 1, 2), FINAL),
        ("site", IN, packet("10.2.0.9", HOST, TCP, 1, 2), "site"),
        ("service", OUT, packet(HOST, "10.2.0.9", TCP, 40000, 5432), "database"),
        ("service", IN, packet("10.2.0.9", HOST, TCP, 5432, 40000), "database"),
        ("service", OUT, packet(HOST, "10.2.0.9", TCP, 40000, 80), "rest"),
        ("filter", OUT, packet(HOST, FAR, TCP, 40000, 443), "web"),
        ("filter", IN, packet(FAR, HOST, TCP, 443, 40000), "web-answers"),
        ("filter", IN, packet(FAR, HOST, TCP, 40000, 443), FINAL),
        ("filter", OUT, packet(HOST, FAR, TCP, 40000, 25), FINAL),
        ("filter", IN, packet(FAR, HOST, UDP, 53, 40000), "dns-answers"),
        ("filter", IN, packet(FAR, HOST, ICMP), "errors"),
        ("hub", IN, packet("10.10.0.1", "10.20.0.1", TCP, 1, 2), "from-a"),
        ("hub", OUT, packet("10.10.0.1", "10.20.0.1", TCP, 1, 2), "to-b"),
        ("hub", OUT, packet("10.20.0.1", "10.10.0.1", TCP, 1, 2), "to-a"),
        ("named", IN, packet(FAR, HOST, TCP, 40000, 23), "no-telnet"),
        ("named", IN, packet(FAR, HOST, TCP, 40000, 22), "rest"),
    ],
)
def test_each_recipe_does_what_it_says(
    recipe: str, direction: Direction, what: Selectors, rule: str
) -> None:
    found = rules(recipe, direction)
    at = first_match(found, what)
    assert (FINAL if at is None else found[at].name) == rule


def test_hub_protects_to_the_other_spoke_s_bundle() -> None:
    by_name = {rule.name: rule for rule in rules("hub", OUT)}
    assert {name: rule.bundle for name, rule in by_name.items()} == {
        "to-a": "spoke-a",
        "to-b": "spoke-b",
    }
    assert {rule.action for rule in by_name.values()} == {Action.PROTECT}
