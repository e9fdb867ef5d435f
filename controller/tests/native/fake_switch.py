# SPDX-License-Identifier: Apache-2.0
"""Runs a P4Runtime server in this process, with grpcio and finsy's message classes.

The server records requests and returns the answers that the test gives. The server does not model a
switch.
"""

# ruff: noqa: N802 -- the methods have gRPC's names

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from types import TracebackType
from typing import Any, Self

import grpc  # type: ignore[import-untyped]
from finsy.proto import p4r, p4r_grpc, rpc_status

Status = tuple[int, str]
NO_LIMIT = 512 * 1024 * 1024


def write_status(errors: list[Status]) -> rpc_status.Status:
    """Returns the status of a Write in which some updates failed."""
    status = rpc_status.Status(code=2, message="some updates failed")
    for code, message in errors:
        status.details.add().Pack(p4r.Error(canonical_code=code, message=message))
    return status


class FakeSwitch(p4r_grpc.P4RuntimeServicer):
    """Listens for clients while its context is open, on the given address or on a free port."""

    def __init__(
        self, listen: str = "127.0.0.1:0", credentials: grpc.ServerCredentials | None = None
    ) -> None:
        self._listen, self._credentials = listen, credentials
        self.requests: queue.Queue[p4r.StreamMessageRequest] = queue.Queue()
        self.responses: queue.Queue[p4r.StreamMessageResponse | None] = queue.Queue()
        self.writes: list[p4r.WriteRequest] = []
        self.write_errors: Callable[[p4r.WriteRequest], list[Status]] = lambda _: []
        self.write_gate = threading.Event()
        self.write_gate.set()
        self.read_parts: Callable[[p4r.ReadRequest], Iterator[p4r.ReadResponse]] = lambda _: iter(
            ()
        )
        self.pipelines: list[p4r.SetForwardingPipelineConfigRequest] = []
        self.port = 0

    def __enter__(self) -> Self:
        options = [
            ("grpc.max_receive_message_length", NO_LIMIT),
            ("grpc.max_send_message_length", NO_LIMIT),
            ("grpc.max_metadata_size", NO_LIMIT),
            ("grpc.absolute_max_metadata_size", NO_LIMIT),
        ]
        self._server = grpc.server(futures.ThreadPoolExecutor(16), options=options)
        p4r_grpc.add_P4RuntimeServicer_to_server(self, self._server)
        if self._credentials is None:
            self.port = self._server.add_insecure_port(self._listen)
        else:
            self.port = self._server.add_secure_port(self._listen, self._credentials)
        self._server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.write_gate.set()
        self.responses.put(None)
        self._server.stop(0).wait()

    @property
    def address(self) -> str:
        if self._listen.startswith("unix:"):
            return self._listen
        return f"{self._listen.rpartition(':')[0]}:{self.port}"

    def StreamChannel(
        self, request_iterator: Iterator[p4r.StreamMessageRequest], context: Any
    ) -> Any:
        def receive() -> None:
            try:
                for request in request_iterator:
                    self.requests.put(request)
            except grpc.RpcError:
                pass  # the client closed the stream; tests check that in the client

        threading.Thread(target=receive, daemon=True).start()
        while (response := self.responses.get()) is not None:
            yield response
        self.responses.put(None)  # ends a later stream too, if there is one

    def Write(self, request: p4r.WriteRequest, context: Any) -> p4r.WriteResponse:
        self.writes.append(request)
        assert self.write_gate.wait(60)
        errors = self.write_errors(request)
        if errors:
            status = write_status(errors)
            context.set_code(grpc.StatusCode.UNKNOWN)
            context.set_details(status.message)
            context.set_trailing_metadata([("grpc-status-details-bin", status.SerializeToString())])
        return p4r.WriteResponse()

    def Read(self, request: p4r.ReadRequest, context: Any) -> Iterator[p4r.ReadResponse]:
        return self.read_parts(request)

    def SetForwardingPipelineConfig(
        self, request: p4r.SetForwardingPipelineConfigRequest, context: Any
    ) -> p4r.SetForwardingPipelineConfigResponse:
        self.pipelines.append(request)
        return p4r.SetForwardingPipelineConfigResponse()

    def GetForwardingPipelineConfig(
        self, request: p4r.GetForwardingPipelineConfigRequest, context: Any
    ) -> p4r.GetForwardingPipelineConfigResponse:
        response = p4r.GetForwardingPipelineConfigResponse()
        if self.pipelines:
            response.config.CopyFrom(self.pipelines[-1].config)
        return response

    def Capabilities(
        self, request: p4r.CapabilitiesRequest, context: Any
    ) -> p4r.CapabilitiesResponse:
        return p4r.CapabilitiesResponse(p4runtime_api_version="1.5.0")
