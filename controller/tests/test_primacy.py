# SPDX-License-Identifier: Apache-2.0
"""Tests how a controller becomes and stays the primary of a switch.

A controller waits in standby until it can be primary. It gives way only to a client that stays
primary, not to a client that is primary for a moment.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fake_client import FakeClient
from fake_switch import FakeSwitch, load_codec
from sluice import primacy
from sluice.connection_config import SwitchConfig, UnixAddress
from sluice.p4runtime.election import ElectionId, above, is_question
from sluice.p4runtime.session import NOT_FOUND, P4RuntimeError
from sluice.primacy import DisplacedError, Primacy

OTHER = (5, 7)
IS_PRIMARY, NOBODY = (False, 6, "", OTHER), (False, NOT_FOUND, "", OTHER)
Scenario = Callable[["Switch"], Awaitable[None]]


class Switch:
    """Simulates the switch. `arbitration` holds the switch's first answers to each new client."""

    def __init__(self) -> None:
        self.arbitration: list[Any] = [IS_PRIMARY]
        self.clients: list[FakeClient] = []
        self.asked: list[ElectionId] = []

    def connect(self, election_id: ElectionId) -> FakeClient:
        self.asked.append(election_id)
        told = None if self.arbitration == [] else self.arbitration
        switch = FakeSwitch(load_codec())
        self.clients.append(FakeClient(switch, arbitration=told, election_id=election_id))
        return self.clients[-1]

    def primacy(self, **options: Any) -> Primacy:
        config = SwitchConfig(UnixAddress(Path("/run/switch.sock")))
        return Primacy(config, self.connect, **options)

    def give_turn(self) -> None:
        """Simulates the end of the other controller. When the newest client then requests a higher
        id, it becomes primary.
        """
        client = self.clients[-1]
        client.arbitration(*NOBODY)

        def elected(election_id: ElectionId) -> None:
            client.arbitration(True, 0, "", election_id)

        client.arbitrate = elected  # type: ignore[method-assign]


@pytest.fixture
def run_scenario(monkeypatch: pytest.MonkeyPatch) -> Callable[[Scenario], None]:
    monkeypatch.setattr(primacy, "FIRST_RECONNECT", 0.001)

    def run(scenario: Scenario) -> None:
        async def scene() -> None:
            switch = Switch()
            await asyncio.wait_for(scenario(switch), 20)
            for client in switch.clients:
                os.close(client.fileno())

        asyncio.run(scene())

    return run


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.001)


def test_it_stands_by_until_it_has_its_turn(run_scenario: Callable[[Scenario], None]) -> None:
    async def scenario(switch: Switch) -> None:
        primacy = switch.primacy(patience=0.0)  # patience of a controller that was primary before
        turn = asyncio.create_task(primacy.wait_for_primacy())
        await until(lambda: primacy.is_standby)
        assert not turn.done()
        assert is_question(switch.asked[0])
        switch.give_turn()
        await turn
        assert not primacy.is_standby
        session = await primacy.acquire(lambda _: None)
        assert session.is_primary
        assert session.election_id[0] == OTHER[0] + 1
        assert len(switch.clients) == 1, "the session is kept"
        primacy.close()

    run_scenario(scenario)


def test_a_switch_that_is_not_there_is_asked_again(
    run_scenario: Callable[[Scenario], None],
) -> None:
    async def scenario(switch: Switch) -> None:
        primacy = switch.primacy()
        turn = asyncio.create_task(primacy.wait_for_primacy())
        await until(lambda: primacy.is_standby)
        switch.arbitration = []
        switch.clients[-1].hang_up(message="gone")
        await turn
        assert "gone" in (primacy.last_error or "")
        primacy.close()

    run_scenario(scenario)


def test_one_that_lost_its_turn_for_good_is_displaced(
    run_scenario: Callable[[Scenario], None],
) -> None:
    async def scenario(switch: Switch) -> None:
        primacy = switch.primacy(patience=0.01)
        with pytest.raises(DisplacedError, match=r"another controller is primary"):
            await primacy.acquire(lambda _: None)
        assert switch.clients[-1].closed
        assert primacy.session is None

    run_scenario(scenario)


def test_one_that_hears_nothing_waits(run_scenario: Callable[[Scenario], None]) -> None:
    """Checks that a controller goes on waiting while the switch does not answer its request.

    A missing answer does not mean that another client is primary.
    """

    async def scenario(switch: Switch) -> None:
        switch.arbitration = [NOBODY]  # and no answer to the request for a higher id
        primacy = switch.primacy(patience=0.001)
        turn = asyncio.create_task(primacy.acquire(lambda _: None))
        await until(lambda: switch.clients[-1:] and switch.clients[-1].elections)
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not turn.done()
        switch.clients[-1].hang_up()
        with pytest.raises(P4RuntimeError):
            await turn

    run_scenario(scenario)


def test_a_reload_takes_the_turn_of_its_own_session(
    run_scenario: Callable[[Scenario], None],
) -> None:
    async def scenario(switch: Switch) -> None:
        switch.arbitration = []
        old = switch.primacy()
        first = await old.acquire(lambda _: None)
        new = switch.primacy(first_id=above(first.election_id))
        second = await new.acquire(lambda _: None)
        assert second.election_id > first.election_id
        assert switch.asked[1] == second.election_id, "asked with at once, without a question"
        old.close()
        new.close()

    run_scenario(scenario)
