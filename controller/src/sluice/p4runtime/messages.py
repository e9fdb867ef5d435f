# SPDX-License-Identifier: Apache-2.0
"""Encodes P4Runtime requests.

Write requests are assembled from encoded updates. Encoded protobuf fields can be concatenated, so a
batch is an encoded header followed by encoded updates. An update may be encoded without protobuf
(for routes see `sluice.p4.encoder`).
"""

from __future__ import annotations

from enum import IntEnum

from sluice.p4messages import p4r

_LENGTH_DELIMITED = 2
_WRITE_REQUEST_UPDATES = bytes([4 << 3 | _LENGTH_DELIMITED])
_DATAPLANE_ATOMIC = p4r.WriteRequest(
    atomicity=p4r.WriteRequest.Atomicity.DATAPLANE_ATOMIC
).SerializeToString()
_UPDATE_TYPE = bytes([1 << 3])
_UPDATE_ENTITY = bytes([2 << 3 | _LENGTH_DELIMITED])


class UpdateType(IntEnum):
    """Type of an update (p4.v1.Update.Type)."""

    INSERT = 1
    MODIFY = 2
    DELETE = 3


_OPERATION_BYTES = {operation: _UPDATE_TYPE + bytes([operation]) for operation in UpdateType}


def varint(number: int) -> bytes:
    """Encodes a non-negative number as protobuf's varint."""
    if number < 0x80:
        return bytes((number,))
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def field(number: int, payload: bytes) -> bytes:
    """Encodes a length-delimited protobuf field."""
    return varint(number << 3 | _LENGTH_DELIMITED) + varint(len(payload)) + payload


def update(operation: UpdateType, entity: bytes) -> bytes:
    """Encodes an update of a serialized Entity as the field `updates` of a write request."""
    size = len(entity)
    if size < 0x7B:  # each of the two lengths fits one octet, as for every route
        return b"%b%c%b%b%c%b" % (
            _WRITE_REQUEST_UPDATES,
            size + 4,
            _OPERATION_BYTES[operation],
            _UPDATE_ENTITY,
            size,
            entity,
        )
    body = _OPERATION_BYTES[operation] + _UPDATE_ENTITY + varint(size) + entity
    return _WRITE_REQUEST_UPDATES + varint(len(body)) + body


class RequestFactory:
    """Encodes the requests of one session."""

    def __init__(self, device_id: int, election_id: tuple[int, int], role: str | None) -> None:
        self._device_id = device_id
        self._election_id = p4r.Uint128(high=election_id[0], low=election_id[1])
        self._role = role or ""
        self._write_header = p4r.WriteRequest(
            device_id=device_id, election_id=self._election_id, role=self._role
        ).SerializeToString()

    def write(self, updates: list[bytes], *, atomic: bool = False) -> bytes:
        """Encodes a WriteRequest with atomicity CONTINUE_ON_ERROR or DATAPLANE_ATOMIC."""
        header = self._write_header + _DATAPLANE_ATOMIC if atomic else self._write_header
        return header + b"".join(updates)

    def read(self, entities: list[p4r.Entity]) -> bytes:
        """Encodes a ReadRequest."""
        request = p4r.ReadRequest(device_id=self._device_id, role=self._role, entities=entities)
        return request.SerializeToString()

    def get_pipeline(self, cookie_only: bool) -> bytes:
        """Encodes a GetForwardingPipelineConfigRequest."""
        kinds = p4r.GetForwardingPipelineConfigRequest.ResponseType
        return p4r.GetForwardingPipelineConfigRequest(
            device_id=self._device_id,
            response_type=kinds.COOKIE_ONLY if cookie_only else kinds.ALL,
        ).SerializeToString()

    def set_pipeline(self, config: p4r.ForwardingPipelineConfig) -> bytes:
        """Encodes a SetForwardingPipelineConfigRequest with action VERIFY_AND_COMMIT."""
        return p4r.SetForwardingPipelineConfigRequest(
            device_id=self._device_id,
            election_id=self._election_id,
            role=self._role,
            action=p4r.SetForwardingPipelineConfigRequest.Action.VERIFY_AND_COMMIT,
            config=config,
        ).SerializeToString()
