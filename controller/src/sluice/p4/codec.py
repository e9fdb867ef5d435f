# SPDX-License-Identifier: Apache-2.0
"""Entities to P4Runtime and back: the encoder and the decoder of one pipeline."""

from __future__ import annotations

from collections.abc import Iterator

from sluice._native import RouteTable
from sluice.entities import Key, Kind
from sluice.p4.decoder import Decoded, Decoder
from sluice.p4.encoder import Encoder
from sluice.p4.route_reader import RouteReader
from sluice.p4.schema import Schema
from sluice.p4.tables import PipelineTables
from sluice.p4messages import p4r
from sluice.p4runtime.messages import Operation


class Codec:
    """The updates of one pipeline. Raises SchemaError when the pipeline is another."""

    def __init__(self, schema: Schema) -> None:
        tables = PipelineTables(schema)
        self._encoder = Encoder(tables)
        self._decoder = Decoder(tables)
        self.update = self._encoder.update
        self.route_head = self._encoder.route_head
        self.route_tail = self._encoder.route_tail
        self.group_size = tables.group_size
        """The largest sum of a next-hop group's weights that the pipeline takes."""
        self._routes = frozenset(table.id for table in tables.fibs.values())
        self._reader = RouteReader(
            self._decoder.decode,
            {table.id: size for size, table in tables.fibs.items()},
            {table.id: table.fields["dst_addr"] for table in tables.fibs.values()},
        )

    def read_requests(self) -> list[p4r.Entity]:
        """What to read to know all that is installed."""
        return self._decoder.read_requests()

    def is_route(self, request: p4r.Entity) -> bool:
        """Whether one of `read_requests` asks for routes, of which there may be very many."""
        return request.table_entry.table_id in self._routes

    def request(self, kind: Kind, key: Key) -> p4r.Entity:
        """What to read to know one entity."""
        asked = p4r.WriteRequest.FromString(self.update(Operation.DELETE, kind, key, None))
        return asked.updates[0].entity

    def read_part(self, part: bytes, table: RouteTable) -> Iterator[list[Decoded]]:
        """Puts the routes of an encoded ReadResponse, of which there may be very many, into
        `table`, and yields what `decode` says of the others slice by slice. Raises DecodeError."""
        return self._reader.read(part, table)

    def decode(self, entity: p4r.Entity) -> Decoded | None:
        """The entity's (kind, key, value); None for what is none of the controller's business."""
        return self._decoder.decode(entity)
