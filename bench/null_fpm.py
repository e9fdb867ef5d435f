# SPDX-License-Identifier: Apache-2.0
"""Runs an FPM server that reads and drops everything. The benchmark of routes compares the
controller with it.

The server records the time of the last byte. zebra sends no mark at the end of a table. So the last
byte before a pause counts as the end.
"""

from __future__ import annotations

import socket
import threading
import time
from types import TracebackType
from typing import Self

from sluice_testkit.namespaces import Namespace
from sluice_testkit.wait import wait_until

CHUNK = 1 << 18


class NullFpm:
    """Listens for zebra and drops all data. Serves one connection at a time."""

    def __init__(self, namespace: Namespace, port: int):
        self._listener = namespace.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", port))
        self._listener.listen(1)
        self.connections = 0
        self.received = 0
        self.last = time.monotonic()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        buffer = bytearray(CHUNK)
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection:
                while size := connection.recv_into(buffer):
                    self.received += size
                    self.last = time.monotonic()

    def wait_quiet(self, seconds: float, deadline: float, after: float = 0.0) -> float:
        """Waits for data after the time `after`, then for a pause of `seconds` seconds.

        Returns the time of the last byte.
        """

        def quiet() -> bool:
            return self.last > after and time.monotonic() - self.last >= seconds

        wait_until(quiet, deadline, "zebra to have sent all to the null FPM reader")
        return self.last

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()
