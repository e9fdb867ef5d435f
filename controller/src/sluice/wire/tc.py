# SPDX-License-Identifier: Apache-2.0
"""Encodes traffic control requests: a `clsact` qdisc, and BPF filters on it (linux/pkt_cls.h).

Filters of `sluice up` are recognized by preference, handle and name. Depends on wire.netlink.
"""

from __future__ import annotations

import sys
from enum import IntEnum

from sluice.wire.host_links import TCA_KIND, TCMSG
from sluice.wire.netlink import U32, attribute, attributes

RTM_NEWQDISC, RTM_DELQDISC = 36, 37
RTM_NEWTFILTER, RTM_DELTFILTER, RTM_GETTFILTER = 44, 45, 46
CLSACT, CLSACT_HANDLE = 0xFFFFFFF1, 0xFFFF0000
PREFERENCE, HANDLE = 1, 0x52
ALL_PROTOCOLS = int.from_bytes(b"\x00\x03", sys.byteorder)
"""ETH_P_ALL in network order, as a number of this machine."""
TCA_OPTIONS = 2
TCA_BPF_FD, TCA_BPF_NAME, TCA_BPF_FLAGS, TCA_BPF_FLAGS_GEN = 6, 7, 8, 9
DIRECT_ACTION, SKIP_HARDWARE = 1, 1
NAME = b"sluice-up\0"


class Hook(IntEnum):
    """Hooks of a `clsact` qdisc, with the parents of their filters as values."""

    INGRESS = 0xFFFFFFF2
    EGRESS = 0xFFFFFFF3


def clsact(ifindex: int) -> bytes:
    """Encodes the `clsact` qdisc of an interface."""
    body = TCMSG.pack(0, 0, 0, ifindex, CLSACT_HANDLE, CLSACT, 0)
    return body + attribute(TCA_KIND, b"clsact\0")


def bpf_filter(ifindex: int, hook: Hook, program: int) -> bytes:
    """Encodes a filter that runs a program, given by its descriptor, on each frame."""
    options = (
        attribute(TCA_BPF_FD, U32.pack(program))
        + attribute(TCA_BPF_NAME, NAME)
        + attribute(TCA_BPF_FLAGS, U32.pack(DIRECT_ACTION))
        + attribute(TCA_BPF_FLAGS_GEN, U32.pack(SKIP_HARDWARE))
    )
    return _filter(ifindex, hook) + attribute(TCA_KIND, b"bpf\0") + attribute(TCA_OPTIONS, options)


def filters(ifindex: int, hook: Hook) -> bytes:
    """Encodes the body of a dump request for the filters of a hook."""
    return TCMSG.pack(0, 0, 0, ifindex, 0, hook, 0)


def _filter(ifindex: int, hook: Hook) -> bytes:
    info = PREFERENCE << 16 | ALL_PROTOCOLS
    return TCMSG.pack(0, 0, 0, ifindex, HANDLE, hook, info)


def is_ours(body: bytes) -> bool:
    """Returns whether a filter was added by `sluice up`."""
    options = attributes(attributes(body, TCMSG.size).get(TCA_OPTIONS, b""), 0)
    return options.get(TCA_BPF_NAME) == NAME
