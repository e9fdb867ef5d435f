# SPDX-License-Identifier: Apache-2.0
"""Decodes a read-back full table: a million entries that differ in little but their prefix.

An entry of a route is encoded as a head (table, VRF), the LPM match, and a tail (the action). Heads
and tails are few: one entry of each is decoded by protobuf and `Decoder`, and the native table
reads the others from then on. What looks different in any way it leaves to them, so the result is
always theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sluice._native import RouteTable
from sluice.entities import UNKNOWN, Key, Kind, RouteSlot, Value
from sluice.p4messages import p4r

Decoded = tuple[Kind, Key, Value]

STEP = 4096
"""Routes that the native table reads in one go, about 2 ms."""
SLICE = 2000
"""Entities that are decoded in one go."""
_ENTITIES = 0x0A  # ReadResponse.entities
_LONG = 0x80  # a varint of one octet is less


class RouteReader:
    """Decodes encoded ReadResponses. `decode` is the slow way, `families` table ids of routes and
    their address sizes, `fields` the ids of their LPM fields."""

    def __init__(
        self,
        decode: Callable[[p4r.Entity], Decoded | None],
        families: dict[int, int],
        fields: dict[int, int],
    ) -> None:
        self._decode = decode
        self._families = families
        self._fields = fields

    def read(self, part: bytes, table: RouteTable) -> Iterator[list[Decoded]]:
        """Puts the routes of a response into `table`, as installed, and yields the others slice by
        slice, without what is none of the controller's business. Raises DecodeError."""
        at, end = 0, len(part)
        found: list[Decoded] = []
        while at < end:
            count, at = table.read_back(part, at, STEP)
            if at < end:
                size = part[at + 1] if end - at > 1 else _LONG
                if part[at] != _ENTITIES or size >= _LONG or end - at < 2 + size:
                    yield found
                    yield from self._rest(part[at:], table)
                    return
                start, at = at + 2, at + 2 + size
                self._learn(part[start:at], table, found)
            if count == STEP or len(found) >= SLICE:
                yield found
                found = []
        yield found

    def _rest(self, part: bytes, table: RouteTable) -> Iterator[list[Decoded]]:
        entities = p4r.ReadResponse.FromString(part).entities
        for start in range(0, len(entities), SLICE):
            found: list[Decoded] = []
            for entity in entities[start : start + SLICE]:
                self._one(entity, table, found)
            yield found

    def _one(
        self, entity: p4r.Entity, table: RouteTable, others: list[Decoded]
    ) -> tuple[RouteSlot, Value] | None:
        """Decodes one entity: a route, which is returned, or another, or none."""
        found = self._decode(entity)
        if found is None:
            return None
        kind, key, value = found
        if kind is not Kind.ROUTE or not isinstance(key, RouteSlot):
            others.append(found)
            return None
        table.installed[key] = value
        return key, value

    def _learn(self, encoded: bytes, table: RouteTable, others: list[Decoded]) -> None:
        """Decodes one entity, from which the table can read others like it."""
        entity = p4r.Entity.FromString(encoded)
        route = self._one(entity, table, others)
        entry = entity.table_entry
        if route is None or route[1] == UNKNOWN or not entry.match:
            return
        if entry.match[0].HasField("exact"):
            head = p4r.TableEntry(table_id=entry.table_id, match=entry.match[:1])
            field, size = self._fields[entry.table_id], self._families[entry.table_id]
            table.learn_form(encoded, head.SerializeToString(), field, size, *route)
