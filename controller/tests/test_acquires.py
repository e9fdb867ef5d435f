# SPDX-License-Identifier: Apache-2.0
"""Tests the reports of traffic that lacks an SA, for rules with `from_packet`. A report names the
populated values. The same values are not reported often.

`policy/test_bundle_instances.py` tests the reports of a running router.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from packets import ethernet, ipv4
from sluice import acquires as module
from sluice.acquires import INTERVAL, Acquires
from sluice.model import PuntedPacket
from sluice.policy.bundle_instances import BundleInstances
from sluice.policy.model import Action, Rule
from sluice.policy.populated import without_sa
from sluice.state.bundle_numbers import FIRST, BundleNumbers
from test_punts import punt

RULE = 12
FROM_PACKET = ("source", "destination", "protocol", "destination_ports")


class World:
    """Holds the acquires of a router with one list, whose rule has the number RULE."""

    def __init__(self, from_packet: tuple[str, ...] = FROM_PACKET) -> None:
        numbers = BundleNumbers({"branch": 5}, {})
        numbers.add([without_sa("branch")])
        rule = Rule("pairs", Action.PROTECT, without_sa("branch"), from_packet=from_packet)
        state = SimpleNamespace(rules=(rule,), rule_ids=(RULE,), list_id=3, populates=True)
        policy: Any = SimpleNamespace(
            numbers=numbers,
            instances=BundleInstances(numbers),
            list_by_id=lambda number: state if number == 3 else None,
        )
        self.told: list[tuple[str, Mapping[str, str | int]]] = []
        audit: Any = SimpleNamespace(
            acquired=lambda packet, bundle, traffic, now: self.told.append((bundle, traffic))
        )
        packets: Any = SimpleNamespace(origin_local=1)
        self.acquires = Acquires(policy, packets, audit)

    def drop(self, now: float, frame: bytes, **known: int) -> None:
        self.acquires.dropped(dropped(frame, **known), now)


def dropped(frame: bytes, **known: int) -> PuntedPacket:
    return punt(frame, "ACQUIRE", **({"list_id": 3, "rule": RULE, "sa_bundle": FIRST} | known))


def udp(host: int, port: int = 7000) -> bytes:
    payload = (5000).to_bytes(2, "big") + port.to_bytes(2, "big") + bytes(16)
    return ethernet(ipv4(f"10.1.0.{host}", "10.2.0.1", payload, 17))


def test_the_values_that_the_rule_populates_are_reported() -> None:
    world = World()
    world.drop(1.0, udp(1))
    values = {"source": "10.1.0.1", "destination": "10.2.0.1", "protocol": "udp"}
    assert world.told == [("branch", values | {"destination_ports": 7000})]


def test_the_same_values_are_reported_rarely() -> None:
    world = World(("source",))
    for now in (1.0, 1.5, 1.0 + INTERVAL - 0.1):
        world.drop(now, udp(1))
    world.drop(1.0, udp(2))
    assert [traffic["source"] for _, traffic in world.told] == ["10.1.0.1", "10.1.0.2"]
    world.drop(1.0 + INTERVAL, udp(1, 9))
    assert len(world.told) == 3
    assert world.acquires.counters == {"SAs wanted": 3, "SAs wanted: held back": 2}


def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 2)
    world = World(("source",))
    for host in (1, 2, 3):
        world.drop(1.0, udp(host))
    assert len(world.acquires.latest) == 2
    world.drop(1.1, udp(1))  # has been forgotten
    assert len(world.told) == 4


def test_other_packets_are_not_reported() -> None:
    world = World()
    world.drop(1.0, udp(1), sa_bundle=5)  # the bundle itself
    world.drop(1.0, udp(1), sa_bundle=77)  # no bundle
    world.drop(1.0, udp(1), rule=13)  # a rule that is gone
    world.drop(1.0, udp(1), list_id=4)  # a list that is gone
    world.drop(1.0, b"short")
    assert world.told == []
    assert [name for name in world.acquires.counters if name.startswith("no report: ")]
    plain = World(())
    plain.drop(1.0, udp(1))
    assert plain.told == []
