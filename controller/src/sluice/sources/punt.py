# SPDX-License-Identifier: Apache-2.0
"""Punted packets, queued: bounded, and fair between ports and reasons.

The pipeline's meters bound each reason's rate. This queue bounds what waits for Python, and takes
turns between (port, reason) pairs, so that a port that floods the CPU with one kind of packet takes
no other port's turn, and not even its own for ARP or BGP. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from typing import TypeAlias

from sluice.model import PuntedPacket

Turn: TypeAlias = tuple[int, int]
METADATA_FIELDS = len(PuntedPacket._fields) - 1


class PuntQueue:
    """Packet-ins on their way to the controller."""

    def __init__(self, limit: int, limit_each: int | None = None) -> None:
        """`limit` packets in all; of one port and reason `limit_each`, by default an eighth."""
        self._limit = limit
        self._limit_each = limit_each if limit_each is not None else max(1, limit // 8)
        # In the order of turns; a pair without packets is not in it.
        self._turns: OrderedDict[Turn, deque[PuntedPacket]] = OrderedDict()
        self._waiting = 0
        # By punt reason: those dropped here, queue full.
        self.dropped: Counter[int] = Counter()
        self.counters: Counter[str] = Counter()

    def __len__(self) -> int:
        """How many packets wait."""
        return self._waiting

    def offer(self, batch: Iterable[tuple[bytes, tuple[int, ...]]]) -> int:
        """Takes in (frame, metadata in P4Info's order) pairs; how many found a place."""
        taken = 0
        for frame, metadata in batch:
            if len(metadata) != METADATA_FIELDS:
                self.counters["punt_metadata_mismatch"] += 1
                continue
            packet = PuntedPacket(frame, *metadata)
            turn = (packet.ingress_port, packet.reason)
            waiting = self._turns.get(turn)
            if self._waiting >= self._limit or (waiting and len(waiting) >= self._limit_each):
                self.dropped[packet.reason] += 1
                continue
            if waiting is None:
                waiting = self._turns[turn] = deque()
            waiting.append(packet)
            self._waiting += 1
            taken += 1
        return taken

    def take(self, limit: int) -> list[PuntedPacket]:
        """At most `limit` packets, one of each port and reason in turn."""
        taken: list[PuntedPacket] = []
        while self._turns and len(taken) < limit:
            turn, waiting = self._turns.popitem(last=False)
            taken.append(waiting.popleft())
            if waiting:
                self._turns[turn] = waiting
        self._waiting -= len(taken)
        return taken
