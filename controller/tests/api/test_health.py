# SPDX-License-Identifier: Apache-2.0
"""Tests that the status lists each problem of the router for as long as the problem lasts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fake_switch import FakeSwitch, load_codec
from policy_world import CONFIG
from scenes import address, connected, link, no_address, route
from sluice.api.views import Views
from sluice.config import load_config
from sluice.model import FpmSessionClosed, FpmSessionOpened, NexthopKind, NexthopSpec, Prefix
from sluice.p4runtime.session import RESOURCE_EXHAUSTED
from test_controller import World

CODEC = load_codec()
NETWORK = Prefix.parse("10.0.2.0/24")
NO_SWITCH, NO_DAEMON = "the switch at", "no routing daemon is connected to 127.0.0.1:2620 (FPM)"


@pytest.fixture
def world(tmp_path: Path) -> Callable[[], World]:
    path = tmp_path / "r1.yaml"
    path.write_text(CONFIG.format(state=tmp_path, target="sluice-switch", size=64, idle=60))
    return lambda: World(load_config(path), FakeSwitch(CODEC))


async def view(world: World, what: str) -> Any:
    return await Views(world.controller).answer({"command": "show", "what": what})


async def problems(world: World) -> list[str]:
    found: list[str] = (await view(world, "status"))["problems"]
    return found


def metric(text: str, name: str) -> Iterator[float]:
    for line in text.splitlines():
        if line.startswith(f"{name}{{"):
            yield float(line.rpartition(" ")[2])


def test_what_is_wrong_is_named_while_it_is_so(world: Callable[[], World]) -> None:
    async def scenario() -> None:
        router = world()
        before = await problems(router)
        assert before[0].startswith(NO_SWITCH)
        assert any("SPDs are not active" in text for text in before)
        assert NO_DAEMON in before

        running = asyncio.create_task(router.controller.run())
        router.links()
        router.routes.put(FpmSessionOpened("zebra"))
        await asyncio.wait_for(router.ready.wait(), 5)
        await router.until(lambda: router.controller.fib.sessions)
        assert await problems(router) == []
        text = await view(router, "metrics")
        assert list(metric(text, "sluice_problems")) == [0]
        assert list(metric(text, "sluice_fpm_connected")) == [1]
        assert list(metric(text, "sluice_interface_up")) == [1, 1, 1]
        assert next(metric(text, "sluice_uptime_seconds")) >= 0

        router.routes.problem = "zebra runs with -n"
        assert await problems(router) == ["zebra runs with -n"]
        router.routes.problem = None

        router.kernel.put(link(2, up=False))
        router.routes.put(FpmSessionClosed("gone"))
        await router.until(lambda: not router.controller.fib.sessions)
        await router.until(lambda: not router.kernel.waiting)
        assert await problems(router) == ["interface eth2 is down", NO_DAEMON]
        text = await view(router, "metrics")
        assert list(metric(text, "sluice_problems")) == [2]
        assert list(metric(text, "sluice_fpm_connected")) == [0]
        assert list(metric(text, "sluice_interface_up")) == [1, 0, 1]

        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        router.close()

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_an_interface_without_its_address_or_its_network(tmp_path: Path) -> None:
    path = tmp_path / "r1.yaml"
    text = CONFIG.format(state=tmp_path, target="sluice-switch", size=64, idle=60)
    path.write_text(text.replace("spd: corp}", "spd: corp, addresses: [10.0.1.1/24]}", 1))

    async def scenario() -> None:
        router = World(load_config(path), FakeSwitch(CODEC))
        running = asyncio.create_task(router.controller.run())
        router.links()
        router.routes.put(FpmSessionOpened("zebra"))
        await asyncio.wait_for(router.ready.wait(), 5)
        await router.until(lambda: router.controller.fib.sessions)
        assert await problems(router) == []

        interface = router.controller.fib.interfaces.by_l3_if[1]
        router.kernel.put(no_address(1, "10.0.1.1/24"))
        await router.until(lambda: not interface.addresses)
        (found,) = await problems(router)
        assert found.startswith("interface eth1 lacks its address 10.0.1.1/24: another program")
        router.kernel.put(address(1, "10.0.1.1/24"))
        await router.until(lambda: interface.addresses)
        assert await problems(router) == []

        # zebra still has a connected route of a link that was removed.
        router.routes.put(route("10.0.2.0/24", NexthopSpec(None, 99, kind=NexthopKind.CONNECTED)))
        await router.until(lambda: router.controller.fib.has_no_path(0, NETWORK))
        (found,) = await problems(router)
        assert found.startswith("interface eth2: the routing daemon's route for its network 10.0.2")
        router.routes.put(route("10.0.2.0/24", connected(2)))
        await router.until(lambda: not router.controller.fib.has_no_path(0, NETWORK))
        assert await problems(router) == []
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        router.close()

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_refused_updates_and_an_audit_that_stopped(world: Callable[[], World]) -> None:
    async def scenario() -> None:
        router = world()
        running = asyncio.create_task(router.controller.run())
        router.links()
        router.routes.put(FpmSessionOpened("zebra"))
        await asyncio.wait_for(router.ready.wait(), 5)
        await router.until(lambda: router.controller.fib.sessions)
        failures = router.controller.reconciler.failures
        kinds = router.controller.reconciler.installed.by_kind
        keys = [(kind, key) for kind, held in kinds.items() for key in held][:5]
        for kind, key in keys:
            failures.record(kind, key, RESOURCE_EXHAUSTED, "table full")
        report = next(iter(router.controller.auditor.reports.values()))
        report.problem = "UNAVAILABLE"
        found = await problems(router)
        assert len([text for text in found if "RESOURCE_EXHAUSTED: table full" in text]) == 3
        assert "the switch refused 2 more updates" in found
        assert any(text.endswith("stopped: UNAVAILABLE") for text in found)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        router.close()

    asyncio.run(asyncio.wait_for(scenario(), 20))
