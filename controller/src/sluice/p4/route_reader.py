# SPDX-License-Identifier: Apache-2.0
"""Decodes a read-back full table: a million entries that differ in little but their prefix.

An entry of a route is encoded as a head (table, VRF), the LPM match, and a tail (the action). Heads
and tails are few: each is decoded once, by protobuf and `Decoder`, and looked up from then on. What
looks different in any way is left to them, so the result is always theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sluice.entities import UNKNOWN, Key, Kind, RouteSlot, Value
from sluice.model import Prefix
from sluice.p4messages import p4r

Decoded = tuple[Kind, Key, Value]

_made = tuple.__new__
"""Makes a named tuple of a tuple, in half of the time that its own constructor takes."""
LIMIT = 65536
"""Tails that are kept; then they are learnt anew."""
_ENTITIES = 0x0A  # ReadResponse.entities
_TABLE_ENTRY, _MATCH, _LPM, _VALUE, _LENGTH = 0x12, 0x12, 0x22, 0x0A, 0x10  # fields in an Entity


class _Head:
    """A table and VRF, and what the tails behind it mean."""

    def __init__(self, encoded: bytes, field: int, size: int, vrf: int) -> None:
        self.encoded = encoded
        self.field = field
        self.size = size
        self.vrf = vrf
        self.tails: dict[bytes, Value] = {}


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
        self._heads: list[_Head] = []
        self._tails = 0

    def decoded(self, part: bytes) -> Iterator[Decoded]:
        """What is in a response, in order; nothing for what is none of the controller's business.
        Raises DecodeError."""
        at, end = 0, len(part)
        while at < end:
            size = part[at + 1] if end - at > 1 else 0x80
            if part[at] != _ENTITIES or size >= 0x80 or end - at < 2 + size:
                rest = p4r.ReadResponse.FromString(part[at:])
                for entity in rest.entities:
                    found = self._decode(entity)
                    if found is not None:
                        yield found
                return
            start, at = at + 2, at + 2 + size
            encoded = part[start:at]
            known = self._route(encoded) or self._learn(encoded)
            if known is not None:
                yield known

    def _route(self, entity: bytes) -> Decoded | None:
        """A route of known head and tail; else None."""
        for head in self._heads:
            if not entity.startswith(head.encoded, 2):
                continue
            cut = _cut(entity, head)
            if cut is None:
                return None
            prefix, tail = cut
            value = head.tails.get(entity[tail:])
            return value and (Kind.ROUTE, _made(RouteSlot, (head.vrf, prefix)), value)
        return None

    def _learn(self, encoded: bytes) -> Decoded | None:
        entity = p4r.Entity.FromString(encoded)
        found = self._decode(entity)
        if found is None or found[0] is not Kind.ROUTE or found[2] == UNKNOWN:
            return found
        slot, entry = found[1], entity.table_entry
        if not isinstance(slot, RouteSlot) or not entry.match:
            return found
        start = p4r.TableEntry(table_id=entry.table_id, match=entry.match[:1]).SerializeToString()
        if not entry.match[0].HasField("exact") or not encoded.startswith(start, 2):
            return found
        heads = [head for head in self._heads if head.encoded == start]
        if not heads:
            size, field = self._families[entry.table_id], self._fields[entry.table_id]
            heads = [_Head(start, field, size, slot.vrf)]
            self._heads += heads
        if self._tails >= LIMIT:
            self._heads, self._tails = heads, 0
            heads[0].tails = {}
        cut = _cut(encoded, heads[0])
        if cut is not None and cut[0] == slot.prefix:
            heads[0].tails[encoded[cut[1] :]] = found[2]
            self._tails += 1
        return found


def _cut(entity: bytes, head: _Head) -> tuple[Prefix, int] | None:
    """The prefix behind a head, and where the tail begins; None if it is not written as usual."""
    at = 2 + len(head.encoded)
    if len(entity) < at + 12 or entity[0] != _TABLE_ENTRY or entity[1] != len(entity) - 2:
        return None
    width = entity[at + 7]
    end = at + 8 + width
    if (
        entity[at] != _MATCH
        or entity[at + 2] != 0x08
        or entity[at + 3] != head.field
        or entity[at + 4] != _LPM
        or entity[at + 5] != width + 4
        or entity[at + 6] != _VALUE
        or entity[at + 1] != width + 8
        or not 0 < width <= head.size
        or len(entity) < end + 2
        or entity[end] != _LENGTH
        or entity[end + 1] >= 0x80
    ):
        return None
    value = entity[at + 8 : end]
    address = value if width == head.size else value.rjust(head.size, b"\0")
    return _made(Prefix, (address, entity[end + 1])), end + 2
