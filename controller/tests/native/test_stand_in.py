# SPDX-License-Identifier: Apache-2.0
"""Tests that a keeper forwards BFD, pings, ND and ARP after its controller has died.

The keeper is a separate process that holds the TAPs. The simulated switch (`far_end.py`) has no
roles, so there is only one session. The test closes the controller's descriptors to simulate its
death. Needs root.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sluice_testkit.wait import wait_until

from keepers import start_keeper
from kernel_namespace import ip, ip_shows, network_namespace
from native.drain import DEADLINE
from sluice._native import TapSet
from sluice.connection_config import BMV2, SwitchConfig, UnixAddress
from sluice.fast_path import FastPath
from sluice.model import parse_address
from sluice.sources.handover import Handover, end_stand_ins, holder
from sluice.sources.host import HostInterfaces
from sluice.sources.kernel import KernelMonitor
from sluice.sources.links import queues_of
from sources.test_host import PEER_MAC, interface
from test_punts import SCHEMA

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

ELECTION_ID = (3, 99)


class Controller:
    """Runs a controller's interface eth1 and its keeper, and the simulated switch."""

    def __init__(self, stack: ExitStack, folder: Path, grace: float = 60) -> None:
        self.handover = Handover()
        stack.callback(self.handover.close)
        self.fast_path = FastPath(SCHEMA, remembers=False, handover=self.handover, names=["eth1"])
        monitor = KernelMonitor()
        stack.callback(monitor.close)
        self.taps = TapSet(fast_path=self.fast_path.native)
        stack.callback(self.taps.close)
        host = HostInterfaces(self.taps, monitor, on_change=self.fast_path.publish)
        stack.callback(host.close)
        monitor.start()
        host.add(interface(1))
        while not host.is_own(parse_address("2001:db8:1::1")):
            assert select.select([monitor], [], [], DEADLINE)[0]
            for event in monitor.poll(64):
                host.apply(event)
        host.publish()
        wait_until(lambda: not ip_shows("-6 addr show dev eth1 tentative"), DEADLINE)
        for address in ("10.0.1.9", "2001:db8:1::9"):
            ip(f"neigh replace {address} lladdr {PEER_MAC.hex(':')} dev eth1 nud permanent")
        path = folder / "switch.sock"
        self.far_end = subprocess.Popen(
            [sys.executable, "-m", "native.far_end", f"unix:{path}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        stack.callback(self.far_end.communicate)
        stack.callback(self.far_end.kill)
        self.answer()
        self.fast_path.connects(SwitchConfig(UnixAddress(path), BMV2), None)
        queue = self.taps.queue(socket.if_nametoindex("eth1"))
        self.keeper = start_keeper({"eth1": queue}, grace, handover=self.handover)
        stack.callback(self.end_keeper)

    def end_keeper(self) -> None:
        os.kill(self.keeper.pid, signal.SIGKILL)
        os.waitpid(self.keeper.pid, 0)

    def die(self) -> None:
        self.taps.close()
        self.keeper.close()

    def ask(self, what: str) -> Any:
        """Sends a command to the far end, waits until it is done, and returns the answer."""
        assert self.far_end.stdin is not None
        self.far_end.stdin.write(f"{what}\n".encode())
        self.far_end.stdin.flush()
        return self.answer()

    def make_primary(self) -> None:
        """Makes the session primary, and sends probes until one of them passes.

        Packets are lost until the session is primary.
        """
        self.ask("primary")
        assert self.far_end.stdin is not None
        assert self.far_end.stdout is not None
        self.far_end.stdin.write(b"anything\n")
        self.far_end.stdin.flush()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.bind(("10.0.1.1", 0))
            while not select.select([self.far_end.stdout], [], [], 0.05)[0]:
                sender.sendto(b"", ("10.0.1.9", 7))
        self.answer()

    def answer(self) -> Any:
        assert self.far_end.stdout is not None
        assert select.select([self.far_end.stdout], [], [], DEADLINE)[0], "no packet passed"
        return json.loads(self.far_end.stdout.readline())


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    with network_namespace(), ExitStack() as stack:
        yield Controller(stack, tmp_path)


def test_packets_pass_without_the_controller_until_the_next_is_primary(
    controller: Controller,
) -> None:
    controller.fast_path.set_passing(ELECTION_ID)
    assert holder("eth1") is None
    controller.die()
    controller.make_primary()
    for what in ("arp", "ping", "ping6", "bfd", "bfd6"):
        assert controller.ask(what) == {"passed": what}
    assert holder("eth1") == controller.keeper.pid
    assert queues_of("eth1") == (1, 0), "only the controller's queue is attached"
    controller.ask("not primary")
    wait_until(lambda: holder("eth1") is None, DEADLINE)
    assert queues_of("eth1") == (0, 1), "the keeper keeps the TAP"


def test_who_takes_its_place_ends_it(controller: Controller) -> None:
    controller.fast_path.set_passing(ELECTION_ID)
    controller.die()
    controller.make_primary()
    assert controller.ask("ping") == {"passed": "ping"}
    taps = TapSet()
    taps.add("eth1", 1500, "02:00:00:00:01:01")
    end_stand_ins(["eth1"])
    assert holder("eth1") is None
    assert queues_of("eth1") == (1, 0)
    taps.close()


def test_nobody_stands_in_for_a_controller_that_left_nothing(tmp_path: Path) -> None:
    with network_namespace(), ExitStack() as stack:
        controller = Controller(stack, tmp_path, grace=0.5)
        controller.fast_path.set_passing(ELECTION_ID)
        controller.fast_path.set_passing(None)
        controller.die()
        os.waitid(os.P_PID, controller.keeper.pid, os.WEXITED | os.WNOWAIT)
        assert controller.ask("no session") == {"passed": "no session"}
