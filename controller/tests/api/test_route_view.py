# SPDX-License-Identifier: Apache-2.0
"""Tests the view of a full routing table while the table changes. The view comes page by page, and
the event loop spends only a bounded time on each slice of it.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fake_switch import FakeSwitch
from sluice.api.client import RequestError, answer
from sluice.api.requests import Requests
from sluice.api.rows import SLICE, Rows
from sluice.api.server import ApiServer, BadRequestError
from sluice.api.views import Views
from sluice.config import load_config
from sluice.entities import UNREACHABLE, EntityChanges, EntityKind, RouteSlot
from sluice.model import Prefix
from sluice.stalls import LOOP, Stalls, measured_loop
from test_controller import CODEC, CONFIG, World

FULL = 900_000
BOUND = 0.020
"""Limit of processor time for one iteration of the loop, in seconds."""


def slot(n: int, vrf: int = 0) -> RouteSlot:
    return RouteSlot(vrf, Prefix(((1 << 24) + (n << 8)).to_bytes(4, "big"), 24))


def put(world: World, slots: list[RouteSlot]) -> None:
    """Adds routes directly, without events."""
    changes = EntityChanges()
    for one in slots:
        changes.set(EntityKind.ROUTE, one, UNREACHABLE)
        world.controller.fib.routes.set_onlink(one, UNREACHABLE)
    world.controller.reconciler.submit(changes)


def take(world: World, slots: list[RouteSlot]) -> None:
    changes = EntityChanges()
    for one in slots:
        changes.set(EntityKind.ROUTE, one, None)
        world.controller.fib.routes.set_onlink(one, None)
    world.controller.reconciler.submit(changes)


Scenario = Callable[[World], Awaitable[None]]


@pytest.fixture
def run_scenario(tmp_path: Path) -> Callable[..., None]:
    (tmp_path / "r1.yaml").write_text(CONFIG)
    config = load_config(tmp_path / "r1.yaml")

    def run(scenario: Scenario, stalls: Stalls | None = None) -> None:
        async def scene() -> None:
            world = World(config, FakeSwitch(CODEC), stalls=stalls)
            try:
                await scenario(world)
            finally:
                world.close()

        factory = None if stalls is None else lambda: measured_loop(stalls)
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(scene())

    return run


async def rows(world: World, **request: Any) -> Rows:
    found = await Views(world.controller).answer({"command": "show", "what": "routes"} | request)
    assert isinstance(found, Rows)
    return found


async def prefixes(world: World, **request: Any) -> list[str]:
    return [row["prefix"] for row in await (await rows(world, **request)).whole()]


def test_a_full_table_stalls_nobody(run_scenario: Callable[..., None], tmp_path: Path) -> None:
    """Checks that the view of a full table never stalls the event loop for long. The stall is
    measured in processor time of the thread.
    """
    stalls = Stalls(time.thread_time)
    path = tmp_path / "r1.sock"

    async def scenario(world: World) -> None:
        put(world, [slot(n) for n in range(FULL)])
        gc.collect()
        gc.freeze()  # like the daemon with a full table (sluice.garbage_collection)
        controller = world.controller
        api = ApiServer(path, Requests(controller).answer, turn=controller.views.next)
        task = asyncio.create_task(controller.scheduler.run())
        async with api:
            # Ends the event loop's current iteration, so that the set-up is not measured.
            await asyncio.sleep(0)
            await asyncio.sleep(0.001)
            stalls.forget()
            reader, writer = await asyncio.open_unix_connection(path, limit=1 << 20)
            writer.write(b'{"command": "show", "what": "routes"}\n')
            size = 0
            while size < 10_000_000:  # only part of the answer is read; the rest takes no longer
                size += len(await reader.read(1 << 20))
            writer.close()
            for request in (
                {"what": "routes", "limit": 1000, "after": str(slot(FULL // 2).prefix)},
                {"what": "routes", "prefix": str(slot(FULL - 1).prefix)},
                {"what": "metrics"},
                {"what": "status"},
            ):
                await asyncio.to_thread(answer, path, {"command": "show"} | request)
            longest = stalls.longest()
        task.cancel()
        assert 0 < longest[LOOP].ever < BOUND, longest

    try:
        run_scenario(scenario, stalls)
    finally:
        gc.unfreeze()


def test_no_slice_is_longer_than_the_bound(run_scenario: Callable[..., None]) -> None:
    async def scenario(world: World) -> None:
        put(world, [slot(n) for n in range(10_000)])
        sizes = [len(part) async for part in (await rows(world)).slices]
        assert max(sizes) <= SLICE
        assert sum(sizes) == 10_000

    run_scenario(scenario)


def test_what_changes_between_two_slices_does_no_harm(run_scenario: Callable[..., None]) -> None:
    async def scenario(world: World) -> None:
        put(world, [slot(n) for n in range(0, 20_000, 2)])
        met: list[str] = []
        async for part in (await rows(world)).slices:
            met += [row["prefix"] for row in part]
            at = len(met)
            take(world, [slot(n) for n in range(at // 2, at + 4000, 200)])
            put(world, [slot(n) for n in range(1 + at // 2 * 2, 1 + at * 2 + 4000, 400)])
        assert len(set(met)) == len(met)
        assert met == sorted(met, key=Prefix.parse)
        stays = {str(one.prefix) for block in world.controller.fib.order.walk() for one in block}
        evens = {str(slot(n).prefix) for n in range(0, 20_000, 2)}
        # The test removes and adds odd routes, but never adds an even route again. So the even
        # routes that are still in the table were in it all the time, and the view must contain
        # them.
        assert (evens & stays) <= set(met)

    run_scenario(scenario)


def test_pages_are_the_whole(run_scenario: Callable[..., None]) -> None:
    async def scenario(world: World) -> None:
        put(world, [slot(n) for n in range(1000)] + [slot(n, 7) for n in range(500)])
        whole = [(row["vrf"], row["prefix"]) for row in await (await rows(world)).whole()]
        paged: list[tuple[int, str]] = []
        request: dict[str, Any] = {"limit": 250}
        for _ in range(6):
            page = await rows(world, **request)
            found = await page.whole()
            assert len(found) == 250
            paged += [(row["vrf"], row["prefix"]) for row in found]
            request |= page.more.get("next", {"ended": True})
        assert "ended" in request  # no empty page at the end
        assert paged == whole
        assert whole[-1][0] == 7
        # The next page begins after the last prefix of this page. This must also work if that
        # prefix was removed.
        take(world, [slot(249)])
        assert (await prefixes(world, after=str(slot(249).prefix), limit=1)) == [
            str(slot(250).prefix)
        ]

    run_scenario(scenario)


def test_filters(run_scenario: Callable[..., None]) -> None:
    async def scenario(world: World) -> None:
        put(world, [slot(n) for n in range(10)])
        assert await prefixes(world, prefix="1.0.3.0/24") == ["1.0.3.0/24"]
        assert await prefixes(world, prefix="1.0.3.0/25") == []
        assert await prefixes(world, prefix="1.0.3.0/24", after="1.0.2.0/24") == ["1.0.3.0/24"]
        assert await prefixes(world, prefix="1.0.3.0/24", after="1.0.3.0/24") == []
        assert await prefixes(world, after="::/0") == []
        assert len(await prefixes(world, limit=3)) == 3
        for bad in ({"limit": -1}, {"after": "1.0.0.1/24"}, {"after_vrf": "x"}, {"prefix": "x"}):
            with pytest.raises(BadRequestError, match=r"whole number|after its length|not an IPv4"):
                await rows(world, **bad)

    run_scenario(scenario)


def test_a_client_of_pages(run_scenario: Callable[..., None], tmp_path: Path) -> None:
    path = tmp_path / "r1.sock"

    async def scenario(world: World) -> None:
        put(world, [slot(n) for n in range(3)])
        async with ApiServer(path, Requests(world.controller).answer):
            asked = {"command": "show", "what": "routes", "limit": 2}
            page = await asyncio.to_thread(answer, path, asked)
            assert page["next"] == {"after": "1.0.1.0/24", "after_vrf": 0}
            rest = await asyncio.to_thread(answer, path, asked | page["next"])
            assert [row["prefix"] for row in rest["data"]] == ["1.0.2.0/24"]
            assert "next" not in rest
            with pytest.raises(RequestError, match="limit must be a whole number"):
                await asyncio.to_thread(answer, path, asked | {"limit": "all"})

    run_scenario(scenario)
