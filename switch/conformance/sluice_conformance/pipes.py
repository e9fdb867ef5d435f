# SPDX-License-Identifier: Apache-2.0
"""Ports of a switch as pcap streams: named pipes in, files out.

Depends on nothing. A frame that was written counts as taken once the pipe is
empty again; then the switch has it.
"""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from pathlib import Path

_FILE_HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
_ORDERS = {0xA1B2C3D4: "<", 0xD4C3B2A1: ">"}


class InputPipe:
    """The pcap stream that a port reads.

    Open at both ends from the start, so that neither side waits for the other to open it.
    """

    def __init__(self, path: Path):
        os.mkfifo(path)
        self._fd: int | None = os.open(path, os.O_RDWR)
        os.write(self._fd, _FILE_HEADER)

    def write(self, stamp: int, frame: bytes) -> None:
        """Send a frame, stamped in microseconds."""
        assert self._fd is not None, "the pipe is closed"
        seconds, micros = divmod(stamp, 1_000_000)
        header = struct.pack("<IIII", seconds, micros, len(frame), len(frame))
        os.write(self._fd, header + frame)

    def taken(self) -> bool:
        """True if the switch has read all that was written."""
        if self._fd is None:
            return True
        waiting = fcntl.ioctl(self._fd, termios.FIONREAD, struct.pack("i", 0))
        return bool(struct.unpack("i", waiting)[0] == 0)

    def close(self) -> None:
        """End of the stream; harmless when done twice."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def frames(path: Path) -> list[bytes]:
    """The complete frames of a pcap file that is perhaps still being written."""
    data = path.read_bytes() if path.exists() else b""
    if len(data) < len(_FILE_HEADER):
        return []
    order = _ORDERS.get(struct.unpack_from("<I", data)[0])
    if order is None:
        raise ValueError(f"{path} is not a pcap file")
    found = []
    at = len(_FILE_HEADER)
    while at + 16 <= len(data):
        length: int = struct.unpack_from(f"{order}I", data, at + 8)[0]
        if at + 16 + length > len(data):
            break
        found.append(data[at + 16 : at + 16 + length])
        at += 16 + length
    return found
