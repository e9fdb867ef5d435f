# SPDX-License-Identifier: Apache-2.0
"""Finds the user at the other end of a loopback TCP connection through sock_diag(7).

`AllowedUsers.admit` decides whether a connection may stay. TCP has no SO_PEERCRED, but the peer's
socket is in the same network namespace, so NETLINK_SOCK_DIAG reports its owner. For the remains of
a closed socket (FIN_WAIT, TIME_WAIT), the kernel always reports root as the owner. So the owner
counts only if the socket has an inode, which means that a process still holds the socket. Depends
on wire.netlink.
"""

from __future__ import annotations

import ipaddress
import pwd
import socket
from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from sluice.wire.errors import WireError
from sluice.wire.netlink import NLM_F_REQUEST, NLMSG_ERROR, message, messages

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
ALL_STATES = 0xFFFFFFFF
NO_COOKIE = 0xFFFFFFFF
# struct inet_diag_req_v2: family, protocol, extensions, pad, states; then the socket's id
REQUEST = Struct("=BBBxI")
# struct inet_diag_sockid: ports, source, destination, interface, cookie
ID = Struct("!HH16s16s")
ID_REST = Struct("=III")
# struct inet_diag_msg: family, state, timer, retransmissions; the id; expires, queues, uid, inode
ANSWER = Struct("=BBBB")
ANSWER_REST = Struct("=IIIII")
TIMEOUT = 1.0


class Endpoint(NamedTuple):
    """Holds an IP address and a TCP port."""

    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    port: int

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """Parses ADDRESS:PORT or [ADDRESS]:PORT. Raises ValueError."""
        host, _, port = text.rpartition(":")
        return cls(ipaddress.ip_address(host.strip("[]")), int(port))


class UnknownOwner(Exception):  # noqa: N818 - an answer; the text gives the reason
    """Reports why the owner of a socket cannot be determined."""


class RefusedPeer(Exception):  # noqa: N818 - an answer; the text gives the reason
    """Reports why a connection must be closed."""


class AllowedUsers:
    """Holds the users that may connect to `here`, by name or number.

    An unknown user name is not an error, so that FRR may be installed later. It allows nobody.
    """

    def __init__(self, here: str, users: Iterable[str]) -> None:
        self._here = Endpoint.parse(here)
        self._users = tuple(users)

    def admit(self, peer: str) -> str:
        """Returns the user who connected from `peer`, an ADDRESS:PORT. Raises RefusedPeer."""
        try:
            uid = user_of(Endpoint.parse(peer), self._here)
        except (UnknownOwner, ValueError) as error:
            raise RefusedPeer(f"{peer}: its user cannot be determined: {error}") from error
        if uid not in {*map(user_number, self._users)}:
            allowed = ", ".join(self._users)
            raise RefusedPeer(f"{peer}: user {user_name(uid)} may not connect; allowed: {allowed}")
        return user_name(uid)


def user_number(user: str) -> int | None:
    """Returns the uid of a user given by number or name, or None if no user has the name."""
    if user.isascii() and user.isdigit():
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None


def user_of(peer: Endpoint, here: Endpoint) -> int:
    """Returns the uid of the process that holds the socket at `peer` of a connection to `here`.

    `peer` and `here` are addresses of this host. The process held the socket when the kernel
    answered. Raises UnknownOwner.
    """
    request = _request(peer, here)
    try:
        with socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_SOCK_DIAG
        ) as diagnosis:
            diagnosis.settimeout(TIMEOUT)
            diagnosis.sendto(request, (0, 0))
            return _user(diagnosis.recv(1 << 16), _id(peer, here))
    except (OSError, WireError) as error:
        raise UnknownOwner(f"sock_diag: {error}") from error


def _request(peer: Endpoint, here: Endpoint) -> bytes:
    family = socket.AF_INET if peer.address.version == 4 else socket.AF_INET6
    body = REQUEST.pack(family, socket.IPPROTO_TCP, 0, ALL_STATES)
    body += _id(peer, here) + ID_REST.pack(0, NO_COOKIE, NO_COOKIE)
    return message(SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, body)


def _id(peer: Endpoint, here: Endpoint) -> bytes:
    return ID.pack(peer.port, here.port, peer.address.packed, here.address.packed)


def _user(datagram: bytes, wanted: bytes) -> int:
    for answer in messages(datagram):
        if answer.type == NLMSG_ERROR:
            raise UnknownOwner("the connection is already closed")
        start = ANSWER.size + ID.size + ID_REST.size
        if answer.type != SOCK_DIAG_BY_FAMILY or len(answer.body) < start + ANSWER_REST.size:
            continue
        *_, uid, inode = ANSWER_REST.unpack_from(answer.body, start)
        found = answer.body[ANSWER.size : ANSWER.size + ID.size]
        if found == wanted and inode:
            return int(uid)
    raise UnknownOwner("no process holds the connection any more")


def user_name(uid: int) -> str:
    """Returns the name of a user, or the number if the user has no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
