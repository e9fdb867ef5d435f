# SPDX-License-Identifier: Apache-2.0
"""Decodes a full routing table that was read from the switch.

The encoded entry of a route consists of a head (table, VRF), the LPM match, and a tail (the
action). A table of a million routes has few different heads and tails. protobuf and `Decoder`
decode the first entry of each combination of head and tail. The native table then decodes all other
entries with this combination. Entries that are encoded in another form are left to protobuf and
`Decoder`. So the result is always the same as without the native table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sluice._native import RouteTable
from sluice.entities import UNKNOWN, EntityKey, EntityKind, EntityValue, RouteSlot
from sluice.p4messages import p4r

DecodedEntity = tuple[EntityKind, EntityKey, EntityValue]

STEP = 4096
"""Routes in one slice of the native table, about 2 ms."""
SLICE = 2000
"""Entities in one slice of `Decoder`."""
_ENTITIES = 0x0A  # tag of ReadResponse.entities
_LONG = 0x80  # smallest first octet of a varint that has several octets


class RouteReader:
    """Decodes encoded ReadResponses.

    `decode` decodes any entity (the slow path). For each route table's id, `families` has the
    address size in bytes, and `fields` has the id of the LPM field.
    """

    def __init__(
        self,
        decode: Callable[[p4r.Entity], DecodedEntity | None],
        families: dict[int, int],
        fields: dict[int, int],
    ) -> None:
        self._decode = decode
        self._families = families
        self._fields = fields

    def read(self, part: bytes, table: RouteTable) -> Iterator[list[DecodedEntity]]:
        """Stores the routes of a response in `table` as installed. Yields the other entities.

        The entities are yielded in slices, which may be empty. Entities that the controller does
        not manage are left out. Raises DecodeError.
        """
        at, end = 0, len(part)
        found: list[DecodedEntity] = []
        while at < end:
            count, at = table.read_back(part, at, STEP)
            if at < end:
                size = part[at + 1] if end - at > 1 else _LONG
                if part[at] != _ENTITIES or size >= _LONG or end - at < 2 + size:
                    yield found
                    yield from self._decode_rest(part[at:], table)
                    return
                start, at = at + 2, at + 2 + size
                self._learn(part[start:at], table, found)
            if count == STEP or len(found) >= SLICE:
                yield found
                found = []
        yield found

    def _decode_rest(self, part: bytes, table: RouteTable) -> Iterator[list[DecodedEntity]]:
        entities = p4r.ReadResponse.FromString(part).entities
        for start in range(0, len(entities), SLICE):
            found: list[DecodedEntity] = []
            for entity in entities[start : start + SLICE]:
                self._decode_one(entity, table, found)
            yield found

    def _decode_one(
        self, entity: p4r.Entity, table: RouteTable, others: list[DecodedEntity]
    ) -> tuple[RouteSlot, EntityValue] | None:
        """Decodes one entity. Stores and returns a route. Appends any other entity to `others`."""
        found = self._decode(entity)
        if found is None:
            return None
        kind, key, value = found
        if kind is not EntityKind.ROUTE or not isinstance(key, RouteSlot):
            others.append(found)
            return None
        table.installed[key] = value
        return key, value

    def _learn(self, encoded: bytes, table: RouteTable, others: list[DecodedEntity]) -> None:
        """Decodes one entity and, if it is a route, registers its head and tail in the table.

        After that, the table itself decodes routes with this head and tail.
        """
        entity = p4r.Entity.FromString(encoded)
        route = self._decode_one(entity, table, others)
        entry = entity.table_entry
        if route is None or route[1] == UNKNOWN or not entry.match:
            return
        if entry.match[0].HasField("exact"):
            head = p4r.TableEntry(table_id=entry.table_id, match=entry.match[:1])
            field, size = self._fields[entry.table_id], self._families[entry.table_id]
            table.learn_form(encoded, head.SerializeToString(), field, size, *route)
