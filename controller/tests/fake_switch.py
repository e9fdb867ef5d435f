# SPDX-License-Identifier: Apache-2.0
"""Simulates a switch in memory.

The switch accepts the reconciler's write requests, and is stricter than any real target: it refuses
an update that would leave a dangling reference, and records it in `violations`. Tests check that
this list is empty. A test can make the switch refuse updates (`refuse`), limit the size of its
tables (`capacity`) or end its session (`break_after`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from finsy.proto import p4r

from sluice.entities import (
    DROPS_WITHOUT,
    LOCAL,
    EntityKey,
    EntityKind,
    EntityValue,
    ListState,
    references,
)
from sluice.p4.codec import Codec
from sluice.p4.flows import FlowCodec, FlowSlot
from sluice.p4.schema import Schema, load_pipeline
from sluice.p4runtime.messages import UpdateType
from sluice.p4runtime.session import P4RuntimeError, Status
from sluice.policy.entities import LIST_KINDS
from sluice.state.flow_cache import FlowVerdict

PIPELINE = Path(__file__).resolve().parents[2] / "p4src" / "build" / "v1model"

ATOMIC = p4r.WriteRequest.DATAPLANE_ATOMIC
OK, NOT_FOUND, ALREADY_EXISTS, RESOURCE_EXHAUSTED, FAILED_PRECONDITION = 0, 5, 6, 8, 9


def load_codec() -> Codec:
    return Codec(Schema(load_pipeline(PIPELINE).p4info))


class FakeSwitch:
    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self.entities: dict[tuple[EntityKind, EntityKey], EntityValue] = {}
        self.raw: dict[tuple[EntityKind, EntityKey], p4r.Entity] = {}
        self.flow_codec = FlowCodec(Schema(load_pipeline(PIPELINE).p4info))
        self.flows: dict[FlowSlot, FlowVerdict] = {}
        self.raw_flows: dict[FlowSlot, p4r.Entity] = {}
        self.flow_packets: Counter[FlowSlot] = Counter()
        self.flow_capacity = 1 << 30
        self.refuse_flow: Callable[[UpdateType, FlowSlot], int] = lambda *_: OK
        self.flow_log: list[tuple[UpdateType, FlowSlot]] = []
        self.counters_reset: list[int] = []
        self.log: list[tuple[UpdateType, EntityKind, EntityKey]] = []
        self.violations: list[str] = []
        self.capacity: dict[EntityKind, int] = {}
        self.refuse: Callable[[UpdateType, EntityKind, EntityKey], int] = lambda *_: OK
        self.watch: Callable[[], None] = lambda: None
        self.break_after: int | None = None
        self.writes = 0
        self._uses: Counter[tuple[EntityKind, EntityKey]] = Counter()

    async def write(self, updates: list[bytes], *, atomic: bool = False) -> list[Status]:
        if self.break_after is not None and self.writes >= self.break_after:
            raise P4RuntimeError(14, "the fake switch hung up")
        self.writes += 1
        await asyncio.sleep(0)
        request = p4r.WriteRequest.FromString(b"".join(updates))
        assert len(request.updates) == len(updates)
        request.atomicity = ATOMIC if atomic else request.atomicity
        codes = self.take(request)
        return [Status((code, "")) for code in codes] if any(codes) else []

    def take(self, request: p4r.WriteRequest) -> list[int]:
        """Applies the updates and returns a status code for each.

        Calls `watch` after each state that a packet could meet: after each update, or once after
        the whole request if the request is atomic.
        """
        codes = []
        for update in request.updates:
            codes.append(self._apply(update))
            if request.atomicity != ATOMIC:
                self.watch()
        if request.atomicity == ATOMIC:
            self.watch()
        return codes

    async def read(self, entities: list[p4r.Entity]) -> AsyncIterator[Sequence[p4r.Entity]]:
        found = self.found(entities)
        for start in range(0, len(found), 7):
            await asyncio.sleep(0)
            yield found[start : start + 7]

    async def read_parts(self, entities: list[p4r.Entity]) -> AsyncIterator[bytes]:
        async for part in self.read(entities):
            yield p4r.ReadResponse(entities=part).SerializeToString()

    def found(self, wanted: Sequence[p4r.Entity]) -> list[p4r.Entity]:
        """Returns the entities that a read of these tables and profiles yields.

        Does not return meters and default actions.
        """
        tables = {one.table_entry.table_id for one in wanted if one.HasField("table_entry")}
        others = {one.WhichOneof("entity") for one in wanted} - {"table_entry"}
        return [
            entity
            for (kind, _), entity in self.raw.items()
            if kind > EntityKind.HASH_SEED
            if entity.WhichOneof("entity") in others or entity.table_entry.table_id in tables
        ]

    def of(self, kind: EntityKind) -> dict[EntityKey, EntityValue]:
        return {key: value for (k, key), value in self.entities.items() if k is kind}

    def live(self) -> dict[FlowSlot, FlowVerdict]:
        """Returns the valid flows: those whose epoch is the current epoch of their list."""
        epochs = {
            (direction, key): value.epoch
            for direction, kind in LIST_KINDS.items()
            for key, value in self.of(kind).items()
            if isinstance(value, ListState)
        }
        return {
            slot: verdict
            for slot, verdict in self.flows.items()
            if epochs.get((slot.direction, slot.list_id)) == verdict.epoch
        }

    def _apply_flow(self, operation: UpdateType, entity: p4r.Entity) -> int | None:
        """Applies an update of a flow and returns its status code.

        Returns None if the entity is not a flow.
        """
        decoded = self.flow_codec.decode(entity)
        if entity.table_entry.table_id not in self.flow_codec._by_id:
            return None
        slot = self.flow_codec._slot(
            self.flow_codec._by_id[entity.table_entry.table_id], entity.table_entry
        )
        self.flow_log.append((operation, slot))
        if code := self.refuse_flow(operation, slot):
            return code
        if operation is UpdateType.INSERT and slot in self.flows:
            return ALREADY_EXISTS
        if operation is not UpdateType.INSERT and slot not in self.flows:
            return NOT_FOUND
        if operation is UpdateType.DELETE:
            del self.flows[slot], self.raw_flows[slot]
            self.flow_packets.pop(slot, None)
            return OK
        if slot not in self.flows and len(self.flows) >= self.flow_capacity:
            return RESOURCE_EXHAUSTED
        assert decoded is not None
        self.flows[slot], self.raw_flows[slot] = decoded[1], entity
        return OK

    def _apply(self, update: p4r.Update) -> int:
        operation = UpdateType(update.type)
        if update.entity.HasField("counter_entry"):
            self.counters_reset.append(update.entity.counter_entry.index.index)
            return OK
        code = self._apply_flow(operation, update.entity)
        if code is not None:
            return code
        decoded = self._decode(update.entity)
        kind, key, value = decoded
        self.log.append((operation, kind, key))
        present = (kind, key) in self.entities
        if kind in (EntityKind.PUNT_METER, EntityKind.HASH_SEED):
            if operation is not UpdateType.MODIFY:
                self.violations.append(f"{operation.name} of {kind.name}")
        elif operation is UpdateType.INSERT and present:
            return ALREADY_EXISTS
        elif operation is not UpdateType.INSERT and not present:
            return NOT_FOUND
        if code := self.refuse(operation, kind, key):
            return code
        if operation is UpdateType.DELETE:
            return self._delete(kind, key)
        if not present and len(self.of(kind)) >= self.capacity.get(kind, 1 << 30):
            return RESOURCE_EXHAUSTED
        for reference in references(kind, key, value):
            if reference not in self.entities:
                self.violations.append(f"{operation.name} {kind.name} {key}: no {reference}")
                return FAILED_PRECONDITION
        self._count(kind, key, -1)
        self.entities[kind, key] = value
        self.raw[kind, key] = update.entity
        self._count(kind, key, 1)
        return OK

    def _delete(self, kind: EntityKind, key: EntityKey) -> int:
        # A kind in DROPS_WITHOUT: without the entry, the switch drops packets. So a takeover may
        # delete the entry while other entries refer to it.
        if self._uses[kind, key] and kind not in DROPS_WITHOUT:
            self.violations.append(f"DELETE {kind.name} {key}: still referred to")
            return FAILED_PRECONDITION
        self._count(kind, key, -1)
        del self.entities[kind, key]
        del self.raw[kind, key]
        return OK

    def _count(self, kind: EntityKind, key: EntityKey, step: int) -> None:
        if (kind, key) in self.entities:
            for reference in references(kind, key, self.entities[kind, key]):
                self._uses[reference] += step

    def _decode(self, entity: p4r.Entity) -> tuple[EntityKind, EntityKey, EntityValue]:
        if entity.HasField("meter_entry"):
            return EntityKind.PUNT_METER, entity.meter_entry.index.index, LOCAL
        if entity.HasField("table_entry") and entity.table_entry.is_default_action:
            return EntityKind.HASH_SEED, "hash_seed", LOCAL
        decoded = self.codec.decode(entity)
        assert decoded is not None, entity
        return decoded
