# SPDX-License-Identifier: Apache-2.0
"""Creates the network namespace of the switch, and the veth pairs that are the switch's ports.

Frames of a network card are redirected into the switch's end of a pair (`bpf_redirect_peer`), which
works only between namespaces. In a namespace of its own, the switch's interfaces are also out of
reach of the host's programs. The namespace has no name. So it ends when the switch ends for any
reason, and the pairs end with it.

Needs CAP_SYS_ADMIN. Linux only (network_namespaces(7)).
"""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from pathlib import Path

from sluice.sources.interface_settings import PROC
from sluice.sources.links import ask
from sluice.sources.namespace import CLONE_NEWNET
from sluice.wire.netlink import NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, U32, attribute
from sluice.wire.rtnetlink import (
    IFF_UP,
    IFINFOMSG,
    IFLA_IFNAME,
    IFLA_INFO_DATA,
    IFLA_INFO_KIND,
    IFLA_LINKINFO,
    IFLA_MTU,
    RTM_NEWLINK,
)

IFLA_NET_NS_FD = 28
VETH_INFO_PEER = 1
TAG_LENGTH = 4
_libc = ctypes.CDLL(None, use_errno=True)


class SwitchNamespace:
    """Holds a descriptor of the namespace until `close`."""

    def __init__(self) -> None:
        """Creates the namespace. Raises OSError."""
        self._descriptor = -1
        failure: list[OSError] = []

        def make() -> None:
            # unshare(2) moves only the calling thread.
            if _libc.unshare(CLONE_NEWNET) != 0:
                code = ctypes.get_errno()
                failure.append(OSError(code, f"a network namespace: {os.strerror(code)}"))
            else:
                here = Path("/proc/thread-self/ns/net")
                self._descriptor = os.open(here, os.O_RDONLY | os.O_CLOEXEC)

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        if failure:
            raise failure[0]

    def add_port(self, name: str, inside: str, mtu: int) -> int:
        """Creates a veth pair: `name` on the host, `inside` in the namespace. Returns the index of
        the host's end. Raises OSError."""
        size = attribute(IFLA_MTU, U32.pack(mtu + TAG_LENGTH))
        peer = IFINFOMSG.pack(0, 0, 0, 0, 0, 0) + attribute(IFLA_IFNAME, inside.encode() + b"\0")
        peer += size + attribute(IFLA_NET_NS_FD, U32.pack(self._descriptor))
        info = attribute(IFLA_INFO_KIND, b"veth")
        info += attribute(IFLA_INFO_DATA, attribute(VETH_INFO_PEER, peer))
        body = IFINFOMSG.pack(0, 0, 0, 0, 0, 0) + attribute(IFLA_IFNAME, name.encode() + b"\0")
        body += size + attribute(IFLA_LINKINFO, info)
        ask(RTM_NEWLINK, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, body, name)
        index = socket.if_nametoindex(name)
        ipv6 = PROC / "ipv6" / "conf" / name / "disable_ipv6"
        if ipv6.exists():
            ipv6.write_text("1")
        ask(RTM_NEWLINK, NLM_F_ACK, IFINFOMSG.pack(0, 0, 0, index, IFF_UP, IFF_UP), name)
        return index

    def enter(self) -> None:
        """Moves the calling thread into the namespace. Meant for a process that then calls exec."""
        if _libc.setns(self._descriptor, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")

    def close(self) -> None:
        """Closes the descriptor."""
        os.close(self._descriptor)
