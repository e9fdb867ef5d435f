# SPDX-License-Identifier: Apache-2.0
"""Passes queues of TAPs, as file descriptors, to another process. Detaches queues.

Two processes that have the same descriptor share one queue: it is attached or detached for both
processes, and exists until both have closed it. Linux only. Uses the standard library alone, so
that the keeper process (`tap_keeper`) stays small.
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
"""Number of queues in one message. The kernel's limit is 253 descriptors (SCM_MAX_FD)."""
MESSAGE_BYTES = IN_MESSAGE * 16
"""Longest message, in bytes. A name has at most 15 bytes; a space separates two names."""
LAST = b"."
"""Text of the message after the last queues. No interface has this name."""


def send(to: socket.socket, queues: Mapping[str, int]) -> None:
    """Sends descriptors of queues and the names of their TAPs to a socket with message boundaries.

    The queues stay open from this call on, because a queued message holds them too. Raises OSError.
    """
    names = list(queues)
    for start in range(0, len(names), IN_MESSAGE):
        some = names[start : start + IN_MESSAGE]
        socket.send_fds(to, [" ".join(some).encode()], [queues[name] for name in some])
    to.send(LAST)


def receive(lifeline: socket.socket) -> dict[str, int] | None:
    """Receives the messages of `send`. Returns the descriptors by the names of TAPs.

    Returns None if the sender ended before it had sent all messages.
    """
    queues: dict[str, int] = {}
    while True:
        text, descriptors, _, _ = socket.recv_fds(lifeline, MESSAGE_BYTES, IN_MESSAGE)
        if text == LAST:
            return queues
        if not text:
            return None
        queues.update(zip(text.decode().split(), descriptors, strict=True))


def detach(queues: Iterable[int]) -> None:
    """Detaches queues, so that the kernel puts no more frames into them."""
    for queue in queues:
        with suppress(OSError):  # the queue is detached already, or the TAP was removed
            fcntl.ioctl(queue, TUNSETQUEUE, IFREQ.pack(b"", IFF_DETACH_QUEUE))
