# SPDX-License-Identifier: Apache-2.0
"""Provides a P4Runtime client for any P4 program. It controls one device and is its only client.

Depends on grpc and P4Runtime's stubs. A constructed client is primary. If the switch refuses a
call, Refused is raised with the switch's message.
"""

from __future__ import annotations

import queue
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import grpc
from google.rpc import code_pb2, status_pb2
from p4.v1 import p4runtime_pb2, p4runtime_pb2_grpc

SECONDS = 30.0


class Refused(Exception):
    """The switch refused a call."""


class Client:
    """A session that is primary of one device while it is open."""

    def __init__(self, address: str, device_id: int):
        self._device_id = device_id
        self._channel = grpc.insecure_channel(address)
        self._stub = p4runtime_pb2_grpc.P4RuntimeStub(self._channel)
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        hello = p4runtime_pb2.StreamMessageRequest()
        hello.arbitration.device_id = device_id
        hello.arbitration.election_id.low = 1
        self._requests.put(hello)
        # Keeps a reference to the stream: if the object were garbage-collected, the stream would
        # end, and the session would no longer be primary.
        self._responses = self._stub.StreamChannel(self._outgoing(), wait_for_ready=True)
        try:
            answer = next(self._responses)
        except grpc.RpcError as error:
            raise Refused(f"no stream: {error.details()}") from None
        if answer.arbitration.status.code != code_pb2.OK:
            raise Refused(f"not primary: {answer.arbitration.status.message}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._requests.put(None)
        self._channel.close()

    def _outgoing(self) -> Iterator[Any]:
        while (request := self._requests.get()) is not None:
            yield request

    def load(self, p4info: Any, device_config: bytes) -> None:
        """Loads a program. Raises Refused."""
        request = p4runtime_pb2.SetForwardingPipelineConfigRequest(
            device_id=self._device_id,
            action=p4runtime_pb2.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
        )
        request.election_id.low = 1
        request.config.p4info.CopyFrom(p4info)
        request.config.p4_device_config = device_config
        try:
            self._stub.SetForwardingPipelineConfig(request, timeout=SECONDS)
        except grpc.RpcError as error:
            raise Refused(f"{error.code().name}: {error.details()}") from None

    def write(self, update: Any) -> None:
        """Sends one update. Raises Refused."""
        request = p4runtime_pb2.WriteRequest(device_id=self._device_id, updates=[update])
        request.election_id.low = 1
        try:
            self._stub.Write(request, timeout=SECONDS)
        except grpc.RpcError as error:
            raise Refused(_reason(error)) from None

    def read_one(self, entity: Any) -> Any:
        """Reads exactly one entity. Raises Refused."""
        request = p4runtime_pb2.ReadRequest(device_id=self._device_id, entities=[entity])
        try:
            answers = list(self._stub.Read(request, timeout=SECONDS))
        except grpc.RpcError as error:
            raise Refused(f"{error.code().name}: {error.details()}") from None
        found = [entity for answer in answers for entity in answer.entities]
        if len(found) != 1:
            raise Refused(f"the switch returned {len(found)} entities instead of one")
        return found[0]


def _reason(error: grpc.RpcError) -> str:
    """Returns the switch's error message for the first update (P4Runtime 1.5, section 12.3)."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            for packed in status_pb2.Status.FromString(value).details:
                detail = p4runtime_pb2.Error()
                packed.Unpack(detail)
                return f"{code_pb2.Code.Name(detail.canonical_code)}: {detail.message}"
    return f"{error.code().name}: {error.details()}"
