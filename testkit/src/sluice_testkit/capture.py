# SPDX-License-Identifier: Apache-2.0
"""Captures the packets of an interface, in both directions.

An AF_PACKET socket in the namespace receives the frames, and a thread reads the socket. The capture
is running when the constructor returns, so frames sent afterwards are captured.

`dropped` counts the frames that the kernel dropped because the socket's buffer was full. If
`dropped` is not 0, a request for frames or for a count raises an error instead of returning a wrong
answer.
"""

import errno
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from sluice_testkit.namespaces import Namespace
from sluice_testkit.packet import Frame, parse
from sluice_testkit.wait import wait_until

ETH_P_ALL = 0x0003
SOL_PACKET, PACKET_ADD_MEMBERSHIP = 263, 1
PACKET_STATISTICS, PACKET_AUXDATA = 6, 8
PACKET_MR_PROMISC, PACKET_OUTGOING = 1, 4
TP_STATUS_VLAN_VALID = 1 << 4
SO_RCVBUFFORCE = 33
RECEIVE_BUFFER = 64 << 20
_AUXDATA = struct.Struct("=IIIHHHH")

Filter = Callable[[Frame], object]


class Capture:
    """Captures the frames on `interface` of `namespace`, from construction until `stop`.

    If `keep` is given, only frames for which it returns true are kept.
    """

    def __init__(self, namespace: Namespace, interface: str, keep: Filter | None = None):
        self.interface = interface
        self.dropped = 0
        self._keep = keep
        self._frames: list[Frame] = []
        self._socket = namespace.inside(lambda: self._open(interface))
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True, name=f"cap-{interface}")
        self._thread.start()

    @staticmethod
    def _open(interface: str) -> socket.socket:
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER)
        opened.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        opened.bind((interface, ETH_P_ALL))
        index = socket.if_nametoindex(interface)
        request = struct.pack("iHH8s", index, PACKET_MR_PROMISC, 0, b"")
        opened.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, request)
        opened.setblocking(False)
        return opened

    def _read(self) -> None:
        while not self._stop.is_set():
            ready, _, _ = select.select([self._socket], [], [], 0.05)
            if ready:
                self._take_in()

    def _take_in(self) -> None:
        """Reads all frames that are waiting in the socket."""
        with self._lock:
            while self._socket.fileno() >= 0:
                try:
                    self._receive()
                except BlockingIOError:
                    return
                except OSError as error:
                    if error.errno != errno.ENETDOWN:  # down now or at bind()
                        raise

    def _receive(self) -> None:
        data, control, _, address = self._socket.recvmsg(65535, 256)
        frame = parse(_with_vlan_tag(data, control), time.time(), address[2] == PACKET_OUTGOING)
        if self._keep is None or self._keep(frame):
            self._frames.append(frame)

    def frames(self, matching: Filter | None = None) -> list[Frame]:
        """Returns the captured frames in order. Every frame that arrived before the call is
        included.
        """
        self._take_in()
        self._check_for_loss()
        frames = list(self._frames)
        return frames if matching is None else [frame for frame in frames if matching(frame)]

    def count(self, matching: Filter | None = None) -> int:
        """Returns the number of captured frames."""
        return len(self.frames(matching))

    def wait_for(
        self, matching: Filter, deadline: float = 10.0, what: str = "", count: int = 1
    ) -> list[Frame]:
        """Waits until at least `count` matching frames are captured. Returns all that match."""
        what = f"{count} x {what or 'a matching frame'} on {self.interface}"

        def enough() -> list[Frame]:
            found = self.frames(matching)
            return found if len(found) >= count else []

        return wait_until(enough, deadline, what)

    def clear(self) -> None:
        """Discards the frames captured so far."""
        self._take_in()
        self._frames.clear()

    def write_pcap(self, path: Path) -> None:
        """Writes the captured frames to a pcap file."""
        with path.open("wb") as file:
            file.write(struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
            for frame in self._frames:
                seconds, fraction = divmod(frame.time, 1)
                size = len(frame.data)
                file.write(struct.pack("=IIII", int(seconds), int(fraction * 1e6), size, size))
                file.write(frame.data)

    def _check_for_loss(self) -> None:
        if self._socket.fileno() >= 0:
            statistics = self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)
            self.dropped += struct.unpack("=II", statistics)[1]  # a read resets them
        if self.dropped:
            raise AssertionError(f"the capture on {self.interface} lost {self.dropped} frames")

    def stop(self) -> None:
        """Reads all frames that are waiting in the socket, then stops the capture."""
        self._stop.set()
        self._thread.join()
        self._take_in()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _with_vlan_tag(data: bytes, control: list[tuple[int, int, bytes]]) -> bytes:
    """Inserts the frame's VLAN tag. The kernel strips the tag and delivers it as ancillary data."""
    for level, kind, auxiliary in control:
        if level == SOL_PACKET and kind == PACKET_AUXDATA:
            status, _, _, _, _, tci, tpid = _AUXDATA.unpack_from(auxiliary)
            if status & TP_STATUS_VLAN_VALID:
                return data[:12] + struct.pack("!HH", tpid or 0x8100, tci) + data[12:]
    return data
