# SPDX-License-Identifier: Apache-2.0
"""Tests a session: arbitration, pipeline, and the status of each update."""

from __future__ import annotations

import asyncio

import pytest

from fake_client import FakeClient
from fake_switch import PIPELINE, FakeSwitch, load_codec
from sluice.entities import BLACKHOLE, EntityKind, RouteSlot
from sluice.model import Prefix
from sluice.p4.schema import load_pipeline
from sluice.p4runtime.client import Metadata
from sluice.p4runtime.election import LARGEST
from sluice.p4runtime.messages import UpdateType
from sluice.p4runtime.session import P4RuntimeError, Session

CODEC = load_codec()


def session_of(client: FakeClient) -> tuple[Session, list[tuple[bytes, Metadata]]]:
    packets: list[tuple[bytes, Metadata]] = []
    return Session(client, 1, (0, 1), None, packets.extend), packets


def route(text: str) -> bytes:
    return CODEC.update(
        UpdateType.INSERT, EntityKind.ROUTE, RouteSlot(0, Prefix.parse(text)), BLACKHOLE
    )


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_write_read_and_packets() -> None:
    async def scenario() -> None:
        client = FakeClient(FakeSwitch(CODEC))
        session, packets = session_of(client)
        await session.become_primary()
        assert session.packet_out([(b"x", ())]) == 0
        assert await session.write([route("10.0.0.0/8"), route("11.0.0.0/8")]) == []
        assert [status.code for status in await session.write([route("10.0.0.0/8")])] == [6]
        found = [
            CODEC.decode(entity)
            async for part in session.read(CODEC.read_requests())
            for entity in part
        ]
        assert len(found) == 2
        session.set_packet_metadata([], [])
        client.packet_out_room = 1
        assert session.packet_out([(b"x", ()), (b"y", ())]) == 1
        client.punt((b"frame", (1, 2)))
        await turns()
        assert packets == [(b"frame", (1, 2))]
        (asked,) = client.elections  # the client's first id (0, 1) was only a question
        assert asked[0] == 1
        assert (client.requests[0].election_id.high, client.requests[0].election_id.low) == asked

    asyncio.run(scenario())


def test_the_pipeline_is_given_only_when_it_is_another() -> None:
    async def scenario() -> None:
        client = FakeClient(FakeSwitch(CODEC))
        session, _ = session_of(client)
        pipeline = load_pipeline(PIPELINE)
        assert await session.ensure_pipeline(pipeline.p4info, pipeline.device_config)
        assert not await session.ensure_pipeline(pipeline.p4info, pipeline.device_config)
        assert await session.ensure_pipeline(pipeline.p4info, b"another")
        # A switch that was started with the pipeline reports no cookie.
        client.pushed[-1].config.ClearField("cookie")
        assert not await session.ensure_pipeline(pipeline.p4info, b"another")
        assert await session.ensure_pipeline(pipeline.p4info, pipeline.device_config)

    asyncio.run(scenario())


def test_going_above_an_election_id_that_nobody_holds() -> None:
    async def scenario() -> None:
        client = FakeClient(FakeSwitch(CODEC), arbitration=[(False, 5, "", (0, 77))])
        session, _ = session_of(client)
        waiting = asyncio.create_task(session.become_primary())
        await turns()
        (asked,) = client.elections
        assert asked[0] == 1
        client.arbitration(True, 0, "", (0, 1))  # answers the previous id
        await turns()
        assert not waiting.done()
        client.arbitration(True, 0, "", asked)
        await waiting
        await session.write([route("10.0.0.0/8")])
        assert client.requests[-1].election_id.low == asked[1]

    asyncio.run(scenario())


def test_nobody_can_guess_the_id_of_a_primary() -> None:
    async def primary() -> tuple[int, int]:
        client = FakeClient(FakeSwitch(CODEC))
        session, _ = session_of(client)
        await session.become_primary()
        return client.elections[-1]

    async def scenario() -> None:
        lows = [(await primary())[1] for _ in range(20)]
        assert len(set(lows)) == 20
        assert max(lows).bit_length() > 56

    asyncio.run(scenario())


def test_the_largest_id_of_a_controller_that_is_gone_ends_the_session_by_name() -> None:
    async def scenario() -> None:
        client = FakeClient(FakeSwitch(CODEC), arbitration=[(False, 5, "", LARGEST)])
        session, _ = session_of(client)
        with pytest.raises(P4RuntimeError, match=r"largest election id .*: restart the switch"):
            await session.become_primary()
        assert client.elections == []
        assert client.closed

    asyncio.run(scenario())


def test_waiting_behind_the_largest_id() -> None:
    async def scenario() -> None:
        client = FakeClient(FakeSwitch(CODEC), arbitration=[(False, 6, "", LARGEST)])
        session, _ = session_of(client)
        waiting = asyncio.create_task(session.become_primary())
        await turns()
        assert "primary with the largest election id; stop it" in session.arbitration
        client.arbitration(False, 5, "", LARGEST)
        with pytest.raises(P4RuntimeError, match="restart the switch"):
            await waiting

    asyncio.run(scenario())


def test_waiting_behind_another_primary() -> None:
    async def scenario() -> None:
        client = FakeClient(FakeSwitch(CODEC), arbitration=[(False, 6, "", (0, 9))])
        session, _ = session_of(client)
        waiting = asyncio.create_task(session.become_primary())
        await turns()
        assert not waiting.done()
        assert client.elections == []
        assert "another controller is primary (election id (0, 9))" in session.arbitration
        client.hang_up()
        with pytest.raises(P4RuntimeError, match="UNAVAILABLE: gone"):
            await waiting

    asyncio.run(scenario())


def test_what_is_asked_after_the_end_and_before_its_event() -> None:
    async def scenario() -> None:
        client = FakeClient(FakeSwitch(CODEC))
        session, _ = session_of(client)
        await session.become_primary()
        session.set_packet_metadata([], [])
        outcomes: list[object] = []
        client.hang_up()
        assert not session.closed.done()
        assert session.packet_out([(b"x", ())]) == 0
        session.post_write([route("10.0.0.0/8")], outcomes.append)
        with pytest.raises(P4RuntimeError, match="UNAVAILABLE"):
            await session.write([route("10.0.0.0/8")])
        assert [str(outcome) for outcome in outcomes] == [str(outcomes[0])]
        assert "the session ended" in str(outcomes[0])

    asyncio.run(scenario())


def test_losing_primacy_ends_the_session() -> None:
    async def scenario() -> None:
        client = FakeClient(FakeSwitch(CODEC))
        session, _ = session_of(client)
        await session.become_primary()
        client.arbitration(False, 6, "", (0, 9))
        error = await session.closed
        assert "another controller took over" in str(error)
        assert not session.is_primary
        with pytest.raises(P4RuntimeError):
            await session.write([route("10.0.0.0/8")])

    asyncio.run(scenario())


def test_the_end_answers_everybody() -> None:
    async def scenario() -> None:
        client = FakeClient(FakeSwitch(CODEC))
        session, _ = session_of(client)
        await session.become_primary()
        client.write_codes = []
        client.hang_up()
        with pytest.raises(P4RuntimeError):
            await session.write([route("10.0.0.0/8")])
        assert session.closed.done()

    asyncio.run(scenario())


def test_a_posted_write_hears_of_its_answer_and_of_the_end() -> None:
    async def scenario() -> None:
        client = FakeClient(FakeSwitch(CODEC))
        session, _ = session_of(client)
        await session.become_primary()
        heard: list[object] = []
        session.post_write([route("10.0.0.0/8")], heard.append)
        await turns()
        assert heard == [[]]
        client.write_codes = [3, 0]
        session.post_write([route("11.0.0.0/8")] * 2, heard.append)
        await turns()
        assert heard[1] == [(3, ""), (0, "")]
        client.hang_up()
        session.post_write([route("12.0.0.0/8")], heard.append)
        await session.closed
        await turns()
        assert isinstance(heard[2], P4RuntimeError)
        with pytest.raises(P4RuntimeError):
            session.post_write([route("12.0.0.0/8")], heard.append)

    asyncio.run(scenario())


def test_an_error_without_details_is_every_updates() -> None:
    async def scenario() -> None:
        client = FakeClient(FakeSwitch(CODEC))
        session, _ = session_of(client)
        client.write_codes = [3]
        statuses = await session.write([route("10.0.0.0/8"), route("11.0.0.0/8")])
        assert [status.code for status in statuses] == [2, 2]

    asyncio.run(scenario())
