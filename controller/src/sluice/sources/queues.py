# SPDX-License-Identifier: Apache-2.0
"""Queues of TAPs as open files: given to another process, and detached.

A queue that two processes have open is one queue: attached or detached for both, and there until
both have closed it. Linux only; the standard library alone, so that the keeper stays small.
"""

from __future__ import annotations

import fcntl
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from struct import Struct

TUNSETQUEUE = 0x400454D9
IFF_DETACH_QUEUE = 0x0400
# struct ifreq: name, flags, the rest of the union
IFREQ = Struct("=16sH22x")
IN_MESSAGE = 200
"""Queues in one message. The kernel takes 253 descriptors (SCM_MAX_FD)."""
MESSAGE_BYTES = IN_MESSAGE * 16
"""Names have 15 bytes at most, and there is a space between two of them."""
LAST = b"."
"""The message after the last queues. No interface has this name."""


def send(to: socket.socket, queues: Mapping[str, int]) -> None:
    """Sends descriptors of queues, by the names of their TAPs, to a socket that keeps messages
    apart. The queues stay open from then on, in the socket too. Raises OSError."""
    names = list(queues)
    for start in range(0, len(names), IN_MESSAGE):
        some = names[start : start + IN_MESSAGE]
        socket.send_fds(to, [" ".join(some).encode()], [queues[name] for name in some])
    to.send(LAST)


def receive(lifeline: socket.socket) -> dict[str, int] | None:
    """Receives what `send` sends. Returns descriptors by the names of TAPs; None where the sender
    was gone before it had sent all."""
    queues: dict[str, int] = {}
    while True:
        text, descriptors, _, _ = socket.recv_fds(lifeline, MESSAGE_BYTES, IN_MESSAGE)
        if text == LAST:
            return queues
        if not text:
            return None
        queues.update(zip(text.decode().split(), descriptors, strict=True))


def detach(queues: Iterable[int]) -> None:
    """Has the kernel give these queues no more frames."""
    for queue in queues:
        with suppress(OSError):  # it is detached, or somebody removed the TAP
            fcntl.ioctl(queue, TUNSETQUEUE, IFREQ.pack(b"", IFF_DETACH_QUEUE))
