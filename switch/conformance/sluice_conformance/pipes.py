# SPDX-License-Identifier: Apache-2.0
"""Provides ports of a switch as pcap streams: the switch reads named pipes and writes files.

Needs only the standard library. The switch has read a frame when the pipe is empty again.
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
    """The pcap stream from which a port reads.

    Opens the pipe for both reading and writing. So neither this process nor the switch has to wait
    until the other has opened it.
    """

    def __init__(self, path: Path):
        os.mkfifo(path)
        self._fd: int | None = os.open(path, os.O_RDWR)
        os.write(self._fd, _FILE_HEADER)

    def write(self, stamp: int, frame: bytes) -> None:
        """Sends a frame with a time stamp in microseconds."""
        assert self._fd is not None, "the pipe is closed"
        seconds, micros = divmod(stamp, 1_000_000)
        header = struct.pack("<IIII", seconds, micros, len(frame), len(frame))
        os.write(self._fd, header + frame)

    def taken(self) -> bool:
        """Returns whether the switch has read all that was written."""
        if self._fd is None:
            return True
        waiting = fcntl.ioctl(self._fd, termios.FIONREAD, struct.pack("i", 0))
        return bool(struct.unpack("i", waiting)[0] == 0)

    def close(self) -> None:
        """Ends the stream. Calling it twice does no harm."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def frames(path: Path) -> list[bytes]:
    """Returns the complete frames of a pcap file, which may still be growing."""
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
