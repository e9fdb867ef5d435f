# SPDX-License-Identifier: Apache-2.0
"""Tests repeated failures of controller, zebra, bgpd, switch and FPM connection under traffic.

There are some thousand routes of both IP versions, half of them with two next hops. Packets go to
addresses behind routes of every prefix length and next hop. After each restart, the routes in the
switch must equal zebra's RIB, prefix by prefix. A separate P4Runtime client reads the switch. Every
packet must have arrived, with two exceptions. Packets may be lost:

- from the death of the switch until the controller reports that the new switch has all entries
- while zebra itself has no route

SLUICE_RESTART_PROOFS sets the number of rounds of each part, for example "controller=100 zebra=20
switch=50" (`make prove`). Seconds and losses are printed, and written to the file in
SLUICE_RESTART_RECORD.
"""

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import pytest

from sluice_testkit.namespaces import Lab
from sluice_testkit.wait import wait_until
from sluice_topo.network import unestablished
from sluice_topo.traffic import TrafficResult, UdpFlows

from .network import CHANGES, KEPT_SECONDS, RATE, VERSIONS, Restarts, changing

FEW = 2
COUNTS = dict(
    one.split("=") for one in os.environ.get("SLUICE_RESTART_PROOFS", "").split() if "=" in one
)
SEED = 13
MORE = 200
"""Number of packets of each IP version that must arrive between two events."""
Change = Callable[[int, list[UdpFlows]], None]
"""Makes the change of a round. Its arguments are the round's number and the running flows."""


@pytest.fixture(scope="module")
def network(module_lab: Lab) -> Iterator[Restarts]:
    with ExitStack() as stack:
        network = Restarts(module_lab, stack)
        network.start()
        yield network


@dataclass
class Record:
    """Collects the results of all restarts in one part, such as `controller` or `zebra`."""

    part: str
    restarts: int = 0
    sent: int = 0
    lost: int = 0
    longest_gap: float = 0.0
    routes: int = 0
    notes: dict[str, float] = field(default_factory=dict)

    def add(self, outcome: TrafficResult) -> None:
        """Adds the packet counts of one traffic run."""
        self.sent += outcome.sent
        self.lost += outcome.lost
        self.longest_gap = round(max(self.longest_gap, outcome.longest_gap), 3)

    def worst(self, name: str, value: float) -> None:
        """Keeps the largest value seen under this name."""
        self.notes[name] = round(max(value, self.notes.get(name, 0.0)), 3)


def restarts(part: str) -> range:
    """Returns the rounds to run of a part."""
    return range(int(COUNTS.get(part, FEW)))


def keep(record: Record) -> None:
    """Prints a record as JSON, and adds it to the file in SLUICE_RESTART_RECORD."""
    print(json.dumps(asdict(record)))
    path = os.environ.get("SLUICE_RESTART_RECORD")
    if path:
        kept = json.loads(Path(path).read_text("utf-8")) if Path(path).exists() else {}
        kept[record.part] = asdict(record)
        Path(path).write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


def more(flows: list[UdpFlows]) -> None:
    """Waits until each object in `flows` has delivered MORE packets."""
    for one in flows:
        one.wait_for_more(MORE)


def survive(network: Restarts, record: Record, change: Change) -> None:
    """Runs all rounds of a part. In each round, calls `change` while traffic runs.

    No packet may be lost, and after each round the switch's routes must equal zebra's.
    """
    for turn in restarts(record.part):
        with ExitStack() as stack:
            flows = [stack.enter_context(one) for one in network.traffic()]
            more(flows)
            change(turn, flows)
            network.wait_until_equal()
            more(flows)
            outcomes = [one.stop() for one in flows]
        record.restarts += 1
        for one in outcomes:
            record.add(one)
        assert record.lost == 0, (turn, outcomes)
    record.routes = len(network.tables.found())
    keep(record)


def test_the_comparison_finds_what_the_switch_lacks(network: Restarts) -> None:
    """Control experiment: if zebra gets a route while no controller runs, the comparison must
    report the route as missing in the switch.
    """
    prefix, place = changing(4)[0], network.router.namespace
    rib = partial(network.router.frr.vtysh, "show ip route kernel")
    network.controller.kill()
    place.run("ip", "route", "add", str(prefix), "via", "10.0.1.2")
    try:
        wait_until(lambda: str(prefix) in rib(), 10, "zebra to have the route")
        (found,) = (one for one in network.tables.differences() if one.startswith(f"{prefix}:"))
        assert found.startswith(f"{prefix}: zebra 1 x port2"), found
        assert found.endswith("switch nothing"), found
        network.controller.start()
        network.wait_until_equal()
    finally:
        place.run("ip", "route", "del", str(prefix))
    wait_until(network.complete, 60, "zebra to have all routes of BGP", interval=0.2)
    network.wait_until_equal()


def test_a_killed_controller_loses_nothing(network: Restarts) -> None:
    record = Record("controller")

    def kill(_: int, __: list[UdpFlows]) -> None:
        network.controller.kill()
        begin = time.monotonic()
        network.controller.start()
        record.worst("seconds_to_ready", time.monotonic() - begin)

    survive(network, record, kill)


def test_a_killed_zebra_that_keeps_the_kernels_routes_loses_nothing(network: Restarts) -> None:
    """No packet is lost if zebra is killed and started again with the option -K 20.

    With this option, the new zebra keeps the routes that it finds in the kernel for 20 s. After
    that time, it removes the routes that were not announced again.
    """
    record = Record("zebra")

    def kill(_: int, flows: list[UdpFlows]) -> None:
        network.restart_frr()
        for one in flows:
            one.wait_for_more(round(KEPT_SECONDS * RATE), 2 * KEPT_SECONDS)
        wait_until(network.complete, 60, "zebra to have all routes again", interval=0.2)

    survive(network, record, kill)


def test_a_neighbors_killed_bgpd_that_restarts_gracefully_loses_nothing(
    network: Restarts,
) -> None:
    """No packet is lost if a neighbour's bgpd is killed and restarted, because r1's bgpd keeps the
    neighbour's routes until they are announced again.
    """
    record = Record("neighbor")

    def kill(_: int, __: list[UdpFlows]) -> None:
        network.restart_neighbor("t1")
        wait_until(lambda: not unestablished(network.router), 60, "all BGP sessions", interval=0.2)
        wait_until(network.complete, 60, "zebra to have all routes again", interval=0.2)

    survive(network, record, kill)


def test_a_killed_bgpd_loses_nothing_until_it_is_back(network: Restarts) -> None:
    """No packet is lost while bgpd is dead, because zebra keeps bgpd's routes.

    After bgpd's restart, packets may be lost for a moment. bgpd 8.4.4 reports that it has announced
    all routes before it has learned any. So zebra deletes the routes until bgpd has learned them
    again.
    """
    record = Record("bgpd")
    for _ in restarts("bgpd"):
        with ExitStack() as stack:
            flows = [stack.enter_context(one) for one in network.traffic()]
            more(flows)
            network.router.frr.kill_daemon("bgpd")
            more(flows)
            sent_meanwhile = [one.sent() - MORE // 2 for one in flows]
            more(flows)
            started = time.monotonic()
            network.start_daemon("bgpd")
            # zebra also has all routes before it deletes them. So only routes received since
            # `started` count.
            given = partial(network.complete, started)
            wait_until(given, 60, "zebra to be given all routes again", interval=0.2)
            network.wait_until_equal()
            again = time.monotonic()
            more(flows)
            outcomes = [one.stop() for one in flows]
        for one, until, outcome in zip(flows, sent_meanwhile, outcomes, strict=True):
            before, after = range(until), one.sent_since(again)
            assert one.arrived(before) == len(before), outcome
            assert one.arrived(after) == len(after) >= MORE // 2, outcome
            record.add(outcome)
        record.restarts += 1
    record.routes = len(network.tables.found())
    keep(record)


def test_fpm_cut_in_the_middle_of_a_message_loses_nothing(network: Restarts) -> None:
    """No packet is lost if the FPM connection is cut inside a message while routes change, and cut
    again while zebra sends all routes anew.
    """
    record, dice = Record("fpm"), random.Random(SEED)

    def cut(turn: int, _: list[UdpFlows]) -> None:
        before = network.cutter.cuts_made
        network.cutter.cut_after(dice.randrange(CHANGES), dice.randrange(CHANGES))
        for version in VERSIONS:
            network.change("t1", version, ("add", "del")[turn % 2], changing(version))
        network.cutter.wait_for_cuts(before + 2)
        network.wait_changed(present=turn % 2 == 0)

    survive(network, record, cut)


def test_a_killed_switch_forwards_again_once_it_is_programmed(network: Restarts) -> None:
    """Packets are lost only between the switch's death and the moment when the controller reports
    `synced`.
    """
    record = Record("switch")
    for _ in restarts("switch"):
        with ExitStack() as stack:
            flows = [stack.enter_context(one) for one in network.traffic()]
            more(flows)
            sent_before = [one.sent() - 1 for one in flows]
            died = time.monotonic()
            network.router.target.kill()
            begin = time.monotonic()
            network.router.target.start()
            record.worst("seconds_of_the_switch_alone", time.monotonic() - begin)
            network.wait_until_equal()
            programmed = time.monotonic()
            record.worst("seconds_to_equal_tables", programmed - died)
            more(flows)
            outcomes = [one.stop() for one in flows]
        for one, last_before, outcome in zip(flows, sent_before, outcomes, strict=True):
            before, after = range(last_before), one.sent_since(programmed)
            assert one.arrived(before) == len(before), outcome
            assert one.arrived(after) == len(after) >= MORE // 2, outcome
            record.add(outcome)
        record.restarts += 1
    record.routes = len(network.tables.found())
    keep(record)
