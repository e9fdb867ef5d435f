# SPDX-License-Identifier: Apache-2.0
"""Tests that a restart with another configuration never mixes the old and the new configuration.

During a restart, every host continuously sends to every other host. Every packet that arrives must
be permitted by the whole old configuration, or by the whole new one. It must leave by the port of
its destination. SLUICE_RESTARTS is the number of random changes.
"""

import os
import random
from contextlib import suppress
from dataclasses import replace

import pytest

from sluice_testkit.namespaces import Lab
from sluice_testkit.wait import Timeout, wait_until

from .network import OneRouter
from .restarts import (
    INTERFACE_OF,
    INTERFACES,
    TRAFFIC_PATHS,
    Discards,
    RestartSetting,
    Traffic,
    draw,
    leaks,
    losses,
)

SEED = 12
RESTARTS = int(os.environ.get("SLUICE_RESTARTS", "3"))
OPEN = Discards()
ALL_OPEN = RestartSetting(guards=dict.fromkeys(INTERFACES, "open"), spds={"open": OPEN})


@pytest.fixture(scope="module")
def started(module_lab: Lab) -> OneRouter:
    network = OneRouter(module_lab, versions=(4,))
    network.start()
    return network


def run_with(network: OneRouter, setting: RestartSetting) -> None:
    """Kills the controller and starts it with this setting, including the rules of the setting."""
    network.controller.kill()
    setting.configure(network.controller.config)
    network.controller.start("--configured-policy")


def change(network: OneRouter, old: RestartSetting, new: RestartSetting) -> None:
    """Restarts with setting `new` instead of `old` under traffic. No packet may leak, and flows
    that the change does not affect may lose none.
    """
    with Traffic(network) as traffic:
        traffic.wait_until_passing(old)
        run_with(network, new)
        traffic.wait_until_passing(new)
        network.controller.wait_synced()
        traffic.stop()
        assert leaks(traffic, old, new) == []
        with suppress(Timeout):  # the last packets may still be under way
            wait_until(lambda: losses(traffic, old, new) == [], 5)
        assert losses(traffic, old, new) == []


def test_interfaces_in_another_order_never_forward_by_old_numbers(network: OneRouter) -> None:
    """When the configuration lists the interfaces in another order, packets never reach a wrong
    host.

    Without the file of interface numbers, each interface gets the number of another interface. With
    the file, all numbers stay the same and no packet is lost.
    """
    run_with(network, ALL_OPEN)
    turned = replace(ALL_OPEN, order=INTERFACES[::-1])
    change(network, ALL_OPEN, replace(turned, forgotten=True))
    change(network, turned, ALL_OPEN)


def test_interfaces_that_change_their_spds_change_together(network: OneRouter) -> None:
    """If the SPDs of a's and b's interfaces change in one restart, no packet passes from a to b at
    any time.

    Before the restart, the SPD of a's interface discards these packets inbound. After the restart,
    the SPD of b's interface discards them outbound.
    """
    to_b = next(way for way in TRAFFIC_PATHS if (way.source, way.sink) == ("a", "b"))
    closed = frozenset({to_b.port})
    spds = {"open": OPEN, "in": Discards(inbound=closed), "out": Discards(outbound=closed)}
    a, b = INTERFACE_OF["a"], INTERFACE_OF["b"]
    old = RestartSetting(guards={**ALL_OPEN.guards, a: "in"}, spds=spds)
    new = RestartSetting(guards={**ALL_OPEN.guards, b: "out"}, spds=spds)
    run_with(network, old)
    with (
        network.interposer.hold("write", tables="outbound_binding") as writes,
        Traffic(network) as traffic,
    ):
        traffic.wait_until_passing(old)
        network.controller.kill()
        new.configure(network.controller.config)
        network.controller.launch("--configured-policy")
        writes.wait_for(1, 20)
        held = traffic.sent[to_b][-1]
        wait_until(lambda: traffic.sent[to_b][-1] > held + 600, 20, "packets meanwhile")
        writes.open()
        traffic.wait_until_passing(new)
        traffic.stop()
        assert leaks(traffic, old, new) == []


def test_random_restarts_never_mix(network: OneRouter) -> None:
    dice = random.Random(SEED)
    old = draw(dice)
    run_with(network, old)
    for _ in range(RESTARTS):
        new = draw(dice, old)
        change(network, old, new)
        old = new
