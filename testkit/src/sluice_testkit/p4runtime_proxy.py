# SPDX-License-Identifier: Apache-2.0
"""Runs a P4Runtime proxy that can hold messages, for tests that provoke races.

    python -m sluice_testkit.p4runtime_proxy --listen ADDRESS --switch ADDRESS
                                             --p4info FILE --control SOCKET

The proxy stands between a controller and a switch. It forwards messages and errors unchanged,
including the details of the errors. A gate controls each of four kinds of message: `packet_in`,
`packet_out`, `write`, and `answer` (the switch's answer to a successful write).

A gate forwards, holds or drops the messages whose fields match `wanted`. It forwards all other
messages. The fields of a packet are its metadata (named as in P4Info), addresses and ports. The
fields of a write are the tables that it updates. Messages of one stream keep their order, except
held ones, which are sent when they are released.

For the sender, a held message is like one in a slow network, and a dropped message like one in a
lossy network. A dropped packet is lost. A write gets no answer while the write or its answer is
held. A write fails with UNAVAILABLE if the write or its answer is dropped.

On the control socket, a request is one JSON object per line, and so is its answer (see `Control`).
The client of this socket is `sluice_testkit.interposer`. The proxy needs the controller's Python
environment (grpcio, finsy's messages).
"""

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import p4i, p4r
from google.protobuf import text_format

from sluice_testkit.packet import parse

MessageFields = dict[str, Any]
Forward = Callable[[bool], None]
"""Function that forwards a message (True) or drops it (False)."""

KINDS = ("packet_in", "packet_out", "write", "answer")
SERVICE = "p4.v1.P4Runtime"
UNARY = ("SetForwardingPipelineConfig", "GetForwardingPipelineConfig", "Capabilities")
OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # gRPC metadata has the details of a failed batch: one P4Runtime error per update.
    ("grpc.max_metadata_size", 4 << 20),
    ("grpc.absolute_max_metadata_size", 4 << 20),
    # By default, gRPC's C core sends a Unix socket's path as the `:authority` header. Rust's h2
    # refuses such a header.
    ("grpc.default_authority", "localhost"),
]
ENUMS = {
    "kind": "packet_out_kind_t",
    "stage": "stage_t",
    "origin": "origin_t",
    "reason": "punt_reason_t",
    "verdict": "verdict_t",
}
"""Maps a field of packet metadata to its enum type, which p4c's P4Info omits."""
ENTITIES_WITH_TABLE = ("table_entry", "direct_counter_entry", "direct_meter_entry")


class Names:
    """Maps ids in P4Info to names: tables, packet metadata and the members of enums."""

    def __init__(self, p4info: p4i.P4Info) -> None:
        self.tables = {table.preamble.id: table.preamble.alias for table in p4info.tables}
        self._fields = {
            table.preamble.id: {field.id: field.name for field in table.match_fields}
            for table in p4info.tables
        }
        self._parameters = {
            action.preamble.id: {one.id: one.name for one in action.params}
            for action in p4info.actions
        }
        self._members = {
            name: {int.from_bytes(one.value, "big"): one.name for one in enum.members}
            for name, enum in p4info.type_info.serializable_enums.items()
        }
        self._metadata = {
            header.preamble.alias: {one.id: one.name for one in header.metadata}
            for header in p4info.controller_packet_metadata
        }

    def of_packet(self, header: str, packet: Any) -> MessageFields:
        """Returns a packet's addresses, protocol, destination port and metadata. Metadata fields
        have their P4Info names. Values of an enum are given by their names.
        """
        frame = parse(packet.payload)
        fields: MessageFields = {
            "source": frame.source,
            "destination": frame.destination,
            "protocol": frame.protocol,
            "destination_port": frame.destination_port,
            "frame": packet.payload.hex(),
        }
        for one in packet.metadata:
            name = self._metadata[header][one.metadata_id]
            value = int.from_bytes(one.value, "big")
            fields[name] = self._members.get(ENUMS.get(name, ""), {}).get(value, value)
        return fields

    def of_entry(self, entry: Any) -> MessageFields:
        """Returns the match fields and action parameters of a table entry by name, as numbers. The
        table must use only exact matches.
        """
        fields, action = self._fields[entry.table_id], entry.action.action
        parameters = self._parameters[action.action_id]
        return {
            fields[one.field_id]: int.from_bytes(one.exact.value, "big") for one in entry.match
        } | {parameters[one.param_id]: int.from_bytes(one.value, "big") for one in action.params}

    def of_write(self, data: bytes) -> MessageFields:
        """Returns the tables of a Write, and the number of its updates by update type and table."""
        counts: Counter[str] = Counter()
        for update in p4r.WriteRequest.FromString(data).updates:
            kind = p4r.Update.Type.Name(update.type)
            entity = update.entity
            which = entity.WhichOneof("entity") or "nothing"
            if which in ENTITIES_WITH_TABLE:
                message: Any = getattr(entity, which)
                entry = message if which == "table_entry" else message.table_entry
                counts[f"{kind} {self.tables.get(entry.table_id, entry.table_id)}"] += 1
            else:
                counts[f"{kind} {which}"] += 1
        return {"tables": sorted({word.partition(" ")[2] for word in counts}), "updates": counts}


@dataclass
class Gate:
    """Holds the gate of one kind of message. `mode` applies to messages whose fields match
    `wanted`; all others are forwarded.
    """

    mode: str = "pass"
    wanted: MessageFields = field(default_factory=dict)
    held: list[tuple[MessageFields, Forward]] = field(default_factory=list)
    dropped: int = 0

    def take(self, fields: MessageFields, forward: Forward) -> None:
        """Forwards, holds or drops one message, as `mode` says. `forward` is called with the
        decision.
        """
        if self.mode == "pass" or not self._is_wanted(fields):
            forward(True)
        elif self.mode == "hold":
            self.held.append((fields, forward))
        else:
            self.dropped += 1
            forward(False)

    def _is_wanted(self, fields: MessageFields) -> bool:
        for name, value in self.wanted.items():
            found = fields.get(name)
            if value not in found if isinstance(found, list) else value != found:
                return False
        return True

    def release_held(self, on: bool, count: int | None) -> int:
        """Decides about the oldest `count` held messages: forwards (`on`) or drops them. Returns
        their number.
        """
        going = self.held[:count]
        del self.held[: len(going)]
        for _, forward in going:
            forward(on)
        return len(going)

    def forget(self, forward: Forward) -> None:
        """Removes a held message whose sender no longer waits for the decision."""
        self.held = [one for one in self.held if one[1] is not forward]


class Proxy:
    """Implements the P4Runtime service. Makes one call to the switch for each call of a client."""

    def __init__(self, channel: grpc.aio.Channel, names: Names) -> None:
        self._channel = channel
        self._names = names
        self.gates = {kind: Gate() for kind in KINDS}
        self.written: Counter[str] = Counter()
        self.streams = 0
        self._open: set[asyncio.Queue[Any]] = set()

    def handlers(self) -> grpc.GenericRpcHandler:
        """Returns gRPC handlers without serializers: messages are passed on as bytes."""
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(partial(self._unary, name)) for name in UNARY
        }
        handlers["Write"] = grpc.unary_unary_rpc_method_handler(self._write)
        handlers["Read"] = grpc.unary_stream_rpc_method_handler(self._read)
        handlers["StreamChannel"] = grpc.stream_stream_rpc_method_handler(self._stream)
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    async def entries(self, device_id: int, table: str) -> list[MessageFields]:
        """Reads the entries of a table from the switch. The table must use only exact matches."""
        (number,) = (key for key, name in self._names.tables.items() if name == table)
        request = p4r.ReadRequest(device_id=device_id)
        request.entities.add().table_entry.table_id = number
        found: list[MessageFields] = []
        async for part in self._channel.unary_stream(_path("Read"))(request.SerializeToString()):
            entities = p4r.ReadResponse.FromString(part).entities
            found += [self._names.of_entry(entity.table_entry) for entity in entities]
        return found

    # -- calls

    async def _unary(self, name: str, request: bytes, context: Any) -> bytes:
        try:
            answer: bytes = await self._channel.unary_unary(_path(name))(request)
        except grpc.aio.AioRpcError as error:
            await _fail_with_same_status(context, error)
        return answer

    async def _write(self, request: bytes, context: Any) -> bytes:
        fields = self._names.of_write(request)
        self.written.update(fields["updates"])
        await self._pass("write", fields, context)
        answer = await self._unary("Write", request, context)
        await self._pass("answer", fields, context)
        return answer

    async def _pass(self, kind: str, fields: MessageFields, context: Any) -> None:
        """Returns once the gate has let the message through.

        Fails the call with UNAVAILABLE if the gate drops the message.
        """
        decided: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def decide(on: bool) -> None:
            if not decided.done():
                decided.set_result(on)

        gate = self.gates[kind]
        gate.take(fields, decide)
        try:
            if not await decided:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "dropped by the proxy")
        finally:
            gate.forget(decide)

    async def _read(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        try:
            async for part in self._channel.unary_stream(_path("Read"))(request):
                yield part
        except grpc.aio.AioRpcError as error:
            await _fail_with_same_status(context, error)

    async def _stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        """Forwards a stream in both directions.

        Each direction has a queue for the messages that are to be forwarded: those that the gate
        lets pass at once, and those that it releases later.
        """
        self.streams += 1
        to_switch: asyncio.Queue[bytes | None] = asyncio.Queue()
        to_controller: asyncio.Queue[bytes | grpc.aio.AioRpcError | None] = asyncio.Queue()
        self._open.add(to_controller)
        call = self._channel.stream_stream(_path("StreamChannel"))(_until_none(to_switch))

        async def up() -> None:
            async for message in requests:
                self._gate_packet_out(message, to_switch)
            to_switch.put_nowait(None)

        async def down() -> None:
            try:
                async for message in call:
                    self._gate_packet_in(message, to_controller)
            except grpc.aio.AioRpcError as error:
                to_controller.put_nowait(error)
            to_controller.put_nowait(None)

        tasks = [asyncio.create_task(each()) for each in (up, down)]
        try:
            while (message := await to_controller.get()) is not None:
                if isinstance(message, grpc.aio.AioRpcError):
                    await _fail_with_same_status(context, message)
                else:
                    yield message
        finally:
            for task in tasks:
                task.cancel()
            call.cancel()
            self._open.discard(to_controller)
            self._drop_stream_messages()

    def hang_up(self) -> None:
        """Ends all streams, to controllers and to the switch."""
        for to_controller in self._open:
            to_controller.put_nowait(None)

    def _drop_stream_messages(self) -> None:
        """Drops the held packets when their stream has ended."""
        for kind in ("packet_in", "packet_out"):
            self.gates[kind].held.clear()

    def _gate_packet_out(self, data: bytes, queue: "asyncio.Queue[bytes | None]") -> None:
        message = p4r.StreamMessageRequest.FromString(data)
        if message.WhichOneof("update") != "packet":
            queue.put_nowait(data)
            return
        fields = self._names.of_packet("packet_out", message.packet)
        self.gates["packet_out"].take(fields, partial(_forward, queue, data))

    def _gate_packet_in(self, data: bytes, queue: "asyncio.Queue[Any]") -> None:
        message = p4r.StreamMessageResponse.FromString(data)
        if message.WhichOneof("update") != "packet":
            queue.put_nowait(data)
            return
        fields = self._names.of_packet("packet_in", message.packet)
        self.gates["packet_in"].take(fields, partial(_forward, queue, data))


def _forward(queue: "asyncio.Queue[Any]", data: bytes, on: bool) -> None:
    if on:
        queue.put_nowait(data)


async def _until_none(queue: "asyncio.Queue[bytes | None]") -> AsyncIterator[bytes]:
    while (message := await queue.get()) is not None:
        yield message


def _path(method: str) -> str:
    return f"/{SERVICE}/{method}"


async def _fail_with_same_status(context: Any, error: grpc.aio.AioRpcError) -> None:
    """Fails the call with the switch's error: code, text and the details of each update."""
    await context.abort(error.code(), error.details() or "", tuple(error.trailing_metadata() or ()))


class Control:
    """Serves the requests of a test.

    The list shows each request, and what it returns (after `->`) or does.

        {"do": "set", "kind": K, "mode": "pass" | "hold" | "drop", "wanted": FIELDS}
                                              sets a gate; mode "pass" forwards held messages
        {"do": "let go", "kind": K, "on": true | false, "count": N | null}
                                              forwards or drops held messages -> their number
        {"do": "held", "kind": K}             -> the fields of each held message
        {"do": "dropped", "kind": K}          -> number of dropped messages since the last `set`
        {"do": "written"}                     -> updates since the start, by type and table
        {"do": "streams"}                     -> number of sessions since the start
        {"do": "hang up"}                     ends all sessions
        {"do": "entries", "device_id": N, "table": T}
                                              -> the entries of the switch's table
    """

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._commands: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "set": self._set,
            "let go": self._release_held,
            "held": self._held,
            "dropped": self._dropped,
            "written": self._written,
            "streams": self._streams,
            "hang up": self._hang_up,
            "entries": self._entries,
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one client of the control socket."""
        while line := await reader.readline():
            request = json.loads(line)
            answer = await self._commands[request["do"]](request)
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        writer.close()

    async def _set(self, request: Any) -> None:
        gate = self._proxy.gates[request["kind"]]
        gate.mode, gate.wanted, gate.dropped = request["mode"], request["wanted"], 0
        if gate.mode == "pass":
            gate.release_held(True, None)

    async def _release_held(self, request: Any) -> int:
        return self._proxy.gates[request["kind"]].release_held(request["on"], request["count"])

    async def _held(self, request: Any) -> list[MessageFields]:
        return [fields for fields, _ in self._proxy.gates[request["kind"]].held]

    async def _dropped(self, request: Any) -> int:
        return self._proxy.gates[request["kind"]].dropped

    async def _written(self, request: Any) -> dict[str, int]:
        return dict(self._proxy.written)

    async def _streams(self, request: Any) -> int:
        return self._proxy.streams

    async def _hang_up(self, request: Any) -> None:
        self._proxy.hang_up()

    async def _entries(self, request: Any) -> list[MessageFields]:
        return await self._proxy.entries(request["device_id"], request["table"])


async def _run(listen: str, switch: str, p4info: Path, control: Path) -> None:
    names = Names(text_format.Parse(p4info.read_text(encoding="utf-8"), p4i.P4Info()))
    async with grpc.aio.insecure_channel(switch, options=OPTIONS) as channel:
        proxy = Proxy(channel, names)
        server = grpc.aio.server(options=OPTIONS)
        server.add_generic_rpc_handlers((proxy.handlers(),))
        server.add_insecure_port(listen)
        await server.start()
        async with await asyncio.start_unix_server(Control(proxy).serve, control):
            await server.wait_for_termination()


def main() -> None:
    """Runs until a signal ends the process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listen", required=True)
    parser.add_argument("--switch", required=True)
    parser.add_argument("--p4info", required=True, type=Path)
    parser.add_argument("--control", required=True, type=Path)
    given = parser.parse_args()
    asyncio.run(_run(given.listen, given.switch, given.p4info, given.control))


if __name__ == "__main__":
    main()
