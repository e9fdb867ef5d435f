# SPDX-License-Identifier: Apache-2.0
"""Tells the service manager that the controller is ready, alive, or leaving (sd_notify(3)).

`ServiceManager.from_environment` is silent where no manager listens. `keep_informed` runs on the
event loop: a loop that hangs gives no sign of life. Depends on asyncio only.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Mapping

log = logging.getLogger(__name__)


class ServiceManager:
    """The manager at a Unix datagram socket; None tells nobody anything.

    `interval` is the time in seconds between two signs of life, None for no such signs.
    """

    def __init__(self, address: str | None, interval: float | None = None) -> None:
        self._address = None if address is None else _path(address)
        self.interval = interval

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> ServiceManager:
        """Returns the manager that the environment names; signs of life come twice in its time."""
        address = environment.get("NOTIFY_SOCKET")
        if not address:
            return cls(None)
        microseconds = environment.get("WATCHDOG_USEC", "")
        watched = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        if not watched or not microseconds.isdecimal() or int(microseconds) == 0:
            return cls(address)
        return cls(address, int(microseconds) / 1e6 / 2)

    def tell(self, state: str) -> None:
        """Tells assignments, one a line. A manager that does not hear is logged, no more."""
        if self._address is None:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as out:
            try:
                out.sendto(state.encode(), self._address)
            except OSError as error:
                log.warning("the service manager does not hear %r: %s", state, error.strerror)

    async def keep_informed(self) -> None:
        """Gives signs of life until it is cancelled."""
        while self.interval is not None:
            self.tell("WATCHDOG=1")
            await asyncio.sleep(self.interval)


def _path(address: str) -> str:
    """The name of an abstract socket begins with a zero byte."""
    return "\0" + address[1:] if address.startswith("@") else address
