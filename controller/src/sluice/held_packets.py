# SPDX-License-Identifier: Apache-2.0
"""Holds packets while their neighbour is resolved. Limits the packets per neighbour and in total.

Packets are removed by `release` when the neighbour is resolved, by `fail` when the kernel gives up
the resolution, and by `expired` after a time limit. If there are too many packets, `hold` returns
False and counts the packet as dropped. Pure: the caller passes the time. Depends on model and
state.nexthops (for `Path`).
"""

from __future__ import annotations

from collections import Counter

from sluice.model import PuntedPacket
from sluice.state.nexthops import Path


class _Waiting:
    __slots__ = ("deadline", "packets")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.packets: list[PuntedPacket] = []


class HeldPackets:
    """Holds packets by neighbour."""

    def __init__(self, per_neighbor: int, total: int, seconds: float) -> None:
        self.set_limits(per_neighbor, total, seconds)
        self._waiting: dict[Path, _Waiting] = {}
        self._count = 0
        self.counters: Counter[str] = Counter()

    def set_limits(self, per_neighbor: int, total: int, seconds: float) -> None:
        """Sets the limits for later packets. Packets that are already held stay."""
        self._per_neighbor = per_neighbor
        self._total = total
        self._seconds = seconds

    def __len__(self) -> int:
        return self._count

    def __contains__(self, path: Path) -> bool:
        return path in self._waiting

    def hold(self, path: Path, packet: PuntedPacket, now: float) -> bool:
        """Holds a packet. Returns False if a limit is reached: the packet is then not held."""
        waiting = self._waiting.get(path)
        if waiting is not None and len(waiting.packets) >= self._per_neighbor:
            self.counters["dropped: too many for one neighbour"] += 1
            return False
        if self._count >= self._total:
            self.counters["dropped: too many in all"] += 1
            return False
        if waiting is None:
            waiting = self._waiting[path] = _Waiting(now + self._seconds)
        waiting.packets.append(packet)
        self._count += 1
        self.counters["held"] += 1
        return True

    def release(self, path: Path) -> list[PuntedPacket]:
        """Removes and returns the packets of a resolved neighbour, in their order."""
        packets = self._take(path)
        self.counters["released"] += len(packets)
        return packets

    def fail(self, path: Path) -> list[PuntedPacket]:
        """Removes and returns the packets of an unreachable neighbour.

        The caller answers them with ICMP errors.
        """
        packets = self._take(path)
        self.counters["failed"] += len(packets)
        return packets

    def expired(self, now: float) -> dict[Path, list[PuntedPacket]]:
        """Removes and returns the packets past their deadline, by neighbour."""
        # All neighbours have the same timeout, so insertion order is deadline order.
        late: dict[Path, list[PuntedPacket]] = {}
        while self._waiting:
            path, waiting = next(iter(self._waiting.items()))
            if waiting.deadline > now:
                break
            late[path] = self.fail(path)
        return late

    @property
    def next_deadline(self) -> float | None:
        """The earliest deadline. None if no packets are held."""
        for waiting in self._waiting.values():
            return waiting.deadline
        return None

    def _take(self, path: Path) -> list[PuntedPacket]:
        waiting = self._waiting.pop(path, None)
        if waiting is None:
            return []
        self._count -= len(waiting.packets)
        return waiting.packets
