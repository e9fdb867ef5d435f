# SPDX-License-Identifier: Apache-2.0
"""Sends single UDP packets between two hosts, for tests that count them one by one."""

import socket
import time
from types import TracebackType
from typing import Self

from sluice_topo.routers import HostNode

SIZE = 64
PATIENCE = 5.0


class Datagrams:
    """Sends one UDP flow from a port of one host to a port of another. Every packet contains
    `mark`.
    """

    def __init__(
        self,
        sender: HostNode,
        receiver: HostNode,
        version: int = 4,
        *,
        source_port: int,
        destination_port: int,
        mark: bytes = b"",
    ):
        family = socket.AF_INET if version == 4 else socket.AF_INET6
        self._payload = mark.ljust(SIZE, b".")
        self._receiver = receiver.namespace.socket(family, socket.SOCK_DGRAM)
        self._receiver.bind((receiver.address(version), destination_port))
        self._receiver.settimeout(PATIENCE)
        self._sender = sender.namespace.socket(family, socket.SOCK_DGRAM)
        self._sender.bind((sender.address(version), source_port))
        self._sender.connect((receiver.address(version), destination_port))

    def exchange(self, count: int) -> list[float]:
        """Sends `count` packets. Sends each one after the previous one has arrived.

        Returns their one-way delays in seconds. Raises TimeoutError if a packet does not arrive.
        """
        times = []
        for _ in range(count):
            departure = time.monotonic()
            self._sender.send(self._payload)
            self._receiver.recv(2048)
            times.append(time.monotonic() - departure)
        return times

    def send(self, count: int) -> None:
        """Sends `count` packets without waiting for their arrival."""
        for _ in range(count):
            self._sender.send(self._payload)

    def arrived(self) -> int:
        """Reads the packets that are waiting at the receiver. Returns their number."""
        self._receiver.setblocking(False)
        found = 0
        try:
            while self._receiver.recv(2048):
                found += 1
        except BlockingIOError:
            return found
        finally:
            self._receiver.settimeout(PATIENCE)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._sender.close()
        self._receiver.close()
