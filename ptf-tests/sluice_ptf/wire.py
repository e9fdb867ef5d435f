# SPDX-License-Identifier: Apache-2.0
"""Opens the far ends of the switch's ports: raw AF_PACKET sockets, all read at once.

Guarantees: a frame is received as it was on the wire, so the VLAN tag that the kernel removes is
put back. Frames that the test sends are not received. Frames of one port keep their order.

Linux sends no frame that is shorter than an Ethernet header.
"""

from __future__ import annotations

import errno
import select
import socket
import struct
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Protocol

ETH_P_ALL = 0x0003
SOL_PACKET = 263
PACKET_AUXDATA = 8
PACKET_IGNORE_OUTGOING = 23
TP_STATUS_VLAN_VALID = 1 << 4
_AUXDATA = struct.Struct("=IIIHHHH")  # struct tpacket_auxdata, linux/if_packet.h
_RECEIVE_BUFFER = 16 * 1024 * 1024
_FRAME_BYTES = 65536


class Ports(Protocol):
    """Defines the port access that a probe needs, independent of how ports are attached."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """Returns the switch's port numbers, in ascending order."""

    def send(self, port: int, frame: bytes) -> None:
        """Sends one frame into `port` of the switch."""

    def receive(self, timeout: float) -> list[tuple[int, bytes]]:
        """Returns all (port, frame) received since the last call.

        Waits up to `timeout` seconds for the first frame.
        """


class PacketSocket:
    """Holds the far end of one port: a network interface in this process's namespace."""

    def __init__(self, interface: str):
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._socket.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        self._socket.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        self._socket.setblocking(False)
        self._socket.bind((interface, ETH_P_ALL))

    def fileno(self) -> int:
        """Returns the socket's descriptor, on which to wait."""
        return self._socket.fileno()

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()

    def send(self, frame: bytes) -> int:
        """Sends one frame and returns its length."""
        return self._socket.send(frame)

    def receive(self) -> bytes | None:
        """Returns the oldest unread frame from the switch, or None if there is none."""
        try:
            frame, ancillary, _flags, _address = self._socket.recvmsg(_FRAME_BYTES, 64)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno == errno.ENETDOWN:
                return None
            raise
        for level, kind, data in ancillary:
            if level == SOL_PACKET and kind == PACKET_AUXDATA:
                status, *_rest, tci, tpid = _AUXDATA.unpack(data[: _AUXDATA.size])
                if status & TP_STATUS_VLAN_VALID:
                    return frame[:12] + struct.pack("!HH", tpid or 0x8100, tci) + frame[12:]
        return frame

    def receive_at(self) -> tuple[bytes, float] | None:
        """Returns the oldest unread frame and its time of arrival, or None if there is none."""
        frame = self.receive()
        return None if frame is None else (frame, time.time())


class PacketPorts:
    """Holds the far ends of all ports."""

    def __init__(self, interfaces: Mapping[int, str]):
        self._sockets = {port: PacketSocket(name) for port, name in sorted(interfaces.items())}
        self._port_of = {end.fileno(): port for port, end in self._sockets.items()}
        self._poll = select.epoll()
        for descriptor in self._port_of:
            self._poll.register(descriptor, select.EPOLLIN)

    def __enter__(self) -> PacketPorts:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the sockets."""
        self._poll.close()
        for end in self._sockets.values():
            end.close()

    @property
    def numbers(self) -> tuple[int, ...]:
        """Returns the switch's port numbers, in ascending order."""
        return tuple(self._sockets)

    def send(self, port: int, frame: bytes) -> None:
        """Sends one frame into `port` of the switch."""
        self._sockets[port].send(frame)

    def receive(self, timeout: float) -> list[tuple[int, bytes]]:
        """Returns all (port, frame) received since the last call.

        Waits up to `timeout` seconds for the first frame.
        """
        received = []
        for descriptor, _events in self._poll.poll(timeout):
            port = self._port_of[descriptor]
            while (frame := self._sockets[port].receive()) is not None:
                received.append((port, frame))
        return received
