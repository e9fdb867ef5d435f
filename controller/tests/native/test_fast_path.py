# SPDX-License-Identifier: Apache-2.0
"""Tests that BFD, pings and ARP still pass between switch and host while no Python code can run.

The switch and the neighbour run in another process (`far_end.py`). This process waits in a system
call with the GIL held, as during a garbage collection or a long computation. The call returns when
the other process has seen packets pass in both directions. Needs root.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sluice_testkit.wait import wait_until

from kernel_namespace import ip, ip_shows, network_namespace
from native.drain import DEADLINE, Drain
from sluice._native import P4RuntimeClient, TapSet
from sluice.fast_path import FastPath
from sluice.model import parse_address
from sluice.sources.host import HostInterfaces
from sluice.sources.kernel import KernelMonitor
from sources.test_host import PEER_MAC, interface
from test_punts import SCHEMA

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

POLLIN = 1


class PollDescriptor(ctypes.Structure):
    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


def wait_with_the_gil(descriptor: int) -> bool:
    """Waits in poll(2) with the GIL held; returns whether the descriptor became readable."""
    waiting = PollDescriptor(descriptor, POLLIN, 0)
    return bool(ctypes.PyDLL(None).poll(ctypes.byref(waiting), 1, int(DEADLINE * 1000)) == 1)


class Router:
    """Runs a router with interface eth1 in this namespace, and a session with the switch in the
    other process.
    """

    def __init__(self, stack: ExitStack, folder: Path, *, remembers: bool) -> None:
        self.fast_path = FastPath(SCHEMA, remembers=remembers)
        self.monitor = KernelMonitor()
        stack.callback(self.monitor.close)
        self.taps = TapSet(fast_path=self.fast_path.native)
        stack.callback(self.taps.close)
        self.host = HostInterfaces(self.taps, self.monitor, on_change=self.fast_path.publish)
        stack.callback(self.host.close)
        self.monitor.start()
        self.host.add(interface(1))
        while not self.host.is_own(parse_address("2001:db8:1::1")):
            assert select.select([self.monitor], [], [], DEADLINE)[0]
            for event in self.monitor.poll(64):
                self.host.apply(event)
        self.host.publish()
        wait_until(lambda: not ip_shows("-6 addr show dev eth1 tentative"), DEADLINE)
        for address in ("10.0.1.9", "2001:db8:1::9"):
            ip(f"neigh replace {address} lladdr {PEER_MAC.hex(':')} dev eth1 nud permanent")
        # A Unix socket, because it is reachable from every network namespace.
        command = [sys.executable, "-m", "native.far_end", f"unix:{folder}/switch.sock"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        self.far_end = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        stack.callback(self.far_end.communicate)
        stack.callback(self.far_end.kill)
        self.client = P4RuntimeClient(
            self.answer()["listens"], 1, (0, 5), fast_path=self.fast_path.native
        )
        stack.callback(self.client.close)
        Drain(self.client).until(lambda event: event[0] == "connected")
        self.client.set_packet_metadata(SCHEMA.packet_in, SCHEMA.packet_out)

    def ask(self, what: str) -> None:
        assert self.far_end.stdin is not None
        self.far_end.stdin.write(f"{what}\n".encode())
        self.far_end.stdin.flush()

    def answer(self) -> Any:
        """Waits for a line of the far end with the GIL held, so that no Python code runs here.
        Returns the line.
        """
        assert self.far_end.stdout is not None
        assert wait_with_the_gil(self.far_end.stdout.fileno()), "no packet passed"
        return json.loads(self.far_end.stdout.readline())


@contextmanager
def router(folder: Path, *, remembers: bool = False) -> Iterator[Router]:
    # The native module has one thread, which stays in the namespace in which it starts. This call
    # starts it in the namespace that other tests use.
    P4RuntimeClient(f"unix:{folder}/nobody.sock", 1, (0, 1)).close()
    with network_namespace(), ExitStack() as stack:
        yield Router(stack, folder, remembers=remembers)


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Router]:
    with router(tmp_path) as running:
        yield running


@pytest.mark.parametrize("what", ["ping", "ping6", "bfd", "bfd6", "arp"])
def test_it_passes_both_ways_while_no_python_runs(plain: Router, what: str) -> None:
    plain.ask(what)
    assert plain.answer() == {"passed": what}

    # The other process may receive the packet before the counter is incremented.
    def counted() -> bool:
        stats = plain.fast_path.native.stats()
        return stats["from_host"] >= 1 and stats["to_host"] == 1

    wait_until(counted, DEADLINE)
    assert plain.client.stats()["packet_in"] == 0


def test_what_passed_is_counted_where_it_belongs(plain: Router) -> None:
    plain.ask("ping")
    plain.answer()
    counters, passed = plain.fast_path.counters(), plain.fast_path.native.stats()
    assert counters["host"]["to_host"] == 1
    assert counters["controller"]["packets out"] == passed["from_host"]
    handled = {SCHEMA.reasons[number].value: n for number, n in plain.fast_path.handled().items()}
    assert {name: n for name, n in handled.items() if n} == {"LOCAL": 1}


def test_what_the_host_may_answer_with_an_error_is_told(tmp_path: Path) -> None:
    """Checks that Python gets the host's ICMP error, and before it a copy of the quoted packet."""
    with router(tmp_path, remembers=True) as running:
        running.ask("closed port")
        assert select.select([running.taps], [], [], DEADLINE)[0]
        error = next(frame for _, frame in iter_frames(running.taps) if frame[23] == 1)
        (told,) = running.fast_path.delivered_packets()
        assert told.bundle == 7
        assert told.frame[14:42] in error
        assert SCHEMA.reasons[told.reason].value == "LOCAL"


def iter_frames(taps: TapSet) -> Iterator[tuple[int, bytes]]:
    while True:
        assert select.select([taps], [], [], DEADLINE)[0]
        yield from taps.read(1)


def test_a_session_that_ended_takes_nothing_more(plain: Router) -> None:
    """Checks that after a session ends, the event loop handles the host's frames."""
    plain.client.close()
    before = plain.fast_path.native.stats()["from_host"]
    ip("neigh replace 10.0.1.99 lladdr 02:00:00:00:00:99 dev eth1 nud permanent")
    send_bfd_to("10.0.1.99")
    frame = next(frame for _, frame in iter_frames(plain.taps) if frame[30:34] == b"\n\0\1c")
    assert frame[36:38] == (3784).to_bytes(2, "big")
    assert plain.fast_path.native.stats()["from_host"] == before


def send_bfd_to(address: str) -> None:
    script = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM);"
        f"s.bind(('10.0.1.1', 49152)); s.sendto(bytes(24), ('{address}', 3784))"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
