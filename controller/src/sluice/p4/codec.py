# SPDX-License-Identifier: Apache-2.0
"""Encodes entities for P4Runtime and decodes them, for one pipeline."""

from __future__ import annotations

from collections.abc import Iterator

from sluice._native import RouteTable
from sluice.entities import EntityKey, EntityKind
from sluice.p4.decoder import DecodedEntity, Decoder
from sluice.p4.encoder import Encoder
from sluice.p4.route_reader import RouteReader
from sluice.p4.schema import Schema
from sluice.p4.tables import PipelineTables
from sluice.p4messages import p4r
from sluice.p4runtime.messages import UpdateType


class Codec:
    """Encodes and decodes entities for one pipeline.

    Raises SchemaError if the pipeline lacks a table, action or field that the controller needs.
    """

    def __init__(self, schema: Schema) -> None:
        tables = PipelineTables(schema)
        self._encoder = Encoder(tables)
        self._decoder = Decoder(tables)
        self.update = self._encoder.update
        self.route_head = self._encoder.route_head
        self.route_tail = self._encoder.route_tail
        self.group_size = tables.group_size
        """Largest sum of a next-hop group's weights that the pipeline accepts."""
        self._routes = frozenset(table.id for table in tables.fibs.values())
        self._reader = RouteReader(
            self._decoder.decode,
            {table.id: size for size, table in tables.fibs.items()},
            {table.id: table.fields["dst_addr"] for table in tables.fibs.values()},
        )

    def read_requests(self) -> list[p4r.Entity]:
        """Returns requests that together read all installed entities."""
        return self._decoder.read_requests()

    def is_route(self, request: p4r.Entity) -> bool:
        """Returns whether a request of `read_requests` reads routes.

        The answer to such a request may be very long.
        """
        return request.table_entry.table_id in self._routes

    def request(self, kind: EntityKind, key: EntityKey) -> p4r.Entity:
        """Returns the request that reads the value of one key."""
        request = p4r.WriteRequest.FromString(self.update(UpdateType.DELETE, kind, key, None))
        return request.updates[0].entity

    def read_part(self, part: bytes, table: RouteTable) -> Iterator[list[DecodedEntity]]:
        """Stores the routes of an encoded ReadResponse in `table`. Decodes and yields its other
        entities.

        Yields a slice from time to time even without entities, because a response may have very
        many routes. Raises DecodeError.
        """
        return self._reader.read(part, table)

    def decode(self, entity: p4r.Entity) -> DecodedEntity | None:
        """Returns (kind, key, value) of an entity, or None if the controller does not manage it."""
        return self._decoder.decode(entity)
