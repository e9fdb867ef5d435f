# SPDX-License-Identifier: Apache-2.0
"""Notifies the service manager that the controller is ready, alive, or stopping (sd_notify(3)).

Without a service manager, `ServiceManager.from_environment` returns an object that sends nothing.
`keep_informed` runs on the event loop. So when the loop hangs, no watchdog signals are sent.
Depends on asyncio only.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Mapping

log = logging.getLogger(__name__)


class ServiceManager:
    """Sends messages to the service manager's Unix datagram socket. With address None, sends
    nothing.

    `interval` is the time between two watchdog signals, in seconds. None: no signals.
    """

    def __init__(self, address: str | None, interval: float | None = None) -> None:
        self._address = None if address is None else _path(address)
        self.interval = interval

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> ServiceManager:
        """Returns the service manager that the environment variables name.

        The interval is half of the manager's watchdog timeout.
        """
        address = environment.get("NOTIFY_SOCKET")
        if not address:
            return cls(None)
        microseconds = environment.get("WATCHDOG_USEC", "")
        watched = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        if not watched or not microseconds.isdecimal() or int(microseconds) == 0:
            return cls(address)
        return cls(address, int(microseconds) / 1e6 / 2)

    def notify(self, state: str) -> None:
        """Sends assignments, one per line. A failure to send is only logged."""
        if self._address is None:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as out:
            try:
                out.sendto(state.encode(), self._address)
            except OSError as error:
                log.warning("cannot send %r to the service manager: %s", state, error.strerror)

    async def keep_informed(self) -> None:
        """Sends watchdog signals until cancelled."""
        while self.interval is not None:
            self.notify("WATCHDOG=1")
            await asyncio.sleep(self.interval)


def _path(address: str) -> str:
    """Returns a socket's path. The name of an abstract socket (`@`) begins with a zero byte."""
    return "\0" + address[1:] if address.startswith("@") else address
