# SPDX-License-Identifier: Apache-2.0
"""Runs a proxy between zebra and the FPM server. The proxy can cut the connection inside a message.

It runs in a thread of the test, with its sockets in the router's namespace. Only zebra sends
messages, so the proxy parses only this direction. An FPM message begins with version, type and
length.
"""

import contextlib
import select
import socket
import struct
import threading
from types import TracebackType
from typing import Self

from sluice_testkit.namespaces import Namespace
from sluice_testkit.wait import wait_until

HEADER = struct.Struct("!BBH")
READ_SIZE = 65536


class FpmCutter:
    """Listens at `port` for zebra. Connects each session to the FPM server at port `server`."""

    def __init__(self, place: Namespace, port: int, server: int) -> None:
        self._place = place
        self._server = server
        self._listener = place.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", port))
        self._listener.listen()
        self._lock = threading.Lock()
        self._cuts: list[int] = []
        self.cuts_made = 0
        self.frames = 0
        """Number of complete messages that were passed on."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="fpm-cutter")

    def cut_after(self, *frames: int) -> None:
        """Cuts the connection inside a message, after `frames[0]` more messages.

        Each further number cuts one later session. It counts messages from the start of that
        session.
        """
        with self._lock:
            self._cuts = list(frames)

    def wait_for_cuts(self, count: int, deadline: float = 30.0) -> None:
        """Waits until the proxy has made `count` cuts since its start."""
        wait_until(lambda: self.cuts_made >= count, deadline, f"{count} cuts of FPM")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        while not self._over.is_set():
            if select.select([self._listener], [], [], 0.05)[0]:
                with self._listener.accept()[0] as zebra:
                    self._serve(zebra)

    def _serve(self, zebra: socket.socket) -> None:
        """Relays one session of zebra, until one end closes it or the test cuts it."""
        with (
            self._place.socket(socket.AF_INET, socket.SOCK_STREAM) as server,
            contextlib.suppress(OSError),  # no controller: zebra has to retry
        ):
            server.connect(("127.0.0.1", self._server))
            self._pass_on(zebra, server)

    def _pass_on(self, zebra: socket.socket, server: socket.socket) -> None:
        waiting = b""
        while not self._over.is_set():
            ready = select.select([zebra, server], [], [], 0.05)[0]
            if server in ready and not server.recv(READ_SIZE):
                return
            if zebra not in ready:
                continue
            data = zebra.recv(READ_SIZE)
            if not data:
                return
            whole, waiting, is_cut = self._divide(waiting + data)
            server.sendall(whole)
            if is_cut:
                return

    def _divide(self, data: bytes) -> tuple[bytes, bytes, bool]:
        """Returns the bytes to pass on, the bytes of an incomplete message, and whether to cut the
        connection.

        To cut, the bytes to pass on end with half a message.
        """
        end = 0
        with self._lock:
            while len(data) - end >= HEADER.size:
                length = HEADER.unpack_from(data, end)[2]
                if self._cuts and self._cuts[0] <= 0:
                    self._cuts.pop(0)
                    self.cuts_made += 1
                    return data[: end + length // 2], b"", True
                if len(data) - end < length:
                    break
                end += length
                self.frames += 1
                if self._cuts:
                    self._cuts[0] -= 1
        return data[:end], data[end:], False
