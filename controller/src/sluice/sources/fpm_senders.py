# SPDX-License-Identifier: Apache-2.0
"""Distinguishes FPM messages of the session's network namespace from messages of other namespaces.

A zebra with `-n` has a network namespace for each VRF. It sends the routes of all namespaces as
routes of the main table, with the interface indexes of their own namespace. If these routes were
used for the default VRF, packets of the default VRF would leave in another VRF. zebra uses one
netlink socket for each namespace, and writes the port of that socket into each FPM message
(nlmsg_pid). The kernel lists the ports of a namespace's sockets in /proc/net/netlink.

A peer other than zebra may write any value to nlmsg_pid. So all senders are accepted until one of
them is found to have a socket in the session's namespace. From then on, only senders with such a
socket are accepted. Depends only on the standard library.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path

SENDER = slice(12, 16)
"""Position of the first message's nlmsg_pid in a payload. All messages of a payload concern one
route."""
SOCKETS = Path("/proc/thread-self/net/netlink")
NETLINK_ROUTE = "0"
REMEMBERED = 64


class SenderVerdict(Enum):
    """Verdicts on a message. TAKEN: accepted. FOREIGN: refused, because it is of another
    namespace."""

    TAKEN = 0
    FOREIGN = 1
    MISLED = 2
    """The message is of the session's namespace, but earlier accepted messages were of another one.
    The caller must forget the routes of those messages."""


def is_port_here(port: int) -> bool:
    """Returns whether a program in the calling thread's namespace uses this NETLINK_ROUTE port.

    Returns False for port 0, the kernel's own port, and if /proc/net/netlink cannot be read.
    """
    try:
        lines = SOCKETS.read_text(encoding="ascii").splitlines()
    except OSError:
        return False
    for line in lines[1:] if port else ():
        _, protocol, found, *_ = line.split()
        if protocol == NETLINK_ROUTE and int(found) == port:
            return True
    return False


class Senders:
    """Tracks the senders of one FPM source, over several sessions."""

    def __init__(self, is_here: Callable[[int], bool] = is_port_here) -> None:
        self._is_here = is_here
        self._taken: set[bytes] = set()
        self._foreign: set[bytes] = set()
        self._here = False
        """Whether an accepted sender has a socket in this namespace."""
        self.left_out = 0
        """Payloads of this session that were not accepted."""

    def begin(self) -> None:
        """Starts a session. Senders that were found to belong to another namespace stay refused."""
        self._taken, self._here = set(), False
        self.left_out = 0

    def check(self, payload: bytes) -> SenderVerdict:
        """Returns the verdict on a payload's messages, and counts a payload that is left out."""
        verdict = self._check(payload[SENDER])
        self.left_out += verdict is not SenderVerdict.TAKEN
        return verdict

    def _check(self, sender: bytes) -> SenderVerdict:
        if sender in self._taken:
            return SenderVerdict.TAKEN
        if sender in self._foreign:
            return SenderVerdict.FOREIGN
        here = self._is_here(int.from_bytes(sender, sys.byteorder))
        if self._here and not here:
            self._leave_out({sender})
            return SenderVerdict.FOREIGN
        if here and not self._here:
            self._here, misled, self._taken = True, self._taken, {sender}
            self._leave_out(misled)
            return SenderVerdict.MISLED if misled else SenderVerdict.TAKEN
        if len(self._taken) >= REMEMBERED:
            self._taken = set()
        self._taken.add(sender)
        return SenderVerdict.TAKEN

    def _leave_out(self, senders: set[bytes]) -> None:
        if len(self._foreign) >= REMEMBERED:
            self._foreign = set()
        self._foreign |= senders
