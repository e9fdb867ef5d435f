# SPDX-License-Identifier: Apache-2.0
"""Tests the limits of the stand-in, the process that serves the TAPs while the controller is dead,
and the events that end it.

Each test kills the controller, and starts it again after the checks. The stand-in must still apply
policy, and must not answer for a withdrawn address. It ends when another controller becomes
primary, or when the switch restarts. It has no more privileges than the controller.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from sluice_testkit.capture import Capture
from sluice_testkit.process import Process
from sluice_testkit.wait import wait_until
from sluice_topo import probes

from .network import EVERYTHING, MAC, OneRouter, udp

TAPS = ("eth1", "eth2", "eth3", "eth4")
OWN, OWN6, EXTRA = "10.1.0.1", "2001:db8:1::1", "10.1.0.77"
HOLDER = """
import sys
from sluice.sources.handover import holder
print(*{holder(name) for name in sys.argv[1:]})
"""
SEND = """
import socket, sys
address, own, source = sys.argv[1], sys.argv[2], int(sys.argv[3])
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    sender.bind((own, source))
    for port in sys.argv[4:]:
        sender.sendto(b"x" * 20, (address, int(port)))
"""
BECOME_PRIMARY = """
import select, sys
from sluice._native import P4RuntimeClient
client = P4RuntimeClient(sys.argv[1], 1, (1 << int(sys.argv[2]), 1))
while True:
    select.select([client.fileno()], [], [])
    for event in client.poll(8):
        if event[0] == "arbitration" and event[1]:
            print("primary", flush=True)
"""
CAP_NET_ADMIN = f"{1 << 12:016x}"


def stand_in(network: OneRouter) -> int | None:
    """Returns the PID of the stand-in that holds the locks of all TAPs, or None."""
    argv = (sys.executable, "-c", HOLDER, *TAPS)
    said = network.router.namespace.run(*argv).stdout.split()
    assert len(said) == 1, said
    return None if said == ["None"] else int(said[0])


@contextmanager
def killed(network: OneRouter) -> Iterator[int]:
    """Kills the controller, and starts it again when the context ends. Yields the PID of the
    stand-in.
    """
    network.controller.kill()
    try:
        wait_until(partial(stand_in, network), 10, "a stand-in to run")
        process = stand_in(network)
        assert process is not None
        wait_until(lambda: answers(network, OWN), 10, "the stand-in to carry packets")
        yield process
    finally:
        if network.controller.process is None:
            network.controller.start()
        network.wait_taken_over()
        assert stand_in(network) is None


def answers(network: OneRouter, address: str) -> bool:
    """Returns whether the router answers a ping from a, which must first resolve its MAC
    address.
    """
    a = network.host("a")
    a.run("ip", "neigh", "flush", "dev", "eth0")
    return probes.ping(a, address, count=2).received > 0


@pytest.fixture
def warm(network: OneRouter) -> OneRouter:
    """Returns the network with cached flows for pings to the router and for neighbour discovery."""
    warm_up(network)
    return network


def warm_up(network: OneRouter) -> None:
    """Caches flows, because the first packet of a flow needs a controller to search the rules."""
    for address in (OWN, OWN6):
        wait_until(partial(answers, network, address), 10, f"{address} to answer")


def test_what_policy_discards_does_not_leave_by_it(warm: OneRouter) -> None:
    network = warm
    a, place = network.host("a"), network.router.namespace
    source, passes, refused, unknown = (network.fresh_port() for _ in range(4))
    network.commit("west", outbound=[udp("no", "discard", refused), EVERYTHING])
    with Capture(a, "eth0", lambda one: one.source_port == source) as seen:
        send = partial(place.run, sys.executable, "-c", SEND, network.address("a"), OWN)
        send(str(source), str(passes), str(refused))
        seen.wait_for(lambda one: one.destination_port == passes, count=1)
        wait_until(
            lambda: len(network.flows("west", source_port=source)) == 2,
            10,
            "both flows to be cached",
        )
        warm_up(network)  # the commit made all flows stale
        with killed(network):
            seen.clear()
            for _ in range(20):
                send(str(source), str(refused), str(unknown), str(passes))
            seen.wait_for(lambda one: one.destination_port == passes, count=20)
            assert answers(network, OWN6)
            assert {one.destination_port for one in seen.frames()} == {passes}


def test_it_answers_for_no_address_that_was_withdrawn(warm: OneRouter) -> None:
    network, place = warm, warm.router.namespace
    place.add_address("eth1", f"{EXTRA}/24")
    wait_until(lambda: answers(network, EXTRA), 10, "the new address to answer")
    place.run("ip", "addr", "del", f"{EXTRA}/24", "dev", "eth1")
    wait_until(lambda: not answers(network, EXTRA), 10, "the address to be withdrawn")
    assert answers(network, OWN)
    with killed(network):
        assert not answers(network, EXTRA)
        assert answers(network, OWN)


def test_it_has_one_capability(warm: OneRouter) -> None:
    with killed(warm) as process:
        threads = list(Path(f"/proc/{process}/task").iterdir())
        assert len(threads) > 2  # threads of Python and of the native module
        for thread in threads:
            lines = (line.split(":", 1) for line in (thread / "status").read_text().splitlines())
            found = {key: value.strip() for key, value in lines}
            for name in ("CapPrm", "CapEff", "CapBnd"):
                assert found[name] == CAP_NET_ADMIN, (thread, name)
            for name in ("CapInh", "CapAmb"):
                assert int(found[name], 16) == 0, (thread, name)
            assert found["NoNewPrivs"] == "1"


@contextmanager
def another_primary(network: OneRouter, bits: int) -> Iterator[Process]:
    """Runs a second controller, as on another host, that becomes primary with an election id of
    `bits` bits.

    Each call needs more bits than the previous one, because the switch never accepts a primary's id
    again.
    """
    place = network.router.namespace
    argv = place.argv((sys.executable, "-c", BECOME_PRIMARY, network.router.target.grpc, str(bits)))
    other = network.supervisor.start(f"other-controller-{bits}", argv)
    try:
        other.wait_for_log("primary")
        yield other
    finally:
        other.stop()


def test_it_ends_when_another_controller_is_primary(warm: OneRouter) -> None:
    with killed(warm):
        with another_primary(warm, 40):
            wait_until(lambda: stand_in(warm) is None, 10, "the stand-in to end")
            assert not answers(warm, OWN)
        assert stand_in(warm) is None


def test_it_does_not_begin_where_another_controller_is_primary(warm: OneRouter) -> None:
    with another_primary(warm, 41):
        warm.controller.kill()
        assert not answers(warm, OWN)
        assert stand_in(warm) is None
    warm.controller.start()
    warm.wait_taken_over()
    assert answers(warm, OWN)


def test_its_successor_carries_and_it_does_not(warm: OneRouter) -> None:
    """After a restart and a second kill, the router is served by the new controller's stand-in, and
    no longer by the first one.
    """
    with killed(warm) as first:
        warm.controller.start()
        warm.wait_taken_over()
        warm_up(warm)
        with killed(warm) as second:
            assert second != first
            assert warm.router.namespace.run("ip", "link", "show", "eth1").stdout.count(MAC[:8])


def test_it_ends_with_the_switch(warm: OneRouter) -> None:
    """A restart of the switch ends the stand-in, because the new switch does not know the numbers
    that the stand-in uses.

    This test must be the last one.
    """
    with killed(warm):
        warm.router.target.stop()
        wait_until(lambda: stand_in(warm) is None, 10, "the stand-in to end")
        warm.router.target.start()
        assert stand_in(warm) is None
        assert not answers(warm, OWN)
    warm.controller.wait_synced()
    wait_until(lambda: answers(warm, OWN), 10, "the router to answer")
