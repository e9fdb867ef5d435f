# SPDX-License-Identifier: Apache-2.0
"""Records byte streams of real peers, which tests replay as golden inputs.

A recording is a file of records. A record is a big-endian u64 (nanoseconds since the start of the
recording), a u32 length and the bytes of one read. So a replay can divide the bytes into reads as
the peer did, or differently.
"""

import contextlib
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from sluice_testkit.namespaces import Namespace

_RECORD = struct.Struct("!QI")
READ_SIZE = 65536
NETLINK_ROUTE = 0
NETLINK_LISTEN_GROUPS = {
    "link": 1 << 0,
    "neighbor": 1 << 2,
    "ipv4_address": 1 << 4,
    "ipv4_route": 1 << 6,
    "ipv6_address": 1 << 8,
    "ipv6_route": 1 << 10,
}


def read_recording(path: Path) -> Iterator[tuple[float, bytes]]:
    """Yields each record of a recording: seconds since the start of the recording, and bytes."""
    data = path.read_bytes()
    offset = 0
    while offset < len(data):
        nanoseconds, length = _RECORD.unpack_from(data, offset)
        offset += _RECORD.size
        if offset + length > len(data):
            raise ValueError(f"{path}: record at byte {offset} is cut short")
        yield nanoseconds / 1e9, data[offset : offset + length]
        offset += length


class _Recorder:
    """Writes the bytes that arrive on a socket to a file, in a separate thread."""

    def __init__(self, source: socket.socket, path: Path):
        self.path = path
        self.bytes = 0
        self._source = source
        self._stop = threading.Event()
        self._started = time.monotonic_ns()
        self._file = path.open("wb")
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"record-{path.name}")
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            stream = self._next_stream()
            while stream is not None and not self._stop.is_set():
                if not select.select([stream], [], [], 0.05)[0]:
                    continue
                data = stream.recv(READ_SIZE)
                if not data:
                    break
                self._file.write(_RECORD.pack(time.monotonic_ns() - self._started, len(data)))
                self._file.write(data)
                self._file.flush()
                self.bytes += len(data)

    def _next_stream(self) -> socket.socket | None:
        return self._source

    def stop(self) -> None:
        """Ends the recording."""
        self._stop.set()
        self._thread.join()
        self._source.close()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class FpmRecorder(_Recorder):
    """Acts as zebra's FPM server. Records the bytes that zebra sends, also after zebra
    reconnects.
    """

    def __init__(self, namespace: Namespace, path: Path, port: int = 2620):
        listener = namespace.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        super().__init__(listener, path)

    def _next_stream(self) -> socket.socket | None:
        if not select.select([self._source], [], [], 0.05)[0]:
            return None
        with contextlib.suppress(OSError):
            return self._source.accept()[0]
        return None


class NetlinkRecorder(_Recorder):
    """Records rtnetlink notifications of a namespace: links, addresses, neighbours, routes."""

    def __init__(self, namespace: Namespace, path: Path, groups: int | None = None):
        listener = namespace.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_ROUTE)
        listener.bind((0, sum(NETLINK_LISTEN_GROUPS.values()) if groups is None else groups))
        super().__init__(listener, path)
