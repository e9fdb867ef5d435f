# SPDX-License-Identifier: Apache-2.0
"""Reads flows and counters from a switch over P4Runtime, beside the controller."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import NamedTuple

import grpc
from sluice.p4.counters import CounterSchema
from sluice.p4.flows import FlowCodec, FlowSlot
from sluice.p4.schema import Schema, load_pipeline
from sluice.p4messages import p4r
from sluice.policy.model import Direction
from sluice.state.flow_cache import FlowVerdict

from sluice_testkit import where
from sluice_testkit.wait import wait_until

OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    # By default, gRPC sends the path of a Unix socket as the :authority header, which the switch's
    # HTTP/2 library refuses.
    ("grpc.default_authority", "localhost"),
]


class PacketCounts(NamedTuple):
    """Holds the packets of a list that found their flow in the cache (hits), and the misses."""

    hits: int
    misses: int

    def since(self, earlier: PacketCounts) -> PacketCounts:
        """Returns the packets since an earlier count."""
        return PacketCounts(self.hits - earlier.hits, self.misses - earlier.misses)

    @property
    def packets(self) -> int:
        """Number of all packets."""
        return self.hits + self.misses

    @property
    def hit_rate(self) -> float:
        """Share of the packets that found their flow."""
        return self.hits / self.packets


class SwitchReader:
    """Reads from the switch at a gRPC address. It needs no role and changes nothing."""

    def __init__(self, address: str, device_id: int) -> None:
        schema = Schema(load_pipeline(where.pipeline()).p4info)
        self._flows, self._reasons = FlowCodec(schema), CounterSchema(schema)
        self._channel = grpc.insecure_channel(address, OPTIONS)
        self._device_id = device_id
        self._method = self._channel.unary_stream(
            "/p4.v1.P4Runtime/Read",
            request_serializer=p4r.ReadRequest.SerializeToString,
            response_deserializer=p4r.ReadResponse.FromString,
        )

    def __enter__(self) -> SwitchReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    def flows(self) -> dict[FlowSlot, FlowVerdict]:
        """Returns all flows, including stale ones."""
        decoded = (self._flows.decode(one) for one in self._read(self._flows.read_requests()))
        return dict(one for one in decoded if one is not None)

    def outbound(self, rule_ids: Iterable[int]) -> PacketCounts:
        """Returns two counts of packets since the switch's start: hits of these rules in the flow
        cache, and misses in the outbound flow caches of all lists.
        """
        requests = self._flows.rule_requests(Direction.OUTBOUND, rule_ids)
        rules = self._flows.rule_counts(Direction.OUTBOUND, self._read(requests))
        reasons = self._reasons.by_reason(self._read(self._reasons.reason_requests()))
        misses = reasons["punts"]["OUTBOUND_MISS"].packets
        return PacketCounts(sum(hits for hits, _ in rules.values()), misses)

    def settled(self, rule_ids: Iterable[int]) -> PacketCounts:
        """Returns the counts of `outbound` as soon as they no longer increase."""
        ids = tuple(rule_ids)
        last = self.outbound(ids)

        def stands_still() -> bool:
            nonlocal last
            before, last = last, self.outbound(ids)
            return last == before

        wait_until(stands_still, 30, "the switch's counters to stand still", interval=0.3)
        return last

    def _read(self, entities: Iterable[p4r.Entity]) -> Iterator[p4r.Entity]:
        request = p4r.ReadRequest(device_id=self._device_id, entities=entities)
        for part in self._method(request):
            yield from part.entities
