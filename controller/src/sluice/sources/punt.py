# SPDX-License-Identifier: Apache-2.0
"""Queues punted packets. The queue is bounded, and fair between interfaces, sources and flows.

This module is the specification of the queue in native code (`native_punts`), which the daemon
uses. It is also the queue of tests that need no native session.

The pipeline's meters limit the rate of each punt reason. This queue bounds the number of packets
that wait for Python, and serves them round robin at three levels:

- Between *shares*: pairs of interface and punt reason. An interface that floods the CPU with
  packets of one reason delays neither other interfaces nor its own ARP or BGP.
- Between the sources of a share. A source is an IP address. A host that opens many flows delays
  only itself.
- Between the flows of a source. A flow that sends many packets without using the flow cache does
  not delay the source's other flows. The packets of a flow keep their order.

If a share or the whole queue is full, one packet is dropped. It comes from the full share, or from
the longest share if the whole queue is full. In this share, the longest flow of the longest source
loses its newest packet. The arriving packet is dropped instead if its own queue would be as long as
the longest. So a source with few packets always finds room. Of several longest queues, the youngest
loses the packet.

The queue keeps several packets of one flow, because each has to be forwarded. The flow itself is
written to the switch only once (`state.flow_cache`). Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from itertools import count
from typing import TypeAlias

from sluice.model import PuntedPacket

Share: TypeAlias = tuple[int, int, int]
METADATA_FIELDS = len(PuntedPacket._fields) - 1
_WHOLE = (b"\0\0", b"\x40\0")
"""IPv4 flags and fragment offset of an unfragmented packet, without and with DF."""
_FRAGMENT_HEADER = b"\x2c"
"""IPv6 next header of a fragment without other extension headers in front."""
_IPV4_FLOW = 12
"""Length of the longest key of an IPv4 flow: two addresses and two ports."""


class _Queue:
    """Holds the packets of a flow, or a ring of queues at the next level. `number` is higher for
    younger queues."""

    __slots__ = ("length", "number", "packets", "ring")

    def __init__(self, number: int) -> None:
        self.number = number
        self.length = 0
        self.packets: deque[PuntedPacket] = deque()
        self.ring: OrderedDict[object, _Queue] = OrderedDict()
        """The queues that this queue consists of. The first one is served next."""

    def longest(self) -> tuple[object, _Queue]:
        return max(self.ring.items(), key=lambda item: (item[1].length, item[1].number))

    def length_of(self, key: object) -> int:
        return self.ring[key].length if key in self.ring else 0


class PuntQueue:
    """Queues packet-ins for the controller."""

    def __init__(self, limit: int, limit_each: int | None = None) -> None:
        """`limit` bounds the whole queue. `limit_each` bounds the packets of one share.

        The default of `limit_each` is an eighth of `limit`.
        """
        self.set_limit(limit, limit_each)
        self._numbers = count()
        self._all = _Queue(next(self._numbers))
        # Packets dropped because the queue was full, by punt reason.
        self.dropped: Counter[int] = Counter()
        self.counters: Counter[str] = Counter()

    def fileno(self) -> None:
        """Returns None: there is no descriptor, because only `offer` fills this queue."""

    def set_limit(self, limit: int, limit_each: int | None = None) -> None:
        """Sets the limits of the queue, from the next packet on. `__init__` describes them."""
        self._limit = limit
        self._limit_each = limit_each if limit_each is not None else max(1, limit // 8)

    def __len__(self) -> int:
        """Returns the number of queued packets."""
        return self._all.length

    def offer(self, batch: Iterable[tuple[bytes, tuple[int, ...]]]) -> int:
        """Queues (frame, metadata in P4Info's order) pairs. Returns how many were queued."""
        taken = 0
        for frame, metadata in batch:
            if len(metadata) != METADATA_FIELDS:
                self.counters["punt_metadata_mismatch"] += 1
            elif self._put(PuntedPacket(frame, *metadata)):
                taken += 1
        return taken

    def _put(self, packet: PuntedPacket) -> bool:
        share = (packet.ingress_port, packet.ingress_l3_if, packet.reason)
        flow = flow_of(packet.frame)
        path = (share, source_of(flow), flow)
        is_full = len(self) >= self._limit or self._all.length_of(share) >= self._limit_each
        if is_full and not self._make_room(path):
            self.dropped[packet.reason] += 1
            return False
        queue = self._all
        queue.length += 1
        for key in path:
            if key not in queue.ring:
                queue.ring[key] = _Queue(next(self._numbers))
            queue = queue.ring[key]
            queue.length += 1
        queue.packets.append(packet)
        return True

    def _make_room(self, path: tuple[Share, bytes, bytes]) -> bool:
        """Drops a queued packet to make room for a packet with this share, source and flow. Returns
        False if the arriving packet must be dropped instead, because no queue is longer than its
        own."""
        queue, victim = self._all, list[object]()
        is_own = True
        for level, key in enumerate(path):
            if not queue.ring:
                return False
            longest, found = queue.longest()
            is_fixed = level == 0 and queue.length_of(key) >= self._limit_each
            if is_own and (is_fixed or found.length <= queue.length_of(key) + 1):
                longest = key
            is_own = longest == key and is_own
            if longest not in queue.ring:
                return False
            victim.append(longest)
            queue = queue.ring[longest]
        if is_own:
            return False
        dropped = self._remove(victim, newest=True)
        self.dropped[dropped.reason] += 1
        return True

    def _remove(self, path: list[object], *, newest: bool) -> PuntedPacket:
        """Removes the newest or the oldest packet of a flow, and the queues that are then empty."""
        queues = [self._all]
        for key in path:
            queues.append(queues[-1].ring[key])
        packet = queues[-1].packets.pop() if newest else queues[-1].packets.popleft()
        for queue in queues:
            queue.length -= 1
        for queue, key in zip(queues, path, strict=False):
            if queue.ring[key].length == 0:
                del queue.ring[key]
        return packet

    def take(self, limit: int) -> list[PuntedPacket]:
        """Removes and returns at most `limit` packets. Takes one packet of each share in turn."""
        taken: list[PuntedPacket] = []
        while self._all.length and len(taken) < limit:
            path: list[object] = []
            queue = self._all
            while queue.ring:
                key = next(iter(queue.ring))
                queue.ring.move_to_end(key)
                path.append(key)
                queue = queue.ring[key]
            taken.append(self._remove(path, newest=False))
        return taken


def flow_of(frame: bytes) -> bytes:
    """Returns a key for the flow of a frame: addresses, and ports if they follow the IP header.

    For fragments, the key has only addresses. So all fragments of a datagram keep their order. All
    non-IP frames are one flow, with an empty key.
    """
    kind, at = frame[12:14], 0
    if kind == b"\x81\x00":
        kind, at = frame[16:18], 4
    if kind == b"\x08\x00":
        is_fragment = bytes(frame[at + 20 : at + 22]) not in _WHOLE
        return frame[at + 26 : at + (34 if is_fragment else 38)]
    if kind == b"\x86\xdd":
        is_fragment = frame[at + 20 : at + 21] == _FRAGMENT_HEADER
        return frame[at + 22 : at + (54 if is_fragment else 58)]
    return b""


def source_of(flow: bytes) -> bytes:
    """Returns the source address in the key of a flow."""
    return flow[: 16 if len(flow) > _IPV4_FLOW else 4]
