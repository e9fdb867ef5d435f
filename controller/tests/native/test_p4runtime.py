# SPDX-License-Identifier: Apache-2.0
"""Tests P4RuntimeClient against a gRPC server in this process."""

from __future__ import annotations

import gc
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from finsy.proto import p4r
from sluice_testkit.wait import wait_until

from native.drain import DEADLINE, Drain, readable
from native.fake_switch import FakeSwitch
from sluice._native import P4RuntimeClient

PACKET_IN = [(1, 16), (2, 9), (3, 32)]
PACKET_OUT = [(1, 8), (2, 16), (7, 128)]

READ_PARTS = 4
"""Limit of a read's parts that are not taken (`READ_PARTS` in session.rs)."""
PARTS = 10


@pytest.fixture
def switch() -> Iterator[FakeSwitch]:
    with FakeSwitch() as switch:
        yield switch


@pytest.fixture
def client(switch: FakeSwitch) -> Iterator[P4RuntimeClient]:
    with closing(P4RuntimeClient(switch.address, 1, (0, 5))) as client:
        client.set_packet_metadata(PACKET_IN, PACKET_OUT)
        yield client


@pytest.fixture
def events(client: P4RuntimeClient) -> Drain[Any]:
    return Drain(client)


def named(name: str, token: int | None = None) -> Any:
    return lambda event: event[0] == name and (token is None or event[1] == token)


def handled(stats: dict[str, int]) -> int:
    return stats["packet_in"] + stats["packet_in_dropped"]


def packet_in(payload: bytes, *metadata: tuple[int, bytes]) -> p4r.StreamMessageResponse:
    fields = [p4r.PacketMetadata(metadata_id=id_, value=value) for id_, value in metadata]
    return p4r.StreamMessageResponse(packet=p4r.PacketIn(payload=payload, metadata=fields))


def whole_packet_in(payload: bytes) -> p4r.StreamMessageResponse:
    return packet_in(payload, (1, b"\x00\x07"), (2, b"\x01\xfe"), (3, b"\x00"))


class TestStream:
    def test_connects_and_arbitrates(self, switch: FakeSwitch, events: Drain[Any]) -> None:
        events.until(named("connected"))
        request = switch.requests.get(timeout=DEADLINE).arbitration
        assert (request.device_id, request.election_id.high, request.election_id.low) == (1, 0, 5)
        assert not request.HasField("role")

        primary = p4r.StreamMessageResponse()
        primary.arbitration.election_id.low = 5
        switch.responses.put(primary)
        assert events.until(named("arbitration")) == ("arbitration", True, 0, "", (0, 5))

        nobody = p4r.StreamMessageResponse()
        nobody.arbitration.status.code = 5
        nobody.arbitration.status.message = "no primary"
        switch.responses.put(nobody)
        assert events.until(named("arbitration")) == ("arbitration", False, 5, "no primary", None)

    def test_arbitrates_again_and_with_a_role(self, switch: FakeSwitch) -> None:
        with closing(P4RuntimeClient(switch.address, 3, (1, 2), "routes")) as client:
            client.arbitrate((1, 3))
            first, second = (switch.requests.get(timeout=DEADLINE).arbitration for _ in range(2))
        assert (first.role.name, first.election_id.high, first.election_id.low) == ("routes", 1, 2)
        assert (second.device_id, second.election_id.low) == (3, 3)

    def test_notifications_pass_as_they_are(self, switch: FakeSwitch, events: Drain[Any]) -> None:
        digest = p4r.StreamMessageResponse(digest=p4r.DigestList(digest_id=4, list_id=9))
        idle = p4r.StreamMessageResponse(
            idle_timeout_notification=p4r.IdleTimeoutNotification(timestamp=8)
        )
        error = p4r.StreamMessageResponse(error=p4r.StreamError(message="no such port"))
        for message in (digest, idle, error):
            switch.responses.put(message)
        assert events.until(named("digest"))[1] == digest.digest.SerializeToString()
        assert events.until(named("idle_timeout"))[1] == (
            idle.idle_timeout_notification.SerializeToString()
        )
        assert events.until(named("stream_error"))[1] == error.error.SerializeToString()

    def test_a_stream_message_is_sent_as_it_is(
        self, switch: FakeSwitch, client: P4RuntimeClient
    ) -> None:
        switch.requests.get(timeout=DEADLINE)
        message = p4r.StreamMessageRequest(digest_ack=p4r.DigestListAck(digest_id=4, list_id=9))
        client.send(message.SerializeToString())
        assert switch.requests.get(timeout=DEADLINE) == message


class TestPackets:
    def test_packet_ins_arrive_in_order_with_their_metadata(
        self, switch: FakeSwitch, events: Drain[Any]
    ) -> None:
        sent = [b"packet %d" % number for number in range(500)]
        for payload in sent:
            switch.responses.put(whole_packet_in(payload))
        got: list[tuple[bytes, tuple[int, ...]]] = []
        while len(got) < len(sent):
            got.extend(events.until(named("packet_in"))[1])
        assert got == [(payload, (7, 0x1FE, 0)) for payload in sent]

    def test_packet_ins_that_do_not_fit_are_counted(
        self, switch: FakeSwitch, client: P4RuntimeClient, events: Drain[Any]
    ) -> None:
        switch.responses.put(packet_in(b"too few", (1, b"\x01")))
        switch.responses.put(packet_in(b"too wide", (1, b"\1"), (2, b"\x02\x00"), (3, b"\1")))
        switch.responses.put(packet_in(b"reordered", (3, b"\3"), (1, b"\1"), (2, b"\2")))
        assert events.until(named("packet_in"))[1] == [(b"reordered", (1, 2, 3))]
        stats = client.stats()
        assert (stats["packet_in"], stats["packet_in_malformed"]) == (1, 2)

    def test_a_full_queue_drops_and_counts(self, switch: FakeSwitch) -> None:
        with closing(P4RuntimeClient(switch.address, 1, (0, 1), packet_in_limit=10)) as client:
            client.set_packet_metadata(PACKET_IN, [])
            for number in range(30):
                switch.responses.put(whole_packet_in(b"%d" % number))
            wait_until(lambda: handled(client.stats()) == 30, DEADLINE)
            kept: list[Any] = []
            events: Drain[Any] = Drain(client, slice_size=2)
            while len(kept) < 10:
                kept.extend(events.until(named("packet_in"))[1])
            assert [payload for payload, _ in kept] == [b"%d" % n for n in range(10)]
            assert client.stats()["packet_in_dropped"] == 20

    def test_packet_outs_arrive_in_order_with_their_metadata(
        self, switch: FakeSwitch, client: P4RuntimeClient
    ) -> None:
        switch.requests.get(timeout=DEADLINE)
        batch = [(b"p%d" % number, (1, number, 2**128 - 1)) for number in range(300)]
        assert client.packet_out(batch) == 300
        for payload, (_, number, _) in batch:
            packet = switch.requests.get(timeout=DEADLINE).packet
            assert packet.payload == payload
            assert [field.metadata_id for field in packet.metadata] == [1, 2, 7]
            values = [int.from_bytes(field.value, "big") for field in packet.metadata]
            assert values == [1, number, 2**128 - 1]
        assert client.stats()["packet_out"] == 300

    @pytest.mark.parametrize(
        ("metadata", "problem"),
        [
            ((1, 2), "2 metadata values, expected 3"),
            ((256, 2, 3), "field 1 cannot hold 0x100: it has 8 bits"),
            ((-1, 2, 3), "-1 is negative"),
            ((1, 2, 2**128), "wider than 128 bits"),
        ],
    )
    def test_a_value_that_does_not_fit_refuses_the_whole_batch(
        self, client: P4RuntimeClient, metadata: tuple[int, ...], problem: str
    ) -> None:
        with pytest.raises(ValueError, match=problem):
            client.packet_out([(b"good", (1, 2, 3)), (b"bad", metadata)])
        assert client.stats()["packet_out"] == 0

    def test_packet_out_needs_the_metadata_layout(self, switch: FakeSwitch) -> None:
        with (
            closing(P4RuntimeClient(switch.address, 1, (0, 1))) as client,
            pytest.raises(ValueError, match="set_packet_metadata"),
        ):
            client.packet_out([(b"x", ())])

    @pytest.mark.parametrize(
        ("fields", "problem"),
        [([(1, 0)], "width 0"), ([(1, 129)], "width 129"), ([(1, 8), (1, 8)], "listed twice")],
    )
    def test_layouts_are_checked(
        self, client: P4RuntimeClient, fields: list[tuple[int, int]], problem: str
    ) -> None:
        with pytest.raises(ValueError, match=problem):
            client.set_packet_metadata(fields, [])

    def test_a_full_packet_out_queue_says_how_many_fitted(self) -> None:
        # The listener never answers. So the client can send nothing more once HTTP/2's initial
        # window (64 KiB) is full. Then its queue fills up.
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            with closing(P4RuntimeClient(address, 1, (0, 1), packet_out_limit=16)) as client:
                client.set_packet_metadata([], [])
                queued = client.packet_out([(bytes(10_000), ())] * 1000)
                assert 16 <= queued < 200
                stats = client.stats()
                assert (stats["packet_out"], stats["packet_out_dropped"]) == (queued, 1000 - queued)


class TestWrite:
    def test_a_write_is_passed_and_acknowledged(
        self, switch: FakeSwitch, client: P4RuntimeClient, events: Drain[Any]
    ) -> None:
        request = p4r.WriteRequest(device_id=1)
        request.updates.add(type=p4r.Update.INSERT).entity.table_entry.table_id = 7
        client.write(42, request.SerializeToString())
        assert events.until(named("write_done")) == ("write_done", 42, 0, "", [])
        assert switch.writes == [request]

    def test_errors_come_per_update_in_order(
        self, switch: FakeSwitch, client: P4RuntimeClient, events: Drain[Any]
    ) -> None:
        errors = [(0, ""), (6, "exists"), (0, ""), (5, "no such entry")]
        switch.write_errors = lambda _: errors
        client.write(1, p4r.WriteRequest().SerializeToString())
        assert events.until(named("write_done")) == (
            "write_done", 1, 2, "some updates failed", errors,
        )  # fmt: skip

    def test_errors_of_a_large_batch_fit_into_the_metadata(
        self, switch: FakeSwitch, client: P4RuntimeClient, events: Drain[Any]
    ) -> None:
        errors = [(6, f"entry {number} exists already " + "x" * 30) for number in range(20_000)]
        switch.write_errors = lambda _: errors
        client.write(1, p4r.WriteRequest().SerializeToString())
        done = events.until(named("write_done"))
        assert done[2] == 2
        assert done[4] == errors

    def test_writes_reach_the_switch_one_after_another(
        self, switch: FakeSwitch, client: P4RuntimeClient, events: Drain[Any]
    ) -> None:
        switch.write_gate.clear()
        for number in range(50):
            client.write(number, p4r.WriteRequest(device_id=number).SerializeToString())
        config = p4r.SetForwardingPipelineConfigRequest(device_id=1)
        client.set_pipeline(50, config.SerializeToString())
        client.read(99, p4r.ReadRequest().SerializeToString())
        assert events.until(named("read_done"))[1] == 99, "reads do not wait for writes"
        assert len(switch.writes) <= 1
        assert switch.pipelines == []
        switch.write_gate.set()
        done = [events.until(lambda event: event[0].endswith("_done"))[:2] for _ in range(51)]
        assert done == [("write_done", number) for number in range(50)] + [("pipeline_done", 50)]
        assert [write.device_id for write in switch.writes] == list(range(50))

    def test_a_large_message_passes(
        self, switch: FakeSwitch, client: P4RuntimeClient, events: Drain[Any]
    ) -> None:
        request = p4r.SetForwardingPipelineConfigRequest(device_id=1)
        request.config.p4_device_config = b"x" * (64 * 1024 * 1024)
        client.set_pipeline(1, request.SerializeToString())
        assert events.until(named("pipeline_done"))[:3] == ("pipeline_done", 1, 0)
        client.get_pipeline(2, p4r.GetForwardingPipelineConfigRequest().SerializeToString())
        done = events.until(named("pipeline_done", 2))
        response = p4r.GetForwardingPipelineConfigResponse.FromString(done[4])
        assert response.config == request.config

    def test_too_many_requests_are_refused_until_polled(self, switch: FakeSwitch) -> None:
        with closing(P4RuntimeClient(switch.address, 1, (0, 1), request_limit=2)) as client:
            client.write(1, b"")
            client.write(2, b"")
            with pytest.raises(BlockingIOError, match="too many requests"):
                client.write(3, b"")
            Drain(client).until(named("write_done", 2))
            client.write(3, b"")

    def test_a_switch_that_does_not_answer_runs_out_of_time(self, switch: FakeSwitch) -> None:
        switch.write_gate.clear()
        with closing(P4RuntimeClient(switch.address, 1, (0, 1), request_timeout=0.2)) as client:
            client.write(1, b"")
            events: Drain[Any] = Drain(client)
            done = events.until(named("write_done"))
        assert done[2] == 4
        assert "no answer within 0.2 s" in done[3]


class TestRead:
    def test_parts_come_in_order_before_the_end(
        self, switch: FakeSwitch, client: P4RuntimeClient, events: Drain[Any]
    ) -> None:
        def parts(_: p4r.ReadRequest) -> Iterator[p4r.ReadResponse]:
            for number in range(200):
                response = p4r.ReadResponse()
                response.entities.add().table_entry.priority = number
                yield response

        switch.read_parts = parts
        client.read(7, p4r.ReadRequest(device_id=1).SerializeToString())
        for number in range(200):
            event = events.until(named("read_part"))
            entity = p4r.ReadResponse.FromString(event[2].take()).entities[0]
            assert (event[1], entity.table_entry.priority) == (7, number)
        assert events.until(named("read_done")) == ("read_done", 7, 0, "")

    def test_a_read_waits_until_its_parts_are_taken(
        self, switch: FakeSwitch, client: P4RuntimeClient, events: Drain[Any]
    ) -> None:
        switch.read_parts = lambda _: iter([p4r.ReadResponse()] * PARTS)
        client.read(7, b"")
        held = [events.until(named("read_part", 7))[2] for _ in range(READ_PARTS)]
        # Another read of as many parts ends, and no further part of the first has arrived.
        client.read(8, b"")
        while (event := events.until(lambda _: True)) != ("read_done", 8, 0, ""):
            assert event[:2] == ("read_part", 8)
            event[2].take()
        for part in held:
            part.take()
        for _ in range(PARTS - READ_PARTS):
            events.until(named("read_part", 7))[2].take()
        assert events.until(named("read_done")) == ("read_done", 7, 0, "")
        with pytest.raises(ValueError, match="taken already"):
            held[0].take()

    def test_a_held_back_read_does_not_hold_back_packet_ins(
        self, switch: FakeSwitch, client: P4RuntimeClient
    ) -> None:
        part = p4r.ReadResponse()
        part.entities.add().table_entry.metadata = b"x" * 100_000
        produced = threading.Semaphore(0)

        def parts(_: p4r.ReadRequest) -> Iterator[p4r.ReadResponse]:
            for _number in range(1000):
                produced.release()
                yield part

        switch.read_parts = parts
        for token in range(8):
            client.read(token, b"")
        for _ in range(64):
            assert produced.acquire(timeout=DEADLINE)
        # The test has taken no part, so the reads block now or soon. A packet-in must still arrive.
        switch.responses.put(whole_packet_in(b"still here"))
        wait_until(lambda: client.stats()["packet_in"] == 1, DEADLINE)
        events: Drain[Any] = Drain(client, slice_size=16)
        events.until(named("packet_in"))
        reads = set(range(8))
        while reads:
            event = events.until(lambda _: True)
            if event[0] == "read_part":
                event[2].take()
            else:
                assert event[0] == "read_done"
                assert event[2] == 0
                reads.remove(event[1])


class TestEnd:
    def test_capabilities(self, client: P4RuntimeClient, events: Drain[Any]) -> None:
        client.capabilities(5)
        event = events.until(named("capabilities"))
        assert event[:3] == ("capabilities", 5, 0)
        version = p4r.CapabilitiesResponse.FromString(event[4]).p4runtime_api_version
        assert version == "1.5.0"

    def test_a_switch_that_does_not_tell_its_ports(
        self, client: P4RuntimeClient, events: Drain[Any]
    ) -> None:
        client.ports(6)
        assert events.until(named("ports"))[:3] == ("ports", 6, 12)

    def test_nobody_listens(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = f"127.0.0.1:{listener.getsockname()[1]}"
        client = P4RuntimeClient(address, 1, (0, 1))
        events: Drain[Any] = Drain(client)
        closed = events.until(named("closed"))
        assert closed[1] == 14
        assert (
            f"cannot connect to the P4Runtime server at {address}: Connection refused" in closed[2]
        )
        assert not readable(client.fileno())
        with pytest.raises(ConnectionError, match="make a new P4RuntimeClient"):
            client.write(4, b"")

    def test_a_stream_that_the_switch_ends_answers_what_is_pending(
        self, switch: FakeSwitch, client: P4RuntimeClient, events: Drain[Any]
    ) -> None:
        switch.write_gate.clear()
        client.write(1, b"")
        client.write(2, b"")
        switch.requests.get(timeout=DEADLINE)
        switch.responses.put(None)
        assert [events.until(named("write_done"))[1:3] for _ in range(2)] == [(1, 14), (2, 14)]
        assert events.until(named("closed"))[1:] == (0, "the switch ended the stream")

    def test_close_is_the_last_event(self, client: P4RuntimeClient, events: Drain[Any]) -> None:
        events.until(named("connected"))
        client.close()
        client.close()
        # The calls must fail at once, even while the session's thread has not processed `close`
        # yet.
        with pytest.raises(ConnectionError):
            client.packet_out([(b"x", (1, 2, 3))])
        with pytest.raises(ConnectionError):
            client.write(1, b"")
        assert events.until(named("closed")) == ("closed", 1, "closed by the controller")
        with pytest.raises(ConnectionError):
            client.packet_out([(b"x", (1, 2, 3))])

    def test_a_dropped_client_leaves_the_switch(self, switch: FakeSwitch) -> None:
        client = P4RuntimeClient(switch.address, 1, (0, 1))
        Drain(client).until(named("connected"))
        del client
        gc.collect()
        with closing(P4RuntimeClient(switch.address, 1, (0, 2))) as other:
            other.capabilities(1)
            Drain(other).until(named("capabilities"))

    @pytest.mark.parametrize(
        ("arguments", "problem"),
        [
            (("localhost", 1, (0, 1)), "host:port"),
            (("a b:1", 1, (0, 1)), "host:port"),
            (("", 1, (0, 1)), "host:port"),
            (("127.0.0.1:1", 0, (0, 1)), "device id 0"),
            (("127.0.0.1:1", 1, (0, 0)), "election id"),
        ],
    )
    def test_arguments_are_checked(self, arguments: Any, problem: str) -> None:
        with pytest.raises(ValueError, match=problem):
            P4RuntimeClient(*arguments)
