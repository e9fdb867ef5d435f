# SPDX-License-Identifier: Apache-2.0
"""Tests that configured ports that the switch does not have are reported.

If an engine's port is missing, the switch must drop packets for this engine with the reason
NO_ENGINE.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from fake_switch import FakeSwitch, load_codec
from policy_world import CONFIG
from sluice.api.views import Views
from sluice.config import load_config
from sluice.entities import ENGINE_DOWN, EnginePort, EntityKind
from test_controller import World

CODEC = load_codec()
ALL = {1: True, 2: True, 3: True, 9: True}


@pytest.fixture
def world(tmp_path: Path) -> Callable[[], World]:
    """Returns a function that creates a router with three interfaces, and an engine on port 9."""
    path = tmp_path / "r1.yaml"
    path.write_text(CONFIG.format(state=tmp_path, target="sluice-switch", size=64, idle=60))
    return lambda: World(load_config(path), FakeSwitch(CODEC))


async def engine(world: World) -> object:
    """Waits until all writes are done, and returns the switch's entry of engine 1."""
    await world.synced()
    return world.switch.of(EntityKind.ENGINE)[1]


async def problems(world: World) -> str:
    status = await Views(world.controller).answer({"command": "show", "what": "status"})
    return "\n".join(status["problems"])


def test_ports_that_go_and_come(
    world: Callable[[], World],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("sluice.port_watch.INTERVAL", 0.001)
    caplog.set_level("INFO", "sluice.port_watch")

    async def scenario() -> None:
        router = world()
        watch = router.controller.port_watch
        running = asyncio.create_task(router.controller.run())
        await router.until(lambda: router.clients)
        router.client.links = dict(ALL)
        router.links()
        await router.until(lambda: watch.ports is not None)
        assert await engine(router) == EnginePort(9)
        assert "port" not in await problems(router)
        assert [watch.state_of(port) for port in (1, 9, 4)] == ["up", "up", "absent"]

        router.client.links = {1: True, 2: False, 9: False}
        await router.until(lambda: watch.state_of(9) == "down")
        assert await engine(router) == ENGINE_DOWN
        assert "engine 1: the link of the switch's port 9 is down" in await problems(router)
        assert "interface eth3: the switch has no port 3" in await problems(router)
        # `show interfaces` shows that a link is down, so it is not a problem of the status.
        assert "eth2" not in await problems(router)

        router.client.links = {1: True, 2: True, 3: True}
        await router.until(lambda: watch.state_of(9) == "absent")
        assert await engine(router) == ENGINE_DOWN
        assert "engine 1: the switch has no port 9" in await problems(router)
        assert "solved: interface eth3: the switch has no port 3" in caplog.text

        router.client.links = dict(ALL)
        await router.until(lambda: watch.state_of(9) == "up")
        assert await engine(router) == EnginePort(9)
        assert "port" not in await problems(router)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        router.close()

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_a_switch_that_does_not_answer_is_named(
    world: Callable[[], World],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("sluice.port_watch.INTERVAL", 0.001)
    monkeypatch.setattr("sluice.port_watch.PATIENCE", 0.5)
    caplog.set_level("INFO", "sluice.port_watch")

    async def scenario() -> None:
        router = world()
        watch = router.controller.port_watch
        running = asyncio.create_task(router.controller.run())
        await router.until(lambda: router.clients)
        router.client.links = dict(ALL)
        router.links()
        await router.until(lambda: watch.ports is not None)
        router.client.answers_ports = False
        await router.until(lambda: watch.problems)
        assert "has not answered for 0.5 s: it hangs" in await problems(router)
        router.client.answers_ports = True
        await router.until(lambda: not watch.problems)
        assert caplog.text.count("has not answered") == 2
        assert "solved: the switch at" in caplog.text
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        router.close()

    asyncio.run(asyncio.wait_for(scenario(), 20))


@pytest.mark.parametrize("cpu_port", [None, 64])
def test_another_cpu_port(world: Callable[[], World], cpu_port: int | None) -> None:
    async def scenario() -> None:
        router = world()
        running = asyncio.create_task(router.controller.run())
        await router.until(lambda: router.clients)
        router.client.links, router.client.cpu_port = dict(ALL), cpu_port
        router.links()
        await router.until(lambda: router.controller.port_watch.ports is not None)
        found = await problems(router)
        assert f"CPU port is {cpu_port or 'none'}, not 510" in found
        assert "--cpu-port 510" in found
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        router.close()

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_a_target_that_does_not_tell_has_all_ports(
    world: Callable[[], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice.port_watch.INTERVAL", 0.001)

    async def scenario() -> None:
        router = world()
        running = asyncio.create_task(router.controller.run())
        router.links()
        await asyncio.wait_for(router.ready.wait(), 5)
        asked = router.client.port_questions
        await router.until(lambda: router.client.port_questions > asked + 2)
        assert await engine(router) == EnginePort(9)
        assert "port" not in await problems(router)
        assert router.controller.port_watch.state_of(1) is None
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        router.close()

    asyncio.run(asyncio.wait_for(scenario(), 20))
