# SPDX-License-Identifier: Apache-2.0
"""Tests the interposer. Both the controller and the switch are simulated by the test."""

import queue
import socket
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
from finsy.proto import p4i, p4r
from google.protobuf import text_format

from sluice_testkit import where
from sluice_testkit.interposer import Interposer
from sluice_testkit.namespaces import Namespace
from sluice_testkit.process import Supervisor
from sluice_testkit.wait import wait_until

HERE = Namespace("here", Path("/proc/self/ns/net"), ())
SERVICE = "p4.v1.P4Runtime"
DETAILS = ("grpc-status-details-bin", b"one error for each update")


class Switch:
    """Acts as a switch that accepts writes unless `refuses` is set, answers reads and echoes
    packets.
    """

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.refuses = False
        server = grpc.server(futures.ThreadPoolExecutor(8))
        handlers = {
            "Write": grpc.unary_unary_rpc_method_handler(self._write),
            "Read": grpc.unary_stream_rpc_method_handler(self._read),
            "StreamChannel": grpc.stream_stream_rpc_method_handler(self._stream),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        self.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        self.server = server

    def _write(self, request: bytes, context: Any) -> bytes:
        self.writes.append(request)
        if self.refuses:
            context.set_trailing_metadata((DETAILS,))
            context.abort(grpc.StatusCode.UNKNOWN, "refused")
        return b""

    def _read(self, request: bytes, context: Any) -> Iterator[bytes]:
        yield b"part"

    def _stream(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        for request in requests:
            out = p4r.StreamMessageRequest.FromString(request)
            answer = p4r.StreamMessageResponse()
            if out.HasField("packet"):
                answer.packet.payload = out.packet.payload
            else:
                answer.arbitration.device_id = out.arbitration.device_id
            yield answer.SerializeToString()


class Client:
    """Acts as a controller: opens a stream and makes calls through the interposer."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address)
        self.requests: queue.Queue[bytes | None] = queue.Queue()
        stream = self.channel.stream_stream(f"/{SERVICE}/StreamChannel")
        self.answers = stream(iter(self.requests.get, None))

    def call(self, method: str, request: bytes) -> Any:
        return self.channel.unary_unary(f"/{SERVICE}/{method}").future(request)

    def send(self, payload: bytes) -> None:
        request = p4r.StreamMessageRequest()
        request.packet.payload = payload
        self.requests.put(request.SerializeToString())

    def receive(self) -> bytes:
        answer = p4r.StreamMessageResponse.FromString(next(self.answers))
        return bytes(answer.packet.payload)


@pytest.fixture(scope="module")
def running() -> Iterator[Switch]:
    switch = Switch()
    yield switch
    switch.server.stop(None)


@pytest.fixture(scope="module")
def interposer(running: Switch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interposer]:
    directory = tmp_path_factory.mktemp("interposer")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    with Supervisor(directory) as supervisor:
        interposer = Interposer(HERE, running.address, directory, supervisor, port=port)
        interposer.start()
        yield interposer


@pytest.fixture
def switch(running: Switch) -> Switch:
    running.writes.clear()
    running.refuses = False
    return running


@pytest.fixture
def client(interposer: Interposer, switch: Switch) -> Iterator[Client]:
    client = Client(interposer.address)
    yield client
    client.requests.put(None)
    client.channel.close()


def write_to(table: str) -> bytes:
    """Returns a write of one entry to a table of the pipeline."""
    text = (where.pipeline() / "router.p4info.txtpb").read_text(encoding="utf-8")
    p4info = text_format.Parse(text, p4i.P4Info())
    (number,) = (one.preamble.id for one in p4info.tables if one.preamble.alias == table)
    request = p4r.WriteRequest(device_id=1)
    update = request.updates.add(type=p4r.Update.INSERT)
    update.entity.table_entry.table_id = number
    return bytes(request.SerializeToString())


def test_bytes_pass_as_they_are(client: Client, switch: Switch) -> None:
    request = write_to("nexthop")
    assert client.call("Write", request).result(timeout=10) == b""
    assert switch.writes == [request]
    read = client.channel.unary_stream(f"/{SERVICE}/Read")
    assert list(read(b"", timeout=10)) == [b"part"]


def test_errors_pass_with_their_details(client: Client, switch: Switch) -> None:
    switch.refuses = True
    with pytest.raises(grpc.RpcError) as raised:
        client.call("Write", write_to("nexthop")).result(timeout=10)
    error: Any = raised.value
    assert (error.code(), error.details()) == (grpc.StatusCode.UNKNOWN, "refused")
    assert DETAILS in {(key, value) for key, value in error.trailing_metadata()}


def test_a_held_write_goes_when_it_is_released(
    client: Client, switch: Switch, interposer: Interposer
) -> None:
    held, other = write_to("inbound.ipv4_flow"), write_to("engine")
    with interposer.hold("write", tables="inbound.ipv4_flow") as writes:
        waiting = client.call("Write", held)
        assert writes.wait_for(1)[0]["updates"] == {"INSERT inbound.ipv4_flow": 1}
        client.call("Write", other).result(timeout=10)
        assert switch.writes == [other]
        assert writes.release() == 1
        waiting.result(timeout=10)
    assert switch.writes == [other, held]
    written = interposer.written()
    assert (written["INSERT inbound.ipv4_flow"], written["INSERT engine"]) == (1, 1)


def test_a_held_answer_has_reached_the_switch(
    client: Client, switch: Switch, interposer: Interposer
) -> None:
    with interposer.hold("answer") as answers:
        waiting = client.call("Write", write_to("nexthop"))
        answers.wait_for(1)
        assert len(switch.writes) == 1
        assert not waiting.done()
    waiting.result(timeout=10)


def test_a_write_is_dropped(client: Client, switch: Switch, interposer: Interposer) -> None:
    with interposer.drop("write") as lost:
        with pytest.raises(grpc.RpcError, match="dropped by the proxy"):
            client.call("Write", write_to("nexthop")).result(timeout=10)
        assert lost.dropped() == 1
    assert switch.writes == []


def test_packets_are_held_in_order_and_dropped(client: Client, interposer: Interposer) -> None:
    with interposer.hold("packet_out") as packets:
        for payload in (b"one", b"two", b"three"):
            client.send(payload)
        held = packets.wait_for(3)
        assert [bytes.fromhex(facts["frame"]) for facts in held] == [b"one", b"two", b"three"]
        assert packets.release(1) == 1
        assert client.receive() == b"one"
        assert packets.discard(1) == 1
    assert client.receive() == b"three"
    with interposer.drop("packet_in") as lost:
        client.send(b"four")
        wait_until(lambda: lost.dropped() == 1, 10, "a lost packet")
    client.send(b"five")
    assert client.receive() == b"five"


def test_a_session_that_was_hung_up_has_ended(client: Client, interposer: Interposer) -> None:
    client.send(b"one")
    assert client.receive() == b"one"
    before = interposer.sessions()
    interposer.ask(do="hang up")
    with pytest.raises(StopIteration):
        client.receive()
    assert interposer.sessions() == before


def test_what_is_held_of_a_stream_goes_with_it(client: Client, interposer: Interposer) -> None:
    with interposer.hold("packet_out") as packets:
        client.send(b"one")
        packets.wait_for(1)
        client.channel.close()
        wait_until(lambda: not packets.held(), 10, "the stream's end")
