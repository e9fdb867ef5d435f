# SPDX-License-Identifier: Apache-2.0
"""Queues punted packets in native code, and leaves most first packets there.

The session puts packets into the queue without Python, and drops those that find no room. Python
takes packets in slices. A *plain* first packet is a whole IP packet that misses a list's flow
cache. It has no options or extension headers, and its protocol is not ICMP. For such a packet
`take` returns a `FirstPacket`. Native code searches the rules for it (`RuleTree.first_match_of`),
adds its flow to the cache (`FlowQueue.offer`) and re-injects it, without making its selectors, key
or frame in Python. All other packets are returned as `PuntedPacket`.

Invariant: `sources.punt.PuntQueue` would return the same packets in the same order, and
`wire.selectors` would read the same selectors (tests/test_native_punts.py compares them). Depends
on p4.packets, policy.model and `sluice._native`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from sluice._native import FirstPacket, PuntQueue
from sluice.model import PuntedPacket
from sluice.p4.packets import PACKET_IN, PacketSchema, PuntReason
from sluice.policy.model import FlowKey, FragmentClass, Selectors

FIRST_PACKETS = frozenset({PuntReason.INBOUND_MISS, PuntReason.OUTBOUND_MISS})


class NativePunts:
    """Queues punted packets. Has the methods of `sources.punt.PuntQueue`."""

    def __init__(
        self, packets: PacketSchema, limit: int = 8192, limit_each: int | None = None
    ) -> None:
        at = {name: position for position, name in enumerate(PACKET_IN)}
        self.native = PuntQueue(
            count=len(PACKET_IN),
            share=(at["ingress_port"], at["ingress_l3_if"], at["reason"]),
            stage=at["stage"],
            origin=at["origin"],
            is_local=at["is_local"],
            bundle=at["bundle"],
            list_id=at["list_id"],
            misses=[n for n, reason in packets.reasons.items() if reason in FIRST_PACKETS],
            inbound=packets.stage_inbound,
            outbound=packets.stage_outbound,
            own=packets.origin_local,
            answer=packets.reinjection(),
            punted_type=PuntedPacket,
            selectors_type=Selectors,
            key_type=FlowKey,
            whole=FragmentClass.WHOLE,
            limit=limit,
            limit_each=_limit_each(limit, limit_each),
        )
        self.counters: Counter[str] = Counter()

    def __len__(self) -> int:
        """Returns the number of queued packets."""
        return len(self.native)

    @property
    def dropped(self) -> dict[int, int]:
        """Packets dropped because the queue was full, by punt reason."""
        return self.native.dropped()

    def fileno(self) -> int:
        """Returns a descriptor that is readable while packets wait."""
        return self.native.fileno()

    def set_limit(self, limit: int, limit_each: int | None = None) -> None:
        """Sets the limits, like `sources.punt.PuntQueue.set_limit`."""
        self.native.set_limit(limit, _limit_each(limit, limit_each))

    def offer(self, batch: Iterable[tuple[bytes, tuple[int, ...]]]) -> int:
        """Queues (frame, metadata in P4Info's order) pairs. Returns how many were queued."""
        return sum(self.native.put(frame, metadata) for frame, metadata in batch)

    def take(self, limit: int) -> Sequence[PuntedPacket | FirstPacket]:
        """Removes and returns at most `limit` packets, by fair queueing."""
        return self.native.take(limit)


def _limit_each(limit: int, limit_each: int | None) -> int:
    return limit_each if limit_each is not None else max(1, limit // 8)
