# SPDX-License-Identifier: Apache-2.0
"""Sends packets with unique numbers, and records their arrival.

Every packet is UDP, and its payload contains a unique number. A `Flow` sends packets and keeps a
socket open at the receiving host, so that the host answers with no ICMP error. `Fragments` sends
fragments of datagrams that never become complete. An `ArrivalRecorder` captures on a host's
interface.
"""

import ipaddress
import socket
import struct
import threading
from collections.abc import Iterable
from itertools import count
from types import TracebackType
from typing import Self

from sluice_testkit.capture import Capture
from sluice_testkit.packet import ETHERTYPE_IPV4, ETHERTYPE_IPV6, UDP, Frame
from sluice_testkit.wait import wait_until

from ..frames import ethernet, inject
from ..packets import MORE_FRAGMENTS, ipv4, udp
from .network import EVERYTHING, OneRouter, Rule
from .network import udp as rule

MARK = b"walk"
PAYLOAD = struct.Struct("!4sI")
FRAGMENT_SOURCE_PORT, LATER_OFFSET, IPV6_FRAGMENT = 4000, 512, 44
_numbers = count(1)


class Flow:
    """Sends UDP from host a to `destination` (default: the address of host `sink`). The packets are
    received at `sink`.
    """

    def __init__(
        self,
        network: OneRouter,
        version: int = 4,
        *,
        sink: str = "b",
        destination: str | None = None,
        port: int | None = None,
        source_port: int = 0,
    ) -> None:
        self.port = network.fresh_port() if port is None else port
        self.destination = destination or network.address(sink, version)
        family = socket.AF_INET if version == 4 else socket.AF_INET6
        self._sink = network.host(sink).socket(family, socket.SOCK_DGRAM)
        self._sink.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._sink.bind(("", self.port))
        self._socket = network.host("a").socket(family, socket.SOCK_DGRAM)
        self._socket.bind(("", source_port))
        self._socket.connect((self.destination, self.port))
        self.source_port = int(self._socket.getsockname()[1])

    def send(self, packets: int = 1) -> list[int]:
        """Sends packets without a pause. Returns the numbers in their payloads."""
        numbers = [next(_numbers) for _ in range(packets)]
        for number in numbers:
            self.send_number(number)
        return numbers

    def send_number(self, number: int) -> None:
        """Sends the packet with this number."""
        self._socket.send(PAYLOAD.pack(MARK, number))

    def miss(self) -> dict[str, object]:
        """Returns the fields that match this flow's packet-in after an outbound miss."""
        return {"reason": "OUTBOUND_MISS", "destination_port": self.port}

    def answer(self, stage: str = "OUTBOUND") -> dict[str, object]:
        """Returns the fields that match the packet-out with which the controller answers a punt of
        this flow.
        """
        return {"kind": "REINJECT", "stage": stage, "destination_port": self.port}

    def close(self) -> None:
        """Closes the sockets."""
        self._socket.close()
        self._sink.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def stop(*flows: Flow) -> list[Rule]:
    """Returns the rules of a list that discards these flows and lets all other packets pass."""
    return [rule("stop", "discard", *(flow.port for flow in flows)), EVERYTHING]


class Fragments:
    """Sends fragments of UDP datagrams from a to `sink`. The datagrams never become complete."""

    def __init__(self, network: OneRouter, version: int, port: int, sink: str = "b") -> None:
        self._place = network.host("a")
        self._make = {4: self._ipv4, 6: self._ipv6}[version]
        self._ethertype = {4: ETHERTYPE_IPV4, 6: ETHERTYPE_IPV6}[version]
        self._port = port
        self._ends = network.address("a", version), network.address(sink, version)
        self._mac = network.router_mac("a")
        self._offsets: dict[int, int] = {}

    def send_first(self) -> int:
        """Sends the first fragment of a new datagram, which contains the ports. Returns the number
        in its payload.
        """
        number = next(_numbers)
        self._send(udp(FRAGMENT_SOURCE_PORT, self._port, PAYLOAD.pack(MARK, number)), 0, number)
        return number

    def send_later(self, of: int | None = None) -> int:
        """Sends a middle fragment, which contains no ports. Returns the number in its payload.

        `of` is the number of the datagram's first fragment. Without `of`, the fragment belongs to a
        new datagram. Each further fragment of a datagram has a higher offset.
        """
        number = next(_numbers)
        datagram = number if of is None else of
        offset = self._offsets[datagram] = self._offsets.get(datagram, 0) + LATER_OFFSET
        self._send(PAYLOAD.pack(MARK, number), offset, datagram)
        return number

    def _send(self, data: bytes, offset: int, identification: int) -> None:
        packet = self._make(data, offset, identification)
        frame = ethernet(self._mac, "02:00:00:00:0a:01", self._ethertype, packet)
        inject(self._place, "eth0", frame)

    def _ipv4(self, data: bytes, offset: int, identification: int) -> bytes:
        place = offset // 8 | MORE_FRAGMENTS
        return ipv4(*self._ends, UDP, data, identification=identification, fragment=place)

    def _ipv6(self, data: bytes, offset: int, identification: int) -> bytes:
        addresses = b"".join(ipaddress.ip_address(end).packed for end in self._ends)
        head = struct.pack("!IHBB", 6 << 28, 8 + len(data), IPV6_FRAGMENT, 64) + addresses
        return head + struct.pack("!BBHI", UDP, 0, offset | 1, identification) + data


class Stream:
    """Sends packets of a flow at a steady rate, in a thread, while the context is open."""

    def __init__(self, flow: Flow, rate: float = 200.0) -> None:
        self._flow = flow
        self._interval = 1 / rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent: list[int] = []

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            number = next(_numbers)
            self.sent.append(number)  # recorded before the packet can arrive
            self._flow.send_number(number)

    def wait_for_more(self, packets: int) -> None:
        """Waits until `packets` more packets have been sent."""
        enough = len(self.sent) + packets
        wait_until(lambda: len(self.sent) >= enough, 20, f"{packets} more packets sent")

    def stop(self) -> None:
        """Ends the thread."""
        self._stop.set()
        self._thread.join()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class ArrivalRecorder:
    """Records the numbers of the packets that a host's interface has received. A packet that
    arrives twice is recorded twice.

    The numbers are sorted, because a packet that hits the cache may overtake a punted one.
    """

    def __init__(self, network: OneRouter, host: str = "b") -> None:
        place = network.host(host)
        self._capture = Capture(place, "eth0", lambda f: not f.outgoing and MARK in f.data)

    def numbers(self) -> list[int]:
        """Returns the recorded numbers, sorted."""
        return sorted(number_of(frame) for frame in self._capture.frames())

    def wait_for(self, numbers: Iterable[int], deadline: float = 10.0) -> list[int]:
        """Waits until all these packets have arrived. Returns the numbers of all that arrived."""
        wanted = set(numbers)

        def complete() -> bool:
            return wanted <= set(self.numbers())

        wait_until(complete, deadline, f"packets {sorted(wanted)}")
        return self.numbers()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._capture.stop()


def number_of(frame: Frame) -> int:
    """Returns the number in a packet's payload."""
    return int(PAYLOAD.unpack_from(frame.data, frame.data.index(MARK))[1])
