# SPDX-License-Identifier: Apache-2.0
"""Tests the stand-in, the process that answers for the router while the controller is dead.

It must answer ARP, neighbour discovery and pings to the router's addresses. BFD sessions with a
timeout of 300 ms and BGP sessions must stay up over several kills. When the controller is back, the
stand-in must have ended.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from sluice_testkit.capture import Capture
from sluice_testkit.namespaces import Lab
from sluice_testkit.packet import Frame
from sluice_testkit.wait import wait_until
from sluice_topo import probes

from .measure_bfd import BFD_PORT, Session, configure, down, falls
from .network import Restarts

KILLS = 3
SECONDS_WITHOUT = 4
"""Minimum time without a controller, in seconds. The test measures it by counting BFD packets: each
end sends at least one every 100 ms.
"""
SESSIONS = (
    Session("t1", "eth2", "10.0.1.1", "10.0.1.2", 100, 3),
    Session("t1", "eth2", "2001:db8:0:1::1", "2001:db8:0:1::2", 100, 3),
    Session("t2", "eth3", "10.0.2.1", "10.0.2.2", 100, 3),
)
STANDS_IN = """
import sys
from sluice.sources.handover import holder
print(*{holder(name) for name in sys.argv[1:]})
"""
OWN = {4: "10.0.1.1", 6: "2001:db8:0:1::1"}


@pytest.fixture(scope="module")
def network(module_lab: Lab) -> Iterator[Restarts]:
    with ExitStack() as stack:
        network = Restarts(module_lab, stack)
        network.start()
        yield network


def stand_in(network: Restarts) -> int | None:
    """Returns the PID of the stand-in that holds the locks of all TAPs, or None."""
    argv = (sys.executable, "-c", STANDS_IN, "eth1", "eth2", "eth3")
    said = network.router.namespace.run(*argv).stdout.split()
    assert len(said) == 1, said
    return None if said == ["None"] else int(said[0])


def is_from(address: str, frame: Frame) -> bool:
    """Returns whether a frame has this source address."""
    return frame.source == address


def sessions_lost(network: Restarts) -> list[int]:
    """Returns how often each BGP session of r1 was lost, ordered by neighbour."""
    neighbors = network.router.frr.json("show bgp neighbors json")
    return [one["connectionsDropped"] for _, one in sorted(neighbors.items())]


def test_the_router_answers_while_its_controller_is_gone(network: Restarts) -> None:
    configure(network, SESSIONS)
    lost = sessions_lost(network)
    t1 = network.transit["t1"].namespace
    for _ in range(KILLS):
        network.controller.kill()
        wait_until(lambda: stand_in(network) is not None, 5, "a stand-in to run")
        with Capture(t1, "eth1", lambda frame: frame.destination_port == BFD_PORT) as link:
            for own in OWN.values():
                link.wait_for(
                    partial(is_from, own), 3 * SECONDS_WITHOUT, count=10 * SECONDS_WITHOUT
                )
        t1.run("ip", "neigh", "flush", "dev", "eth1")
        for own in OWN.values():
            assert probes.ping(t1, own, count=10).lost == 0
        assert stand_in(network) is not None
        network.controller.start()
        network.wait_until_equal()
        assert stand_in(network) is None
        for own in OWN.values():
            assert probes.ping(t1, own, count=10).lost == 0
    assert not down(network, SESSIONS)
    assert [falls(network, one) for one in SESSIONS] == [0, 0, 0]
    assert sessions_lost(network) == lost


def test_nobody_stands_in_for_a_controller_that_ends_by_itself(network: Restarts) -> None:
    keeper = children(network.controller.pid)
    network.controller.stop()
    assert keeper
    assert all(map(runs, keeper))
    assert stand_in(network) is None
    t1 = network.transit["t1"].namespace
    assert probes.ping(t1, OWN[4], count=3).received == 0
    network.controller.start()
    network.wait_until_equal()


def runs(pid: int) -> bool:
    """Returns whether the process with this PID runs."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def children(pid: int) -> list[int]:
    """Returns the PIDs of a process's children."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
