# SPDX-License-Identifier: Apache-2.0
"""Counts the open queues of a TAP, by the kernel's account (rtnetlink(7)), and removes a TAP.

A TAP is made by one system call and given its owner by the next. In between every local user may
open a queue of it where /dev/net/tun is open to all, and keeps that for as long as the TAP lives.
Depends on wire.
"""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

from sluice.sources.netlink_socket import NetlinkSocket
from sluice.wire.netlink import (
    NLM_F_ACK,
    NLM_F_REQUEST,
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
    IFLA_LINKINFO,
    RTM_DELLINK,
    RTM_GETLINK,
    decode_error,
)

IFLA_INFO_DATA = 2
# linux/if_link.h; both are there for a TAP of IFF_MULTI_QUEUE.
IFLA_TUN_NUM_QUEUES, IFLA_TUN_NUM_DISABLED_QUEUES = 8, 9


class Queues(NamedTuple):
    """How many queues of a TAP are attached, and how many are open and detached."""

    attached: int
    detached: int


def queues_of(name: str) -> Queues:
    """The queues of a TAP. Raises OSError; ENODEV where there is no such TAP."""
    answer = _ask(RTM_GETLINK, NLM_F_REQUEST, name)
    links = attributes(answer.body, IFINFOMSG.size)
    info = attributes(links.get(IFLA_LINKINFO, b""), 0)
    data = attributes(info.get(IFLA_INFO_DATA, b""), 0)
    if IFLA_TUN_NUM_QUEUES not in data:
        raise OSError(errno.ENODEV, "is no TAP of several queues", name)
    counts = (
        fixed(data.get(kind, bytes(4)), "IFLA_TUN_NUM_QUEUES", U32, 0)
        for kind in (IFLA_TUN_NUM_QUEUES, IFLA_TUN_NUM_DISABLED_QUEUES)
    )
    return Queues(*counts)


def remove(name: str) -> None:
    """Removes a network device; its queues lead nowhere from then on. Raises OSError."""
    _ask(RTM_DELLINK, NLM_F_REQUEST | NLM_F_ACK, name)


def _ask(kind: int, flags: int, name: str) -> Message:
    """The kernel's answer about one link, which it gives before `send` returns."""
    opened = NetlinkSocket(receive_buffer=1 << 16)
    try:
        sequence = opened.next_sequence()
        body = IFINFOMSG.pack(0, 0, 0, 0, 0, 0) + attribute(IFLA_IFNAME, name.encode() + b"\0")
        opened.send(message(kind, flags, sequence, body))
        for answer in messages(opened.receive() or b""):
            if answer.sequence != sequence:
                continue
            if answer.type == NLMSG_ERROR:
                code, _ = decode_error(answer.body, 0)
                if code:
                    raise OSError(code, os.strerror(code), name)
            return answer
    finally:
        opened.close()
    raise OSError(errno.EPROTO, "the kernel gives no answer", name)
