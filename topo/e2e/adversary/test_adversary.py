# SPDX-License-Identifier: Apache-2.0
"""Attacks a router with random rules and datagrams. Captures on every link must show no leak and no
loss.

The test is a short form of `make prove` with a fixed seed. Control experiments on the same router
use a deliberately wrong reference, and the checker must then report leaks and losses.
"""

import os
from collections.abc import Iterator

import pytest

from sluice_adversary import report
from sluice_adversary.campaign import Campaign
from sluice_adversary.network import Arena
from sluice_adversary.policy import BYPASS, DISCARD, Rule, random_policy
from sluice_adversary.reference import Reference
from sluice_testkit.namespaces import Lab
from sluice_testkit.target import target_name

from .made import altered

SEED = 12
PACKETS = {"sluice-switch": 60_000, "bmv2": 10_000}
PLAIN = "plain"


@pytest.fixture(scope="module")
def arena(module_lab: Lab) -> Iterator[Arena]:
    arena = Arena(module_lab, os.environ.get("TARGET"))
    arena.start()
    yield arena
    arena.close()


def test_nothing_leaks_and_no_verdict_differs(arena: Arena) -> None:
    campaign = attacked(arena, PACKETS[target_name(None)])
    for outcome in ("kept", "retired"):
        what = f"lists whose flows a commit {outcome}"
        assert campaign.totals.invalidation.get(what), f"no commit has {outcome} flows"


def test_nothing_leaks_with_the_rules_in_the_switch(lab: Lab) -> None:
    arena = Arena(lab, os.environ.get("TARGET"), mode="cache+rules")
    try:
        arena.start()
        attacked(arena, PACKETS[target_name(None)] // 3)
    finally:
        arena.close()


def attacked(arena: Arena, packets: int) -> Campaign:
    """Runs a campaign and checks that it found nothing, and that it was complete."""
    campaign = Campaign(arena, SEED)
    campaign.run(packets)
    bounds = arena.bounds_hit()
    if campaign.checker.findings:
        told = report.summary(campaign, SEED, target_name(None))
        files = report.save_reproducers(campaign, SEED)
        first = "\n".join(map(str, campaign.checker.findings[:10]))
        pytest.fail(f"{told}\n{first}\nreproducers: {', '.join(map(str, files))}")
    assert not bounds, "the run proves nothing, because a queue or a meter was full"
    assert set(campaign.shapes.names) <= set(campaign.totals.shapes), "a shape was never sent"
    for kind in ("out", "protect", "host", "decrypt", "sockets"):
        assert campaign.checker.seen[kind], f"no capture has a packet of kind {kind}"
    return campaign


@pytest.mark.parametrize(("old", "new", "kind"), [
    ("bypass", DISCARD, "leak"),
    ("protect", DISCARD, "leak"),
    ("discard", BYPASS, "lost"),
])  # fmt: skip
def test_a_wrong_reference_is_found_out(
    arena: Arena, monkeypatch: pytest.MonkeyPatch, old: str, new: object, kind: str
) -> None:
    """Tests the checker with a wrong reference: it must report permitted packets as leaks, and
    correctly discarded packets as lost.
    """
    monkeypatch.setattr("sluice_adversary.campaign.PATIENCE", 0.5)
    wrong = Rule("wrong", DISCARD if new is DISCARD else BYPASS)
    campaign = Campaign(arena, SEED, lambda policy: Reference(altered(policy, old, wrong)))
    for _ in range(3):
        campaign.begin(random_policy(campaign.random))
        campaign.batch([campaign.shapes.of_shape(PLAIN) for _ in range(150)])
    assert any(one.kind == kind and one.shape == PLAIN for one in campaign.checker.findings)
