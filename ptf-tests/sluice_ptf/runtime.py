# SPDX-License-Identifier: Apache-2.0
"""Provides a P4Runtime client for tests: one device, one primary, all calls synchronous.

Depends on schema for names. Guarantees:

- A constructed client is primary.
- A Write that fails raises WriteError with one line for each failed update.
- Packet-ins and idle timeout notifications are queued in the order in which the switch has sent
  them.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
from google.rpc import code_pb2, status_pb2
from p4.config.v1 import p4info_pb2
from p4.v1 import p4runtime_pb2, p4runtime_pb2_grpc

from sluice_ptf.schema import Schema, Value, bytestring

ELECTION_ID = 1
CALL_SECONDS = 30.0
MAX_MESSAGE = 256 * 1024 * 1024


class RuntimeClientError(Exception):
    """The switch violated P4Runtime."""


class WriteError(Exception):
    """A Write failed. `errors` has (code, message) of every update, in order."""

    def __init__(self, errors: Sequence[tuple[str, str]]):
        self.errors = list(errors)
        failed = [
            f"update {index}: {code}: {message}"
            for index, (code, message) in enumerate(self.errors)
            if code != "OK"
        ]
        super().__init__("\n".join(failed))


@dataclass(frozen=True)
class PacketIn:
    """Holds a packet-in: the frame as received, and its metadata by name."""

    frame: bytes
    metadata: Mapping[str, int]


@dataclass(frozen=True)
class Count:
    """Holds packets and bytes of a counter."""

    packets: int
    bytes: int

    def __sub__(self, other: Count) -> Count:
        return Count(self.packets - other.packets, self.bytes - other.bytes)


class RuntimeClient:
    """Holds a session that is primary of one device while it is open."""

    def __init__(self, address: str, schema: Schema, device_id: int = 1):
        self.schema = schema
        self.device_id = device_id
        options = [
            ("grpc.max_receive_message_length", MAX_MESSAGE),
            ("grpc.max_metadata_size", 4 * 1024 * 1024),
        ]
        self._channel = grpc.insecure_channel(address, options=options)
        self._stub = p4runtime_pb2_grpc.P4RuntimeStub(self._channel)
        self._requests: queue.SimpleQueue[p4runtime_pb2.StreamMessageRequest | None] = (
            queue.SimpleQueue()
        )
        self._arbitrations: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._packet_ins: queue.SimpleQueue[PacketIn] = queue.SimpleQueue()
        self._idle: queue.SimpleQueue[list[p4runtime_pb2.TableEntry]] = queue.SimpleQueue()
        self._in_fields = {field.id: field.name for field in schema.packet_fields("packet_in")}
        self._out_fields = schema.packet_fields("packet_out")
        self._reader = threading.Thread(target=self._read_stream, daemon=True)
        self._reader.start()
        self._become_primary()

    def __enter__(self) -> RuntimeClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the stream and the channel. May be called twice."""
        self._requests.put(None)
        self._channel.close()
        self._reader.join(CALL_SECONDS)

    # --- the stream -----------------------------------------------------------

    def _outgoing(self) -> Iterator[p4runtime_pb2.StreamMessageRequest]:
        while (request := self._requests.get()) is not None:
            yield request

    def _read_stream(self) -> None:
        try:
            for response in self._stub.StreamChannel(self._outgoing(), wait_for_ready=True):
                kind = response.WhichOneof("update")
                if kind == "packet":
                    self._packet_ins.put(self._packet_in(response.packet))
                elif kind == "idle_timeout_notification":
                    self._idle.put(list(response.idle_timeout_notification.table_entry))
                elif kind == "arbitration":
                    self._arbitrations.put(response.arbitration.status)
                elif kind == "error":
                    self._arbitrations.put(response.error)
        except (grpc.RpcError, ValueError) as error:
            self._arbitrations.put(error)

    def _packet_in(self, packet: p4runtime_pb2.PacketIn) -> PacketIn:
        metadata = {
            self._in_fields[item.metadata_id]: int.from_bytes(item.value, "big")
            for item in packet.metadata
        }
        return PacketIn(packet.payload, metadata)

    def _become_primary(self) -> None:
        request = p4runtime_pb2.StreamMessageRequest()
        request.arbitration.device_id = self.device_id
        request.arbitration.election_id.low = ELECTION_ID
        self._requests.put(request)
        try:
            answer = self._arbitrations.get(timeout=CALL_SECONDS)
        except queue.Empty:
            raise RuntimeClientError(f"no answer to arbitration in {CALL_SECONDS} s") from None
        if getattr(answer, "code", None) != code_pb2.OK:
            raise RuntimeClientError(f"not primary: {answer}")

    def next_packet_in(self, timeout: float) -> PacketIn | None:
        """Returns the oldest unread packet-in, or None if none arrives in `timeout` seconds."""
        try:
            return self._packet_ins.get(block=timeout > 0, timeout=timeout)
        except queue.Empty:
            return None

    def next_idle_entries(self, timeout: float) -> list[p4runtime_pb2.TableEntry] | None:
        """Returns the entries of the oldest unread idle timeout notification.

        Returns None if none arrives in `timeout` seconds.
        """
        try:
            return self._idle.get(block=timeout > 0, timeout=timeout)
        except queue.Empty:
            return None

    def packet_out(self, frame: bytes, metadata: Mapping[str, Value]) -> None:
        """Sends a packet-out. Metadata fields that are not given are 0."""
        self._requests.put(self.packet_out_request(frame, metadata))

    def packet_out_request(
        self, frame: bytes, metadata: Mapping[str, Value]
    ) -> p4runtime_pb2.StreamMessageRequest:
        """Returns the message that `packet_out` sends."""
        given = dict(metadata)
        request = p4runtime_pb2.StreamMessageRequest()
        request.packet.payload = frame
        for field in self._out_fields:
            number = self.schema.number(field.name, given.pop(field.name, 0))
            request.packet.metadata.add(
                metadata_id=field.id, value=bytestring(number, field.bitwidth)
            )
        if given:
            raise RuntimeClientError(f"the packet_out header has no field {', '.join(given)}")
        return request

    # --- calls ----------------------------------------------------------------

    def set_pipeline(self, device_config: Path) -> None:
        """Loads the pipeline's program, which deletes all forwarding state."""
        self.load_pipeline(self.schema.p4info, device_config.read_bytes())

    def load_pipeline(self, p4info: p4info_pb2.P4Info, device_config: bytes) -> None:
        """Loads a program. The client keeps the names of its own schema."""
        request = p4runtime_pb2.SetForwardingPipelineConfigRequest()
        request.device_id = self.device_id
        request.election_id.low = ELECTION_ID
        request.action = p4runtime_pb2.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
        request.config.p4info.CopyFrom(p4info)
        request.config.p4_device_config = device_config
        request.config.cookie.cookie = 1
        self._stub.SetForwardingPipelineConfig(request, timeout=CALL_SECONDS)

    def write(self, updates: Iterable[p4runtime_pb2.Update]) -> None:
        """Sends one Write with CONTINUE_ON_ERROR. Raises WriteError."""
        request = p4runtime_pb2.WriteRequest(device_id=self.device_id)
        request.election_id.low = ELECTION_ID
        request.updates.extend(updates)
        if not request.updates:
            return
        try:
            self._stub.Write(request, timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            raise WriteError(_update_errors(error)) from None

    def read(self, entities: Iterable[p4runtime_pb2.Entity]) -> list[p4runtime_pb2.Entity]:
        """Returns all entities that match the requested ones, in the switch's order."""
        request = p4runtime_pb2.ReadRequest(device_id=self.device_id)
        request.entities.extend(entities)
        responses = self._stub.Read(request, timeout=CALL_SECONDS)
        return [entity for response in responses for entity in response.entities]

    def counter_cells(self, counter: str, indices: Sequence[int]) -> dict[int, Count]:
        """Reads cells of an indirect counter."""
        counter_id = self.schema.counters[counter].preamble.id
        entities = []
        for index in indices:
            entity = p4runtime_pb2.Entity()
            entity.counter_entry.counter_id = counter_id
            entity.counter_entry.index.index = index
            entities.append(entity)
        return {
            entity.counter_entry.index.index: Count(
                entity.counter_entry.data.packet_count, entity.counter_entry.data.byte_count
            )
            for entity in self.read(entities)
        }

    def direct_count(self, entry: p4runtime_pb2.TableEntry) -> Count:
        """Reads the direct counter of a table entry."""
        entity = p4runtime_pb2.Entity()
        entity.direct_counter_entry.table_entry.CopyFrom(entry)
        found = self.read([entity])
        if len(found) != 1:
            raise RuntimeClientError(
                f"the switch returned {len(found)} direct counters for one entry"
            )
        data = found[0].direct_counter_entry.data
        return Count(data.packet_count, data.byte_count)

    def table_entries(self, table_id: int = 0) -> list[p4runtime_pb2.TableEntry]:
        """Returns all entries of a table (0: of all tables), without default entries."""
        entity = p4runtime_pb2.Entity()
        entity.table_entry.table_id = table_id
        return [found.table_entry for found in self.read([entity])]


def update(kind: str, entity: Any) -> p4runtime_pb2.Update:
    """Returns an update of the given kind (INSERT, MODIFY or DELETE) of a table entry, member,
    group or meter.
    """
    made = p4runtime_pb2.Update(type=p4runtime_pb2.Update.Type.Value(kind))
    for field in made.entity.DESCRIPTOR.fields:
        if field.message_type is entity.DESCRIPTOR:
            getattr(made.entity, field.name).CopyFrom(entity)
            return made
    raise RuntimeClientError(f"{type(entity).__name__} is no P4Runtime entity")


def _update_errors(error: grpc.RpcError) -> list[tuple[str, str]]:
    """Returns code and message of each update's p4.v1.Error (P4Runtime 1.5, section 12.3)."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            status = status_pb2.Status.FromString(value)
            details = []
            for packed in status.details:
                detail = p4runtime_pb2.Error()
                packed.Unpack(detail)
                details.append((code_pb2.Code.Name(detail.canonical_code), detail.message))
            if details:
                return details
    return [(error.code().name, error.details())]
