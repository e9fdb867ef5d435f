# SPDX-License-Identifier: Apache-2.0
"""Punted packets, queued: bounded, and fair between interfaces, reasons and flows.

The pipeline's meters bound each reason's rate. This queue bounds what waits for Python, and takes
turns at two levels. First between the reasons of each interface, so that one that floods the CPU
with one kind of packet takes no other interface's turn, and not even its own for ARP or BGP. Then,
among the packets of one interface and reason, between flows: by chance, since flows share a few
lanes by their hash (stochastic fair queueing, McKenney 1990; the hash is keyed anew in every
process), so that one flow that floods before it is cached, or that never can be, leaves the other
lanes to the others. A flow keeps its lane, and so its order.

Packets of one flow are not merged: each has to go on. What is done once for all of them is the
write of the flow (`state.flow_cache`). Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from typing import TypeAlias

from sluice.model import PuntedPacket

Turn: TypeAlias = tuple[int, int, int]
METADATA_FIELDS = len(PuntedPacket._fields) - 1
LANES = 16
_WHOLE = (b"\0\0", b"\x40\0")
"""IPv4's flags and fragment offset of a whole packet, without and with DF."""
_FRAGMENT_HEADER = b"\x2c"
"""IPv6's next header of a fragment that has no other extension header before."""


class _Share:
    """What waits of one interface and reason: lanes in the order of their turns, none empty."""

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
    """Packet-ins on their way to the controller."""

    def __init__(self, limit: int, limit_each: int | None = None) -> None:
        """`limit` packets in all; `limit_each` for one interface and reason (an eighth). A lane
        has at most a quarter of that."""
        self.set_limit(limit, limit_each)
        # In the order of turns; an interface and reason without packets is not in it.
        self._turns: OrderedDict[Turn, _Share] = OrderedDict()
        self._waiting = 0
        # By punt reason: those dropped here, queue full.
        self.dropped: Counter[int] = Counter()
        self.counters: Counter[str] = Counter()

    def set_limit(self, limit: int, limit_each: int | None = None) -> None:
        """Bounds the queue from the next packet on; see `__init__`."""
        self._limit = limit
        self._limit_each = limit_each if limit_each is not None else max(1, limit // 8)
        self._limit_lane = max(1, self._limit_each // 4)

    def __len__(self) -> int:
        """How many packets wait."""
        return self._waiting

    def offer(self, batch: Iterable[tuple[bytes, tuple[int, ...]]]) -> int:
        """Takes in (frame, metadata in P4Info's order) pairs; how many found a place."""
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
        """At most `limit` packets, one of each interface and reason in turn."""
        taken: list[PuntedPacket] = []
        while self._turns and len(taken) < limit:
            turn, share = self._turns.popitem(last=False)
            taken.append(share.take())
            if share.waiting:
                self._turns[turn] = share
        self._waiting -= len(taken)
        return taken


def flow_of(frame: bytes) -> bytes:
    """Bytes that the packets of a flow have in common: addresses, and ports where they are next.

    Of fragments only the addresses, so that the first one keeps its place before the later ones.
    For anything but IP, nothing: it is all one flow.
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
