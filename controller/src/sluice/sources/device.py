# SPDX-License-Identifier: Apache-2.0
"""The state of a network device, asked for directly (netdevice(7))."""

from __future__ import annotations

import fcntl
import socket
from struct import Struct

SIOCGIFFLAGS = 0x8913
IFF_UP, IFF_RUNNING = 0x1, 0x40
# struct ifreq: name, flags, the rest of the union
IFREQ = Struct("=16sH22x")


def has_carrier(name: str) -> bool:
    """Whether a device of this name is there, up, and has a carrier."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        try:
            answer = fcntl.ioctl(control, SIOCGIFFLAGS, IFREQ.pack(name.encode(), 0))
        except OSError:  # ENODEV: not there yet
            return False
    flags: int = IFREQ.unpack(answer)[1]
    return flags & (IFF_UP | IFF_RUNNING) == IFF_UP | IFF_RUNNING
