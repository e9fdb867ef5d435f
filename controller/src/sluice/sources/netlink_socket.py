# SPDX-License-Identifier: Apache-2.0
"""Implements a non-blocking netlink socket in the process's network namespace."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable

NETLINK_ROUTE = 0
NETLINK_XFRM = 6
SOL_NETLINK = 270
NETLINK_ADD_MEMBERSHIP = 1
NETLINK_GET_STRICT_CHK = 12
SO_RCVBUFFORCE = 33

# Netlink port of the kernel. A message from any other port comes from a process.
KERNEL = 0
# The kernel never builds a larger datagram.
DATAGRAM_LIMIT = 1 << 16


class Overrun(Exception):  # noqa: N818 - not a program error: the caller dumps again
    """Reports that the kernel dropped messages for this socket (ENOBUFS)."""


class NetlinkSocket:
    """Sends requests, receives datagrams, and joins multicast groups."""

    def __init__(
        self,
        groups: Iterable[int] = (),
        receive_buffer: int = 8 << 20,
        protocol: int = NETLINK_ROUTE,
    ) -> None:
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, protocol
        )
        self._set_receive_buffer(receive_buffer)
        self._socket.setsockopt(SOL_NETLINK, NETLINK_GET_STRICT_CHK, 1)
        self._socket.bind((0, 0))
        for group in groups:
            self._socket.setsockopt(SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, group)
        self._sequence = 0
        self.foreign = 0
        """Number of ignored datagrams of other processes."""
        self.port: int = self._socket.getsockname()[0]
        """Port of this socket. Only answers to its requests have this port in their headers."""

    def _set_receive_buffer(self, size: int) -> None:
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, size)
        except PermissionError:  # without CAP_NET_ADMIN, the limit is net.core.rmem_max
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)

    def fileno(self) -> int:
        """Returns a descriptor that is readable while a datagram waits."""
        return self._socket.fileno()

    def next_sequence(self) -> int:
        """Returns a sequence number for the next request. It is never 0, which notifications
        have."""
        self._sequence = self._sequence % 0xFFFFFFFF + 1
        return self._sequence

    def send(self, request: bytes) -> None:
        """Sends a request to the kernel. On return, the kernel has executed the request."""
        self._socket.sendto(request, (0, 0))

    def receive(self) -> bytes | None:
        """Returns the kernel's next datagram, or None if none waits. Raises Overrun if the kernel
        has dropped messages."""
        try:
            while True:
                datagram, (sender, _) = self._socket.recvfrom(DATAGRAM_LIMIT)
                if sender == KERNEL:
                    return datagram
                self.foreign += 1
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno == errno.ENOBUFS:
                raise Overrun from error
            raise

    def close(self) -> None:
        """Closes the socket; idempotent."""
        self._socket.close()
