# SPDX-License-Identifier: Apache-2.0
"""Attacks a router whose ESP engine is inside the switch.

The router may send only permitted clear frames, and ESP that a peer can decrypt. The engine must
refuse the packets that the peer has altered or sends twice. The tests are a short form of the
second part of `make prove`, with a fixed seed. They include the control experiments.
"""

from collections.abc import Iterator

import pytest

from sluice_adversary import report
from sluice_adversary.campaign import Campaign
from sluice_adversary.network import Arena
from sluice_adversary.peer import WithEngine
from sluice_adversary.policy import BYPASS, DISCARD, Rule, Verdict, random_policy
from sluice_testkit.namespaces import Lab
from sluice_testkit.target import target_name

from .made import altered

SEED = 13
PACKETS = 20_000
PLAIN = "plain"


@pytest.fixture(scope="module")
def arena(module_lab: Lab) -> Iterator[Arena]:
    if target_name() != "sluice-switch":
        pytest.skip("only sluice-switch has an engine inside")
    arena = Arena(module_lab, engine=True)
    arena.start()
    yield arena
    arena.close()


def test_what_policy_protects_is_esp_and_nothing_leaks(arena: Arena) -> None:
    campaign = Campaign(arena, SEED, WithEngine)
    campaign.run(PACKETS)
    bounds = arena.bounds_hit()
    if campaign.checker.findings:
        told = report.summary(campaign, SEED, "sluice-switch")
        files = report.save_reproducers(campaign, SEED)
        first = "\n".join(map(str, campaign.checker.findings[:10]))
        pytest.fail(f"{told}\n{first}\nreproducers: {', '.join(map(str, files))}")
    assert not bounds, "the run proves nothing, because a queue or a meter was full"
    assert not arena.wrongly_accepted()
    for kind in ("out", "protect", "host", "sockets"):
        assert campaign.checker.seen[kind], f"no capture has a packet of kind {kind}"
    peer = arena.peer
    assert peer is not None
    assert min(peer.opened, peer.sealed, *peer.hostile.values()) > 50


@pytest.mark.parametrize(("old", "new", "kind"), [
    ("bypass", DISCARD, "leak"),
    ("protect", DISCARD, "leak"),
    ("discard", BYPASS, "lost"),
    ("bypass", Verdict("protect", 1), "leak"),
])  # fmt: skip
def test_a_wrong_reference_is_found_out(
    arena: Arena, monkeypatch: pytest.MonkeyPatch, old: str, new: Verdict, kind: str
) -> None:
    """Tests the checker with a wrong reference: it must also report clear frames where the
    reference requires ESP.
    """
    monkeypatch.setattr("sluice_adversary.campaign.PATIENCE", 0.5)
    wrong = Rule("wrong", new)
    campaign = Campaign(arena, SEED, lambda policy: WithEngine(altered(policy, old, wrong)))
    for _ in range(3):
        campaign.begin(random_policy(campaign.random))
        campaign.batch([campaign.shapes.of_shape(PLAIN) for _ in range(150)])
    assert any(one.kind == kind and one.shape == PLAIN for one in campaign.checker.findings)


def test_what_the_engine_must_not_take_is_counted(arena: Arena) -> None:
    """Checks the comparison of the engine's drops with the number of hostile frames. It must fail
    if the peer claims to have sent more hostile frames than it has.
    """
    assert arena.peer is not None
    arena.peer.hostile["altered"] += 1 << 32
    (found,) = arena.wrongly_accepted()
    arena.peer.hostile["altered"] -= 1 << 32
    assert "integrity_failed" in found
