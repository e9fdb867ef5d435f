# SPDX-License-Identifier: Apache-2.0
"""Queues punted packets. The queue is bounded, and fair between interfaces, punt reasons and flows.

The pipeline's meters bound each reason's rate. This queue bounds the packets that wait for Python,
and serves them round robin at two levels:

- Between pairs of interface and punt reason. An interface that floods the CPU with packets of one
  reason delays neither other interfaces nor its own ARP or BGP.
- Between the flows of one interface and reason. Flows are hashed to a few lanes (stochastic fair
  queueing, McKenney 1990); each process has its own hash key. A flow of many packets that is not or
  cannot be in the flow cache fills only one lane. A flow always has the same lane, so its packets
  keep their order.

Several queued packets of one flow all stay in the queue, since each has to be forwarded. The flow
itself is written to the switch only once (`state.flow_cache`). Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from typing import TypeAlias

from sluice.model import PuntedPacket

PuntQueueKey: TypeAlias = tuple[int, int, int]
METADATA_FIELDS = len(PuntedPacket._fields) - 1
LANES = 16
_WHOLE = (b"\0\0", b"\x40\0")
"""IPv4 flags and fragment offset of an unfragmented packet, without and with DF."""
_FRAGMENT_HEADER = b"\x2c"
"""IPv6 next header of a fragment without other extension headers in front."""


class _Share:
    """Holds the queued packets of one ingress port, interface and punt reason.

    `lanes` has the non-empty lanes; the first one is served next.
    """

    __slots__ = ("lanes", "waiting")

    def __init__(self) -> None:
        self.lanes: OrderedDict[int, deque[PuntedPacket]] = OrderedDict()
        self.waiting = 0

    def take(self) -> PuntedPacket:
        number, lane = self.lanes.popitem(last=False)
        packet = lane.popleft()
        self.waiting -= 1
        if lane:
            self.lanes[number] = lane
        return packet


class PuntQueue:
    """Queues packet-ins for the controller."""

    def __init__(self, limit: int, limit_each: int | None = None) -> None:
        """`limit` bounds the whole queue. `limit_each` bounds the packets of one interface and
        reason.

        The default of `limit_each` is an eighth of `limit`. A lane has at most a quarter of
        `limit_each`.
        """
        self.set_limit(limit, limit_each)
        # Pairs of interface and reason that have packets. The first pair is served next.
        self._turns: OrderedDict[PuntQueueKey, _Share] = OrderedDict()
        self._waiting = 0
        # Packets dropped because the queue was full, by punt reason.
        self.dropped: Counter[int] = Counter()
        self.counters: Counter[str] = Counter()

    def set_limit(self, limit: int, limit_each: int | None = None) -> None:
        """Sets the limits of the queue, from the next packet on. `__init__` describes them."""
        self._limit = limit
        self._limit_each = limit_each if limit_each is not None else max(1, limit // 8)
        self._limit_lane = max(1, self._limit_each // 4)

    def __len__(self) -> int:
        """Returns the number of queued packets."""
        return self._waiting

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
        turn = (packet.ingress_port, packet.ingress_l3_if, packet.reason)
        share = self._turns.get(turn)
        if share is None:
            share = _Share()
        number = hash(flow_of(packet.frame)) % LANES
        lane = share.lanes.get(number)
        if (
            self._waiting >= self._limit
            or share.waiting >= self._limit_each
            or (lane is not None and len(lane) >= self._limit_lane)
        ):
            self.dropped[packet.reason] += 1
            return False
        if lane is None:
            lane = share.lanes[number] = deque()
        lane.append(packet)
        share.waiting += 1
        self._waiting += 1
        self._turns[turn] = share
        return True

    def take(self, limit: int) -> list[PuntedPacket]:
        """Removes and returns at most `limit` packets. Takes one packet of each pair of interface
        and reason in turn."""
        taken: list[PuntedPacket] = []
        while self._turns and len(taken) < limit:
            turn, share = self._turns.popitem(last=False)
            taken.append(share.take())
            if share.waiting:
                self._turns[turn] = share
        self._waiting -= len(taken)
        return taken


def flow_of(frame: bytes) -> bytes:
    """Returns a key for the flow of a frame: addresses, and ports if they follow the IP header.

    For fragments, the key has only addresses. So all fragments of a datagram keep their order. All
    frames other than IP are one flow, with an empty key.
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
