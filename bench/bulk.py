# SPDX-License-Identifier: Apache-2.0
"""Builds P4Runtime writes with millions of table entries from encoded templates.

One entry is encoded with marker values in its fields. All further entries reuse these bytes, with
the markers replaced by values of the same lengths. P4Runtime's canonical form omits leading zeros.
So neither values nor markers may begin with a zero byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import grpc
from google.protobuf.message import Message
from p4.v1 import p4runtime_pb2

from sluice_ptf.runtime import ELECTION_ID

UPDATES = 10_000  # updates per write
SECONDS = 300.0
_UPDATE_FIELD = b"\x22"  # WriteRequest.updates, length-delimited


class Template:
    """Holds an encoded update, split at the places of its marker values (`marks`)."""

    def __init__(self, entity: p4runtime_pb2.Entity, marks: Sequence[bytes], kind: str = "INSERT"):
        number = p4runtime_pb2.Update.Type.Value(kind)
        update = p4runtime_pb2.Update(type=number, entity=entity)
        encoded = _field(_UPDATE_FIELD, update)
        self._lengths = [len(mark) for mark in marks]
        self._between = []
        for mark in marks:
            before, found, encoded = encoded.partition(mark)
            if not found or mark in encoded:
                raise ValueError(
                    f"mark {mark.hex()} must be in the entity once, in the order of the marks"
                )
            self._between.append(before)
        self._end = encoded

    def fill(self, *values: bytes) -> bytes:
        """Returns the encoded update with these values in place of the marks."""
        parts: list[bytes] = []
        for before, value, length in zip(self._between, values, self._lengths, strict=True):
            if len(value) != length or not value[0]:
                raise ValueError(
                    f"{value.hex()} has another length than its mark, or a zero first byte"
                )
            parts += (before, value)
        return b"".join((*parts, self._end))


def _field(tag: bytes, message: Message) -> bytes:
    body: bytes = message.SerializeToString()
    length, varint = len(body), b""
    while length > 0x7F:
        varint += bytes([length & 0x7F | 0x80])
        length >>= 7
    return tag + varint + bytes([length]) + body


def requests(updates: Iterable[bytes], device_id: int) -> Iterator[bytes]:
    """Yields encoded WriteRequests that contain the encoded updates. The sender must be the
    primary.
    """
    head = p4runtime_pb2.WriteRequest(device_id=device_id)
    head.election_id.low = ELECTION_ID
    start = head.SerializeToString()
    updates = iter(updates)
    while some := list(islice(updates, UPDATES)):
        yield start + b"".join(some)


def write(address: str, encoded: Iterable[bytes]) -> None:
    """Sends encoded writes one after the other. Raises grpc.RpcError when a write fails, and sends
    no more.
    """
    options = [("grpc.max_metadata_size", 4 * 1024 * 1024)]
    with grpc.insecure_channel(address, options=options) as channel:
        call = channel.unary_unary("/p4.v1.P4Runtime/Write")
        for request in encoded:
            call(request, timeout=SECONDS)
