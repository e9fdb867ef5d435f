# SPDX-License-Identifier: Apache-2.0
"""Network devices, asked about directly (netdevice(7)), and who of us has which."""

from __future__ import annotations

import errno
import fcntl
import socket
from struct import Struct

from sluice.sources.silence import silence

SIOCGIFFLAGS = 0x8913
IFF_UP, IFF_RUNNING = 0x1, 0x40
# struct ifreq: name, flags, the rest of the union
IFREQ = Struct("=16sH22x")


class Devices:
    """The network devices of the namespace that the process is in, by name."""

    def __init__(self) -> None:
        self._claims: dict[str, socket.socket] = {}

    def claim(self, name: str) -> None:
        """Claims a device for this process, until `release`, `close`, or the process ends.

        Several processes may open one TAP; two controllers must not. Raises OSError (EBUSY) when
        another has claimed it.
        """
        # Names of abstract Unix sockets are, like device names, a network namespace's own.
        token = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            token.bind(f"\0sluice/interface/{name}")
        except OSError as error:
            token.close()
            if error.errno != errno.EADDRINUSE:
                raise
            raise OSError(errno.EBUSY, "another controller has this interface", name) from error
        self._claims[name] = token

    def release(self, name: str) -> None:
        """Gives up a claim."""
        self._claims.pop(name).close()

    def close(self) -> None:
        """Gives up all claims."""
        while self._claims:
            self._claims.popitem()[1].close()

    def silence(self, name: str) -> None:
        """See sources.silence."""
        silence(name)

    def has_carrier(self, name: str) -> bool:
        """Whether a device of this name is there, up, and has a carrier."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            try:
                answer = fcntl.ioctl(control, SIOCGIFFLAGS, IFREQ.pack(name.encode(), 0))
            except OSError:  # ENODEV: not there yet
                return False
        flags: int = IFREQ.unpack(answer)[1]
        return flags & (IFF_UP | IFF_RUNNING) == IFF_UP | IFF_RUNNING
