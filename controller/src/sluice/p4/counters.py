# SPDX-License-Identifier: Apache-2.0
"""Builds requests for the pipeline's counters, and returns counter values by name.

Some targets (BMv2) do not support wildcard reads of counters. So every request here names a single
index or table entry.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from sluice.p4.schema import Schema
from sluice.p4messages import p4r

Request: TypeAlias = p4r.Entity
"""An entity to read, or an entity that was read."""


class Count(NamedTuple):
    """Holds the value of a counter, in packets and in bytes."""

    packets: int
    bytes: int


class CounterSchema:
    """Holds the ids and sizes of the counters that the controller shows. Raises SchemaError."""

    def __init__(self, schema: Schema) -> None:
        reasons, drops = schema.enum("punt_reason_t"), schema.enum("drop_reason_t")
        self._indexed = {
            "punts": (schema.counter("punt_counter")[0], reasons),
            "punts_dropped": (schema.counter("punt_drop_counter")[0], reasons),
            "drops": (schema.counter("drop_counter")[0], drops),
        }
        self._egress = schema.counter("egress_interface_counter")[0]
        self._admission = schema.table("l3_interface", ("ingress_port", "vlan_id"), {})
        self._nexthop = schema.table("nexthop", ("nexthop_id",), {})
        schema.check()

    def reason_requests(self) -> list[Request]:
        """Returns requests for all counters by punt and drop reason."""
        return [
            _indexed(counter, index)
            for counter, members in self._indexed.values()
            for index in members.values()
            if index
        ]

    def by_reason(self, entities: Iterable[Request]) -> dict[str, dict[str, Count]]:
        """Decodes the answers to `reason_requests`. The result maps counter name and reason name to
        a count."""
        read = {
            (entity.counter_entry.counter_id, entity.counter_entry.index.index): _count(
                entity.counter_entry.data
            )
            for entity in entities
        }
        zero = Count(0, 0)
        return {
            name: {
                member: read.get((counter, index), zero)
                for member, index in members.items()
                if index
            }
            for name, (counter, members) in self._indexed.items()
        }

    def egress_requests(self, l3_ifs: Iterable[int]) -> list[Request]:
        """Returns requests for the packets sent on each interface."""
        return [_indexed(self._egress, l3_if) for l3_if in l3_ifs]

    def egress(self, entities: Iterable[Request]) -> dict[int, Count]:
        """Decodes the answers to `egress_requests`. The result maps interface numbers (l3_if) to
        counts."""
        return {
            entity.counter_entry.index.index: _count(entity.counter_entry.data)
            for entity in entities
        }

    def admission_request(self, port: int, vlan: int) -> Request:
        """Returns the request for the packets received on a port and VLAN."""
        fields = self._admission.fields
        return _direct(self._admission.id, {fields["ingress_port"]: port, fields["vlan_id"]: vlan})

    def nexthop_request(self, identifier: int) -> Request:
        """Returns the request for the packets sent to a next hop."""
        return _direct(self._nexthop.id, {self._nexthop.fields["nexthop_id"]: identifier})

    def direct(self, entities: Iterable[Request]) -> dict[tuple[int, ...], Count]:
        """Decodes the values of direct counters. The keys are the match field values of the
        entries."""
        found = {}
        for entity in entities:
            entry = entity.direct_counter_entry
            matches = sorted(entry.table_entry.match, key=lambda match: match.field_id)
            key = tuple(int.from_bytes(match.exact.value, "big") for match in matches)
            found[key] = _count(entry.data)
        return found


def _indexed(counter: int, index: int) -> Request:
    entry = p4r.CounterEntry(counter_id=counter, index=p4r.Index(index=index))
    return p4r.Entity(counter_entry=entry)


def _direct(table: int, fields: dict[int, int]) -> Request:
    matches = [
        p4r.FieldMatch(
            field_id=field,
            exact=p4r.FieldMatch.Exact(
                value=value.to_bytes((value.bit_length() + 7) // 8 or 1, "big")
            ),
        )
        for field, value in fields.items()
    ]
    entry = p4r.TableEntry(table_id=table, match=matches)
    return p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry(table_entry=entry))


def _count(data: p4r.CounterData) -> Count:
    return Count(data.packet_count, data.byte_count)
