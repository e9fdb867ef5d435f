# SPDX-License-Identifier: Apache-2.0
"""Sends UDP flows at a steady rate between two hosts, and measures what arrives.

Each packet contains its number, and the receiver records the time of each arrival. So losses and
the longest gap are measured, not estimated. The packets are sent by Python, so the rates are low.
`sluice-traffic` generates higher loads.
"""

import socket
import struct
import threading
import time
from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import Protocol, Self

from sluice_testkit.capture import Capture
from sluice_testkit.namespaces import Namespace
from sluice_testkit.packet import UDP, Frame
from sluice_testkit.wait import wait_until
from sluice_topo.network import Network

PORT = 9000
FIRST_SOURCE_PORT = 20000
_HEADER = struct.Struct("!QH")


class TrafficHost(Protocol):
    """Describes a host that sends or receives flows."""

    @property
    def namespace(self) -> Namespace:
        """The host's network namespace."""

    def address(self, version: int) -> str:
        """Returns the host's IPv4 or IPv6 address."""


@dataclass(frozen=True)
class TrafficResult:
    """Holds the packet counts and the longest gap of a run. Times are in seconds."""

    sent: int
    received: int
    longest_gap: float
    interval: float

    @property
    def lost(self) -> int:
        """Number of sent packets that have not arrived."""
        return self.sent - self.received

    @property
    def outage(self) -> float:
        """The longest gap between two arrivals, minus the interval between two sent packets."""
        return max(0.0, self.longest_gap - self.interval)


class UdpFlows:
    """Sends `flows` UDP flows from one host to another, with `rate` packets per second in total.

    The flows take turns in sending. If `destinations` is given, the flows are distributed over
    these addresses, which must all belong to the receiver.
    """

    def __init__(
        self,
        sender: TrafficHost,
        receiver: TrafficHost,
        version: int = 4,
        *,
        flows: int = 16,
        rate: float = 500.0,
        port: int = PORT,
        destinations: Sequence[str] = (),
    ):
        self._interval = 1.0 / rate
        family = socket.AF_INET if version == 4 else socket.AF_INET6
        self._receiver = receiver.namespace.socket(family, socket.SOCK_DGRAM)
        self._receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        if version == 6:  # an IPv4 socket may use the same port
            self._receiver.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        self._receiver.bind(("" if destinations else receiver.address(version), port))
        self._receiver.settimeout(0.05)
        self._senders = []
        to = destinations or [receiver.address(version)]
        for number in range(flows):
            sending = sender.namespace.socket(family, socket.SOCK_DGRAM)
            sending.bind((sender.address(version), FIRST_SOURCE_PORT + number))
            sending.connect((to[number % len(to)], port))
            self._senders.append(sending)
        self._arrivals: dict[int, float] = {}
        self._departures: list[float] = []
        self._stop_sending = threading.Event()
        self._stop_receiving = threading.Event()
        self._threads = [
            threading.Thread(target=target, daemon=True) for target in (self._receive, self._send)
        ]

    def start(self) -> None:
        """Starts sending."""
        for thread in self._threads:
            thread.start()

    def received(self) -> int:
        """Returns the number of packets that have arrived."""
        return len(self._arrivals)

    def sent(self) -> int:
        """Returns the number of packets sent."""
        return len(self._departures)

    def sent_since(self, moment: float) -> range:
        """Returns the numbers of the packets sent at `moment` (monotonic clock) or later."""
        return range(bisect_left(self._departures, moment), self.sent())

    def arrived(self, numbers: Collection[int]) -> int:
        """Returns how many of these packets have arrived."""
        return sum(number in self._arrivals for number in numbers)

    def wait_for_more(self, packets: int, deadline: float = 20.0) -> None:
        """Waits until `packets` more packets have arrived."""
        enough = self.received() + packets
        wait_until(lambda: self.received() >= enough, deadline, f"{packets} more packets")

    def stop(self, patience: float = 1.0) -> TrafficResult:
        """Stops sending. Waits up to `patience` seconds until all sent packets have arrived.
        Returns the results.
        """
        self._stop_sending.set()
        self._threads[1].join()
        end = time.monotonic() + patience
        while self.received() < self.sent() and time.monotonic() < end:
            time.sleep(0.01)
        self._stop_receiving.set()
        self._threads[0].join()
        for opened in (self._receiver, *self._senders):
            opened.close()
        times = sorted(self._arrivals.values())
        gaps = [later - earlier for earlier, later in pairwise(times)]
        return TrafficResult(self.sent(), self.received(), max(gaps, default=0.0), self._interval)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._stop_receiving.is_set():
            self.stop(patience=0.0)

    def _send(self) -> None:
        due = time.monotonic()
        while not self._stop_sending.is_set():
            number = self.sent()
            flow = number % len(self._senders)
            departure = time.monotonic()
            try:
                self._senders[flow].send(_HEADER.pack(number, flow).ljust(64, b"."))
            except OSError:  # an ICMP error about an earlier packet
                continue
            self._departures.append(departure)
            due += self._interval
            time.sleep(max(0.0, due - time.monotonic()))

    def _receive(self) -> None:
        while not self._stop_receiving.is_set():
            try:
                data = self._receiver.recv(2048)
            except TimeoutError:
                continue
            number, _ = _HEADER.unpack_from(data)
            self._arrivals.setdefault(number, time.monotonic())


class PathMonitor:
    """Captures the UDP flows that each transit router receives from one site, on `interface`."""

    def __init__(self, network: Network, interface: str = "eth1"):
        def ours(frame: Frame) -> bool:
            return not frame.outgoing and frame.protocol == UDP and frame.destination_port == PORT

        self._captures = {
            name: Capture(network.routers[name].namespace, interface, ours) for name in ("t1", "t2")
        }

    def flows(self) -> dict[str, set[int | None]]:
        """Returns the source ports of the packets that each transit router has received."""
        return {
            name: {frame.source_port for frame in capture.frames()}
            for name, capture in self._captures.items()
        }

    def packets(self) -> dict[str, int]:
        """Returns the number of packets that each transit router has received."""
        return {name: capture.count() for name, capture in self._captures.items()}

    def clear(self) -> None:
        """Discards the captured frames."""
        for capture in self._captures.values():
            capture.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for capture in self._captures.values():
            capture.stop()
