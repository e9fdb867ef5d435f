# SPDX-License-Identifier: Apache-2.0
"""Queries and changes single network devices synchronously (rtnetlink(7)).

Depends on wire.
"""

from __future__ import annotations

import errno
import os
import socket
from struct import Struct
from typing import NamedTuple

from sluice.sources.netlink_socket import NetlinkSocket
from sluice.wire.netlink import (
    NLM_F_ACK,
    NLM_F_CREATE,
    NLM_F_DUMP,
    NLM_F_REPLACE,
    NLM_F_REQUEST,
    NLMSG_DONE,
    NLMSG_ERROR,
    U32,
    Message,
    attribute,
    attributes,
    fixed,
    message,
    messages,
)
from sluice.wire.rtnetlink import (
    IFINFOMSG,
    IFLA_IFNAME,
    IFLA_INFO_DATA,
    IFLA_LINKINFO,
    RTM_DELLINK,
    RTM_GETLINK,
    decode_error,
)

IFLA_QDISC = 6
# linux/if_link.h. The kernel reports the numbers of queues only for a TAP with IFF_MULTI_QUEUE.
IFLA_TUN_OWNER = 1
IFLA_TUN_NUM_QUEUES, IFLA_TUN_NUM_DISABLED_QUEUES = 8, 9

RTM_NEWQDISC = 36
TCA_KIND = 1
TC_H_ROOT = 0xFFFFFFFF
# struct tcmsg: family, pad, pad, ifindex, handle, parent, info
TCMSG = Struct("=BBHiIII")
NO_QUEUEING = b"noqueue\0"


class Queues(NamedTuple):
    """Holds how many queues of a TAP are attached, and how many are open but detached."""

    attached: int
    detached: int


def queues_of(name: str) -> Queues:
    """Returns how many queues a TAP has. Raises OSError; ENODEV if there is no such TAP."""
    data = _kind_data(name)
    if IFLA_TUN_NUM_QUEUES not in data:
        raise OSError(errno.ENODEV, "is not a TAP with several queues", name)
    counts = (
        fixed(data.get(kind, bytes(4)), "IFLA_TUN_NUM_QUEUES", U32, 0)
        for kind in (IFLA_TUN_NUM_QUEUES, IFLA_TUN_NUM_DISABLED_QUEUES)
    )
    return Queues(*counts)


def owner_of(name: str) -> int | None:
    """Returns the user who may open a TAP without CAP_NET_ADMIN, or None if every user may.

    Raises OSError.
    """
    owner = _kind_data(name).get(IFLA_TUN_OWNER)
    return None if owner is None else fixed(owner, "IFLA_TUN_OWNER", U32, 0)


def remove(name: str) -> None:
    """Removes a network device. Its open queues become useless. Raises OSError."""
    ask(RTM_DELLINK, NLM_F_ACK, _link(name), name)


def remove_queueing(name: str) -> None:
    """Removes a network device's queueing discipline and the packets in it.

    The device stays up. Does nothing if the device has no queueing discipline, because a change
    loses the packets sent meanwhile. Raises OSError.
    """
    if _properties(name).get(IFLA_QDISC) != NO_QUEUEING:
        flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE
        root = TCMSG.pack(0, 0, 0, socket.if_nametoindex(name), 0, TC_H_ROOT, 0)
        ask(RTM_NEWQDISC, flags, root + attribute(TCA_KIND, NO_QUEUEING), name)


def _properties(name: str) -> dict[int, bytes]:
    (answer,) = ask(RTM_GETLINK, 0, _link(name), name)
    return attributes(answer.body, IFINFOMSG.size)


def _kind_data(name: str) -> dict[int, bytes]:
    """Returns the driver-specific attributes of a network device (IFLA_INFO_DATA)."""
    info = attributes(_properties(name).get(IFLA_LINKINFO, b""), 0)
    return attributes(info.get(IFLA_INFO_DATA, b""), 0)


def _link(name: str) -> bytes:
    return IFINFOMSG.pack(0, 0, 0, 0, 0, 0) + attribute(IFLA_IFNAME, name.encode() + b"\0")


def ask(kind: int, flags: int, body: bytes, what: str) -> list[Message]:
    """Sends one request and returns the kernel's answer, or all messages of a dump.

    Does not block, because the kernel has answered when `send` returns. Raises OSError, which names
    `what`.
    """
    answers: list[Message] = []
    opened = NetlinkSocket(receive_buffer=1 << 20)
    try:
        sequence = opened.next_sequence()
        opened.send(message(kind, NLM_F_REQUEST | flags, sequence, body))
        while datagram := opened.receive():
            for answer in messages(datagram):
                if answer.sequence != sequence:
                    continue
                if answer.type == NLMSG_ERROR:
                    code, _ = decode_error(answer.body, 0)
                    if code:
                        raise OSError(code, os.strerror(code), what)
                if answer.type == NLMSG_DONE:
                    return answers
                answers.append(answer)
            if answers and flags & NLM_F_DUMP != NLM_F_DUMP:
                return answers
    finally:
        opened.close()
    raise OSError(errno.EPROTO, "the kernel did not answer", what)
