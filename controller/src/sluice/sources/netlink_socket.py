# SPDX-License-Identifier: Apache-2.0
"""A non-blocking netlink socket of the network namespace that the process is in."""

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

# The port that the kernel sends from; processes that may send to others have another.
KERNEL = 0
# The kernel never builds a larger datagram.
DATAGRAM_LIMIT = 1 << 16


class Overrun(Exception):  # noqa: N818 - not an error of the program but news: ask again
    """The kernel had to drop messages for this socket (ENOBUFS)."""


class NetlinkSocket:
    """Sends requests, receives datagrams, belongs to multicast groups."""

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
        """Datagrams that another process sent, not the kernel; nothing reads them."""
        self.port: int = self._socket.getsockname()[0]
        """The port that answers to this socket's requests have in their headers, and no others."""

    def _set_receive_buffer(self, size: int) -> None:
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, size)
        except PermissionError:  # without CAP_NET_ADMIN up to net.core.rmem_max
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)

    def fileno(self) -> int:
        """Readable while a datagram waits."""
        return self._socket.fileno()

    def next_sequence(self) -> int:
        """A sequence number for the next request; never 0, which notifications have."""
        self._sequence = self._sequence % 0xFFFFFFFF + 1
        return self._sequence

    def send(self, request: bytes) -> None:
        """Hands a request to the kernel, which has acted on it when this returns."""
        self._socket.sendto(request, (0, 0))

    def receive(self) -> bytes | None:
        """The kernel's next datagram, None if there is none. Raises Overrun if some were lost."""
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
