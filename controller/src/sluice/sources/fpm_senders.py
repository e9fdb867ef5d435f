# SPDX-License-Identifier: Apache-2.0
"""Whose routes an FPM session brings: those of other network namespaces are told from home's.

A zebra with `-n` has a network namespace for each VRF, and sends the routes of all of them as the
main table's, with interface numbers that are another namespace's. Taken for the default VRF's, they
would lead its packets into another VRF. But zebra writes the port of the netlink socket by which it
writes a route to the kernel into each message (nlmsg_pid), and has one in each namespace. The
kernel tells the ports of a namespace's sockets (/proc/net/netlink).

Senders are believed until one of them is found to have a socket of the session's namespace: whoever
is no zebra writes what it likes there. Depends on nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path

SENDER = slice(12, 16)
"""Of a payload: nlmsg_pid of its first message. All messages of a payload are of one route."""
SOCKETS = Path("/proc/thread-self/net/netlink")
NETLINK_ROUTE = "0"
REMEMBERED = 64


class Verdict(Enum):
    """What a message is worth."""

    TAKEN = 0
    FOREIGN = 1
    MISLED = 2
    """It is home's, and what was taken before it was not: that has to be forgotten."""


def is_port_here(port: int) -> bool:
    """Whether a program's netlink socket for routes has this port, in the calling thread's
    namespace. Port 0 is the kernel's. Nothing is known where the kernel does not tell."""
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
    """The senders of one FPM source, session after session."""

    def __init__(self, is_here: Callable[[int], bool] = is_port_here) -> None:
        self._is_here = is_here
        self._taken: set[bytes] = set()
        self._foreign: set[bytes] = set()
        self._here = False
        """Whether one that was taken has a socket here."""
        self.left_out = 0
        """Payloads of this session that were not taken."""

    def begin(self) -> None:
        """A session opens. Who was found to be foreign stays so."""
        self._taken, self._here = set(), False
        self.left_out = 0

    def judge(self, payload: bytes) -> Verdict:
        """What the messages of a payload are worth."""
        verdict = self._judge(payload[SENDER])
        self.left_out += verdict is not Verdict.TAKEN
        return verdict

    def _judge(self, sender: bytes) -> Verdict:
        if sender in self._taken:
            return Verdict.TAKEN
        if sender in self._foreign:
            return Verdict.FOREIGN
        here = self._is_here(int.from_bytes(sender, sys.byteorder))
        if self._here and not here:
            self._leave_out({sender})
            return Verdict.FOREIGN
        if here and not self._here:
            self._here, misled, self._taken = True, self._taken, {sender}
            self._leave_out(misled)
            return Verdict.MISLED if misled else Verdict.TAKEN
        if len(self._taken) >= REMEMBERED:
            self._taken = set()
        self._taken.add(sender)
        return Verdict.TAKEN

    def _leave_out(self, senders: set[bytes]) -> None:
        if len(self._foreign) >= REMEMBERED:
            self._foreign = set()
        self._foreign |= senders
