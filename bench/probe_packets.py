# SPDX-License-Identifier: Apache-2.0
"""Sends numbered packets at a steady rate through a router, and records which of them arrive.

The rate is a few thousand packets per second. So the end of a loss is measured to within a
millisecond.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from bench.frames import Flow, udp
from sluice_testkit.namespaces import Namespace
from sluice_testkit.wait import wait_until

SIZE = 60
PORT = 7007
UNDER_WAY = 0.1
"""Seconds after which a packet counts as lost. Long enough for a busy machine."""
BUFFER = 64 << 20
SO_RCVBUFFORCE = 33
ETHERTYPE_IPV4 = 0x0800
NUMBER = struct.Struct("!Q")
Interface = tuple[Namespace, str]


def frames(
    macs: tuple[str, str], source: str, destinations: Iterable[str], ports: int
) -> list[bytes]:
    """Returns a frame for each destination and source port. `macs`: destination, source."""
    both = b"".join(bytes.fromhex(mac.replace(":", "")) for mac in macs)
    start = int.from_bytes(socket.inet_aton(source), "big")
    ends = [int.from_bytes(socket.inet_aton(one), "big") for one in destinations]
    return [
        udp(Flow(start, end, 20_000 + port, PORT), both, SIZE - NUMBER.size)
        for port in range(ports)
        for end in ends
    ]


class Probe:
    """Sends the frames in turn, one every `interval` seconds, while the context is open. Receives
    them on other interfaces.
    """

    def __init__(
        self,
        sends: Interface,
        receives: Sequence[Interface],
        some: Sequence[bytes],
        interval: float,
    ):
        self._frames = some
        self._interval = interval
        self._output = _opened(sends, 0)
        self._inputs = [_opened(one, ETHERTYPE_IPV4) for one in receives]
        self.departures: list[float] = []
        self.deaf: frozenset[str] = frozenset()
        """Interfaces whose packets count as lost, like those to a dead host whose link stays up."""
        self.carried = Counter[str]()
        """Number of packets received, by interface."""
        self._arrived: set[int] = set()
        self._latest = -1
        self._done = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._send, self._receive)]

    def _send(self) -> None:
        due = time.monotonic()
        while not self._done.is_set():
            number = len(self.departures)
            frame = self._frames[number % len(self._frames)] + NUMBER.pack(number)
            self.departures.append(time.monotonic())
            with suppress(OSError):  # full queue or link down: counts as lost
                self._output.send(frame)
            due += self._interval
            wait = due - time.monotonic()
            if wait > 0:
                time.sleep(wait)

    def _receive(self) -> None:
        while not self._done.is_set():
            ready, _, _ = select.select(self._inputs, [], [], 0.05)
            for one in ready:
                self._take(one)

    def _take(self, one: socket.socket) -> None:
        try:
            while True:
                data, origin = one.recvfrom(128)
                if origin[2] == socket.PACKET_OUTGOING or origin[0] in self.deaf:
                    continue
                if data[36:38] == PORT.to_bytes(2, "big"):
                    number = NUMBER.unpack_from(data, len(data) - NUMBER.size)[0]
                    self._arrived.add(number)
                    self.carried[origin[0]] += 1
                    self._latest = max(self._latest, number)
        except OSError:  # no more packets, or the link is down
            return

    def wait_arrival(self, moment: float, deadline: float) -> float:
        """Waits until a packet sent after `moment` has arrived.

        Returns the time at which the first such packet was sent.
        """

        def came() -> float | None:
            latest = self._latest
            sent = self.departures[latest] if latest >= 0 else 0.0
            return sent if sent > moment else None

        wait_until(came, deadline, "a packet to come through", interval=0.002)
        first = bisect_right(self.departures, moment)
        return next(
            self.departures[number]
            for number in range(first, len(self.departures))
            if number in self._arrived
        )

    def lost(self, start: float, end: float) -> list[float]:
        """Returns the send times of the lost packets that were sent from `start` to `end`."""
        first = bisect_left(self.departures, start)
        last = bisect_left(self.departures, end)
        return [
            self.departures[number] for number in range(first, last) if number not in self._arrived
        ]

    def lost_nothing_for(self, seconds: float) -> bool:
        """Returns whether all packets of the last `seconds` seconds have arrived.

        Packets that are still under way are left out.
        """
        end = time.monotonic() - UNDER_WAY
        return not self.lost(end - seconds, end)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()
        for one in (self._output, *self._inputs):
            one.close()


def _opened(interface: Interface, protocol: int) -> socket.socket:
    namespace, name = interface
    opened = namespace.socket(socket.AF_PACKET, socket.SOCK_RAW)
    if protocol:
        opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
    namespace.inside(lambda: opened.bind((name, protocol)))
    opened.setblocking(False)
    return opened
