# SPDX-License-Identifier: Apache-2.0
"""Encodes and decodes flows and rule counters as P4Runtime entities.

The reconciler does not manage flows: `state.flow_cache` decides which flows are written. Flows
are read back at the start of a session. The counters of flows show which flows are idle. Depends on
counters, entries, schema, policy.model and state.flow_cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sluice._native import FlowBatch
from sluice.p4.counters import Count
from sluice.p4.entries import action_of, entry, exact, read_action, read_fields
from sluice.p4.flow_encoder import FLOW_FIELDS, LIST_FIELDS, PARAMS, FlowEncoder
from sluice.p4.schema import NO_ACTION, ActionSchema, Schema, TableSchema
from sluice.p4messages import p4r
from sluice.p4runtime.messages import UpdateType, update, varint
from sluice.policy.model import Action as Verdict
from sluice.policy.model import Direction, FlowKey, FragmentClass
from sluice.state.flow_cache import FlowVerdict, FlowWrite
from sluice.state.rule_tables import EntryCounts

LONGEST_VARINT = 5
"""Length of the largest encoded number of 32 bits, in bytes."""
_FIELDS = (*LIST_FIELDS, *FLOW_FIELDS)


class FlowSlot(NamedTuple):
    """Identifies a flow by its list and its key."""

    direction: Direction
    list_id: int
    key: FlowKey


class _FlowTable(NamedTuple):
    table: TableSchema
    action: ActionSchema
    direction: Direction
    size: int  # size of the addresses in octets
    encoder: FlowEncoder


class FlowCodec:
    """Encodes and decodes the flows and rule counters of one pipeline. Raises SchemaError."""

    def __init__(self, schema: Schema) -> None:
        self._tables: dict[tuple[Direction, int], _FlowTable] = {}
        for direction in Direction:
            for size, name in ((4, "ipv4"), (16, "ipv6")):
                action = f"{direction.value}.set_{name}_flow"
                table = schema.table(f"{direction.value}.{name}_flow", _FIELDS, {action: PARAMS})
                known = table.actions.get(action, NO_ACTION)
                encoder = FlowEncoder(table, known)
                self._tables[direction, size] = _FlowTable(table, known, direction, size, encoder)
        self._encoders = {
            direction: (
                self._tables[direction, 4].encoder.native,
                self._tables[direction, 16].encoder.native,
            )
            for direction in Direction
        }
        self._by_id = {one.table.id: one for one in self._tables.values()}
        self._rule_counters = {
            (direction, what): schema.counter(f"{direction.value}.rule_{what}_counter")[0]
            for direction in Direction
            for what in ("hit", "claim")
        }
        self._resets = {
            name: CounterReset(counter) for name, counter in self._rule_counters.items()
        }
        counted = (
            schema.counter(f"{direction.value}.rule_{what}_counter")[1]
            for direction in Direction
            for what in ("hit", "claim")
        )
        self.rules = min(counted) - 1
        """Highest possible rule number."""
        self.flows = {
            direction: min(self._tables[direction, size].table.size for size in (4, 16))
            for direction in Direction
        }
        """Capacity of each direction in flows, for IPv4 and for IPv6 alike."""
        self.rule_entries = {
            direction: EntryCounts(
                *(
                    schema.table(f"{direction.value}.{family}_rule", (), {}).size
                    for family in ("ipv4", "ipv6")
                )
            )
            for direction in Direction
        }
        """Sizes of the rule tables of each direction, in entries."""
        self.lists = (
            min(
                schema.table(f"{direction.value}.list_state", ("list_id",), {}).size
                for direction in Direction
            )
            - 1
        )
        """Highest possible list number."""
        verdicts = {verdict: schema.member("verdict_t", verdict.name) for verdict in Verdict}
        if any(int(verdict) != number for verdict, number in verdicts.items()):
            schema.lack("verdict_t with the numbers of policy.model.Action")
        classes = schema.enum("fragment_t")
        if any(classes.get(one.name) != one for one in FragmentClass):
            schema.lack("fragment_t with the numbers of policy.model.FragmentClass")
        schema.check()

    # -- writing

    def update(self, direction: Direction, list_id: int, write: FlowWrite) -> bytes:
        """Encodes the write of a flow as the field `updates` of a write request."""
        return self._tables[direction, len(write.key.source)].encoder.encode(list_id, write)

    def updates(self, batch: FlowBatch, directions: Mapping[int, Direction]) -> list[bytes]:
        """Encodes a batch of writes like `update`. `directions` maps list ids to directions."""
        lists = batch.list_ids()
        return batch.updates({one: self._encoders[directions[one]] for one in lists})

    def delete(self, slot: FlowSlot) -> bytes:
        """Returns the update that removes a flow."""
        return update(UpdateType.DELETE, self._entry(slot, None).SerializeToString())

    def _entry(self, slot: FlowSlot, verdict: FlowVerdict | None) -> p4r.Entity:
        table, action, *_ = self._tables[slot.direction, len(slot.key.source)]
        values = _values(slot)
        matches = [exact(table, name, value) for name, value in zip(_FIELDS, values, strict=True)]
        if verdict is None:
            return entry(table, matches, None)
        epoch, rule, kind, bundle = verdict
        params = action_of(action, epoch=epoch, rule=rule, verdict=int(kind), sa_bundle=bundle)
        return entry(table, matches, params)

    # -- reading

    def read_requests(self) -> list[p4r.Entity]:
        """Returns requests that together read all flows."""
        return [
            p4r.Entity(table_entry=p4r.TableEntry(table_id=one.table.id))
            for one in self._tables.values()
        ]

    def request(self, slot: FlowSlot) -> p4r.Entity:
        """Returns the request that reads one flow."""
        return self._entry(slot, None)

    def decode(self, entity: p4r.Entity) -> tuple[FlowSlot, FlowVerdict] | None:
        """Decodes a flow. Returns None for any other entity, and for a table's default action."""
        found = entity.table_entry
        known = self._by_id.get(found.table_id)
        if known is None or found.is_default_action:
            return None
        identifier, params = read_action(found)
        if identifier != known.action.id or len(params) != len(PARAMS):
            return None
        epoch, rule, verdict, bundle = params
        try:
            kind = Verdict(verdict)
        except ValueError:
            kind = Verdict.DISCARD  # the verdict does not matter: epoch 0 makes the flow stale
            epoch = 0
        return self._slot(known, found), FlowVerdict(epoch, rule, kind, bundle)

    @staticmethod
    def _slot(known: _FlowTable, found: p4r.TableEntry) -> FlowSlot:
        fields, ids = read_fields(found), known.table.fields
        list_id, fragment, local, bundle, source, destination, protocol, sport, dport = (
            fields.get(ids[name], 0) for name in _FIELDS
        )
        key = FlowKey(
            source.to_bytes(known.size, "big"),
            destination.to_bytes(known.size, "big"),
            protocol,
            sport,
            dport,
            FragmentClass(fragment),
            bool(local),
            bundle,
        )
        return FlowSlot(known.direction, list_id, key)

    # -- counters

    def count_request(self, slot: FlowSlot) -> p4r.Entity:
        """Returns the request for a flow's counter."""
        flow = self._entry(slot, None).table_entry
        return p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry(table_entry=flow))

    def counts(self, entities: Iterable[p4r.Entity]) -> dict[FlowSlot, Count]:
        """Decodes the answers to `count_request`s. The result maps flows to packets and bytes."""
        counts = {}
        for entity in entities:
            counter = entity.direct_counter_entry
            known = self._by_id.get(counter.table_entry.table_id)
            if known is not None:
                slot = self._slot(known, counter.table_entry)
                counts[slot] = Count(counter.data.packet_count, counter.data.byte_count)
        return counts

    def rule_requests(self, direction: Direction, rules: Iterable[int]) -> list[p4r.Entity]:
        """Returns requests for the two counters of each rule.

        The counter `hit` counts packets whose verdict came from a cached flow. `claim` counts
        re-injected packets whose verdict came from the controller.
        """
        return [
            _rule(self._rule_counters[direction, what], rule)
            for rule in rules
            for what in ("hit", "claim")
        ]

    def rule_counts(
        self, direction: Direction, entities: Iterable[p4r.Entity]
    ) -> dict[int, tuple[int, int]]:
        """Decodes the answers to `rule_requests`. The result maps rules to (hits, claims), in
        packets."""
        hits, claims = (self._rule_counters[direction, what] for what in ("hit", "claim"))
        counts = {
            (one.counter_entry.counter_id, one.counter_entry.index.index): (
                one.counter_entry.data.packet_count
            )
            for one in entities
        }
        rules = {rule for _, rule in counts}
        return {
            rule: (counts.get((hits, rule), 0), counts.get((claims, rule), 0)) for rule in rules
        }

    def reset_rules(self, direction: Direction, rules: Iterable[int]) -> list[bytes]:
        """Returns the updates that reset rules' counters to 0.

        Encoded without protobuf, which would take some 10 s for a million rules.
        """
        hit, claim = (self._resets[direction, what] for what in ("hit", "claim"))
        updates: list[bytes] = []
        for rule in rules:
            number = varint(rule)
            updates += hit.update(number), claim.update(number)
        return updates


class CounterReset:
    """Encodes updates that set one cell of an indexed counter to 0.

    If the numbers of two cells are equally long, their encoded updates differ only in these
    numbers.
    """

    def __init__(self, counter: int) -> None:
        self._around: dict[int, tuple[bytes, bytes]] = {}
        for size in range(1, LONGEST_VARINT + 1):
            number = 1 << 7 * (size - 1)
            cell = _rule(counter, number)
            cell.counter_entry.data.CopyFrom(p4r.CounterData())
            whole = update(UpdateType.MODIFY, cell.SerializeToString())
            head, _, tail = whole.rpartition(varint(number))
            self._around[size] = head, tail

    def update(self, number: bytes) -> bytes:
        """Encodes the update of the cell with this number. The number is encoded as a varint."""
        head, tail = self._around[len(number)]
        return head + number + tail


def _values(slot: FlowSlot) -> tuple[int, ...]:
    key = slot.key
    return (
        slot.list_id,
        int(key.fragment),
        int(key.is_local),
        key.bundle,
        int.from_bytes(key.source, "big"),
        int.from_bytes(key.destination, "big"),
        key.protocol,
        key.source_port,
        key.destination_port,
    )


def _rule(counter: int, rule: int) -> p4r.Entity:
    return p4r.Entity(
        counter_entry=p4r.CounterEntry(counter_id=counter, index=p4r.Index(index=rule))
    )
