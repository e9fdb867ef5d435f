# SPDX-License-Identifier: Apache-2.0
"""Sends empty datagrams to neighbours, so that the kernel resolves or confirms their entries.

The kernel treats the neighbour's entry as for any packet: it confirms a stale entry, resolves a
failed entry again, and leaves a permanent or NOARP entry unchanged. This holds even if the
controller's knowledge of the entry is out of date. A netlink request would not be as safe:
RTM_NEWNEIGH with NTF_USE removes PERMANENT and NTF_EXT_LEARNED from an entry (since Linux 5.16).

The datagrams must not leave the host. The reader of the host interfaces drops the frames that
`is_probe` recognizes by source port, from which no other socket of this host can send. If the
interfaces are network cards (`sluice up`), the datagrams have a mark, and a filter on the card
drops frames with this mark.
"""

from __future__ import annotations

import socket
from struct import Struct

from sluice.model import Address, format_address

ETHERTYPE_IPV4, ETHERTYPE_IPV6 = b"\x08\x00", b"\x86\xdd"
IPV4_WITHOUT_OPTIONS, UDP = b"\x45", b"\x11"
DISCARD_PORT = 9
UDP_HEADER = Struct("!HHH")
"""Ports and length. The length is 8, since there is no data."""
IP_PKTINFO = 8
# struct in_pktinfo: interface, source, destination
IN_PKTINFO = Struct("=i4s4s")
# struct in6_pktinfo: source, interface
IN6_PKTINFO = Struct("=16sI")
IPV4_UNSPECIFIED, IPV6_UNSPECIFIED = bytes(4), bytes(16)
SO_SNDBUFFORCE = 32
SEND_BUFFER = 4 << 20
"""Size of the buffer for datagrams that wait for resolution, in bytes. With the kernel's overhead,
a datagram takes about 1 KB."""


class NeighborProbe:
    """Holds one UDP socket for each address family, in the caller's network namespace."""

    def __init__(self, mark: int = 0) -> None:
        """`mark`: the mark (SO_MARK) of the datagrams, or 0."""
        self._sockets: dict[int, socket.socket] = {}
        # First six bytes of a probe's UDP header, by address length in octets.
        self._headers: dict[int, bytes] = {}
        for size, family in ((4, socket.AF_INET), (16, socket.AF_INET6)):
            try:
                self._sockets[size] = _open(family, mark)
            except OSError:  # without IPv6, there are no IPv6 neighbours
                continue
            port = self._sockets[size].getsockname()[1]
            self._headers[size] = UDP_HEADER.pack(port, DISCARD_PORT, 8)

    def send(self, ifindex: int, address: Address) -> None:
        """Sends a datagram to a neighbour on the interface.

        Raises OSError: ENETUNREACH if an IPv6 neighbour is not on a prefix of the interface.
        """
        size = len(address)
        if size not in self._sockets:
            return
        if size == 4:
            where = IN_PKTINFO.pack(ifindex, IPV4_UNSPECIFIED, IPV4_UNSPECIFIED)
            control = (socket.IPPROTO_IP, IP_PKTINFO, where)
        else:
            where = IN6_PKTINFO.pack(IPV6_UNSPECIFIED, ifindex)
            control = (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO, where)
        # With MSG_DONTROUTE, the kernel treats an IPv4 neighbour outside all prefixes as on-link.
        flags = socket.MSG_DONTROUTE | socket.MSG_DONTWAIT
        to = (format_address(address), DISCARD_PORT)
        self._sockets[size].sendmsg([b""], [control], flags, to)

    def is_probe(self, frame: bytes) -> bool:
        """Returns whether a frame of the host is a probe that this object has sent."""
        if frame[12:14] == ETHERTYPE_IPV4 and frame[14:15] == IPV4_WITHOUT_OPTIONS:
            protocol, udp, size = frame[23:24], 34, 4
            if frame[20] & 0x1F or frame[21]:  # a later fragment
                return False
        elif frame[12:14] == ETHERTYPE_IPV6:
            protocol, udp, size = frame[20:21], 54, 16
        else:
            return False
        return protocol == UDP and frame[udp : udp + 6] == self._headers.get(size)

    def close(self) -> None:
        """Closes the sockets; idempotent."""
        for opened in self._sockets.values():
            opened.close()


def _open(family: int, mark: int) -> socket.socket:
    opened = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    try:
        if mark:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, mark)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 0)  # never read
        try:
            opened.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, SEND_BUFFER)
        except PermissionError:  # without CAP_NET_ADMIN, the limit is net.core.wmem_max
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        opened.bind(("", 0))
    except OSError:
        opened.close()
        raise
    return opened
