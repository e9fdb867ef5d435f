# SPDX-License-Identifier: Apache-2.0
"""Tests the generator of datagrams: it is reproducible, makes every shape of datagram, and puts
marks into every part of a payload.
"""

from random import Random

import pytest

from sluice_adversary import marks, plan
from sluice_adversary.datagrams import Datagram
from sluice_adversary.policy import Policy, edited, random_policy
from sluice_adversary.reference import Reference
from sluice_adversary.shapes import Shapes
from sluice_adversary.wire import checksum

EACH = 40
NAMES = Shapes(Random(0), random_policy(Random(0))).names


def made(seed: int, count: int) -> tuple[Policy, list[Datagram]]:
    random = Random(seed)
    policy = random_policy(random)
    shapes = Shapes(random, policy)
    return policy, [shapes.next() for _ in range(count)]


def test_a_seed_gives_the_same_policy_and_datagrams_again() -> None:
    (one, first), (two, second), (other, _) = made(5, 300), made(5, 300), made(6, 1)
    assert one == two != other
    assert [d.frames() for d in first] == [d.frames() for d in second]


@pytest.mark.parametrize("shape", NAMES)
def test_every_shape_can_be_made_and_judged(shape: str) -> None:
    policy = random_policy(Random(1))
    shapes = Shapes(Random(2), policy)
    reference = Reference(policy)
    for _ in range(EACH):
        datagram = shapes.of_shape(shape)
        expectation = reference.expect(datagram)
        assert datagram.shape == shape
        assert len(expectation.allowed) == len(datagram.packets) >= 1
        assert all(len(frame) <= 14 + 1500 + 18 for frame in datagram.frames())


def test_every_fragment_with_payload_to_spare_tells_its_number() -> None:
    _, datagrams = made(7, 2000)
    untold = 0
    for datagram in datagrams:
        for piece in datagram.pieces:
            assert piece is not None
            found = marks.find(piece.payload)
            assert found in (None, datagram.number)
            untold += found is None and piece.offset > 24 and len(piece.payload) >= 16
    assert untold == 0


def test_ipv4_headers_have_right_checksums() -> None:
    _, datagrams = made(8, 500)
    packets = [packet for one in datagrams for packet in one.packets if packet[0] >> 4 == 4]
    assert packets
    assert all(checksum(packet[: (packet[0] & 0xF) * 4]) == 0 for packet in packets)


def test_an_edit_leaves_most_rules_and_the_sentinels_as_they_are() -> None:
    random = Random(10)
    policy = random_policy(random)
    for _ in range(200):
        before, policy = policy, edited(random, policy)
        for name, spd in policy.spds.items():
            for rules, old in (
                (spd.inbound, before.spds[name].inbound),
                (spd.outbound, before.spds[name].outbound),
            ):
                sentinels = [rule for rule in old if rule.is_sentinels]
                assert len(sentinels) == 1 + sum(b.spd == name for b in plan.BUNDLES.values())
                assert list(rules[: len(sentinels)]) == sentinels == list(old[: len(sentinels)])
                assert len({rule.name for rule in rules}) == len(rules)
                assert len(set(old) - set(rules)) <= 2
    assert policy != before


def test_random_policies_hold_every_kind_of_rule() -> None:
    random = Random(9)
    spds = [spd for _ in range(60) for spd in random_policy(random).spds.values()]
    rules = [rule for spd in spds for rule in (*spd.inbound, *spd.outbound)]
    texts = [rule.as_text() for rule in rules]
    assert {text["action"] for text in texts} == {"bypass", "discard", "protect"}
    bundles = {text["bundle"] for text in texts if "bundle" in text}
    assert bundles == {one.name for one in plan.BUNDLES.values()}
    for key in ("source_ports", "destination_ports", "icmp", "protocol"):
        assert {text.get(key) == "opaque" for text in texts if key in text} == {True, False}
