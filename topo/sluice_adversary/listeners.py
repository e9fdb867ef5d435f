# SPDX-License-Identifier: Apache-2.0
"""Opens sockets that receive what leaves the router, and what its host stack accepts."""

import errno
import socket
from collections.abc import Callable, Iterator

from sluice_testkit.namespaces import Namespace

RECEIVE_BUFFER = 256 << 20
SO_RCVBUFFORCE, SOL_PACKET, PACKET_STATISTICS, PACKET_IGNORE_OUTGOING = 33, 263, 6, 23
ETH_P_ALL = 3
HEARD_UDP_PORT = 7001


class Listener:
    """Receives packets from a socket, and counts those that the kernel dropped."""

    def __init__(self, place: Namespace, opened: Callable[[], socket.socket]):
        self._socket = place.inside(opened)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER)
        self._socket.setblocking(False)

    def heard(self) -> Iterator[bytes]:
        """Yields all packets that are waiting in the socket."""
        while True:
            try:
                yield self._socket.recv(65535)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENETDOWN:
                    raise

    def send(self, frame: bytes) -> None:
        """Sends a frame unchanged."""
        self._socket.setblocking(True)
        self._socket.send(frame)
        self._socket.setblocking(False)

    def lost(self) -> int:
        """Returns the number of frames dropped since the last call, because the buffer was full.
        For packet sockets only.
        """
        statistics = self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)
        return int.from_bytes(statistics[4:8], "little")

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()


def on_link(interface: str) -> Callable[[], socket.socket]:
    """Returns a function that opens a packet socket. It receives the frames that arrive on an
    interface.
    """

    def opened() -> socket.socket:
        packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        packets.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        packets.bind((interface, ETH_P_ALL))
        return packets

    return opened


def raw(family: int, protocol: int) -> Callable[[], socket.socket]:
    """Returns a function that opens a raw socket of the host stack."""
    return lambda: socket.socket(family, socket.SOCK_RAW, protocol)


def bound(family: int) -> Callable[[], socket.socket]:
    """Returns a function that opens a UDP socket of the host stack, bound to HEARD_UDP_PORT."""

    def opened() -> socket.socket:
        heard = socket.socket(family, socket.SOCK_DGRAM)
        heard.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        if family == socket.AF_INET6:
            heard.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        heard.bind(("", HEARD_UDP_PORT))
        return heard

    return opened
